"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class ManualClock:
    """The contract of ``scheduler.clock.Clock``, moved by hand.

    Sleepers wake in the order of their times, and of falling asleep among equal ones.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self.jumped_s = 0.0
        self._asleep: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_s(self) -> float:
        """Return the time at which the clock stands."""
        return self._now_s

    def wall_s(self) -> float:
        """Return the same: this machine's clock is right."""
        return self._now_s

    def never_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later."""
        self.jumped_s += max(at_s - self._now_s, 0.0)
        self.advance(max(self._now_s, at_s))

    def set_right(self) -> None:
        """Do nothing: this machine's clock is right."""

    @property
    def next_s(self) -> float:
        """When the next sleeper is due; infinite if no sleeper is, or none sleeps for a time."""
        while self._asleep and self._asleep[0][2].done():
            heapq.heappop(self._asleep)
        return self._asleep[0][0] if self._asleep else math.inf

    def advance(self, to_s: float) -> None:
        """Move to ``to_s`` and wake the sleepers due by then; they run if the caller waits.

        Raises:
            ValueError: the time lies in the past.
        """
        if to_s < self._now_s:
            raise ValueError(f"the clock stands at {self._now_s} s and cannot go back to {to_s} s")
        self._now_s = to_s
        while self.next_s <= to_s:
            heapq.heappop(self._asleep)[2].set_result(None)

    async def advance_through(self, to_s: float, settle: Callable[[], Awaitable[object]]) -> None:
        """Move to ``to_s`` from one sleeper's time to the next.

        Args:
            to_s: where to stop.
            settle: waits until everything that follows from a moment has happened.
        """
        await settle()
        while self.next_s <= to_s:
            self.advance(max(self.next_s, self._now_s))
            await settle()
        self.advance(to_s)
        await settle()

    async def sleep_until(self, at_s: float, *, wake: asyncio.Event | None = None) -> bool:
        """Wait until a test moves the clock to ``at_s``, or until ``wake`` is set."""
        if at_s <= self._now_s:
            return True
        if wake is not None and wake.is_set():
            return False
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._asleep, (at_s, self._count, due))
        woken = None if wake is None else asyncio.ensure_future(wake.wait())
        try:
            waited: list[asyncio.Future[Any]] = [due] if woken is None else [due, woken]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            due.cancel()
            if woken is not None:
                woken.cancel()
        return at_s <= self._now_s
