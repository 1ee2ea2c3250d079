"""Which agent serves a node: one at a time, also if a state folder was copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.control.nodes.reports import OTHER_AGENT_S
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import ConflictError
from scheduler.protocol.reports import LeaseReport

HERE, REBOOTED, COPY, ELSEWHERE = "m1/b1/1-2", "m1/b2/1-2", "m1/b1/1-3", "m2/b3/1-2"


class Agent:
    """An agent that reports by hand; it holds the lease that was granted, until it says else."""

    def __init__(self, stage, place, incarnation):
        self.stage, self.place, self.incarnation, self.sequence = stage, place, incarnation, 0
        stage.links["n0"].cut = True

    async def tell(self, *leases, crashed=False):
        self.sequence += 1
        told = replace(
            self.stage.node("n0").report(),
            place=self.place,
            incarnation=self.incarnation,
            sequence=self.sequence,
            leases=leases,
            crashed=crashed,
        )
        await self.stage.do(self.stage.service.report(told, address="a", version="v"))
        return told


def of_lease(stage, **values):
    lease = stage.state.leases.by_id[1].lease
    usual = {"lease_id": lease.lease_id, "token": lease.token, "state": LeasePhase.RUNNING}
    return LeaseReport(**usual | values)


async def desired_of(stage, told):
    return await stage.service.desired("n0", after=(0, -1), wait_s=0.0, instance=told.instance)


def fall_silent(stage, seconds):
    stage.state.nodes.by_name["n0"].last_seen_s = stage.clock.now_s() - seconds
    stage.state.nodes.touch("n0")


@pytest.mark.parametrize("place", [COPY, ELSEWHERE, REBOOTED])
def test_while_an_agent_reports_no_other_one_serves_its_node(live, place):
    async def story(stage):
        await stage.job(total_steps=500.0)
        first, second = Agent(stage, HERE, 5.0), Agent(stage, place, 9.0)
        told = await first.tell(of_lease(stage))
        with pytest.raises(ConflictError, match="another agent serves node 'n0'"):
            await second.tell()
        assert stage.ends() == [None]
        assert [x.lease_id for x in (await desired_of(stage, told)).leases] == [1]
        with pytest.raises(ConflictError, match="gets no leases"):
            await desired_of(stage, replace(told, place=place, incarnation=9.0))
        await first.tell(of_lease(stage))

    live(story)


@pytest.mark.parametrize("place", [COPY, REBOOTED])
def test_on_the_same_machine_another_one_follows_an_agent_that_is_silent(live, place):
    async def story(stage):
        await stage.job(total_steps=500.0)
        held = of_lease(stage)
        await Agent(stage, HERE, 5.0).tell(held)
        fall_silent(stage, OTHER_AGENT_S + 1.0)
        told = await Agent(stage, place, 4.0).tell()  # its clock was set back
        assert stage.state.nodes.by_name["n0"].instance == told.instance
        assert len((await desired_of(stage, told)).leases) <= 1
        with pytest.raises(ConflictError, match="another agent serves"):
            await Agent(stage, HERE, 5.0).tell(held)

    live(story)


def test_on_another_machine_it_follows_once_no_lease_can_run_any_more(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        await Agent(stage, HERE, 5.0).tell(of_lease(stage))
        fall_silent(stage, OTHER_AGENT_S + 1.0)
        other = Agent(stage, ELSEWHERE, 9.0)
        with pytest.raises(ConflictError, match=r"on another machine, where its jobs may run for"):
            await other.tell()
        assert stage.ends() == [None]
        stage.state.leases.by_id[1].promised_s = stage.clock.now_s()
        stage.state.leases.touched.add(1)
        await other.tell()
        assert stage.state.nodes.by_name["n0"].place == ELSEWHERE

    live(story)


def test_the_next_agent_in_the_same_folder_serves_at_once(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        first, second = Agent(stage, HERE, 5.0), Agent(stage, HERE, 5.5)
        before = await first.tell(of_lease(stage))
        told = await second.tell(of_lease(stage))
        assert len((await desired_of(stage, told)).leases) == 1
        with pytest.raises(ConflictError, match="gets no leases"):
            await desired_of(stage, before)
        end = of_lease(stage, state=LeasePhase.ENDED, reason=EndReason.LOST)
        with pytest.raises(ConflictError, match="another agent, which was started later"):
            await first.tell(end)  # it was overtaken
        assert stage.ends() == [None]

    live(story)


def test_the_next_leader_knows_which_agent_serves_a_node(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        first = Agent(stage, HERE, 5.0)
        await first.tell(of_lease(stage), crashed=True)
        await stage.crash()
        await stage.start()
        stage.links["n0"].cut = True
        with pytest.raises(ConflictError, match="another agent serves node 'n0'"):
            await Agent(stage, COPY, 9.0).tell()
        await first.tell(of_lease(stage), crashed=True)
        # An agent's death is recorded once, not at each start of the scheduler.
        assert stage.kinds("n0").count("agent_died") <= 1

    live(story)


def test_an_agent_of_the_release_before_tells_no_place_and_follows_by_its_clock(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        await Agent(stage, "", 5.0).tell(of_lease(stage))
        told = await Agent(stage, HERE, 6.0).tell(of_lease(stage))  # it was upgraded
        assert stage.state.nodes.by_name["n0"].instance == told.instance
        await Agent(stage, "", 7.0).tell(of_lease(stage))  # and put back
        assert stage.state.nodes.by_name["n0"].instance == ""
        assert len((await desired_of(stage, told)).leases) == 1

    live(story)
