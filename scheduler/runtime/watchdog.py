"""A watchdog for the event loop: whatever blocks it is named while it does."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_log = logging.getLogger("leasehold.watchdog")


class StallWatchdog:
    """Pings the loop from a thread; a late answer is a stall.

    Args:
        threshold_s: from when on a late answer counts.
        interval_s: pause between two pings.
        log_every_s: at most one stack is logged in that time; all stalls are counted.
        on_stall: told the length of each stall in seconds when it is over, in the watchdog's
            thread.
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
            self._log_stack(watched)
            # In pieces, as the loop may end without having answered.
            while not answered.wait(0.05) and not self._stopping.is_set():
                pass
            self._on_stall(time.monotonic() - begin)

    def _log_stack(self, watched: int) -> None:
        """Say where the loop is: now, since it may never come back."""
        now_s = time.monotonic()
        frame = sys._current_frames().get(watched)  # noqa: SLF001  there is no public way
        if frame is None or now_s - self._logged_s < self._log_every_s:
            return
        self._logged_s = now_s
        _log.warning(
            "the event loop has stood still for more than %g s; it is at\n%s",
            self._threshold_s,
            "".join(traceback.format_stack(frame)),
        )
