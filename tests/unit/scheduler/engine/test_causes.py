"""Every command names the fact that caused it, and what decided: the stories that people read."""

import numpy as np
import pytest

from policies.registry import make_policy
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import Node
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind, Ground
from scheduler.domain.problem import Entity
from scheduler.engine.settings import EngineSettings


@pytest.fixture
def stage(start, job):
    """Return a function that starts a cluster on which a policy shares out the time."""

    def compose(cluster="type-0:1", rates=((1.0,),), policy="max_min_fairness", **options):
        settings = {"keep_bonus": EngineSettings().keep_bonus}
        allocate = make_policy(policy).allocate
        return start(cluster, rates, allocate=allocate, settings=settings, **options)

    return compose


def told(shell, kind, since=0):
    """Return (job, cause) of each grant or revocation."""
    job_of = {g.lease.lease_id: g.lease.job_id for _, g in shell.history(do.GrantLease)}
    found = [(at_s, c) for at_s, c in shell.history(kind) if at_s >= since]
    if kind is do.GrantLease:
        return [(c.lease.job_id, c.cause) for _, c in found]
    return [(job_of[c.lease_id], c.cause) for _, c in found]


def words(shell, kind, since=0):
    return [f"{name}: {cause.words(name)}" for name, cause in told(shell, kind, since)]


def two_jobs(stage, job, until_s=250.0, **options):
    shell = stage(**options)
    for name in ("a", "b"):
        shell.submit(job(name))
    shell.run(until_s=until_s)
    return shell


def test_an_arrival_preempts_who_is_less_far_behind(stage, job):
    shell = two_jobs(stage, job, 150.0, cluster="type-0:2")
    shell.submit(job("c"))
    shell.run(until_s=250.0)
    assert words(shell, do.RevokeLease) == ["b: in round 3: c arrived and is further behind"]
    assert words(shell, do.GrantLease) == [
        "a: in round 1: it arrived; its share is nearly all of the time",
        "b: in round 1: it arrived; its share is nearly all of the time",
        "c: in round 3: it arrived; it is its turn (else 100 s behind its share)",
    ]
    (_, cause) = told(shell, do.RevokeLease)[0]
    # X is 2/3 from 150 s on: c was promised 33 s and 67 s of the round, would be 100 s behind;
    # b has had 200 s of the 183 s that it was promised, and would be 50 s behind.
    assert (cause.ground, cause.rival) == (Ground.BEHIND, "c")
    assert cause.lag_s == pytest.approx(50.0)


def test_rounds_go_round_without_any_news(stage, job):
    shell = two_jobs(stage, job, 950.0)
    later = words(shell, do.RevokeLease, since=150.0)
    assert len(later) >= 2
    for name, cause in told(shell, do.RevokeLease, since=150.0):
        assert (cause.fact, cause.rival) == (FactKind.ROUND, {"a": "b", "b": "a"}[name])
    assert later[0] == "b: in round 4: a is further behind"


def test_the_end_of_a_job_frees_workers_for_the_next(stage, job):
    shell = stage()
    shell.submit(job("a", total_steps=50.0))
    shell.submit(job("b"))
    shell.run(until_s=60.0)
    assert words(shell, do.GrantLease)[1:] == [
        "b: in round 1: a ended; its share is nearly all of the time"
    ]


def test_a_node_that_joins_is_named_to_who_gets_its_workers(stage, job):
    shell = two_jobs(stage, job, 50.0)
    shell.tell(ev.NodesJoined(nodes=(Node(name="n9", workers=("type-0",)),)))
    assert words(shell, do.GrantLease, since=50.0) == [
        "b: in round 1: node n9 joined; its share is nearly all of the time"
    ]
    shell.run(until_s=150.0)
    shell.tell(ev.WorkersDrained(workers=(1,), by_s=0.0))
    assert words(shell, do.RevokeLease, since=150.0) == ["b: node n9 is being drained"]
    shell.run(until_s=250.0)
    assert words(shell, do.RevokeLease, since=200.0) == [
        "a: in round 3: node n9 is being drained; b is further behind"
    ]


def test_workers_that_are_lost_and_return_are_named(stage, job):
    shell = two_jobs(stage, job, 150.0, cluster="type-0:2")
    shell.tell(ev.WorkersLost(workers=(1,)))
    assert words(shell, do.RevokeLease) == ["b: workers of node type-0-0 were lost"]
    shell.tell(ev.WorkersReturned(workers=(1,)))
    (name, cause) = told(shell, do.GrantLease, since=150.0)[0]
    assert (name, cause.fact, cause.subject) == ("b", FactKind.WORKERS_RETURNED, "type-0-0")


def test_another_policy_is_named_where_it_turns_a_round_over(stage, job):
    shell = two_jobs(stage, job)
    shell._allocate = make_policy("fifo").allocate
    shell.tell(ev.PolicyChanged(policy="fifo", time_dependent=False))
    shell.run(until_s=350.0)
    why = "a is next, since the policy gives this one no time now"
    assert words(shell, do.RevokeLease, since=300.0) == [
        f"b: in round 4: the policy is now fifo; {why}"
    ]


def test_a_weight_is_named_to_the_job_itself_and_to_whom_it_displaces(stage, job):
    shell = two_jobs(stage, job)
    shell.tell(ev.WeightChanged(job_id="a", weight=9.0))
    shell.run(until_s=350.0)
    assert words(shell, do.RevokeLease, since=300.0) == [
        "b: in round 4: a has another weight and is next, since this one has had its share for now"
    ]
    assert told(shell, do.GrantLease, since=300.0)[0][1].fact is FactKind.WEIGHT_CHANGED


def test_a_share_of_a_project_is_named(stage, job):
    shell = two_jobs(stage, job)
    shell.tell(ev.EntityChanged(entity=Entity(name="vision", weight=3.0)))
    shell.run(until_s=350.0)
    assert told(shell, do.RevokeLease, since=300.0)[0][1].fact is FactKind.SHARE_CHANGED
    assert shell.history(do.ComputeAllocation)[-1][1].cause.subject == "vision"


def test_a_job_that_moves_is_told_what_it_gains(stage, job):
    shell = stage("type-0:1,type-1:1", ((1.0, 2.1),))
    shell.submit(job("a"))
    shell.submit(job("b", total_steps=300.0))
    shell.run(until_s=250.0)
    gains = "in round 3: b ended; moved, since type-1 is 2.1x as fast and worth the restart"
    assert words(shell, do.RevokeLease, since=200.0) == [f"a: {gains}"]
    assert words(shell, do.GrantLease, since=200.0) == [f"a: {gains}"]


def test_workers_that_were_only_lent_are_taken_back(start, job):
    def half_for_the_first(problem):
        x = np.zeros_like(problem.throughput)
        x[0] = 0.5
        return Allocation.singles(x)

    shell = start(allocate=half_for_the_first, cluster="type-0:1")
    shell.submit(job("a"))
    shell.submit(job("b", total_steps=5000.0))  # it would be done first, so it is lent the rest
    shell.run(until_s=450.0)
    assert ("b", Ground.LEFT_OVER) in [(n, c.ground) for n, c in told(shell, do.GrantLease)]
    back = "a is to have the workers, which were only lent"
    assert words(shell, do.RevokeLease)[1] == f"b: in round 5: {back}"


def test_requests_are_causes_of_their_own(stage, job):
    shell = two_jobs(stage, job, 50.0, cluster="type-0:3")
    shell.submit(job("c"))
    shell.tell(ev.JobHeld(job_id="a"))
    shell.tell(ev.JobCancelled(job_id="b"))
    shell.tell(ev.JobRequeued(job_id="c"))
    assert words(shell, do.RevokeLease) == [
        "a: it is held",
        "b: it was cancelled",
        "c: it was requeued",
    ]
    shell.tell(ev.JobReleased(job_id="a"))
    assert told(shell, do.GrantLease)[-1][0] == "a"
    assert told(shell, do.GrantLease)[-1][1].fact is FactKind.JOB_RELEASED


def test_timers_and_extensions_are_due_to_the_round(stage, job):
    shell = two_jobs(stage, job, 150.0, cluster="type-0:2")
    (_, extended) = shell.history(do.ExtendLeases)[-1]
    assert extended.cause.words() == "in round 2"
    plans = [c for _, c in shell.history(do.SetTimer) if c.timer == "plan"]
    assert plans[-1].cause == extended.cause


def test_a_cause_is_the_same_after_a_restart(stage, job):
    shell = two_jobs(stage, job, 150.0, cluster="type-0:2", release_delay_s=20.0)
    shell.submit(job("c"))
    while not shell.engine.book.planned:
        shell.run(until_s=shell.now + 10.0)
    (before,) = (plan.cause for plan in shell.engine.book.planned.values())
    shell.restart()  # compares all that follows with the engine that goes on
    shell.run(until_s=shell.now + 40.0)
    assert told(shell, do.GrantLease)[-1] == ("c", before)


@pytest.mark.parametrize(("lag_s", "words"), [
    (100.0, "it is its turn (else 100 s behind its share)"),
    (0.4, "it is its turn"),
    (-6.0, "it is its turn"),
])  # fmt: skip
def test_a_turn_tells_by_how_much_a_job_would_be_behind_and_not_ahead(lag_s, words):
    cause = Cause(fact=FactKind.ROUND, round_number=3, ground=Ground.TURN, lag_s=lag_s)
    assert cause.words() == f"in round 3: {words}"
