"""Ports of loopback for programs that a test starts: chosen now, bound by the program later."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

#: Below the ports that systems give to connections and to servers that ask for any.
_FIRST, _LAST = 20_000, 29_999
#: Files that are locked until this process ends, one for each port that was given out.
_LOCKS: list[int] = []


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and that no other test gets until this process ends.

    Args:
        count: how many.

    Raises:
        RuntimeError: there are not so many.
    """
    folder = Path(tempfile.gettempdir()) / f"leasehold-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    found: list[int] = []
    ports = range(_FIRST, _LAST + 1)
    first = os.getpid() * 97 % len(ports)  # one that was just given back may still be closing
    for port in (*ports[first:], *ports[:first]):
        lock = os.open(folder / str(port), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
        if _locked(lock) and not _listened_on(port):
            _LOCKS.append(lock)
            found.append(port)
            if len(found) == count:
                return found
        else:
            os.close(lock)
    raise RuntimeError(f"there are no {count} free ports from {_FIRST} to {_LAST}")


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listened_on(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
