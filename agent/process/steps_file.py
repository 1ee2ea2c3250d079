"""The file in which a job may leave its number of steps: ``progress_file``.

The content is the job's, and reading may hang, as network file systems do. So only a regular file
is read, in one thread of its own; callers get the last result.
"""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Final

from agent.logs.job_output import NotRegularError
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.process.acting import Reach

#: The part of the file that is read.
FILE_BYTES: Final = 4096
#: Least time between two reads.
EVERY_S: Final = 1.0


class StepsFile:
    """Reads one lease's file.

    Args:
        file: the path to it.
        on_settled: called, in the thread, when the last read is over.

    Attributes:
        number: the last whole number that was found; None before.
        problem: why it cannot be read; empty if it can, or does not exist yet.
        settled: the read after the job's end is over.
    """

    def __init__(self, file: Reach, *, on_settled: Callable[[], None]) -> None:
        self._file, self._on_settled = file, on_settled
        self.number: int | None = None
        self.problem, self.settled = "", False
        self._thread: threading.Thread | None = None
        self._looked_s = -EVERY_S
        self._ended = False

    def look(self) -> None:
        """Read the file again, unless a read is running or ended just now."""
        if time.monotonic() - self._looked_s >= EVERY_S:
            self._begin()

    def look_last(self) -> None:
        """Read the file once more, now that the job writes no more; see ``settled``."""
        self._ended = True
        if not self.settled:
            self._begin()

    def _begin(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._looked_s = time.monotonic()
        # A daemon: one that hangs must not keep the agent from ending.
        self._thread = threading.Thread(target=self._read, args=(self._ended,), daemon=True)
        self._thread.start()

    def _read(self, ended: bool) -> None:
        try:
            self.number, self.problem = last_number(self._file), ""
        except NotRegularError as error:
            self.problem = f"progress_file: {error}; nothing is read from it"
        except OSError as error:
            self.problem = f"progress_file cannot be read: {why_unreadable(error)}"
        if ended:
            self.settled = True
            self._on_settled()


def last_number(file: Reach) -> int | None:
    """Return the last whole number in the first 4 KB of a file; None if there is none.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        numbers = re.findall(rb"\d+", file.read(FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None  # the job has not created it
    return int(numbers[-1]) if numbers else None
