"""One leader: renewals, losses, takeovers."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from leasehold_testing.clock import ManualClock
from leasehold_testing.memory_store import MemoryStore
from scheduler.clock import WallClock
from scheduler.errors import StoreUnavailableError
from scheduler.runtime.driver.leadership import LeaderKeeper
from scheduler.runtime.driver.outage import OutageLog

TTL_S = 15.0


class Flaky(MemoryStore):
    """A store with leadership calls that fail or hang on request."""

    def __init__(self):
        super().__init__()
        self.away = False
        self.hangs = threading.Event()
        self.hangs.set()
        self.renewals = 0

    def _answer(self):
        self.hangs.wait(20.0)
        if self.away:
            raise StoreUnavailableError("the database is away")

    def acquire_leadership(self, holder, **arguments):
        self._answer()
        return super().acquire_leadership(holder, **arguments)

    def renew_leadership(self, token, **arguments):
        self._answer()
        self.renewals += 1
        return super().renew_leadership(token, **arguments)

    def release_leadership(self, token):
        self._answer()
        super().release_leadership(token)


async def settle():
    """Let threads and tasks come to rest."""
    for _ in range(5):
        await asyncio.sleep(0.005)


def make(store, clock, holder="alpha"):
    return LeaderKeeper(store, clock, holder=holder, ttl_s=TTL_S, address=f"http://{holder}")


@pytest.fixture
def clock():
    return ManualClock(1000.0)


@pytest.fixture
def store():
    return Flaky()


def test_who_leads_has_a_token_and_an_address(store, clock):
    async def scenario():
        keeper = make(store, clock)
        assert (keeper.token, keeper.leading, keeper.leader_address) == (None, False, "")
        token = await keeper.acquire()
        assert keeper.token == token == store.leader().token
        assert keeper.leader_address == "http://alpha"
        await keeper.release()
        assert store.leader() is None
        assert not keeper.leading
        await keeper.release()  # twice does no harm

    asyncio.run(scenario())


def test_a_leader_renews_three_times_within_its_time(store, clock):
    async def scenario():
        keeper = make(store, clock)
        await keeper.acquire()
        keeping = asyncio.create_task(keeper.keep())
        await clock.advance_through(1000.0 + 10 * TTL_S, settle)
        assert store.renewals == 30
        assert keeper.leading
        assert store.leader().expires_s == pytest.approx(1000.0 + 11 * TTL_S)
        keeping.cancel()

    asyncio.run(scenario())


def test_a_database_that_is_back_in_time_costs_nothing(store, clock):
    async def scenario():
        keeper = make(store, clock)
        await keeper.acquire()
        keeping = asyncio.create_task(keeper.keep())
        store.away = True
        await clock.advance_through(1013.0, settle)
        assert keeper.leading
        store.away = False
        await clock.advance_through(1100.0, settle)
        assert keeper.leading
        keeping.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("hangs", [False, True])
def test_who_cannot_renew_stops_leading_before_another_one_may(store, clock, hangs):
    async def scenario():
        keeper, rival = make(store, clock), make(store, clock, "beta")
        await keeper.acquire()
        assert await rival.acquire() is None
        keeping = asyncio.create_task(keeper.keep())
        if hangs:
            store.hangs.clear()
        store.away = True
        await clock.advance_through(1000.0 + TTL_S - 0.01, settle)
        assert keeper.leading
        await clock.advance_through(1000.0 + TTL_S, settle)
        assert keeper.lost.is_set()
        assert not keeper.leading
        assert keeper.token is None
        assert "15 s" in await keeping
        store.away = False
        store.hangs.set()
        await settle()
        assert await rival.acquire() or hangs  # a renewal that hung may come through late
        assert keeper.token is None

    asyncio.run(scenario())


def test_who_was_succeeded_learns_it_at_the_next_renewal(store, clock):
    async def scenario():
        keeper, rival = make(store, clock), make(store, clock, "beta")
        first = await keeper.acquire()
        keeping = asyncio.create_task(keeper.keep())
        store.release_leadership(first)
        second = await rival.acquire()
        assert second > first
        await clock.advance_through(1000.0 + TTL_S / 3, settle)
        assert keeper.lost.is_set()
        assert await keeping
        assert await keeper.acquire() is None
        assert keeper.leader_address == "http://beta"

    asyncio.run(scenario())


@pytest.mark.parametrize("off_s", [-10_800.0, 10_800.0])
def test_clocks_that_differ_by_hours_change_nothing(store, off_s):
    """The leader's clock is off; a standby goes by how long the leader has not renewed."""

    async def scenario():
        late, right = ManualClock(20_000.0 + off_s), ManualClock(20_000.0)
        leader, standby = make(store, late), make(store, right, "beta")
        await leader.acquire()
        keeping = asyncio.create_task(leader.keep())
        for _ in range(10):
            assert await standby.acquire() is None
            await late.advance_through(late.now_s() + TTL_S / 3, settle)
            right.advance(right.now_s() + TTL_S / 3)
        assert leader.leading
        keeping.cancel()  # it dies
        assert await standby.acquire() is None
        right.advance(right.now_s() + TTL_S - 0.1)
        assert await standby.acquire() is None
        right.advance(right.now_s() + 0.1)
        assert await standby.acquire() is not None

    asyncio.run(scenario())


def test_a_standby_sends_writers_to_a_leader_that_it_saw_renew(store, clock):
    """The leader that a restored copy of a database names may lead on, with its own database."""

    async def scenario():
        keeper, standby = make(store, clock), make(store, clock, "beta")
        await keeper.acquire()
        waiting = asyncio.create_task(standby.wait_to_lead())
        await settle()
        assert standby.leader_address == ""
        keeping = asyncio.create_task(keeper.keep())
        await clock.advance_through(1000.0 + TTL_S, settle)
        assert standby.leader_address == "http://alpha"
        assert standby.sees_leader
        keeping.cancel()
        waiting.cancel()

    asyncio.run(scenario())


def test_a_standby_takes_over_soon_after_the_leader_fell_silent(store, clock):
    async def scenario():
        await make(store, clock).acquire()
        standby = make(store, clock, "beta")
        waiting = asyncio.create_task(standby.wait_to_lead())
        await clock.advance_through(1000.0 + TTL_S - 0.5, settle)
        assert not waiting.done()
        assert standby.leader_address == ""  # it was never seen to renew
        await clock.advance_through(1000.0 + TTL_S * 1.1, settle)
        assert await waiting == store.leader().token
        assert standby.leading

    asyncio.run(scenario())


def test_a_standby_takes_over_at_its_next_look_when_the_leader_gives_up(store, clock):
    async def scenario():
        leader, standby = make(store, clock), make(store, clock, "beta")
        await leader.acquire()
        waiting = asyncio.create_task(standby.wait_to_lead())
        await settle()
        await leader.release()
        await clock.advance_through(1000.0 + TTL_S / 3, settle)
        assert waiting.done()
        await waiting

    asyncio.run(scenario())


def test_a_standby_waits_for_a_database_that_is_away(store, clock):
    async def scenario():
        store.away = True
        standby = make(store, clock)
        waiting = asyncio.create_task(standby.wait_to_lead())
        await clock.advance_through(1100.0, settle)
        assert not waiting.done()
        store.away = False
        await clock.advance_through(1100.0 + TTL_S, settle)
        assert await waiting >= 1100  # no less than the seconds since the epoch

    asyncio.run(scenario())


def test_an_outage_is_logged_seldom_and_its_end_once(caplog):
    caplog.set_level(logging.INFO)
    now_s = 0.0
    outage = OutageLog(logging.getLogger("leasehold.t"), "the database is away", now=lambda: now_s)
    outage.over()
    lines = []
    for second in range(3600):
        now_s = float(second)
        outage.failed(StoreUnavailableError("no answer"))
        if len(caplog.messages) > len(lines):
            lines.append(second)
    assert lines == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert set(caplog.messages) == {"the database is away, trying again: no answer"}
    outage.over()
    outage.over()
    assert caplog.messages[-1] == "over after 3599 s: the database is away"
    assert len(caplog.messages) == len(lines) + 1
    outage.failed(StoreUnavailableError("again"))
    assert caplog.messages[-1].endswith(": again"), "the next outage is told at once"


def test_a_standby_logs_for_whom_it_stands_by(store, clock, caplog):
    caplog.set_level(logging.INFO)

    async def scenario():
        keeper, rival, third = (make(store, clock, name) for name in ("alpha", "beta", "gamma"))
        await keeper.acquire()
        for _ in range(3):
            assert await rival.acquire() is None
            clock.advance(clock.now_s() + 1.0)
            await keeper._renew()
        await keeper.release()
        await third.acquire()
        assert await rival.acquire() is None
        await third.release()
        assert await rival.acquire()

    asyncio.run(scenario())
    told = [line for line in caplog.messages if "standby" in line]
    assert told == [
        f"{name} leads at http://{name}; this process is its standby, and leads if it does not "
        "renew for 15 s"
        for name in ("alpha", "gamma")
    ]


def test_a_restart_under_the_old_name_leads_at_once_and_its_earlier_self_does_not(store, clock):
    async def scenario():
        earlier, later = make(store, clock), make(store, clock)
        first = await earlier.acquire()
        keeping = asyncio.create_task(earlier.keep())
        assert await later.wait_to_lead() > first
        await clock.advance_through(1000.0 + TTL_S / 3, settle)
        assert earlier.lost.is_set()
        await keeping

    asyncio.run(scenario())


def test_giving_up_while_the_database_is_away_raises_nothing(store, clock):
    async def scenario():
        keeper = make(store, clock)
        await keeper.acquire()
        store.away = True
        await keeper.release()
        assert keeper.token is None

    asyncio.run(scenario())


def test_who_is_stopped_while_it_becomes_the_leader_gives_that_up(store, clock):
    async def story():
        keeper = make(store, clock)
        store.hangs.clear()
        waiting = asyncio.create_task(keeper.wait_to_lead())
        await settle()
        waiting.cancel()
        await settle()
        store.hangs.set()
        await keeper.release()
        assert store.leader() is None
        assert await make(store, clock, "beta").acquire() is not None

    asyncio.run(story())


def test_leading_again_after_a_loss_clears_it(store, clock):
    async def scenario():
        keeper = make(store, clock)
        first = await keeper.acquire()
        keeping = asyncio.create_task(keeper.keep())
        store.away = True
        await clock.advance_through(1000.0 + TTL_S, settle)
        await keeping
        assert "away" in keeper.problem
        store.away = False
        assert await keeper.wait_to_lead() > first
        assert keeper.leading
        assert not keeper.lost.is_set()

    asyncio.run(scenario())


def test_it_works_by_the_real_clock_too():
    async def scenario():
        store, clock = MemoryStore(), WallClock()
        leader = LeaderKeeper(store, clock, holder="alpha", ttl_s=0.15)
        standby = LeaderKeeper(store, clock, holder="beta", ttl_s=0.15)
        await leader.acquire()
        keeping = asyncio.create_task(leader.keep())
        waiting = asyncio.create_task(standby.wait_to_lead())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        keeping.cancel()
        await asyncio.wait_for(waiting, 60.0)
        assert not leader.leading

    asyncio.run(scenario())


@pytest.mark.parametrize("keeps", [False, True])
def test_a_leader_whose_clock_jumps_to_the_newest_entry_leads_on(store, clock, keeps):
    async def scenario():
        keeper = make(store, clock)
        await keeper.acquire()
        keeping = asyncio.create_task(keeper.keep())
        if keeps:  # else it jumps before the first renewal is waited for
            await settle()
        clock.never_before(1000.0 + 3 * 3600.0)
        await settle()
        assert keeper.leading
        await clock.advance_through(clock.now_s() + 10 * TTL_S, settle)
        assert keeper.leading
        assert store.renewals == 30
        keeping.cancel()

    asyncio.run(scenario())


def test_a_token_is_not_ahead_of_the_clock_of_the_process_that_takes_over():
    """Else it would be given out again, if the database lost its newest entries."""
    machine = {"wall": 1.8e9, "steady": 5.0}
    clock = WallClock(wall=lambda: machine["wall"], steady=lambda: machine["steady"])
    store = MemoryStore()

    async def story():
        store.acquire_leadership("beta", now_s=1.8e9 - 100.0, ttl_s=100.0 + 5 * TTL_S)
        keeper = make(store, clock)
        assert await keeper.acquire() is None
        for name in machine:
            machine[name] += TTL_S
        assert await keeper.acquire() == int(clock.now_s())

    asyncio.run(story())


@pytest.mark.parametrize("wrong_s", [3 * 3600.0, -3 * 3600.0])
def test_a_standby_that_began_with_a_wrong_clock_leads_by_the_right_time(wrong_s):
    machine = {"wall": 1000.0 + wrong_s, "steady": 5.0}
    clock = WallClock(wall=lambda: machine["wall"], steady=lambda: machine["steady"])
    store = MemoryStore()

    def wait(seconds):
        machine["wall"] += seconds
        machine["steady"] += seconds

    async def story():
        store.acquire_leadership("beta", now_s=1000.0, ttl_s=TTL_S)
        keeper = make(store, clock)
        assert await keeper.acquire() is None
        machine["wall"] -= wrong_s
        wait(TTL_S - 1.0)
        assert await keeper.acquire() is None
        wait(1.0 + 0.1 * TTL_S)  # until it was set right, its time went slower by a tenth
        assert await keeper.acquire() is not None
        assert keeper.leading
        assert clock.now_s() == machine["wall"]

    asyncio.run(story())
