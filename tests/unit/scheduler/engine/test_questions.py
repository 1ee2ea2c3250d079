"""Questions to the policy: when they are asked, and which answers count."""

import re

import numpy as np
import pytest

from leasehold_testing.answers import equal_shares
from scheduler.domain.allocation import Allocation
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev


def kinds(shell):
    return [entry.kind for _, entry in shell.history(do.RecordEvent)]


def test_answers_of_an_older_generation_are_dropped(start, job):
    shell = start(answer_delay_s=None)
    shell.submit(job("a"))
    shell.submit(job("b"))
    older, newer = shell.questions
    assert older.generation < newer.generation
    shell.answer(0)
    assert not shell.engine.jobs.x.any()
    assert shell.running() == {}
    shell.answer(0)
    assert shell.engine.jobs.x.tolist() == [[1.0], [1.0]]
    assert set(shell.running()) == {"a", "b"}


def test_an_answer_that_comes_twice_counts_once(start, job):
    shell = start(answer_delay_s=None)
    shell.submit(job("a"))
    question = shell.questions[0]
    shell.answer()
    shell.engine.jobs.x[:] = 0.25
    shell.questions.append(question)
    shell.answer()
    assert shell.engine.jobs.x.tolist() == [[0.25]]


def test_idle_workers_do_not_wait_longer_than_the_grace_for_an_answer(start, job):
    shell = start(answer_delay_s=None, settings={"solve_grace_s": 5.0})
    shell.submit(job("a"))
    shell.run(until_s=4.9)
    assert shell.running() == {}
    shell.run(until_s=5.0)
    assert set(shell.running()) == {"a"}


def test_without_an_answer_the_last_good_allocation_stays(start, job):
    shell = start("type-0:1", answer_delay_s=None)
    shell.submit(job("a"))
    shell.answer()
    shell.submit(job("b"))
    shell.run(until_s=100.0)
    shell.fail()
    shell.questions.clear()
    assert shell.engine.jobs.x.tolist() == [[1.0], [0.0]]
    assert kinds(shell)[-1] == "allocation_failed"
    shell.run(until_s=300.0)
    assert set(shell.running()) == {"a"}


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.array([[np.nan], [0.5]]), "no numbers"),
        (np.array([[0.5]]), r"shape \(1, 1\); it must be \(2, 1\)"),
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (np.zeros(2), r"shape \(2,\)"),
    ],
)
def test_an_unusable_allocation_counts_as_failed_and_says_why(start, job, x, reason):
    shell = start(allocate=equal_shares)
    shell.submit(job("a"))
    shell._allocate = lambda _: Allocation.singles(x)
    shell.submit(job("b"))
    record = shell.history(do.RecordEvent)[-1][1]
    assert record.kind == "allocation_failed"
    assert re.search(reason, record.data["reason"])
    assert set(shell.running()) == {"a", "b"}


def test_a_policy_that_does_not_depend_on_time_is_asked_on_changes_only(start, job):
    shell = start()
    shell.submit(job("a"))
    shell.run(until_s=1000.0)
    assert len(shell.history(do.ComputeAllocation)) == 1


def test_a_policy_that_depends_on_time_is_asked_every_so_many_rounds(start, job):
    shell = start(time_dependent=True, settings={"refresh_rounds": 3})
    shell.submit(job("a"))
    shell.run(until_s=1000.0)
    asked = [at_s for at_s, _ in shell.history(do.ComputeAllocation)]
    assert asked == [0.0, 300.0, 600.0, 900.0]


def test_the_warnings_of_a_policy_are_recorded(start, job):
    def allocate(problem):
        return Allocation.singles(
            np.ones_like(problem.throughput), warnings=("the deadline of a cannot be met",)
        )

    shell = start(allocate=allocate)
    shell.submit(job("a"))
    warnings = [e for _, e in shell.history(do.RecordEvent) if e.kind == "policy_warning"]
    assert [w.data["text"] for w in warnings] == ["the deadline of a cannot be met"]


def test_the_rank_of_a_policy_decides_who_gets_what_is_left_over(start, job):
    def allocate(problem):
        return Allocation.singles(
            np.zeros_like(problem.throughput), rank=-np.arange(problem.jobs, dtype=float)
        )

    shell = start("type-0:1", allocate=allocate)
    shell.tell(ev.JobSubmitted(job=job("a"), profile=0), ev.JobSubmitted(job=job("b"), profile=0))
    assert set(shell.running()) == {"b"}


def test_a_question_tells_what_the_policy_may_know(start, job):
    shell = start("type-0:3")
    shell.tell(ev.WorkersLost(workers=(1,)))
    shell.submit(job("a", 500.0, weight=2.0, deadline_s=900.0))
    shell.run(until_s=150.0)
    shell.submit(job("b", arrival_s=150.0))
    problem = shell.history(do.ComputeAllocation)[-1][1].problem
    assert problem.now_s == 150.0
    assert problem.capacity.tolist() == [2.0]
    assert problem.remaining_steps.tolist() == [350.0, 10_000.0]
    assert problem.age_s.tolist() == [150.0, 0.0]
    assert problem.time_left_s.tolist() == [750.0, np.inf]
    assert problem.attained_worker_s.tolist() == [150.0, 0.0]
    assert problem.held.tolist() == [0, -1]
    assert problem.weight.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(("carry", "left_s"), [(True, 100.0), (False, 0.0)])
def test_credits_outlive_an_allocation_unless_the_engine_is_to_forget(start, job, carry, left_s):
    shell = start(settings={"carry_credit": carry}, answer_delay_s=None)
    shell.submit(job("a"))
    shell.answer()
    shell.engine.jobs.credit_s[:] = 100.0
    shell.submit(job("b"))
    shell.answer()
    assert shell.engine.jobs.credit_s[0, 0] == left_s
