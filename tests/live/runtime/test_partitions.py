"""A node that hears nothing keeps its leases until their old ends; the scheduler waits for them."""

import asyncio

import pytest

from leasehold_testing.stage import Stage
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    PolicyChoice,
    Submission,
)
from scheduler.domain.jobs.spec import JobSpec
from scheduler.engine.settings import EngineSettings
from scheduler.runtime.settings import RuntimeSettings
from simulator.world.nodes import Mishap, SimulatedWorld

SETTINGS = RuntimeSettings(
    engine=EngineSettings(round_length_s=60.0, plan_lead_s=5.0, refuse_what_cannot_fit=False),
    policy=PolicyChoice(name="fifo"),
    margin_s=1.0,
    node_timeout_s=500.0,
)


@pytest.fixture
def stage(tmp_path):
    world = SimulatedWorld(now_s=lambda: 0.0, leave_s=0.5, term_s=0.2)
    return Stage(tmp_path, SETTINGS, world=world)


def submission(job_id, **changes):
    spec = JobSpec(
        name=job_id,
        command=("train",),
        total_steps=30.0,
        checkpoint_dir="/c",
        throughputs={"v100": 1.0},
        notice_s=1.0,
        grace_s=1.0,
        **changes,
    )
    return Submission(spec=spec, owner="ada", job_id=job_id)


async def _running_alone(stage, nodes=2):
    """Start nodes and one job; return the node that it runs on."""
    for number in range(nodes):
        stage.add_node(f"n{number}", "v100")
    await stage.start()
    await stage.settle()
    stage.world.totals["a"] = 200.0
    await stage.submit(submission("a"))
    await stage.run(10.0, tick_s=1.0)
    (live,) = stage.state.leases.by_id.values()
    return live.nodes[0]


def test_a_drained_node_that_hears_nothing_keeps_its_job_until_the_old_deadline(stage):
    async def play():
        node = await _running_alone(stage)
        stage.links[node].cut = True
        await stage.do(stage.service.node_action(node, NodeAction.DRAIN, reason="test", actor="op"))
        await stage.run(20.0, tick_s=0.5)
        assert [live.nodes for live in stage.state.leases.by_id.values()] == [(node,)]
        await stage.run(100.0, tick_s=0.5)
        assert [live.nodes for live in stage.state.leases.by_id.values()] != [(node,)]
        assert stage.world.overlaps == []

    asyncio.run(play())


def test_a_new_leader_waits_for_the_old_deadline_too(stage):
    async def play():
        node = await _running_alone(stage)
        stage.links[node].cut = True
        await stage.do(stage.service.node_action(node, NodeAction.DRAIN, reason="test", actor="op"))
        await stage.driver.write_snapshot()
        await stage.crash()
        await stage.start()
        (live,) = stage.state.leases.by_id.values()
        assert (live.deadline_s, live.promised_s) == (pytest.approx(13.0), pytest.approx(60.0))

    asyncio.run(play())


def test_a_job_held_and_released_while_its_node_hears_nothing_runs_once(stage):
    async def play():
        node = await _running_alone(stage)
        stage.links[node].cut = True
        await stage.do(stage.service.act(["a"], JobAction.HOLD, actor="op"))
        await stage.run(stage.clock.now_s() + 2.0, tick_s=0.5)
        await stage.do(stage.service.act(["a"], JobAction.RELEASE, actor="op"))
        await stage.run(100.0, tick_s=0.5)
        assert stage.state.jobs.by_id["a"].attempts == 2
        assert stage.world.overlaps == []

    asyncio.run(play())


async def _gang_with_one_cut(stage):
    """Run a gang on two nodes, and cut one off until its part of the gang has left."""
    for number in range(2):
        stage.add_node(f"n{number}", "v100")
    await stage.start()
    await stage.settle()
    stage.world.totals["a"] = 400.0
    await stage.submit(submission("a", scale_factors=(2,)))
    await stage.run(10.0, tick_s=1.0)
    (live,) = stage.state.leases.by_id.values()
    assert set(live.nodes) == {"n0", "n1"}
    stage.links["n0"].cut = True
    await stage.run(70.0, tick_s=1.0)
    assert stage.world.running["a"] == {live.lease.lease_id: {"n1"}}
    return live


def test_the_rest_of_a_gang_leaves_once_a_part_of_it_has_left(stage):
    async def play():
        live = await _gang_with_one_cut(stage)
        stage.links["n0"].cut = False
        await stage.run(80.0, tick_s=1.0)  # and not only when the lease is taken away some day
        assert stage.state.jobs.by_id["a"].attempts == 2
        row = stage.store.attempt(live.lease.lease_id)
        assert (row.end_reason, row.ended_s) == ("released", pytest.approx(71.0, abs=1.5))
        assert stage.state.jobs.by_id["a"].failures == 0

    asyncio.run(play())


def test_who_fails_because_its_mate_was_made_to_leave_has_not_failed(stage):
    async def play():
        live = await _gang_with_one_cut(stage)
        stage.world.mishaps["a"] = [Mishap(steps=0.0, node="n1")]
        await stage.run(75.0, tick_s=1.0)
        assert stage.state.leases.by_id.keys() == {live.lease.lease_id}
        stage.links["n0"].cut = False
        await stage.run(80.0, tick_s=1.0)
        assert stage.store.attempt(live.lease.lease_id).end_reason == "released"
        assert stage.state.jobs.by_id["a"].failures == 0

    asyncio.run(play())
