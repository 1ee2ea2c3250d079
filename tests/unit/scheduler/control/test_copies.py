"""A copy of control decides as the original; and admits jobs beside an engine."""

import pytest

from leasehold_testing.trace_jobs import with_fields
from planner.knowledge import LearnedKnowledge
from policies.registry import make_policy
from scheduler.control.admission import Admission
from scheduler.control.control import Control
from scheduler.control.facts.facts import PolicySet
from scheduler.control.facts.requests import PolicyChoice, ProjectLimits
from scheduler.control.state.control_copy import state_of
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.codec import encode
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.lease_life import EndReason
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from simulator.replay import Replay
from simulator.world.failures import FailureModel, NodeOutage
from simulator.world.nodes import Mishap
from simulator.world.overheads import Overhead, Overheads
from traces.cluster import read_cluster
from traces.trace import Trace, TraceJob

TRUTH = ThroughputTable(isolated={("a", 1): {"v100": 2.0}, ("a", 2): {"v100": 3.0}})


@pytest.fixture
def replay():
    """Return a replay in which much happens, and all facts of its control so far."""
    jobs = [
        TraceJob(
            job_id=f"j{i}",
            job_type="a",
            total_steps=150.0 + 37.0 * (i % 5),
            scale_factors=(1 + (i % 4 == 3),),
            arrival_s=11.0 * i,
        )
        for i in range(16)
    ]
    conditions = {f"j{i}": {"project": "p"} for i in range(0, 16, 3)}
    conditions |= {"j5": {"depends_on": ("j1",)}, "j7": {"max_run_time_s": 50.0}}
    conditions["j8"] = {"depends_on": ("j7",)}
    switch = PolicySet(choice=PolicyChoice(name="fifo"), time_dependent=False, actor="op")
    made = Replay(
        cluster=read_cluster("v100:4", workers_per_node=2),
        trace=Trace(jobs=with_fields(tuple(jobs), conditions)),
        throughputs=TRUTH,
        policy=make_policy("max_min_fairness", {}),
        settings=ControlSettings(
            engine=EngineSettings(
                round_length_s=60.0, plan_lead_s=13.0, refuse_what_cannot_fit=False
            ),
            node_timeout_s=30.0,
        ),
        overheads=Overheads(default=Overhead(launch_s=3.0)),
        failures=FailureModel(
            outages=(NodeOutage(node="v100-1", lost_s=130.0, back_s=300.0),),
            mishaps=(("j2", Mishap(steps=30.0)), ("j4", Mishap(steps=9.0, end=EndReason.OOM))),
        ),
        projects=(ProjectLimits(project="p", max_workers=2),),
        orders=[(200.0, switch)],
    )
    told, handle = [], made.control.handle

    def recorded(*facts, now_s):
        decision = handle(*facts, now_s=now_s)
        told.append((facts, now_s, plain(decision)))
        return decision

    made.control.handle = recorded
    return made, told


def plain(decision):
    return (
        [encode(event) for event in decision.events],
        [encode(command) for command in decision.commands],
        decision.rows,
        decision.told,
    )


def test_a_copy_decides_as_the_control_that_it_was_copied_from(replay):
    made, told = replay
    made.begin()
    copies = []
    while made.to_go:
        made.step()
        copies.append((len(told), made.control.copied()))
    kinds = {record.blocked_on for _, copied in copies for record in copied.jobs}
    assert len(kinds) == 2  # dependencies and none
    assert all(copied.limits for _, copied in copies)
    assert any(node.lost for _, copied in copies for node in copied.nodes)
    for since, copied in copies[::9]:
        knowledge = LearnedKnowledge(copied.knowledge)
        twin = Control(state_of(copied, knowledge))
        for facts, now_s, expected in told[since:]:
            decision = twin.handle(*facts, now_s=now_s)
            twin.publish(decision)
            assert plain(decision) == expected


def admission(made):
    copied = made.control.copied()
    state = state_of(copied, LearnedKnowledge(copied.knowledge))
    return state, Admission(state)


def test_whoever_waits_for_another_is_let_in_when_it_completes(replay):
    made, _ = replay
    made.begin()
    while "j5" not in made.control.view.jobs.by_id:
        made.step()
    state, gate = admission(made)
    assert state.jobs.by_id["j5"].waits_for == {"j1"}
    gate.begin(made.now_s)
    cause = Cause(fact=FactKind.LEASE_ENDED, subject="j1")
    done = do.RecordEvent(kind="job_completed", subject="j1", at_s=made.now_s, cause=cause)
    told = gate.follow((), (done,), made.now_s)
    assert [e.job.job_id for e in told if isinstance(e, ev.JobSubmitted)] == ["j5"]
    assert gate.ended.keys() == {"j1"}
    assert gate.follow((), (), made.now_s) == ()


def test_a_limit_is_due_as_soon_as_a_limited_job_runs(replay):
    made, _ = replay
    made.begin()
    while "j7" not in made.control.view.leases.of_job:
        made.step()
    state, gate = admission(made)
    live = state.leases.by_id[state.leases.of_job["j7"]]
    assert gate.next_due_s == pytest.approx(live.lease.start_s + 50.0)
    state.engine.handle(now=gate.next_due_s)
    told = gate.follow((), (), gate.next_due_s)
    assert [e.job_id for e in told if isinstance(e, ev.JobCancelled)] == ["j7"]
