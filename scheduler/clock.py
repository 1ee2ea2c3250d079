"""The daemon's time: seconds since the Unix epoch that never go back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds per second by which the time may run faster or slower to follow the system's clock. A
#: lease of 360 s is measured wrong by less than 0.2 s, far below the margin before a second lease.
SLEW = 500e-6
#: A time that is further ahead of the system's clock was a wrong one. It goes slower by this part
#: until both agree: lease ends come later than agents know, which they hear at their next poll.
FAR_AHEAD_S = 60.0
CATCH_UP = 0.1
#: Longest sleep at a stretch: the event loop's timers stand still while a laptop is asleep.
_LONGEST_SLEEP_S = 5.0


class Clock(Protocol):
    """Time for the engine, and how to wait for it.

    Attributes:
        jumped_s: seconds by which ``never_before`` and ``set_right`` have moved it. ``now_s`` less
            these is the time that has passed.
    """

    jumped_s: float

    def now_s(self) -> float:
        """Return seconds since the Unix epoch; never less than before."""
        ...

    def wall_s(self) -> float:
        """Return the system's time: for tokens, signatures, and what people and others compare."""
        ...

    def never_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later: the last journal entry must stay in the past."""
        ...

    def set_right(self) -> None:
        """Take the system's time if this one is far from it.

        Only for a process that does not lead: nothing depends on its time.
        """
        ...

    async def sleep_until(self, at_s: float, *, wake: asyncio.Event | None = None) -> bool:
        """Wait until ``at_s`` (may be infinite), or until ``wake`` is set.

        Returns:
            Whether ``at_s`` has been reached. ``wake`` is left as it is.
        """
        ...


def steady_s() -> float:
    """Return seconds since boot, time asleep included; the clock on which agents measure leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def clock_warning(clock: Clock) -> str:
    """Say that the scheduler's time is far from the system's; empty if it is not."""
    ahead_s = clock.now_s() - clock.wall_s()
    if ahead_s > FAR_AHEAD_S:
        return (
            f"the scheduler's time is {ahead_s:.0f} s ahead of this machine's clock, which was set "
            "back; it goes slower until both agree"
        )
    if ahead_s < -FAR_AHEAD_S:
        return (
            f"the scheduler's time is {-ahead_s:.0f} s behind this machine's clock, which was set "
            "forward; restart the scheduler"
        )
    return ""


class WallClock:
    """The system's time at the start, carried on by a monotonic clock.

    If the system's clock is set meanwhile, this one follows at ``SLEW``: a jump must not make
    leases end that agents still hold. If it is far ahead, it follows at ``CATCH_UP``.

    Args:
        wall: the system's time, seconds since the epoch.
        steady: a clock that only goes on.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_s
    ) -> None:
        self._wall = wall
        self._steady = steady
        #: the steady clock when the time was last read, and the time that was read
        self._read_s = steady()
        self._now_s = wall()
        self.jumped_s = 0.0

    def now_s(self) -> float:
        """Return seconds since the Unix epoch; never less than before."""
        steady = self._steady()
        passed = max(0.0, steady - self._read_s)
        error = self._wall() - (self._now_s + passed)
        slower = CATCH_UP if error < -FAR_AHEAD_S else SLEW
        correction = min(max(error, -slower * passed), SLEW * passed)
        self._read_s = steady
        self._now_s += passed + correction
        return self._now_s

    def wall_s(self) -> float:
        """Return the system's time."""
        return self._wall()

    def never_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later."""
        self._jump(max(at_s - self.now_s(), 0.0))

    def set_right(self) -> None:
        """Take the system's time if this one is far from it."""
        off_s = self._wall() - self.now_s()
        if abs(off_s) > FAR_AHEAD_S:
            self._jump(off_s)

    def _jump(self, seconds: float) -> None:
        self._now_s += seconds
        self.jumped_s += seconds

    async def sleep_until(self, at_s: float, *, wake: asyncio.Event | None = None) -> bool:
        """Wait until ``at_s``, or until ``wake`` is set; returns whether ``at_s`` is reached."""
        while (left_s := at_s - self.now_s()) > 0:
            if wake is not None and wake.is_set():
                return False
            await _pause(min(left_s, _LONGEST_SLEEP_S), wake)
        return True


async def _pause(seconds: float, wake: asyncio.Event | None) -> None:
    if wake is None:
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake.wait()
