"""Leases that go on although others are due: not preemptible, not long enough yet, after losses."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testing.shell import VirtualShell
from policies.testing import make_table
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.domain.problem import Entity
from scheduler.engine.settings import EngineSettings
from scheduler.engine.state.preemption_protection import WORTH, Protection, patience_s
from scheduler.engine.tables.jobs import NONE
from scheduler.errors import InputError, ParameterError

QUICK = {"round_length_s": 10.0, "keep_bonus": 0.5}
#: Examples of a law; each is a whole run.
FEW = 20
SHARED = {(0, 0, 0): (0.8, 0.8)}
ENTITIES = (("a", 2.0), ("b", 1.0), ("c", 1.0))


def outbid(shell):
    """Return (time, job id, seconds that it had run) of each lease that another job was to have."""
    leases = {c.lease.lease_id: c.lease for _, c in shell.history(do.GrantLease)}
    return [
        (at_s, leases[c.lease_id].job_id, at_s - leases[c.lease_id].start_s)
        for at_s, c in shell.history(do.RevokeLease)
        if c.reason is RevokeReason.OUTBID
    ]


def attempts(shell):
    return Counter(c.lease.job_id for _, c in shell.history(do.GrantLease))


def column(shell, name, job_id):
    jobs = shell.engine.jobs
    return jobs[name][jobs.row_of(jobs.number_of[job_id])]


def lines(shell, kind):
    return [c for _, c in shell.history(do.RecordEvent) if c.kind == kind]


# -- after losses ---------------------------------------------------------------------------------


def test_three_plain_scripts_on_one_worker_get_done_at_once(start, job):
    shell = start("type-0:1", settings=QUICK)
    for name in "abc":
        shell.submit(job(name, 40.0, checkpoints=False))
    shell.run_until_idle(at_most_s=1000.0)
    assert shell.now <= 1.4 * 3 * 40.0
    assert max(attempts(shell).values()) == 2


def test_they_do_where_rounds_may_depart_from_the_shares(start, job):
    shell = start("type-0:1", settings=QUICK | {"behind_rounds": 4.0, "ahead_rounds": 1.0})
    for name in "abc":
        shell.submit(job(name, 40.0, checkpoints=False))
    shell.run_until_idle(at_most_s=1000.0)
    # Each loses two rounds once, not one.
    assert shell.now <= 1.6 * 3 * 40.0
    assert max(attempts(shell).values()) == 2


def test_without_patience_they_never_do(start, job):
    shell = start("type-0:1", settings=QUICK | {"patience_s": 0.0})
    for name in "abc":
        shell.submit(job(name, 40.0, checkpoints=False))
    shell.run(until_s=960.0)
    assert not shell.ended
    assert attempts(shell).total() > 33


@pytest.mark.parametrize(("lost_s", "left_s"), [(0.0, 0.0), (1.0, 8.0), (30.0, 100.0)])
def test_patience_grows_with_what_was_lost_and_is_bounded(lost_s, left_s):
    found = patience_s(np.array([lost_s]), EngineSettings(patience_s=100.0))
    assert found.tolist() == [left_s]


@settings(max_examples=FEW)
@given(need_s=st.floats(11.0, 3000.0))
def test_whatever_a_program_needs_it_loses_little_more_than_that(need_s):
    shell = VirtualShell(
        parse_cluster_spec("type-0:1"),
        make_table([[1.0]]),
        settings=EngineSettings(**QUICK),
    )
    shell.submit(Job(job_id="plain", job_type="p", total_steps=need_s, checkpoints=False))
    shell.submit(Job(job_id="other", job_type="p", total_steps=1e6))
    lost_s = 0.0
    while "plain" in shell.engine.jobs.number_of:
        shell.run(until_s=shell.now + 10.0)
        if "plain" in shell.engine.jobs.number_of:
            lost_s = float(column(shell, "lost_s", "plain"))
        assert shell.now < 40 * need_s + 1000.0
    # Besides, the first loss is as long as it happens to be, and leases end with rounds.
    assert lost_s <= 9.0 / 8.0 * need_s + 20.0
    assert attempts(shell)["plain"] <= 2 + np.ceil(np.log(need_s / 10.0) / np.log(9.0))


def test_the_time_is_given_back_to_those_who_waited(start, job):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("plain", 3000.0, checkpoints=False))
    shell.submit(job("other", 10_000.0))
    served = Counter()
    most_s = 0.0
    while "plain" in shell.engine.jobs.number_of:
        shell.run(until_s=shell.now + 10.0)
        for name in shell.running():
            served[name] += 10.0
        # A new answer takes nothing back that was received.
        shell.tell(ev.WeightChanged(job_id="other", weight=1.0))
        lost_s = shell.engine.jobs["lost_s"]
        most_s = max(most_s, patience_s(lost_s, shell.engine.settings).max(initial=0.0))
        assert abs(served["plain"] - served["other"]) <= most_s + 30.0
    assert shell.ended == {"plain": "job_completed"}
    assert served["other"] >= served["plain"] - 3000.0 - 30.0  # all but its last run


def test_what_saves_something_is_preempted_again(start, job):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("plain", checkpoints=False))
    shell.submit(job("other"))
    while column(shell, "kept", "plain") != Protection.AFTER_LOSSES:
        shell.run(until_s=shell.now + 10.0)
    lease_id = int(column(shell, "lease", "plain"))
    shell.tell(ev.WorkSaved(lease_ids=np.array([lease_id, 10_000])))
    assert (column(shell, "wasted", "plain"), column(shell, "lost_s", "plain")) == (0, 0.0)
    shell.run(until_s=shell.now + 20.0)
    assert column(shell, "lease", "plain") == NONE


def test_steps_that_outlive_a_lease_end_the_count(start, job):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("plain", checkpoints=False))
    shell.submit(job("other"))
    while not column(shell, "wasted", "plain") or column(shell, "lease", "plain") == NONE:
        shell.run(until_s=shell.now + 10.0)
    lease_id = int(column(shell, "lease", "plain"))
    shell.executions.pop(lease_id)
    shell.tell(ev.LeaseEnded(lease_id=lease_id, reason=EndReason.LOST, steps_done=3.0))
    assert column(shell, "wasted", "plain") == 0


def test_who_is_sure_to_save_its_work_is_never_kept(start, job):
    shell = start("type-0:1", settings=QUICK)
    for name in "ab":
        shell.submit(job(name, restart_s=2.0))
    shell.run(until_s=500.0)
    assert not shell.engine.jobs["wasted"].any()
    assert len(outbid(shell)) > 10


def test_of_an_entity_beyond_its_share_one_lease_is_kept_after_losses(start, job):
    entities = (Entity(name="plain"), Entity(name="other"))
    shell = start("type-0:3", settings=QUICK | {"entities": entities})
    for n in range(4):
        shell.submit(job(f"plain-{n}", checkpoints=False, entity="plain"))
        shell.submit(job(f"other-{n}", entity="other"))
    most = 0
    for _ in range(200):
        shell.run(until_s=shell.now + 10.0)
        most = max(most, int((shell.engine.jobs["kept"] == Protection.AFTER_LOSSES).sum()))
    assert most == 1  # half of three workers is one, and one alone is always left running


# -- a least time ---------------------------------------------------------------------------------


def test_a_lease_is_not_taken_back_before_its_least_time(start, job):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("a", min_run_time_s=35.0))
    shell.submit(job("b"))
    shell.run(until_s=1000.0)
    runs = [ran_s for _, name, ran_s in outbid(shell) if name == "a"]
    assert runs
    assert min(runs) >= 35.0
    # It pays for it: in the long run both have the same.
    gap = column(shell, "attained_worker_s", "a") - column(shell, "attained_worker_s", "b")
    assert abs(gap) <= 80.0


def test_a_launch_is_no_part_of_the_least_time(start, job):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("a", min_run_time_s=30.0, restart_s=15.0))
    shell.submit(job("b"))
    shell.run(until_s=1000.0)
    assert min(ran_s for _, name, ran_s in outbid(shell) if name == "a") >= 45.0


def test_patience_bounds_the_least_time(start, job):
    shell = start("type-0:1", settings=QUICK | {"patience_s": 20.0})
    shell.submit(job("a", min_run_time_s=1e6))
    shell.submit(job("b"))
    shell.run(until_s=300.0)
    assert 20.0 <= min(ran_s for _, name, ran_s in outbid(shell) if name == "a") <= 40.0


def test_what_is_no_time_is_refused(job):
    with pytest.raises(InputError, match="min_run_time_s"):
        job("a", min_run_time_s=-1.0)
    with pytest.raises(InputError, match="min_run_time_s"):
        job("a", min_run_time_s=float("inf"))
    with pytest.raises(ParameterError, match="patience_s is -1"):
        EngineSettings(patience_s=-1.0)


# -- a launch that takes long ---------------------------------------------------------------------


def test_a_job_keeps_its_worker_until_its_launch_was_worth_it(start, job):
    shell = start("type-0:1", settings=QUICK)
    for name in "ab":
        shell.submit(job(name, 300.0, restart_s=15.0))
    shell.run(until_s=5.0)
    (first,) = shell.running()
    shell.run(until_s=70.0)
    assert set(shell.running()) == {first}, "it has run for less than four times 15 s"
    assert column(shell, "kept", first) == Protection.LAUNCHED
    shell.run(until_s=15.0 * (1.0 + WORTH) + 10.0)
    assert set(shell.running()) != {first}


@pytest.mark.parametrize(("workers", "long"), [("type-0:1", True), ("type-0:2", False)])
def test_a_launch_counts_as_it_is_on_the_workers_that_are_held(start, job, workers, long):
    """A launch takes 15 s on one worker, or only on two."""
    shell = start("type-0:1", settings=QUICK)
    for name in "ab":
        shell.submit(job(name, 300.0, restarts={workers: 15.0}))
    shell.run(until_s=5.0)
    (first,) = shell.running()
    shell.run(until_s=25.0)
    assert column(shell, "kept", first) == (Protection.LAUNCHED if long else Protection.NOT)


def test_patience_bounds_for_how_long_a_launch_keeps_a_worker(start, job):
    shell = start("type-0:1", settings=QUICK | {"patience_s": 20.0})
    for name in "ab":
        shell.submit(job(name, 300.0, restart_s=15.0))
    shell.run(until_s=45.0)
    assert len(outbid(shell)) == 1


# -- not to be preempted --------------------------------------------------------------------------


def test_one_that_is_not_preemptible_runs_to_its_end(start, job):
    shell = start("type-0:1", settings=QUICK)
    for name in "abc":
        shell.submit(job(name, 40.0, checkpoints=False, preemptible=False))
    shell.run_until_idle(at_most_s=1000.0)
    assert shell.now == pytest.approx(120.0)
    assert attempts(shell) == {"a": 1, "b": 1, "c": 1}


def test_what_runs_is_kept_when_other_entities_come_and_what_waits_starts_within_the_share(
    start, job
):
    shell = start("type-0:4", settings=QUICK)
    for n in range(3):
        shell.submit(job(f"mine-{n}", 200.0, preemptible=False, entity="mine"))
    shell.submit(job("short", 50.0, preemptible=False, entity="mine"))
    shell.run(until_s=10.0)
    assert len(shell.running()) == 4
    shell.submit(job("late", 200.0, preemptible=False, entity="mine"))
    for n in range(4):
        shell.submit(job(f"yours-{n}", 300.0, entity="yours"))
    shell.run(until_s=190.0)
    assert column(shell, "kept", "mine-0") == Protection.TO_ITS_END
    assert column(shell, "lease", "late") == NONE, "half of four workers is less than three"
    shell.run_until_idle(at_most_s=2000.0)
    assert not [name for _, name, _ in outbid(shell) if not name.startswith("yours")]
    assert {attempts(shell)[name] for name in ("mine-0", "short", "late")} == {1}


def test_one_without_a_share_starts_when_no_other_job_wants_the_worker(start, job):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("x", 100.0, entity="x"))
    shell.submit(job("firm", 100.0, entity="y", preemptible=False))
    shell.submit(job("z", 100.0, entity="z"))
    shell.run(until_s=190.0)
    assert attempts(shell)["firm"] == 0
    shell.run_until_idle(at_most_s=1000.0)
    assert attempts(shell)["firm"] == 1
    assert shell.now == pytest.approx(300.0)


def test_jobs_of_which_none_has_a_share_run_one_after_the_other(start, job):
    shell = start("type-0:1", settings=QUICK)
    for name in "xyz":
        shell.submit(job(name, 100.0, entity=name, preemptible=False))
    shell.run_until_idle(at_most_s=1000.0)
    assert shell.now == pytest.approx(300.0)
    assert attempts(shell) == {"x": 1, "y": 1, "z": 1}


@pytest.mark.parametrize(("limit_s", "in_its_turn"), [(200.0, True), (2000.0, False)])
def test_one_whose_time_is_limited_starts_in_its_turn(start, job, limit_s, in_its_turn):
    shell = start("type-0:1", settings=QUICK | {"patience_s": 1000.0})
    shell.submit(job("x", 1000.0, entity="x"))
    shell.submit(job("firm", 100.0, entity="y", preemptible=False, max_run_time_s=limit_s))
    shell.run(until_s=200.0)
    assert (attempts(shell)["firm"] == 1) == in_its_turn
    assert ("firm" in shell.ended) == in_its_turn
    assert "firm" not in {name for _, name, _ in outbid(shell)}


def test_three_entities_on_four_types_never_preempt_it(start, job):
    shell = start(
        "type-0:2,type-1:2,type-2:2,type-3:1",
        [[4.0, 3.0, 2.0, 1.0]],
        settings=QUICK | {"entities": tuple(Entity(name=n, weight=w) for n, w in ENTITIES)},
    )
    for n in range(4):
        for name, _ in ENTITIES:
            shell.submit(job(f"{name}-{n}", 40.0 + 5 * n, entity=name))
    shell.submit(job("firm", 120.0, entity="c", preemptible=False))
    shell.run_until_idle(at_most_s=2000.0)
    assert attempts(shell)["firm"] == 1


@pytest.mark.parametrize("how", ["cancel", "hold", "requeue", "drain", "loss"])
def test_whoever_may_end_it_can(start, job, how):
    shell = start("type-0:1", settings=QUICK)
    shell.submit(job("a", preemptible=False, min_run_time_s=1e4))
    shell.run(until_s=25.0)
    (workers,) = shell.running().values()
    shell.tell(
        {
            "cancel": ev.JobCancelled(job_id="a"),
            "hold": ev.JobHeld(job_id="a"),
            "requeue": ev.JobRequeued(job_id="a"),
            "drain": ev.WorkersDrained(workers=workers, by_s=shell.now),
            "loss": ev.WorkersLost(workers=workers),
        }[how]
    )
    shell.run(until_s=shell.now + 0.1)
    assert len(shell.history(do.RevokeLease)) == 1


def test_who_shares_workers_with_it_stays_too(start, job, pair_up):
    shell = start("type-0:1", shared=SHARED, allocate=pair_up, settings=QUICK)
    both = (job("a", preemptible=False), job("b"))
    shell.tell(*(ev.JobSubmitted(job=one, profile=0) for one in both))
    shell.run(until_s=50.0)
    before = shell.running()
    assert set(before) == {"a", "b"}
    # Now a third is to have everything.
    shell._allocate = _last_alone
    shell.submit(job("c"))
    shell.run(until_s=300.0)
    assert shell.running() == before
    assert not outbid(shell)


def _last_alone(problem):
    x = np.zeros(problem.throughput.shape)
    x[-1, 0] = 1.0
    return Allocation.singles(x)


# -- laws -----------------------------------------------------------------------------------------

JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "total_steps": st.floats(5.0, 300.0),
            "entity": st.sampled_from(["x", "y", "z"]),
            "preemptible": st.booleans(),
            "checkpoints": st.booleans(),
            "min_run_time_s": st.sampled_from([0.0, 0.0, 25.0, 70.0]),
            "weight": st.sampled_from([1.0, 3.0]),
        }
    ),
    min_size=2,
    max_size=9,
)


def composed(jobs, *, workers, weights=(1.0, 1.0, 1.0), gangs=(1,)):
    entities = tuple(Entity(name=n, weight=w) for n, w in zip("xyz", weights, strict=True))
    shell = VirtualShell(
        parse_cluster_spec(f"type-0:{workers}"),
        make_table([[1.0]] * len(gangs), scale_factor=list(gangs)),
        settings=EngineSettings(**QUICK, entities=entities),
    )
    for n, values in enumerate(jobs):
        profile = n % len(gangs)
        shell.submit(
            Job(job_id=f"j{n}", job_type="p", scale_factor=gangs[profile], **values), profile
        )
    return shell


SIZES = {"jobs": JOBS, "workers": st.integers(1, 4)}


@settings(max_examples=FEW)
@given(**SIZES)
def test_everything_gets_done_and_no_work_is_lost_but_by_who_saves_none(jobs, workers):
    shell = composed(jobs, workers=workers)
    while len(shell.engine.jobs):
        # No worker idles while a job waits, for any kept leases.
        assert len(shell.running()) == min(workers, len(shell.engine.jobs))
        shell.run(until_s=shell.now + 5.0)
        assert shell.now < 40_000.0
    assert set(shell.ended.values()) == {"job_completed"}
    taken = outbid(shell)
    received = _received(shell)
    for n, values in enumerate(jobs):
        ran = [ran_s for _, job_id, ran_s in taken if job_id == f"j{n}"]
        assert min(ran, default=np.inf) >= values["min_run_time_s"]
        lost_s = 0.0 if values["checkpoints"] else sum(ran)
        assert received[f"j{n}"] == pytest.approx(values["total_steps"] + lost_s)


@settings(max_examples=FEW)
@given(**SIZES)
def test_in_one_entity_who_is_not_preemptible_is_never_preempted(jobs, workers):
    shell = composed([values | {"entity": "x"} for values in jobs], workers=workers)
    shell.run_until_idle(at_most_s=40_000.0)
    assert not [n for _, n, _ in outbid(shell) if not jobs[int(n[1:])]["preemptible"]]


@settings(max_examples=FEW)
@given(
    **SIZES,
    weights=st.tuples(*[st.sampled_from([1.0, 2.0])] * 3),
    gangs=st.sampled_from([(1,), (1, 2)]),
)
def test_whatever_begins_and_is_not_preemptible_runs_to_its_end(jobs, workers, weights, gangs):
    shell = composed(jobs, workers=max(workers, 2), weights=weights, gangs=gangs)
    shell.release_delay_s = 1.0
    shell.run_until_idle(at_most_s=40_000.0)
    assert not [n for _, n, _ in outbid(shell) if not jobs[int(n[1:])]["preemptible"]]
    assert set(shell.ended.values()) == {"job_completed"}


@settings(max_examples=FEW)
@given(**SIZES, moments=st.lists(st.floats(1.0, 200.0), max_size=3))
def test_a_restart_changes_nothing(jobs, workers, moments):
    shell = composed(jobs, workers=workers)
    for moment in sorted(moments):
        shell.run(until_s=moment)
        shell.restart()
    shell.run_until_idle(at_most_s=40_000.0)


def _received(shell):
    """Return the seconds under lease of each job."""
    begun, received = {}, Counter()
    for at_s, entry in shell.log:
        if isinstance(entry, do.GrantLease):
            begun[entry.lease.lease_id] = at_s, entry.lease.job_id
        elif isinstance(entry, ev.LeaseEnded):
            since_s, job_id = begun[entry.lease_id]
            received[job_id] += at_s - since_s
    return received
