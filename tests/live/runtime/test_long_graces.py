"""Jobs that need longer to leave than rounds are planned ahead."""

from __future__ import annotations

import pytest

from leasehold_testing.played import configured, played
from scheduler.control.state.leases import LiveLeases
from scheduler.protocol.desired import MARGIN_S

#: Of the default rounds of ``played``: notice, grace and margin of a second each, and one more.
LEAD_S = 4.0
SLOW = {"notice_s": 2.0, "grace_s": 30.0, "total_steps": 1e6}
LEAVES_IN_S = 2.0 + 30.0 + MARGIN_S


def test_it_goes_on_without_a_notice_while_no_other_job_wants_its_workers():
    async def story(stage):
        await stage.job("slow", **SLOW)
        told = []
        for _ in range(90):
            await stage.wait(1.0)
            (lease,) = await stage.launched()
            told.append((lease.lease_id, lease.notice_in_s))
            # Its agent gives the notice this long before its deadline, and hears of the next round
            # before that.
            assert lease.remaining_s > LEAVES_IN_S
        return set(told)

    (only,) = played(story)
    assert only[1] is None


@pytest.mark.parametrize("restarted", [False, True])
def test_if_another_job_is_due_it_has_all_of_its_time_to_leave(restarted, monkeypatch):
    seen, revoke = [], LiveLeases.revoke

    def look(self, command, *, least_s):
        live = self.by_id[command.lease_id]
        revoke(self, command, least_s=least_s)
        seen.append((live.lease.job_id, live.until_s, least_s))

    monkeypatch.setattr(LiveLeases, "revoke", look)

    async def story(stage):
        await stage.job("slow", **SLOW)
        await stage.wait(5.0)
        await stage.job("other", total_steps=1e6)
        if restarted:
            await stage.crash()
            await stage.start()
        await stage.wait(110.0)
        return stage.leases()

    (first, second) = played(story)
    assert (first[0], second[0]) == ("slow", "other")
    assert second[2] >= first[3], "its workers are granted when it has left them"
    ((job, until_s, least_s),) = seen
    assert job == "slow"
    assert until_s == least_s, "the agent's deadline leaves it notice, grace and margin"
    assert least_s == pytest.approx(first[3] + LEAVES_IN_S)  # simulated agents leave at once


def test_a_job_that_leaves_in_time_is_told_the_end_of_the_round():
    async def story(stage):
        await stage.job("quick", total_steps=1e6, notice_s=1.0, grace_s=1.0)
        await stage.wait(1.0)
        (live,) = stage.state.leases.by_id.values()
        (lease,) = await stage.launched()
        return live.overtime_s, live.deadline_s - stage.clock.now_s() - lease.remaining_s

    assert played(story, configured({"engine.plan_lead_s": str(LEAD_S)})) == (0.0, 0.0)
