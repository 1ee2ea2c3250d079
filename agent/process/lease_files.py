"""The folder of a lease: the files that agent, supervisor and job exchange.

| file | written by | holds |
|---|---|---|
| ``lease.json`` | agent | the lease, its secret, when it was started |
| ``launch.json`` | agent | what the supervisor needs to start the processes |
| ``control.json`` | agent | deadline and orders; renewed |
| ``notice.json`` | agent | there while the job has a notice to leave |
| ``running.json`` | supervisor | its pid, the process groups and when they started |
| ``output.json`` | matcher | steps found in the output; see ``agent.logs.matcher`` |
| ``progress.json`` | job (SDK) | steps, for the time without an agent |
| ``exit.json`` | supervisor | how it ended |
| ``lock`` | supervisor | locked while it lives |

The folder is closed to other users: it holds the job's environment. If the job runs as another
user, its files lie in folders below; see ``agent.process.cells.confinement``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.disk import is_full
from agent.logs.job_output import read_regular, write_json
from agent.process.acting import Reach

if TYPE_CHECKING:
    from collections.abc import Callable

#: ``lease.json`` and ``launch.json`` hold a command and an environment; no other file is longer
#: than the second figure. A job can write here. A longer file is not decoded, since that takes
#: seconds of the agent's loop and many times the memory.
FILE_BYTES = 2**26
SMALL_BYTES = 65536
_LARGE = frozenset({"lease.json", "launch.json"})


@dataclass(frozen=True, slots=True)
class LeaseFolder:
    """One lease's folder."""

    path: Path

    def told(self) -> LeaseFolder:
        """Return the folder that the job reads its notice from."""
        return self._below("told")

    def own(self) -> LeaseFolder:
        """Return the folder that the job writes to."""
        return self._below("own")

    def _below(self, name: str) -> LeaseFolder:
        return LeaseFolder(self.path / name) if (self.path / name).is_dir() else self

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a file's object; None if it is not there or not (yet) whole."""
        most = FILE_BYTES if name in _LARGE else SMALL_BYTES
        return _object(lambda: read_regular(self.path / name, most + 1), most)

    def read_own(self, uid: int | None) -> dict[str, Any] | None:
        """Return the job's ``progress.json``; None if it is not there or not (yet) whole.

        Args:
            uid: read it with the rights of this user; None: the agent's.
        """
        reach = Reach(uid=uid, base=self.own().path, name=Path("progress.json"))
        return _object(lambda: reach.read(SMALL_BYTES + 1), SMALL_BYTES)

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replace a file in one step."""
        write_json(self.path / name, value)

    def write_over(self, name: str, value: dict[str, Any]) -> None:
        """Replace a file; on a full disk overwrite it, which takes no room.

        A reader that finds half of it must keep the previous contents.
        """
        try:
            self.write(name, value)
        except OSError as error:
            if not is_full(error):
                raise
            data = json.dumps(value).encode()
            with (self.path / name).open("r+b", buffering=0) as file:
                file.write(data.ljust(os.fstat(file.fileno()).st_size))

    def open_lock(self, *, make: bool = True) -> int | None:
        """Take the lock and return its descriptor; None while a supervisor lives.

        Args:
            make: create a missing file.

        Raises:
            OSError: it cannot be opened.
        """
        flags = os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(
                self.path / "lock", flags | os.O_RDWR | (os.O_CREAT if make else 0), 0o600
            )
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            descriptor = os.open(self.path / "lock", flags | os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def supervised(self) -> bool:
        """Return whether the supervisor lives."""
        try:
            descriptor = self.open_lock(make=False)
        except FileNotFoundError:  # nothing was started
            return False
        if descriptor is None:
            return True
        os.close(descriptor)
        return False


def _object(read: Callable[[], bytes], most_bytes: int) -> dict[str, Any] | None:
    try:
        data = read()
        value = json.loads(data) if len(data) <= most_bytes else None
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
