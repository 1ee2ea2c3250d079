"""Whether the agent can write where it keeps its state and the output of jobs.

A full disk ends no lease by itself: orders for running leases are written over the old ones, which
takes no room. What is new cannot be begun, though, and what jobs print is lost; so the node's idle
workers are out of service until there is room again.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

#: What an attempt writes; and what has to fit once the disk was full, so that the first lease that
#: is begun does not fill it again at once.
PROBE_BYTES: Final = 1 << 16
AGAIN_BYTES: Final = 1 << 20
#: The word by which the scheduler knows that a lease ended while the disk took nothing.
DISK_FULL: Final = "DiskFull"

_REMEDIES: Final = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota of the agent's user",
    errno.EROFS: "mount it so that it can be written",
}


def is_full(error: BaseException) -> bool:
    """Tell whether an error means that the disk takes nothing any more."""
    return isinstance(error, OSError) and error.errno in _REMEDIES


def disk_problem(folder: Path, *, size: int = PROBE_BYTES, flush: bool = False) -> str:
    """Try to write; return what is wrong, empty where nothing is.

    Args:
        folder: where the agent keeps its state.
        size: bytes that have to fit.
        flush: wait until they are on the disk: some file systems say no only then. May take long.
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
