"""Policies in processes: deadlines, crashes, nonsense, and waits."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from leasehold_testing.inline_solver import InlineSolver
from policies.answering import PolicyAnswerer, small_problem
from policies.base import Policy
from policies.registry import BUILT_IN
from scheduler.control.facts.requests import PolicyChoice
from scheduler.domain.allocation import Allocation
from scheduler.domain.answers import Question, Solved, TableOnce, check_answer
from scheduler.errors import SolveError, SupersededError
from scheduler.runtime.solver import SolverPool

FIFO = PolicyChoice(name="fifo")
MAX_MIN = PolicyChoice(name="max_min_fairness")


@pytest.fixture(scope="module")
def run():
    """Run coroutines one after the other in one loop, so that processes can be shared."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="module")
def pool(run):
    async def make():
        return SolverPool(PolicyAnswerer(), deadline_s=30.0)

    made = run(make())
    run(made.warm(FIFO))
    yield made
    run(made.close())


def pid_of(pool):
    return pool._seats[0]._process.pid


# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_policy_answers_the_small_problem(name):
    parameters = {"policy": "fifo"} if name == "partitioned" else {}
    solved = asyncio.run(
        InlineSolver(PolicyAnswerer()).solve(
            PolicyChoice(name=name, parameters=parameters), small_problem()
        )
    )
    assert solved.solve_s > 0


def test_a_process_gives_the_very_answer_of_the_calling_thread(run, pool):
    inline = InlineSolver(PolicyAnswerer())
    run(inline.warm(MAX_MIN))
    ours = run(inline.solve(MAX_MIN, small_problem()))
    theirs = run(pool.solve(MAX_MIN, small_problem()))
    np.testing.assert_array_equal(ours.allocation.x, theirs.allocation.x)
    run(inline.close())


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (PolicyChoice(name="fifi"), "no policy is named 'fifi'"),
        (PolicyChoice(name="alpha_fairness", parameters={"alpha": "x"}), "alpha"),
    ],
)
def test_a_policy_that_cannot_be_had_is_a_failed_solve(run, pool, choice, said):
    for solver in (pool, InlineSolver(PolicyAnswerer())):
        with pytest.raises(SolveError, match=said):
            run(solver.solve(choice, small_problem()))
    assert run(pool.solve(FIFO, small_problem())).allocation is not None


# -- processes -----------------------------------------------------------------------------------


def test_a_process_that_died_meanwhile_is_replaced_without_anybody_noticing(run, pool):
    before = pid_of(pool)
    os.kill(before, signal.SIGKILL)
    pool._seats[0]._process.join()
    assert run(pool.solve(FIFO, small_problem())).allocation is not None
    assert pid_of(pool) != before


def test_an_interrupt_from_the_keyboard_does_not_reach_the_process(run, pool):
    before = pid_of(pool)
    os.kill(before, signal.SIGINT)
    run(pool.solve(FIFO, small_problem()))
    assert pid_of(pool) == before


def test_a_process_that_dies_during_a_solve_is_named_and_replaced(run, pool):
    before = pid_of(pool)
    os.kill(before, signal.SIGSTOP)

    async def scenario():
        asking = asyncio.create_task(pool.solve(FIFO, small_problem()))
        await asyncio.sleep(0.1)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(SolveError, match="policy 'fifo' ended with signal 9"):
            await asking
        return await pool.solve(FIFO, small_problem())

    assert run(scenario()).solve_s > 0


def test_who_misses_the_deadline_is_stopped_and_replaced(run, pool, monkeypatch):
    before = pid_of(pool)
    os.kill(before, signal.SIGSTOP)
    monkeypatch.setattr(pool, "_deadline_s", 0.2)
    with pytest.raises(SolveError, match=r"did not answer within 0\.2 s and was stopped"):
        run(pool.solve(FIFO, small_problem()))
    monkeypatch.undo()
    assert run(pool.solve(FIFO, small_problem())).solve_s > 0
    assert pid_of(pool) != before


def test_the_newest_of_several_waiting_questions_is_answered(run, pool):
    async def scenario():
        os.kill(pid_of(pool), signal.SIGSTOP)
        running = asyncio.create_task(pool.solve(FIFO, small_problem()))
        await asyncio.sleep(0.05)
        older = asyncio.create_task(pool.solve(FIFO, small_problem()))
        await asyncio.sleep(0)
        newer = asyncio.create_task(pool.solve(MAX_MIN, small_problem()))
        with pytest.raises(SupersededError):
            await older
        os.kill(pid_of(pool), signal.SIGCONT)
        assert (await running).solve_s > 0
        assert (await newer).allocation.solver

    run(scenario())


def test_a_question_that_nobody_waits_for_any_more_holds_no_place(run, pool):
    async def scenario():
        os.kill(pid_of(pool), signal.SIGSTOP)
        running = asyncio.create_task(pool.solve(FIFO, small_problem()))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(pool.solve(FIFO, small_problem()))
        await asyncio.sleep(0)
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        os.kill(pid_of(pool), signal.SIGCONT)
        return await pool.solve(FIFO, small_problem())

    assert run(scenario()).solve_s > 0


def test_a_place_that_was_given_to_a_cancelled_question_is_not_lost(run, pool):
    async def scenario():
        seat = await pool._take_seat()
        waiting = asyncio.create_task(pool._take_seat())
        await asyncio.sleep(0)
        pool._leave_seat(seat)  # it has the place, but has not run since
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await pool.solve(FIFO, small_problem())

    assert run(scenario()).solve_s > 0


def test_closing_ends_what_is_open_at_once():
    async def scenario():
        pool = SolverPool(PolicyAnswerer(), deadline_s=3600.0)
        await pool.warm(FIFO)
        os.kill(pid_of(pool), signal.SIGSTOP)
        asked = [asyncio.create_task(pool.solve(FIFO, small_problem())) for _ in range(2)]
        await asyncio.sleep(0.1)
        await pool.close()
        # Were they answered at their deadline, they would say so, and the test hang for an hour.
        for end in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(end, SolveError)
            assert "stopping" in str(end)
        with pytest.raises(SolveError, match="stopping"):
            await pool.solve(FIFO, small_problem())
        with pytest.raises(SolveError, match="stopping"):
            pool._seats[0]._start()

    asyncio.run(scenario())


def test_several_processes_answer_at_once():
    async def scenario():
        pool = SolverPool(PolicyAnswerer(), workers=2, deadline_s=30.0)
        await pool.warm(FIFO)
        os.kill(pid_of(pool), signal.SIGSTOP)
        asked = [asyncio.create_task(pool.solve(FIFO, small_problem())) for _ in range(2)]
        done, _ = await asyncio.wait(asked, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        await pool.close()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(scenario())


# -- policies that misbehave ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Odd(Policy):
    """Answers with its parameter."""

    name: ClassVar[str] = "odd"
    answer: Any = field(default=None)

    def allocate(self, problem):
        return self.answer(problem) if callable(self.answer) else self.answer


def shares(value, shape=(3, 2)):
    return Allocation.singles(np.full(shape, value))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("all of it", "is a str and not an Allocation"),
        (shares(0.1, (2, 2)), r"has the shape \(2, 2\); the problem asks for \(3, 2\)"),
        (shares(np.nan), "not numbers"),
        (shares(-0.1), "negative fraction -0.1"),
        (shares(0.6), "gives a job 1.2 of the time"),
        (shares(0.4), "uses 2.0 workers of type 'warm-b', and 1.0 are in service"),
        (lambda _problem: 1 / 0, "failed with ZeroDivisionError.*fault of the policy"),
    ],
)
def test_an_answer_that_cannot_be_used_names_the_policy_and_the_reason(answer, said):
    answerer = PolicyAnswerer()
    answerer._policies["odd", ()] = Odd(answer=answer)
    with pytest.raises(SolveError, match=f"policy 'odd'.*{said}"):
        answerer.answer(("odd", ()), small_problem())


def test_an_answer_within_the_noise_of_solvers_is_good():
    x = np.array([[3 / 5, 1 / 5]] * 3) * (1 + 1e-6)
    check_answer(small_problem(), Allocation.singles(x - 1e-9))


def test_the_process_answers_until_the_line_is_closed(monkeypatch):
    """Here in the test's own process, which no parent is to be followed by."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    ours, theirs = multiprocessing.Pipe()
    tables, problem = TableOnce(), small_problem()
    for policy in ("fifo", "fifi"):
        ours.send(tables.packed(Question(policy=(policy, ()), problem=problem)))
    ours.send(tables.packed(Question(policy=("fifo", ()), problem=None)))
    answered = threading.Thread(target=PolicyAnswerer().serve, args=(theirs,))
    answered.start()
    assert ours.recv() is True
    assert isinstance(ours.recv(), Solved)
    assert "no policy is named 'fifi'" in ours.recv().reason
    assert isinstance(ours.recv(), Solved)
    ours.close()
    answered.join(10)
    assert not answered.is_alive()
    theirs.close()


def test_a_table_is_sent_once_until_another_comes_and_cannot_be_written_to():
    there, here = TableOnce(), TableOnce()
    first, second = small_problem(), small_problem()
    sizes = []
    for problem in (first, first, second, first, first):
        wire = pickle.dumps(there.packed(Question(policy=("fifo", ()), problem=problem)))
        sizes.append(len(wire))
        got = here.unpacked(*pickle.loads(wire)).problem
        assert got.table.profiles == problem.table.profiles
        assert (got.table.throughput == problem.table.throughput).all()
        assert (got.weight == problem.weight).all()
        with pytest.raises(ValueError, match="read-only"):
            got.table.throughput[0, 0] = 1.0
    assert sizes[0] == sizes[2] == sizes[3]
    assert sizes[1] == sizes[4] < sizes[0]


def test_only_the_last_few_policies_are_kept():
    answerer = PolicyAnswerer()
    for alpha in range(1, 8):
        answerer._policy(("alpha_fairness", (("alpha", str(alpha)),)))
    first = answerer._policy(("alpha_fairness", (("alpha", "7"),)))
    assert len(answerer._policies) == 4
    assert answerer._policy(("alpha_fairness", (("alpha", "7"),))) is first


def test_a_process_that_does_not_even_read_its_question_is_stopped_at_the_deadline(run):
    """A pipe takes 64 kB; the rest of a question waits until the process reads."""

    async def main():
        pool = SolverPool(PolicyAnswerer(), deadline_s=60.0)
        await pool.warm(FIFO)
        pool._deadline_s = 0.5
        before = pid_of(pool)
        os.kill(before, signal.SIGSTOP)
        problem = small_problem()
        object.__setattr__(problem, "profile", np.zeros(10**6, dtype=np.int64))
        with pytest.raises(SolveError, match=r"did not answer within 0\.5 s"):
            await pool.solve(FIFO, problem)
        assert pid_of(pool) != before
        pool._deadline_s = 60.0
        assert (await pool.solve(FIFO, small_problem())).allocation is not None
        await pool.close()

    run(main())
