"""Workers that the policy means to stay idle stay idle: in rounds, in mid-round, after restarts."""

from dataclasses import replace

import numpy as np
import pytest

from scheduler.domain import codec
from scheduler.domain.allocation import Allocation
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.engine.snapshot import dump, restore


def first_only(idling, share=1.0):
    """Return a policy that gives the first job a share of a worker, and the others nothing."""

    def allocate(problem):
        x = np.zeros_like(problem.throughput)
        x[0, 0] = share
        return Allocation.singles(x, no_backfill=np.full(problem.jobs, idling))

    return allocate


def received_s(shell, job_id):
    return float(shell.engine.jobs["attained_worker_s"][shell.engine.state.row_of_job(job_id)])


@pytest.mark.parametrize("idling", [False, True])
def test_what_x_leaves_over_goes_to_who_waits_unless_it_is_meant_to_idle(start, job, idling):
    shell = start("type-0:2", allocate=first_only(idling))
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=1_000.0)
    assert received_s(shell, "a") == pytest.approx(1_000.0)
    assert received_s(shell, "b") == pytest.approx(0.0 if idling else 1_000.0)


@pytest.mark.parametrize(("idling", "least", "most"), [(False, 1.0, 1.0), (True, 0.4, 0.5)])
def test_a_job_runs_for_its_share_or_for_all_that_nobody_wants(start, job, idling, least, most):
    shell = start("type-0:1", allocate=first_only(idling, share=0.4))
    shell.submit(job("a"))
    shell.run(until_s=2_000.0)
    assert least * 2_000.0 <= received_s(shell, "a") <= most * 2_000.0


@pytest.mark.parametrize("idling", [False, True])
def test_workers_of_a_job_that_ends_early_stay_idle_where_that_is_meant(start, job, idling):
    shell = start("type-0:1", allocate=first_only(idling))
    shell.submit(job("a", total_steps=30.0))
    shell.submit(job("b"))
    shell.answer_delay_s = 1_000.0  # the last question is not answered in time
    shell.run(until_s=99.0)
    assert shell.ended == {"a": "job_completed"}
    assert ("b" in shell.running()) is not idling


def test_the_next_answer_may_let_workers_be_used_again(start, job):
    meant = [True]

    def allocate(problem):
        return first_only(meant[0])(problem)

    shell = start("type-0:2", allocate=allocate)
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.run(until_s=150.0)
    assert set(shell.running()) == {"a"}
    meant[0] = False
    shell.tell(ev.PolicyChanged(policy="other", time_dependent=False))
    shell.run(until_s=160.0)
    assert set(shell.running()) == {"a", "b"}


def test_that_a_job_should_wait_which_no_answer_knows_is_not_meant(start, job):
    shell = start("type-0:2", allocate=first_only(idling=True))
    shell.submit(job("a"))
    shell.run(until_s=10.0)
    shell.answer_delay_s = None
    shell.submit(job("b"))
    shell.fail()
    assert set(shell.running()) == {"a", "b"}


def test_a_pair_is_not_let_run_beyond_its_share(start, job):
    def half(idling):
        def allocate(problem):
            return Allocation(
                x=np.zeros_like(problem.throughput),
                pair_jobs=np.array([[0, 1]]),
                pair_index=np.array([0]),
                pair_x=np.array([0.5]),
                no_backfill=np.full(problem.jobs, idling),
            )

        return allocate

    got = {}
    for idling in (False, True):
        shell = start("type-0:1", shared={(0, 0, 0): (0.8, 0.8)}, allocate=half(idling))
        shell.tell(*(ev.JobSubmitted(job=job(name), profile=0) for name in "ab"))
        shell.run(until_s=2_000.0)
        got[idling] = received_s(shell, "a")
    assert got[False] == pytest.approx(1_000.0)  # half of a worker, all of the time
    assert got[True] == pytest.approx(500.0, abs=55.0)


def test_a_restart_remembers_what_was_meant(start, job):
    shell = start("type-0:2", allocate=first_only(idling=True))
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.restart()
    shell.run(until_s=500.0)
    assert set(shell.running()) == {"a"}


def test_a_snapshot_of_the_release_before_means_nothing_to_idle(start, job):
    shell = start("type-0:2", allocate=first_only(idling=True))
    shell.submit(job("a"))
    shell.submit(job("b"))
    stored = dump(shell.engine)
    columns = {name: column for name, column in stored.columns.items() if name != "x_only"}
    assert len(columns) < len(stored.columns)
    engine = restore(replace(stored, columns=columns), shell.engine.settings)
    engine.check_invariants()
    assert engine.jobs["x_only"].tolist() == [0, 0]
    said = engine.handle(ev.TimerFired(timer="plan"), now=shell.engine.round_end_s)
    granted = [command.lease.job_id for command in said if isinstance(command, do.GrantLease)]
    assert granted == ["b"]


def test_a_journal_of_the_release_before_holds_answers_that_mean_nothing_to_idle():
    answer = ev.AllocationComputed(
        generation=3,
        job_number=np.array([7]),
        allocation=Allocation.singles(np.ones((1, 1)), no_backfill=np.array([True])),
    )
    stored = codec.encode(answer)
    assert codec.decode(stored).allocation.no_backfill.tolist() == [True]
    del stored["allocation"]["x_only"]
    assert codec.decode(stored).allocation.no_backfill is None
