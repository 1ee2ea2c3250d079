"""A watchdog for the event loop: logs the code that blocks it while it does."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: A stall of this length is logged again, and then at each doubling.
AGAIN_S: Final = 2.0
#: How many of the innermost functions are logged; the debug log has the whole stack.
FRAMES: Final = 5

_log = logging.getLogger("leasehold.watchdog")


class StallWatchdog:
    """Pings the loop from a thread; a late answer is a stall.

    Args:
        threshold_s: a later answer counts as a stall.
        interval_s: pause between two pings.
        log_every_s: at most one short stall is logged in that time; all stalls are counted. A long
            one is logged at its beginning, at doubled intervals, and at its end.
        on_stall: called with the length of each stall in seconds when it is over, in the watchdog's
            thread.

    Attributes:
        stalls: how many are over.
    """

    def __init__(
        self,
        *,
        threshold_s: float = 0.25,
        interval_s: float = 0.25,
        log_every_s: float = 10.0,
        on_stall: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._threshold_s = threshold_s
        self._interval_s = interval_s
        self._log_every_s = log_every_s
        self._on_stall = on_stall
        self.stalls = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._logged_s = -log_every_s

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch a loop that runs in the calling thread."""
        self._thread = threading.Thread(
            target=self._watch,
            args=(loop, threading.get_ident()),
            name="stall-watchdog",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        while not self._stopping.wait(self._interval_s):
            answered = threading.Event()
            begin = time.monotonic()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            if answered.wait(self._threshold_s) or self._stopping.is_set():
                continue
            self._sit_out(answered, begin, watched)

    def _sit_out(self, answered: threading.Event, begin: float, watched: int) -> None:
        """Wait for the end of a stall, and log the loop's current function now and then."""
        told = time.monotonic() - self._logged_s >= self._log_every_s
        if told:
            self._tell(begin, watched)
        again_s = AGAIN_S
        # In pieces, since the loop may end without an answer.
        while not answered.wait(0.05) and not self._stopping.is_set():
            if time.monotonic() - begin >= again_s:
                told, again_s = True, 2 * again_s
                self._tell(begin, watched)
        seconds = time.monotonic() - begin
        self.stalls += 1
        self._on_stall(seconds)
        if told and answered.is_set():
            _log.warning("the event loop moves again after %.1f s", seconds)

    def _tell(self, begin: float, watched: int) -> None:
        """Log the loop's current function: now, since it may never return."""
        now_s = time.monotonic()
        frame = sys._current_frames().get(watched)  # noqa: SLF001  there is no public way
        if frame is None:
            return
        self._logged_s = now_s
        stack = traceback.extract_stack(frame)
        places = (f"{at.name} ({Path(at.filename).name}:{at.lineno})" for at in stack[-FRAMES:])
        _log.warning(
            "the event loop has stood still for %.1f s; it is at %s",
            now_s - begin,
            " > ".join(places),
        )
        _log.debug("all of the stack:\n%s", "".join(stack.format()))
