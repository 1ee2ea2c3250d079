"""Programs for jobs that leave processes behind, and finding those by a word in their arguments.

The agent does not look at arguments, so tests find processes that it may have missed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Begins a program: ``hide(word)`` forks twice, leaves the session, clears the environment and all
#: that it inherited; ``seen(word)`` counts the processes that have done so. No word stands in
#: braces, which a scheduler would fill in.
HIDE: Final = """
import os, subprocess, sys, time
def hide(word):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(3): os.close(number)
            sleep = "import time; time.sleep(300)"
            os.execve(sys.executable, [sys.executable, "-c", sleep, word], {})
        os._exit(0)
    os.wait()
    os.close(writing)
    os.read(reading, 1)  # until it has become another program, which closes its end
    os.close(reading)
def seen(word):
    found = 0
    for name in os.listdir("/proc"):
        try:
            told = open("/proc/" + name + "/cmdline").read() if name.isdecimal() else ""
            found += int(name) != os.getpid() and word in told.split(chr(0)) if told else 0
        except OSError:
            pass
    return found
"""


def pids_with(word: str) -> list[int]:
    """Return the living processes that have a word as an argument."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                found += [int(entry.name)] if word.encode() in arguments else []
    return found


def unique_word() -> Iterator[str]:
    """Yield a word of one test alone; processes that still have it after that are killed."""
    word = f"hidden-{uuid.uuid4().hex}"
    yield word
    for pid in pids_with(word):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
