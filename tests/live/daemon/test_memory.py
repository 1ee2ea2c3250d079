import ctypes
import subprocess
import sys

import pytest

from leasehold.daemon.process.memory import share_arenas

#: Many threads hold memory at once; counts the arenas that glibc has made for them.
PROGRAM = """
import ctypes, sys, threading
from leasehold.daemon.process.memory import share_arenas
if sys.argv[1] == "shared":
    assert share_arenas()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
gate = threading.Barrier(13)
def hold():
    malloc(1000)
    gate.wait()
    gate.wait()
threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads:
    thread.start()
gate.wait()
ctypes.CDLL(None).malloc_stats()
gate.wait()
"""


def arenas(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return done.stderr.count("Arena ")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="no glibc")
def test_threads_share_arenas_where_the_c_library_is_glibc():
    assert arenas("shared") <= 2 < arenas("own")


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert not share_arenas()
