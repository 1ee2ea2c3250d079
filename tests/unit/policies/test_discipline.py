"""How programs are solved: refusals, fallbacks, and messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest

from policies import program
from policies.families import AlphaFair, MaxMin
from policies.program import ProgramPolicy, solve
from policies.registry import make_policy
from policies.terms import Terms
from policies.testing import make_problem, make_table
from scheduler.domain.problem import Entity
from scheduler.errors import SolveError


@dataclass(frozen=True, kw_only=True)
class Plain(ProgramPolicy):
    """Only an objective, as a plugin writes it."""

    name: ClassVar[str] = "plain"

    def objective(self, terms):
        return cp.sum(cp.multiply(terms.count, terms.throughput))


@pytest.fixture
def problem():
    return make_problem(make_table([[4.0, 1.0], [2.0, 2.0]]), capacity=[1, 1], profile=[0, 1, 1])


def test_an_objective_in_cvxpy_is_all_that_a_policy_needs(problem) -> None:
    answer = Plain().allocate(problem)
    assert answer.objective == pytest.approx(6.0)
    assert answer.solver == "highs"
    assert answer.x[0].tolist() == [1.0, 0.0]


def test_constraints_of_the_policy_hold(problem) -> None:
    class Thrifty(Plain):
        def constraints(self, terms):
            return [terms.cost <= 1.5, terms.time_fraction <= 0.7, terms.workers <= 0.9]

    answer = Thrifty().allocate(problem)
    assert answer.usage(problem).sum() <= 1.5 + 1e-6
    assert answer.time_fraction().max() <= 0.7 + 1e-6


def test_a_quadratic_objective_goes_to_the_conic_solver(problem) -> None:
    class Even(Plain):
        def objective(self, terms):
            return cp.Minimize(cp.sum_squares(terms.throughput - 1.0))

    answer = Even().allocate(problem)
    assert answer.solver == "clarabel"
    assert answer.effective_throughput(problem) == pytest.approx([1.0, 1.0, 1.0], abs=1e-4)


def test_whole_numbers_are_allowed(problem) -> None:
    class Whole(Plain):
        def constraints(self, terms):
            on = cp.Variable(terms.throughput.shape, boolean=True)
            return [terms.time_fraction == on]

    # Two workers: the first job alone (4 steps/s), or both jobs of the other class (2 + 2).
    assert Whole().allocate(problem).objective == pytest.approx(4.0)


def test_an_objective_that_is_not_concave_is_refused_with_the_rules(problem) -> None:
    class Convex(Plain):
        def objective(self, terms):
            return cp.sum_squares(terms.throughput)

    with pytest.raises(
        SolveError, match="policy 'plain': cvxpy does not accept the program as convex"
    ):
        Convex().allocate(problem)


def test_constraints_that_contradict_each_other_name_solvers_and_policy(problem) -> None:
    class Impossible(Plain):
        def constraints(self, terms):
            return [terms.throughput >= 100.0]

    with pytest.raises(SolveError, match=r"policy 'plain'.*HIGHS: status infeasible.*CLARABEL"):
        Impossible().allocate(problem)


def test_an_unbounded_program_is_an_error(problem) -> None:
    class Unbounded(Plain):
        def objective(self, terms):
            return cp.sum(terms.throughput) + cp.Variable()

    with pytest.raises(SolveError, match="unbounded"):
        Unbounded().allocate(problem)


def test_a_figure_that_is_read_without_being_declared_is_an_error(problem) -> None:
    class Undeclared(Plain):
        def objective(self, terms):
            return cp.sum(cp.multiply(terms.remaining_steps, terms.throughput))

    with pytest.raises(
        SolveError, match=r"reads 'remaining_steps' without declaring it.*set reads"
    ):
        Undeclared().allocate(problem)


def test_a_declaration_of_an_unknown_figure_lists_the_known_ones(problem) -> None:
    class Unknown(Plain):
        reads: ClassVar[tuple[str, ...]] = ("colour",)

    with pytest.raises(SolveError, match="it reads 'colour', which no problem has; there are: rem"):
        Unknown().allocate(problem)


def test_every_figure_of_the_jobs_can_be_read() -> None:
    problem = make_problem(
        make_table([[4.0, 1.0]]),
        capacity=[2, 1],
        profile=[0, 0],
        remaining_steps=[5, 7],
        total_steps=[8, 9],
        age_s=[1, 2],
        time_left_s=[30, np.inf],
        attained_worker_s=[3, 4],
        entity=[1, 0],
        entities=(Entity(name="a"), Entity(name="b")),
        now_s=100.0,
    )
    reads = program.Terms.build(
        problem,
        reads=(
            "remaining_steps",
            "total_steps",
            "age_s",
            "time_left_s",
            "attained_worker_s",
            "entity",
            "job_number",
        ),
        policy="p",
    )
    assert reads.count.tolist() == [1, 1]
    assert reads.remaining_steps.tolist() == [5, 7]
    assert reads.total_steps.tolist() == [8, 9]
    assert reads.age_s.tolist() == [1, 2]
    assert reads.deadline_s.tolist() == [130, np.inf]
    assert reads.time_left_s.tolist() == [30, np.inf]
    assert reads.attained_worker_s.tolist() == [3, 4]
    assert reads.entity.tolist() == [1, 0]
    assert reads.job_number.tolist() == [0, 1]
    assert [e.name for e in reads.entities] == ["a", "b"]
    assert reads.cost_usd_per_hour.tolist() == [1, 1]
    assert reads.best_throughput.tolist() == [4, 4]
    assert reads.weight.tolist() == [1, 1]


def test_jobs_that_cannot_run_stay_out_of_the_program() -> None:
    problem = make_problem(make_table([[4.0], [3.0]], scale_factor=[1, 8]), capacity=[1])

    class Worst(Plain):
        def objective(self, terms):
            return cp.min(terms.throughput)

    answer = Worst().allocate(problem)
    assert answer.objective == pytest.approx(4.0)
    nothing = make_problem(make_table([[3.0]], scale_factor=[8]), capacity=[1])
    assert Worst().allocate(nothing).x.tolist() == [[0.0]]


def test_when_the_kernel_fails_cvxpy_answers_and_says_why(problem, monkeypatch) -> None:
    class Fair(Plain):
        def objective(self, terms):
            return cp.min(terms.throughput)

        def family(self, terms):
            return MaxMin(coefficient=np.ones(len(terms.rows)))

    kernel = Fair().allocate(problem)

    def fail(*_: object) -> None:
        raise SolveError("the kernel is out of order")

    monkeypatch.setattr(program, "solve_family", fail)
    answer = Fair().allocate(problem)
    assert answer.objective == pytest.approx(kernel.objective, rel=1e-6)
    assert answer.warnings == ("solved by cvxpy because the kernel is out of order",)


@pytest.mark.parametrize(
    "family",
    [
        lambda one: MaxMin(coefficient=one * np.nan),
        lambda one: MaxMin(coefficient=one, worth=one * np.nan),
        lambda one: AlphaFair(weight=one, coefficient=one * np.nan, alpha=2.0),
        lambda one: AlphaFair(weight=one * np.nan, coefficient=one, alpha=2.0),
    ],
)
def test_a_family_with_numbers_that_are_none_is_left_to_cvxpy(problem, family) -> None:
    class Fair(Plain):
        def objective(self, terms):
            return cp.min(terms.throughput)

        def family(self, terms):
            return family(np.ones(len(terms.rows)))

    answer = Fair().allocate(problem)
    (warning,) = answer.warnings
    assert "of its family is not a number for every job" in warning
    assert answer.x.any()


def test_an_answer_that_does_not_keep_its_promise_goes_to_the_next_solver(
    problem, monkeypatch
) -> None:
    terms = Terms.build(problem, reads=(), policy="p")
    asked: list[str] = []
    honest = cp.Problem.solve

    def lying(self, *args, solver, **options):
        asked.append(solver)
        honest(self, *args, solver=solver, **options)
        if solver == "HIGHS":
            terms.layout.v.value = terms.layout.v.value * 2.0  # no cluster has that many workers

    monkeypatch.setattr(cp.Problem, "solve", lying)
    value, solver = solve(terms, cp.sum(cp.multiply(terms.count, terms.throughput)))
    assert asked == ["HIGHS", "CLARABEL"]
    assert solver == "clarabel"
    assert value == pytest.approx(6.0, rel=1e-6)


def test_a_solver_that_raises_or_breaks_a_constraint_is_named(problem, monkeypatch) -> None:
    terms = Terms.build(problem, reads=(), policy="p")
    honest = cp.Problem.solve

    def broken(self, *args, solver, **options):
        if solver == "HIGHS":
            raise cp.error.SolverError("no licence\nand more")
        honest(self, *args, solver=solver, **options)
        extra.value = 5.0

    extra = cp.Variable()
    monkeypatch.setattr(cp.Problem, "solve", broken)
    with pytest.raises(SolveError, match="HIGHS: no licence; CLARABEL: a constraint is missed by"):
        solve(terms, cp.sum(terms.throughput), [extra == 1.0])


def test_an_objective_that_is_no_number_is_refused(problem, monkeypatch) -> None:
    terms = Terms.build(problem, reads=(), policy="p")
    honest = cp.Problem.solve

    def zeros(self, *args, **options):
        honest(self, *args, **options)
        terms.layout.v.value = terms.layout.v.value * 0.0

    monkeypatch.setattr(cp.Problem, "solve", zeros)
    with pytest.raises(SolveError, match="the objective is -inf"), np.errstate(divide="ignore"):
        solve(terms, cp.sum(cp.log(terms.throughput)))


def test_a_conic_solver_that_gives_up_hands_over_to_the_stated_program(monkeypatch) -> None:
    table = make_table([[4.0], [2.0]], shared={(0, 1, 0): (3.0, 1.5)})
    crowded = make_problem(table, capacity=[1], profile=[0, 1, 1])
    expected = make_policy("proportional_fairness").allocate(crowded)
    honest = cp.Problem.solve
    calls: list[str] = []

    def first_gives_up(self, *args, solver, **options):
        calls.append(solver)
        if len(calls) == 1:
            raise cp.error.SolverError("out of digits")
        honest(self, *args, solver=solver, **options)

    monkeypatch.setattr(cp.Problem, "solve", first_gives_up)
    answer = make_policy("proportional_fairness").allocate(crowded)
    assert "out of digits" in answer.warnings[0]
    assert answer.objective == pytest.approx(expected.objective, abs=1e-6)


@pytest.mark.parametrize(("objective", "said"), [
    (lambda _: None, "its method 'objective' returns nothing; return an expression"),
    (lambda terms: terms.throughput, r"its objective has the shape \(2,\).*it must be one number"),
])  # fmt: skip
def test_an_objective_that_is_no_number_is_refused_with_the_remedy(problem, objective, said):
    class Odd(Plain):
        def objective(self, terms):
            return objective(terms)

    with pytest.raises(SolveError, match=f"policy 'plain': {said}"):
        Odd().allocate(problem)
