"""Time that never goes back, and sleeping by it."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold_testing.clock import ManualClock
from scheduler.clock import CATCH_UP, FAR_AHEAD_S, SLEW, WallClock, steady_s


class Sources:
    """The two clocks of a machine, by hand."""

    def __init__(self):
        self.wall_s, self.steady_s = 1000.0, 5.0

    def make(self):
        return WallClock(wall=lambda: self.wall_s, steady=lambda: self.steady_s)

    def pass_time(self, seconds):
        self.wall_s += seconds
        self.steady_s += seconds


def test_it_starts_at_the_systems_time_and_goes_on_with_it():
    machine = Sources()
    clock = machine.make()
    assert clock.now_s() == 1000.0
    machine.pass_time(2.5)
    assert clock.now_s() == 1002.5


# Worked out by hand: 360 s times 500 millionths is 0.18 s, in the direction of the jump. A time
# that is an hour ahead goes slower by a tenth.
@pytest.mark.parametrize(
    ("jump_s", "followed_s"), [(-30.0, -0.18), (30.0, 0.18), (3600.0, 0.18), (-3600.0, -36.0)]
)
def test_a_system_clock_that_is_set_is_followed_slowly(jump_s, followed_s):
    machine = Sources()
    clock = machine.make()
    machine.wall_s += jump_s
    assert clock.now_s() == 1000.0
    machine.pass_time(360.0)
    assert clock.now_s() == pytest.approx(1360.0 + followed_s)
    assert clock.wall_s() == 1360.0 + jump_s


@pytest.mark.parametrize(("jump_s", "taken"), [(3600.0, True), (-3600.0, True), (30.0, False)])
def test_a_time_that_is_far_from_the_systems_is_set_right_if_nothing_depends_on_it(jump_s, taken):
    machine = Sources()
    clock = machine.make()
    machine.wall_s += jump_s
    clock.set_right()
    assert clock.jumped_s == (jump_s if taken else 0.0)
    assert clock.now_s() == 1000.0 + (jump_s if taken else 0.0)
    machine.pass_time(1.0)
    before_s = clock.jumped_s
    clock.set_right()
    assert clock.jumped_s == before_s


def test_a_time_that_was_hours_ahead_agrees_with_the_system_again_within_days():
    machine = Sources()
    clock = machine.make()
    clock.never_before(1000.0 + 3 * 3600.0)
    for _ in range(30 * 60):
        machine.pass_time(60.0)
        clock.now_s()
    assert clock.now_s() - clock.wall_s() == pytest.approx(FAR_AHEAD_S, abs=6.0)


def test_a_small_error_is_made_good_and_no_more():
    machine = Sources()
    clock = machine.make()
    machine.wall_s += 0.01
    machine.pass_time(1000.0)
    assert clock.now_s() == pytest.approx(2000.01)
    machine.pass_time(1000.0)
    assert clock.now_s() == pytest.approx(3000.01)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 100.0), st.floats(-1e6, 1e6)),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_happens_to_the_system_clock_time_passes_at_its_pace(steps):
    machine = Sources()
    clock = machine.make()
    before = clock.now_s()
    for passed_s, jump_s in steps:
        machine.pass_time(passed_s)
        machine.wall_s += jump_s
        now = clock.now_s()
        assert now >= before
        assert now - before <= passed_s * (1 + SLEW * 1.01) + 1e-6
        assert now - before >= passed_s * (1 - CATCH_UP * 1.01) - 1e-6
        before = now


def test_what_was_journaled_last_stays_in_the_past():
    clock = Sources().make()
    clock.never_before(1500.0)
    assert clock.now_s() == 1500.0
    clock.never_before(200.0)
    assert clock.now_s() == 1500.0


def test_the_machines_own_clocks_agree_with_it():
    clock = WallClock()
    before_s, now_s, after_s = time.time(), clock.now_s(), time.time()
    assert before_s - 0.01 <= now_s <= after_s + 0.01
    first = steady_s()
    assert steady_s() >= first


def test_a_sleeper_wakes_at_its_time_and_not_before():
    async def scenario():
        clock = WallClock()
        until_s = clock.now_s() + 0.05
        assert await clock.sleep_until(until_s)
        assert clock.now_s() >= until_s

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [WallClock, ManualClock])
def test_a_sleeper_can_be_woken_early(make):
    async def scenario():
        clock, wake = make(), asyncio.Event()
        sleeping = asyncio.create_task(clock.sleep_until(math.inf, wake=wake))
        await asyncio.sleep(0.01)
        assert not sleeping.done()
        wake.set()
        assert await sleeping is False
        assert await clock.sleep_until(math.inf, wake=wake) is False  # still set
        assert await clock.sleep_until(clock.now_s() - 1, wake=wake) is True

    asyncio.run(scenario())


def test_sleepers_of_the_manual_clock_wake_in_the_order_of_their_times():
    async def scenario():
        clock, woken = ManualClock(100.0), []

        async def sleeper(name, at_s):
            await clock.sleep_until(at_s)
            woken.append((name, clock.now_s()))

        tasks = [
            asyncio.create_task(sleeper(name, at_s))
            for name, at_s in (("late", 130.0), ("early", 110.0), ("early too", 110.0))
        ]
        await asyncio.sleep(0)
        assert clock.next_s == 110.0
        clock.advance(109.0)
        await asyncio.sleep(0.01)
        assert woken == []
        await clock.advance_through(200.0, lambda: asyncio.sleep(0.005))
        assert woken == [("early", 110.0), ("early too", 110.0), ("late", 130.0)]
        assert clock.now_s() == 200.0
        assert clock.next_s == math.inf
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_who_gave_up_sleeping_is_forgotten_by_the_manual_clock():
    async def scenario():
        clock = ManualClock()
        sleeping = asyncio.create_task(clock.sleep_until(5.0, wake=asyncio.Event()))
        await asyncio.sleep(0)
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
        assert clock.next_s == math.inf
        clock.never_before(10.0)
        clock.never_before(1.0)
        assert clock.now_s() == 10.0

    asyncio.run(scenario())


def test_the_manual_clock_does_not_go_back():
    clock = ManualClock(10.0)
    with pytest.raises(ValueError, match="cannot go back to 9"):
        clock.advance(9.0)
