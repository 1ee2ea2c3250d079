"""Disk check: whether the agent can write its state and the output of jobs.

A full disk ends no lease by itself: orders for running leases overwrite the old ones, which takes
no room. But new leases cannot start, and output of jobs is lost. So the node's idle workers are out
of service until there is room again.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

#: Bytes that a check writes; and bytes that must fit after the disk was full, so that the first new
#: lease does not fill it again at once.
PROBE_BYTES: Final = 1 << 16
AGAIN_BYTES: Final = 1 << 20
#: The reason code of a lease that ended while the disk was full.
DISK_FULL: Final = "DiskFull"

_REMEDIES: Final = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota of the agent's user",
    errno.EROFS: "mount it so that it can be written",
}


def is_full(error: BaseException) -> bool:
    """Return whether an error means that the disk is full."""
    return isinstance(error, OSError) and error.errno in _REMEDIES


def disk_problem(folder: Path, *, size: int = PROBE_BYTES, flush: bool = False) -> str:
    """Try to write; return the problem, empty if the write succeeds.

    Args:
        folder: the agent's state folder.
        size: bytes that must fit.
        flush: wait until they are on the disk: some file systems fail only then. May take long.
    """
    probe = folder / ".probe"
    try:
        try:
            _write(probe, size, flush=flush)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        if is_full(error):
            remedy = _REMEDIES[error.errno or 0]
            return f"the agent cannot write in {folder}: {error.strerror}; {remedy}"
    return ""


def _write(path: Path, size: int, *, flush: bool) -> None:
    with path.open("wb", buffering=0) as file:
        written = 0
        while written < size:
            written += file.write(b"\0" * (size - written))
        if flush:
            os.fsync(file.fileno())
