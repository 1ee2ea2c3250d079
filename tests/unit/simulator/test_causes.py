"""Each action of control names its cause: lines of history, commands and answers."""

import random

import pytest

from leasehold_testing.trace_jobs import with_fields
from policies.registry import make_policy
from scheduler.control.facts.facts import JobActionAsked, JobChangeAsked, NodeOrdered
from scheduler.control.facts.requests import JobAction, NodeAction, PolicyChoice, ProjectLimits
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.lease_life import EndReason
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from simulator.replay import Replay
from simulator.world.failures import FailureModel, NodeOutage
from simulator.world.nodes import Mishap
from simulator.world.overheads import Overheads
from traces.cluster import read_cluster
from traces.trace import Trace, TraceJob

#: Requests; a job that is held would keep a replay going without end.
ACTIONS = [JobAction.CANCEL, JobAction.REQUEUE]
TRUTH = ThroughputTable(isolated={("a", 1): {"v100": 2.0}, ("a", 2): {"v100": 4.0}})


def decisions(*jobs, workers=2, conditions=None, **given):
    """Replay jobs; return every decision that was made."""
    settings = ControlSettings(
        engine=EngineSettings(
            round_length_s=60.0,
            plan_lead_s=13.0,
            behind_rounds=1.0,
            ahead_rounds=0.0,
            refuse_what_cannot_fit=False,
        ),
        policy=PolicyChoice(name="max_min_fairness"),
    )
    replay = Replay(
        trace=Trace(jobs=with_fields(jobs, conditions or {})),
        policy=make_policy("max_min_fairness", {}),
        settings=settings,
        cluster=read_cluster(f"v100:{workers}", workers_per_node=1),
        throughputs=TRUTH,
        overheads=Overheads(),
        **({"failures": FailureModel()} | given),
    )
    replay.log = []
    replay.run()
    return replay.log


def job(name, steps=2000.0, arrival_s=0.0, **fields):
    return TraceJob(job_id=name, job_type="a", total_steps=steps, arrival_s=arrival_s, **fields)


def story(log, subject, *kinds):
    """Return kind and cause in words of each line about a job that has something to say."""
    rows = [row for one in log for row in one.rows.history if row.subject == subject]
    told = [(row.kind, row.cause.words(subject)) for row in rows if row.kind in kinds]
    return [f"{kind}: {words}" for kind, words in told]


def action(job_id, what):
    return JobActionAsked(job_ids=(job_id,), action=what, rows={}, actor="ann")


def test_a_job_is_told_for_whom_it_was_preempted_and_in_which_project_that_is():
    conditions = {"late": {"project": "vision"}}
    log = decisions(job("early"), job("late", arrival_s=90.0), workers=1, conditions=conditions)
    for kind in ("job_preempted", "lease_ended"):
        line = story(log, "early", kind)[0]
        assert line.endswith(": vision/late arrived and is further behind"), line
    (first,) = story(log, "late", "lease_granted")[:1]
    assert ": it arrived; " in first


def test_what_control_decides_itself_is_told_in_its_own_words():
    conditions = {
        "limited": {"max_run_time_s": 30.0},
        "after": {"depends_on": ("limited",)},
    }
    log = decisions(job("limited"), job("after"), conditions=conditions)
    assert story(log, "limited", "time_limit", "job_failed", "lease_ended") == [
        "time_limit: it has used up its max_run_time_s",
        "lease_ended: it has used up its max_run_time_s",
        "job_failed: it has used up its max_run_time_s",
    ]
    assert story(log, "after", "job_cancelled") == [
        "job_cancelled: default/limited, which it waited for, ended"
    ]


def test_a_job_that_runs_out_of_memory_ends_by_that():
    mishap = Mishap(end=EndReason.OOM, steps=50.0)
    log = decisions(
        job("big"),
        conditions={"big": {"retry_oom": False}},
        failures=FailureModel(mishaps=(("big", mishap),)),
    )
    assert story(log, "big", "job_failed") == ["job_failed: it ran out of memory"]


def test_a_silent_node_is_named_by_what_it_takes_along():
    lost = NodeOutage(node="v100-0", lost_s=70.0, back_s=400.0)
    log = decisions(job("one"), failures=FailureModel(outages=(lost,)))
    silent = "node v100-0 has been silent for too long"
    rows = {row.kind: row for one in log for row in one.rows.history}
    assert rows["node_lost"].cause.words() == silent
    assert story(log, "one", "lease_ended")[0] in {
        f"lease_ended: {silent}",
        "lease_ended: node v100-0 did not say how the lease ended",
    }
    again = story(log, "one", "lease_granted")
    assert len(again) == 2


def test_a_drain_is_named_and_who_gave_the_order():
    drain = NodeOrdered(node="v100-0", action=NodeAction.DRAIN, reason="disk", actor="ann")
    log = decisions(job("one"), job("two"), workers=2, orders=[(90.0, drain)])
    lines = [line for name in ("one", "two") for line in story(log, name, "lease_ended")]
    assert "lease_ended: node v100-0 is being drained" in lines
    (order,) = [r for one in log for r in one.rows.history if r.kind == "node_drain"]
    assert (order.cause.fact, order.cause.subject) == (FactKind.REQUEST, "ann")


def test_under_a_quota_a_job_starts_because_another_one_of_the_project_has_made_room():
    limits = (ProjectLimits(project="p", max_workers=1),)
    conditions = {name: {"project": "p"} for name in ("one", "two")}
    log = decisions(job("one", steps=200.0), job("two"), conditions=conditions, projects=limits)
    told = story(log, "two", "job_admitted", "lease_granted")
    assert told[0] == "job_admitted: it arrived"
    assert told[1].startswith("lease_granted: in round"), told
    assert "its share" in told[1], told


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_is_done_without_a_cause(seed):
    draw = random.Random(seed)
    names = [f"job-{i}" for i in range(12)]
    jobs = [
        job(
            name,
            steps=draw.choice([100.0, 400.0, 1500.0]),
            arrival_s=90.0 * i * draw.random(),
            scale_factors=(draw.choice([1, 1, 2]),),
        )
        for i, name in enumerate(names)
    ]
    conditions = {
        name: {
            "project": draw.choice(["p", "q"]),
            "max_run_time_s": draw.choice([None, None, 100.0]),
            "depends_on": (names[i - 1],) if i and draw.random() < 0.2 else (),
            "retry_oom": draw.random() < 0.5,
        }
        for i, name in enumerate(names)
    }
    orders = [
        *((t, action(draw.choice(names), draw.choice(ACTIONS))) for t in (200.0, 333.0)),
        (250.0, JobChangeAsked(job_ids=(draw.choice(names),), weight=3.0, rows={}, actor="ann")),
        (300.0, NodeOrdered(node="v100-1", action=NodeAction.DRAIN, reason="", actor="ann")),
        (700.0, NodeOrdered(node="v100-1", action=NodeAction.UNCORDON, reason="", actor="ann")),
    ]
    ends = [EndReason.OOM, EndReason.FAILED]
    mishaps = [(n, Mishap(end=draw.choice(ends), steps=50.0)) for n in draw.sample(names, 3)]
    log = decisions(
        *sorted(jobs, key=lambda one: one.arrival_s),
        workers=3,
        conditions=conditions,
        projects=(ProjectLimits(project="p", max_workers=draw.choice([2, None])),),
        orders=[(t, fact) for t, fact in orders],
        failures=FailureModel(
            outages=(NodeOutage(node="v100-0", lost_s=400.0, back_s=900.0),), mishaps=tuple(mishaps)
        ),
    )
    lines = [row for one in log for row in one.rows.history]
    assert len(lines) > 50
    for one in log:
        assert all(isinstance(command.cause, Cause) for command in one.commands)
        assert all(answered.fact is not None for answered in one.answers)
    for row in lines:
        assert row.cause is not None, row
        assert Cause.of_data(row.cause.to_data()) == row.cause
        if row.kind in {"lease_granted", "job_preempted", "job_interrupted", "job_cancelled"}:
            assert row.cause.words(row.subject), row
    jobs_named = {row.cause.subject for row in lines if row.cause.fact is FactKind.JOB_ARRIVED}
    assert jobs_named <= set(names)
