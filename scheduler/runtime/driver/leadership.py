"""Leadership: keeping it, or waiting for it.

The fencing token, which the store checks at every commit, keeps two leaders apart. This keeper only
ensures two things. A leader that cannot renew stops acting before another one may begin, and a
standby takes over soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING

from scheduler.errors import StaleLeaderError, StoreUnavailableError
from scheduler.runtime.driver.outage import OutageLog

if TYPE_CHECKING:
    from scheduler.clock import Clock
    from scheduler.store.protocol import Journal
    from scheduler.store.rows import Leadership

_log = logging.getLogger("leasehold.leadership")

#: How often a leader renews, and a standby checks, within ``ttl_s``.
_TIMES_PER_TTL = 3
#: The pause after a renewal that the database did not take, as a part of ``ttl_s``.
_RETRY_PART = 0.1


class LeaderKeeper:
    """Acquires, renews and releases the leadership of one process.

    Args:
        journal: the store of the leadership.
        clock: without its jumps it gives the time since the last renewal.
        holder: this process's name; one that restarts under its old name leads again at once.
        ttl_s: seconds after which another process may take over from a silent leader.
        address: the address to which standbys send writers.
    """

    def __init__(
        self, journal: Journal, clock: Clock, *, holder: str, ttl_s: float, address: str = ""
    ) -> None:
        self._journal = journal
        self._clock = clock
        self.holder = holder
        self.ttl_s = ttl_s
        self.address = address
        #: set as soon as this process must not act as the leader any more
        self.lost = asyncio.Event()
        self._token: int | None = None
        #: on our clock without its jumps: when the leadership ends unless it is renewed
        self._until_s = 0.0
        #: the leader as last seen, and since when it is the same, on that clock.
        self._seen: Leadership | None = None
        self._seen_s = 0.0
        #: whether it was seen to renew or to take over, which takes two looks.
        self._seen_alive = self._looked = False
        #: a running attempt to become the leader, if its caller was cancelled.
        self._asked: asyncio.Task[Leadership | None] | None = None
        #: why the last renewal, or read of the leader, failed; None if it did not
        self.failure: StoreUnavailableError | None = None
        self._unread = OutageLog(_log, "the leadership cannot be read", now=self._passed_s)
        self._unrenewed = OutageLog(_log, "the leadership cannot be renewed", now=self._passed_s)

    @property
    def token(self) -> int | None:
        """The fencing token while this process leads, else None."""
        return self._token if self.leading else None

    @property
    def problem(self) -> str:
        """That failure as text; empty if the database answers."""
        return "" if self.failure is None else f"the database is away: {self.failure}"

    @property
    def leading(self) -> bool:
        """Whether this process leads, as far as it can know."""
        held = self._token is not None and not self.lost.is_set()
        return held and self._passed_s() < self._until_s

    @property
    def leader_address(self) -> str:
        """The leader's address, as last seen; empty if it is not known.

        A leader is known once it was seen to renew. One that is only named in the database may be
        the leader of another database, of which this one is a restored copy.
        """
        if self.leading:
            return self.address
        return self._seen.address if self._seen is not None and self._seen_alive else ""

    @property
    def sees_leader(self) -> bool:
        """Whether another process was seen to lead."""
        return self._seen_alive and self._seen is not None

    async def acquire(self) -> int | None:
        """Try once to become the leader.

        Another leader counts as gone if it has not renewed for ``ttl_s`` on our clock. The time
        that it wrote by its own clock is not used: either clock may be wrong.

        Returns:
            The fencing token, or None while another process leads.

        Raises:
            StoreUnavailableError: the database is away.
        """
        seen = await asyncio.to_thread(self._journal.leader)
        if not self.leading:
            # The system's clock may have been wrong when this process began, and be right now.
            self._clock.set_right()
        asked_s = self._passed_s()
        if seen != self._seen:
            self._note_leader(seen)
            self._seen, self._seen_s, self._seen_alive = seen, asked_s, self._looked
        self._looked = True
        other = seen is not None and seen.holder != self.holder
        if other and asked_s - self._seen_s < self.ttl_s:
            return None
        self._asked = asyncio.create_task(
            asyncio.to_thread(
                self._journal.acquire_leadership,
                self.holder,
                now_s=self._clock.now_s(),
                ttl_s=self.ttl_s,
                address=self.address,
                lapsed=seen,
            )
        )
        self._asked.add_done_callback(_fetch)
        # A caller that is stopped now may lead all the same, and must give that up: see
        # ``release``.
        taken = await asyncio.shield(self._asked)
        self._asked = None
        if taken is None:
            return None
        self.lost.clear()
        self._seen_alive = False
        self._token, self._until_s = taken.token, asked_s + self.ttl_s
        _log.info("leading with token %d", taken.token)
        return taken.token

    def _note_leader(self, seen: Leadership | None) -> None:
        """Log whom this process stands by for, if that is news."""
        if seen is None or seen.holder == self.holder:
            return
        if self._seen is None or self._seen.holder != seen.holder:
            _log.info(
                "%s leads%s; this process is its standby, and leads if it does not renew for %g s",
                seen.holder.partition(" ")[0],  # host and folder
                f" at {seen.address}" if seen.address else "",
                self.ttl_s,
            )

    async def wait_to_lead(self) -> int:
        """Try until this process leads; returns the fencing token. A standby waits here.

        It also waits while the database is away.
        """
        while (token := await self._try_to_acquire()) is None:
            await self._clock.sleep_until(self._next_look_s())
        return token

    async def retake(self) -> int | None:
        """Take a new fencing token while this process leads; None if it leads no more."""
        while self.leading:
            if (token := await self._try_to_acquire()) is not None:
                return token
            await self._clock.sleep_until(self._next_look_s())
        return None

    async def _try_to_acquire(self) -> int | None:
        try:
            token = await self.acquire()
        except StoreUnavailableError as error:
            self.failure = error
            self._unread.failed(error)
            return None
        self.failure = None
        self._unread.over()
        return token

    def _next_look_s(self) -> float:
        """Return when to try again: in a while, or as soon as the leadership runs out."""
        passed_s = self._passed_s()
        ends_s = self._seen_s + self.ttl_s if self._seen is not None else passed_s
        pause_s = self.ttl_s / _TIMES_PER_TTL
        look_s = min(passed_s + pause_s, max(ends_s, passed_s + self.ttl_s * _RETRY_PART))
        return look_s + self._clock.jumped_s

    def _passed_s(self) -> float:
        """Return the time on our clock without its jumps, in which no time passed."""
        return self._clock.now_s() - self._clock.jumped_s

    async def _sleep_until(self, passed_s: float) -> None:
        """Wait until so much time has passed; a jump meanwhile does not end the wait."""
        jumped_s = math.nan
        while jumped_s != self._clock.jumped_s:
            jumped_s = self._clock.jumped_s
            await self._clock.sleep_until(passed_s + jumped_s)

    async def keep(self) -> str:
        """Renew until the leadership is lost; sets ``lost``. Only after ``acquire``.

        Returns:
            Why it is lost, in words.
        """
        next_s = self._until_s - self.ttl_s * (1 - 1 / _TIMES_PER_TTL)
        while True:
            await self._sleep_until(min(next_s, self._until_s))
            reason, renewed = await self._renew()
            if reason:
                self._token = None
                self.lost.set()
                _log.error("the leadership is lost: %s", reason)
                return reason
            part = 1 / _TIMES_PER_TTL if renewed else _RETRY_PART
            next_s = self._passed_s() + self.ttl_s * part

    async def _renew(self) -> tuple[str, bool]:
        """Try once; returns why the leadership is lost, if it is, and whether it was renewed."""
        asked_s = self._passed_s()
        call = asyncio.create_task(
            asyncio.to_thread(
                self._journal.renew_leadership,
                self._token or 0,
                now_s=self._clock.now_s(),
                ttl_s=self.ttl_s,
            )
        )
        # A database that neither answers nor refuses must not keep us from giving up in time.
        expiry = asyncio.create_task(self._sleep_until(self._until_s))
        try:
            await asyncio.wait({call, expiry}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return f"the database has not taken a renewal for {self.ttl_s:g} s", False
            call.result()
        except StaleLeaderError as error:
            return str(error), False
        except StoreUnavailableError as error:
            self.failure = error
            self._unrenewed.failed(error)
            over = self._passed_s() >= self._until_s
            return (f"no renewal for {self.ttl_s:g} s: {error}" if over else ""), False
        finally:
            expiry.cancel()
            call.add_done_callback(_fetch)
        self._until_s, self.failure = asked_s + self.ttl_s, None
        self._unrenewed.over()
        return "", True

    async def release(self) -> None:
        """Give the leadership up, so that a standby need not wait; never fails."""
        token, self._token = self._token, None
        asked, self._asked = self._asked, None
        with contextlib.suppress(StoreUnavailableError):
            if asked is not None and (taken := await asked) is not None:
                token = taken.token
            if token is not None:
                await asyncio.to_thread(self._journal.release_leadership, token)


def _fetch(done: asyncio.Task[object]) -> None:
    """Fetch the outcome of a call without a caller, so that asyncio does not complain."""
    if not done.cancelled():
        done.exception()
