"""Clocks that are hours off: the leader, and its time."""

import pytest

from scheduler.errors import WrongClockError

HOURS_S = 3 * 3600.0


@pytest.mark.parametrize(("off_s", "side"), [(HOURS_S, "behind"), (-HOURS_S, "ahead of")])
def test_nobody_leads_with_a_clock_far_from_that_of_the_database(live, off_s, side):
    async def story(stage):
        await stage.crash()
        stage.store.server_s = lambda: stage.clock.wall_s() + off_s
        with pytest.raises(WrongClockError, match=f"10800 s {side} that of the database"):
            await stage.start()
        del stage.store.server_s
        await stage.start()

    live(story)


@pytest.mark.parametrize(("off_s", "way"), [(HOURS_S, "forward"), (-HOURS_S, "back")])
def test_nobody_leads_with_the_time_of_a_clock_that_was_set_at_the_takeover(live, off_s, way):
    async def story(stage):
        await stage.crash()
        stage.clock.advance(stage.clock.now_s() + HOURS_S)
        right_s = stage.clock.now_s() + off_s
        stage.clock.wall_s = lambda: right_s
        with pytest.raises(WrongClockError, match=f"set {way} by 10800 s"):
            await stage.start()
        del stage.clock.wall_s
        await stage.start()

    live(story)


def test_a_leader_keeps_its_time_if_it_loads_its_state_again(live):
    async def story(stage):
        service, term = stage.service, stage.state.term
        stage.clock.wall_s = lambda: stage.clock.now_s() + HOURS_S
        service.cease()
        await service.begin(term)

    live(story)


def test_nobody_leads_with_a_clock_far_behind_the_newest_entry(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        await stage.crash()
        stage.clock.wall_s = lambda: stage.clock.now_s() - HOURS_S
        with pytest.raises(WrongClockError, match="--after-clock-set-back"):
            await stage.start()
        del stage.clock.wall_s
        await stage.start()

    live(story)
