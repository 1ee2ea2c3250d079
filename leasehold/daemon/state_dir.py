"""The daemon's folder: private, and used by one daemon at a time."""

from __future__ import annotations

import fcntl
import os
import socket
from typing import IO, TYPE_CHECKING

from agent.folders import place_of, private_folder
from scheduler.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_LOCK_FILE = "leasehold.lock"
_ADMIN_FILE = "admin.token"


class StateDir:
    """An open state folder; after ``close`` another daemon may use it.

    Raises:
        InputError: it cannot be created or written to, or another daemon uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._lock = self._open()

    @property
    def holder(self) -> str:
        """This daemon's name as a leader: a restart on the same folder leads again at once.

        A copy of the folder on a machine of the same name waits like any other standby.
        """
        return f"{socket.gethostname()}:{self.path} {place_of(self.path / _LOCK_FILE)}"

    @property
    def admin_token_file(self) -> Path:
        """The file of the first token."""
        return self.path / _ADMIN_FILE

    def note_address(self, url: str) -> None:
        """Write down where this daemon listens; the command line of this user looks there."""
        self._lock.write(f"{url}\n")
        self._lock.flush()

    def close(self) -> None:
        """Release the folder."""
        self._lock.truncate(0)
        self._lock.close()

    def _open(self) -> IO[str]:
        try:
            private_folder(self.path, marker=_LOCK_FILE)
            lock = (self.path / _LOCK_FILE).open("a+", encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"state folder {self.path} cannot be used: {error.strerror}; "
                "name another one with --state-dir"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = ", ".join(lock.read().split()) or "unknown"
            lock.close()
            raise InputError(
                f"state folder {self.path} is in use by another scheduler (process {holder}); "
                "stop it, or name another folder with --state-dir"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock
