"""What becomes of jobs and their leases when users, workers and time interfere."""

import numpy as np
import pytest

from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason
from scheduler.engine.tables.jobs import HELD, RUNNING, WAITING
from scheduler.errors import InputError


def status(shell, job_id):
    jobs = shell.engine.jobs
    return jobs["status"][jobs.row_of(jobs.number_of[job_id])]


def kinds(shell):
    return [entry.kind for _, entry in shell.history(do.RecordEvent)]


def test_a_job_runs_at_once_and_its_lease_is_extended_round_after_round(start, job):
    shell = start()
    shell.submit(job("a", 250.0))
    assert shell.running() == {"a": (0,)}
    shell.run_until_idle(at_most_s=1000)
    assert shell.now == pytest.approx(250)
    assert [t for t, _ in shell.history(do.ExtendLeases)] == [100.0, 200.0]
    assert len(shell.history(do.GrantLease)) == 1
    assert shell.ended == {"a": "job_completed"}


def test_rounds_stop_without_jobs_and_begin_anew_with_an_arrival(start, job):
    shell = start()
    shell.submit(job("a", 50.0))
    shell.run(until_s=730.0)
    rounds = shell.engine.round_number
    shell.submit(job("b", 150.0))
    (lease,) = [run.lease for run in shell.executions.values()]
    assert (lease.start_s, lease.deadline_s) == (730.0, 830.0)
    shell.run(until_s=2000.0)
    assert shell.ended["b"] == "job_completed"
    assert shell.engine.round_number <= rounds + 3


def test_a_held_job_gives_its_worker_to_who_waits_and_comes_back_after_release(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.tell(ev.JobHeld(job_id="a"))
    assert set(shell.running()) == {"b"}
    assert status(shell, "a") == HELD
    shell.tell(ev.JobHeld(job_id="a"))
    assert kinds(shell).count("job_held") == 1
    shell.run(until_s=450.0)
    assert set(shell.running()) == {"b"}
    shell.tell(ev.JobReleased(job_id="a"))
    shell.run(until_s=550.0)
    assert set(shell.running()) == {"a"}
    assert "job_preempted" in kinds(shell)


def test_a_held_job_gathers_no_more_than_a_rounds_claim_while_nobody_else_is_here(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.tell(ev.JobHeld(job_id="a"))
    shell.run(until_s=5000.0)
    assert shell.engine.jobs.credit_s.max() <= 100.0


def test_a_job_released_before_its_workers_are_back_keeps_its_place(start, job):
    shell = start(release_delay_s=30.0)
    shell.submit(job("a"))
    shell.tell(ev.JobHeld(job_id="a"))
    shell.run(until_s=10.0)
    shell.tell(ev.JobReleased(job_id="a"))
    assert status(shell, "a") == RUNNING
    shell.run(until_s=31.0)
    assert set(shell.running()) == {"a"}
    assert shell.engine.jobs["attempts"][0] == 2


def test_a_release_of_a_job_that_is_not_held_changes_nothing(start, job):
    shell = start()
    shell.submit(job("a"))
    before = len(shell.log)
    shell.tell(ev.JobReleased(job_id="a"), ev.JobReleased(job_id="nobody"))
    assert not [e for _, e in shell.log[before:] if isinstance(e, do.RecordEvent)]


def test_a_cancelled_job_ends_when_its_lease_has_ended(start, job):
    shell = start(release_delay_s=20.0)
    shell.submit(job("a"))
    shell.tell(ev.JobCancelled(job_id="a"))
    assert "a" not in shell.ended
    shell.tell(ev.JobReleased(job_id="a"))  # too late
    shell.run(until_s=25.0)
    assert shell.ended == {"a": "job_cancelled"}
    assert shell.steps["a"] == pytest.approx(20.0)


def test_a_waiting_job_is_cancelled_at_once(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.tell(ev.JobCancelled(job_id="b"), ev.JobCancelled(job_id="nobody"))
    assert shell.ended == {"b": "job_cancelled"}


def test_an_id_is_free_again_when_its_job_has_ended(start, job):
    shell = start()
    shell.submit(job("a", 10.0))
    shell.submit(job("a", 10.0))
    assert kinds(shell).count("job_refused") == 1
    shell.run(until_s=20.0)
    shell.submit(job("a", 10.0))
    assert kinds(shell).count("job_admitted") == 2


def test_a_weight_reaches_the_next_question(start, job):
    shell = start()
    shell.submit(job("a"))
    shell.tell(ev.WeightChanged(job_id="a", weight=4.0), ev.WeightChanged(job_id="x", weight=2.0))
    shell.run(until_s=100.0)
    questions = [entry for _, entry in shell.history(do.ComputeAllocation)]
    assert [q.problem.weight.tolist() for q in questions] == [[1.0], [4.0]]


def test_entities_are_numbered_as_they_appear(start, job):
    shell = start()
    shell.tell(
        ev.JobSubmitted(job=job("a", entity="x"), profile=0),
        ev.JobSubmitted(job=job("b", entity="y"), profile=0),
        ev.JobSubmitted(job=job("c", entity="x"), profile=0),
    )
    problem = shell.history(do.ComputeAllocation)[-1][1].problem
    assert problem.entity.tolist() == [0, 1, 0]
    assert [entity.name for entity in problem.entities] == ["x", "y"]


def test_a_failure_is_retried_after_a_wait_that_doubles_and_then_counts(start, job):
    shell = start(settings={"retry_backoff_s": 30.0})
    shell.submit(job("a", max_failures=2))
    shell.run(until_s=10.0)
    shell.end(1, EndReason.FAILED)
    shell.run(until_s=39.9)
    assert status(shell, "a") == WAITING
    shell.run(until_s=40.0)
    assert set(shell.running()) == {"a"}
    shell.end(2, EndReason.FAILED)
    shell.tell(ev.TimerFired(timer="retry"))  # too early
    shell.run(until_s=99.0)
    assert shell.running() == {}
    shell.run(until_s=100.0)
    assert set(shell.running()) == {"a"}
    shell.end(3, EndReason.FAILED)
    assert shell.ended == {"a": "job_failed"}
    waits = [e.data["wait_s"] for _, e in shell.history(do.RecordEvent) if e.kind == "job_retried"]
    assert waits == [30.0, 60.0]


def test_a_job_that_waits_after_a_failure_is_not_planned_ahead_of_its_time(start, job):
    shell = start(settings={"plan_lead_s": 40.0, "retry_backoff_s": 55.0})
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=30.0)
    shell.end(1, EndReason.FAILED)
    shell.run(until_s=84.9)  # the next round was planned at 60 s
    assert set(shell.running()) == {"b"}
    shell.run(until_s=85.0)
    assert set(shell.running()) == {"a", "b"}


def test_a_lost_worker_ends_its_leases_and_is_not_let_again_until_it_returns(start, job):
    shell = start()
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=20.0)
    shell.tell(ev.WorkersLost(workers=(0,)))
    assert set(shell.running()) == {"b"}
    assert shell.steps["a"] == 0.0
    shell.run(until_s=150.0)
    capacity = shell.history(do.ComputeAllocation)[-1][1].problem.capacity
    assert capacity.tolist() == [1.0]
    assert list(shell.running().values()) == [(1,)]
    shell.tell(ev.WorkersReturned(workers=(0,)))
    assert set(shell.running()) == {"a", "b"}
    assert "job_interrupted" in kinds(shell)


def test_a_lost_worker_takes_its_planned_leases_with_it(start, job):
    shell = start("type-0:1", release_delay_s=30.0)
    shell.submit(job("a"))
    shell.submit(job("b"))
    while not shell.engine.book.planned:
        shell.run(until_s=shell.now + 10.0)
    shell.tell(ev.WorkersLost(workers=(0,)))
    assert not shell.engine.book.planned
    shell.run(until_s=shell.now + 200.0)
    assert shell.running() == {}
    shell.tell(ev.WorkersReturned(workers=(0,)))
    assert len(shell.running()) == 1


def test_a_late_report_takes_no_steps_back(start, job):
    shell = start()
    shell.submit(job("a"))
    shell.run(until_s=100.0)
    assert shell.engine.jobs["steps_done"][0] == pytest.approx(100.0)
    late = [
        ev.ProgressReported(lease_ids=np.array([1]), steps_done=np.array([steps]))
        for steps in (40.0, np.nan)
    ]
    unknown = ev.ProgressReported(lease_ids=np.array([7]), steps_done=np.array([5.0]))
    shell.engine.handle(*late, unknown, now=100.0)
    assert shell.engine.jobs["steps_done"][0] == pytest.approx(100.0)
    beyond = ev.ProgressReported(lease_ids=np.array([1]), steps_done=np.array([1e9]))
    shell.engine.handle(beyond, now=100.0)
    assert shell.engine.jobs["steps_done"][0] == 10_000.0
    shell.engine.check_invariants()


def test_the_end_of_an_unknown_lease_changes_nothing(start, job):
    shell = start()
    shell.submit(job("a"))
    assert (
        shell.engine.handle(
            ev.LeaseEnded(lease_id=99, reason=EndReason.RELEASED, steps_done=0.0), now=0.0
        )
        == []
    )


def test_with_lead_time_leases_are_extended_and_announced_before_their_deadline(start, job):
    shell = start("type-0:1", settings={"plan_lead_s": 20.0}, enforce_deadlines=True)
    shell.submit(job("a", 450.0))
    shell.submit(job("b", 450.0))
    shell.run_until_idle(at_most_s=2000.0)
    assert shell.now == pytest.approx(900.0)
    revocations = shell.history(do.RevokeLease)
    assert revocations
    assert all(entry.by_s == pytest.approx(at_s + 20.0) for at_s, entry in revocations)


def test_rounds_that_were_slept_through_are_skipped(start, job):
    # The first call after the round's end at 100 s comes at 331 s, from another timer.
    shell = start("type-0:1", timer_delay_s=330.0)
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=430.0)
    (run,) = shell.executions.values()
    assert run.deadline_s == 431.0
    assert shell.engine.round_number == 2


def test_the_largest_gang_runs_soon_although_small_jobs_keep_coming(start, job):
    shell = start("type-0:8", rates=[[1.0], [1.0]], gangs=[1, 8])
    for i in range(8):
        shell.submit(job(f"small-{i}", 150.0))
    shell.submit(job("gang", 200.0, scale_factor=8), profile=1)
    for i in range(60):
        shell.at(20.0 * (i + 1), ev.JobSubmitted(job=job(f"more-{i}", 150.0), profile=0))
    shell.run(until_s=1500.0)
    first = next(t for t, e in shell.history(do.GrantLease) if e.lease.job_id == "gang")
    assert first <= 500.0
    shell.run_until_idle(at_most_s=5000.0)
    assert set(shell.ended.values()) == {"job_completed"}


def test_a_deferred_job_runs_only_when_its_time_has_come(start, job):
    shell = start("type-0:1")
    shell.submit(job("a", 50.0))
    shell.tell(ev.JobDeferred(job_id="a", until_s=500.0))  # it runs: without effect
    shell.submit(job("b", 50.0))
    shell.tell(ev.JobDeferred(job_id="b", until_s=300.0))
    shell.tell(ev.JobDeferred(job_id="nobody", until_s=300.0))
    shell.run(until_s=290.0)
    assert shell.ended == {"a": "job_completed"}
    assert shell.running() == {}
    shell.run(until_s=310.0)
    assert set(shell.running()) == {"b"}


def test_a_job_deferred_for_good_runs_when_it_is_told_a_time_that_has_come(start, job):
    shell = start("type-0:1")
    shell.submit(job("a", 150.0))
    shell.submit(job("b", 50.0))
    shell.tell(ev.JobDeferred(job_id="b", until_s=np.inf))
    shell.run(until_s=1000.0)
    assert shell.running() == {}
    shell.tell(ev.JobDeferred(job_id="b", until_s=shell.now))
    assert set(shell.running()) == {"b"}
    with pytest.raises(InputError, match="until_s nan"):
        shell.tell(ev.JobDeferred(job_id="b", until_s=np.nan))
