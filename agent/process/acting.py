"""Reading files in a job's own folders with the job's rights, not with root's.

A job may put a link to any file there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.logs.job_output import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
    """Let this thread, and no other, use files as a user and its group; None: unchanged.

    Raises:
        PermissionError: this process may not.
    """
    if uid is None:
        yield
        return
    try:
        _libc.setfsgid(uid)
        _libc.setfsuid(uid)
        # Neither call reports success; called with -1, each returns the current user or group.
        if (_libc.setfsuid(-1), _libc.setfsgid(-1)) != (uid, uid):
            raise PermissionError(f"this process may not use files as uid {uid}")
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A path by which a job, and the agent with the job's rights, reaches a file.

    Attributes:
        uid: of the job; None: the agent's own.
        base: a folder that the agent has made for the job and that others cannot enter, or None.
        name: of the file, from there on.
    """

    uid: int | None
    base: Path | None
    name: Path

    def read(self, most_bytes: int) -> bytes:
        """Return the first bytes of a regular file; see ``read_regular``.

        Raises:
            NotRegularError: it is not a regular file.
            OSError: it cannot be opened, or not by the job.
        """
        if self.base is None:
            with acting_as(self.uid):
                return read_regular(self.name, most_bytes)
        folder = os.open(self.base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with acting_as(self.uid):
                return read_regular(Path(f"/proc/self/fd/{folder}", self.name), most_bytes)
        finally:
            os.close(folder)
