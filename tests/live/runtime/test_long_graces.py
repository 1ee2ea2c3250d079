"""Jobs that need longer to leave than rounds are planned ahead."""

from __future__ import annotations

import pytest

from leasehold_testing.played import configured, played
from scheduler.protocol.desired import MARGIN_S

#: Of the default rounds of ``played``: notice, grace and margin of a second each, and one more.
LEAD_S, MARGIN_OF_LEASES_S = 4.0, 1.0
SLOW = {"notice_s": 2.0, "grace_s": 30.0, "total_steps": 1e6}
LEAVES_IN_S = 2.0 + 30.0 + MARGIN_S


async def until_notice(stage, most_s=60):
    """Return the job's lease, as the node is told it, when it has the notice."""
    for _ in range(most_s):
        (lease,) = (lease for lease in await stage.launched() if lease.job_id == "slow")
        if lease.notice_in_s is not None:
            return lease
        await stage.wait(1.0)
    pytest.fail("there is no notice")


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
def test_if_another_job_is_due_it_has_all_of_its_time_to_leave(restarted):
    async def story(stage):
        await stage.job("slow", **SLOW)
        await stage.wait(5.0)
        await stage.job("other", total_steps=1e6)
        if restarted:
            await stage.restart()
        lease = await until_notice(stage)
        left_s = lease.remaining_s
        await stage.wait(100.0)
        return left_s, stage.leases()

    left_s, leases = played(story)
    assert LEAVES_IN_S - 1.0 <= left_s <= LEAVES_IN_S + MARGIN_OF_LEASES_S
    (first,) = [one for one in leases if one[0] == "slow"][:1]
    (second,) = [one for one in leases if one[0] == "other"][:1]
    assert second[2] >= first[3], "its workers are granted when it has left them"


def test_a_job_that_leaves_in_time_is_told_the_end_of_the_round():
    async def story(stage):
        await stage.job("quick", total_steps=1e6, notice_s=1.0, grace_s=1.0)
        await stage.wait(1.0)
        (live,) = stage.state.leases.by_id.values()
        (lease,) = await stage.launched()
        return live.overtime_s, live.deadline_s - stage.clock.now_s() - lease.remaining_s

    assert played(story, configured({"engine.plan_lead_s": str(LEAD_S)})) == (0.0, 0.0)
