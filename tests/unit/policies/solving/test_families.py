"""Every family against a program written job by job and solved by another solver."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from policies.families import AlphaFair, FinishTime, MaxMin, WeightedSum
from policies.solving import alpha_fair, discipline, finish_time
from policies.solving.classes import ClassProblem
from policies.solving.family import solve_family
from policies.testing import make_problem, make_table
from scheduler.errors import SolveError

CASES = [
    pytest.param(seed, k, gangs, load, id=f"seed{seed}-K{k}{'-gangs' if gangs else ''}-load{load}")
    for seed, (k, gangs, load) in enumerate(
        [
            *((1, False, 1.5), (2, True, 0.4), (3, False, 0.5), (3, True, 3.0), (3, True, 1.0)),
            *((4, False, 6.0), (5, True, 1.2), (5, False, 0.3), (2, False, 1.0), (3, True, 0.7)),
        ]
    )
]


class Program:
    """The program over jobs, with neither classes nor kernels."""

    def __init__(self, problem):
        fits = (problem.demand <= problem.capacity).all(axis=2) & (problem.demand.max(axis=2) > 0)
        rate = np.where(fits, problem.throughput, 0.0)
        self.x = cp.Variable(rate.shape, nonneg=True)
        self.able = np.flatnonzero(rate.max(axis=1) > 0)
        self.thr = cp.sum(cp.multiply(rate, self.x), axis=1)[self.able]
        self.rows = [cp.sum(self.x, axis=1) <= 1, cp.multiply(rate <= 0, self.x) == 0]
        for k, workers in enumerate(problem.capacity):
            self.rows.append(cp.sum(cp.multiply(problem.demand[:, :, k], self.x)) <= workers)

    def best(self, objective, solver="HIGHS"):
        program = cp.Problem(cp.Maximize(objective), self.rows)
        program.solve(solver=solver, warm_start=False)
        assert program.status == "optimal"
        return program.value


def figures(problem):
    classes = ClassProblem.build(problem, (problem.remaining_steps, problem.age_s))
    even = np.maximum(problem.throughput.mean(axis=1), 1e-9)
    return classes, problem.scale_factor / (problem.weight * even), even


def assert_feasible(classes, answer):
    allocation = classes.expand(answer.x, answer.pair_x)
    assert allocation.x.min() >= 0
    assert allocation.time_fraction().max() <= 1 + 1e-12
    assert (allocation.usage(classes.problem) <= classes.problem.capacity * (1 + 1e-12)).all()


@pytest.mark.parametrize(("seed", "k", "gangs", "load"), CASES)
def test_max_min_and_makespan_are_optimal(seed, k, gangs, load, random_problem):
    problem = random_problem(seed, types=k, gangs=gangs, load=load)
    classes, fair, _ = figures(problem)
    program = Program(problem)
    for coefficient in (fair, 1.0 / problem.remaining_steps):
        scale = coefficient[program.able].max()
        answer = solve_family(MaxMin(coefficient=classes.of_jobs(coefficient)), classes)
        expected = program.best(cp.min(cp.multiply(coefficient[program.able] / scale, program.thr)))
        assert answer.value == pytest.approx(expected * scale, rel=1e-6)
        assert answer.solver == "interior"
        assert_feasible(classes, answer)


@pytest.mark.parametrize(("seed", "k", "gangs", "load"), CASES)
def test_sums_with_costs_and_requirements_are_optimal(seed, k, gangs, load, random_problem):
    problem = random_problem(seed, types=k, gangs=gangs, load=load)
    classes, fair, _ = figures(problem)
    program = Program(problem)
    answer = solve_family(WeightedSum(coefficient=classes.of_jobs(fair)), classes)
    assert answer.value == pytest.approx(program.best(fair[program.able] @ program.thr), rel=1e-6)
    assert_feasible(classes, answer)

    cost = 0.3 * np.random.default_rng(seed).uniform(0, 1, problem.throughput.shape)
    shared = cost[classes.representative][classes.class_of]
    least = 0.5 * classes.effective_throughput(answer.x, answer.pair_x)
    family = WeightedSum(
        coefficient=classes.of_jobs(fair), cost=cost[classes.representative], required=least
    )
    priced = solve_family(family, classes)
    program.rows.append(program.thr >= least[classes.class_of][program.able])
    expected = program.best(
        fair[program.able] @ program.thr - cp.sum(cp.multiply(shared, program.x))
    )
    assert priced.value == pytest.approx(expected, rel=1e-6)
    assert_feasible(classes, priced)


@pytest.mark.parametrize(("seed", "k", "gangs", "load"), CASES)
def test_finish_time_fairness_is_optimal(seed, k, gangs, load, random_problem):
    problem = random_problem(seed, types=k, gangs=gangs, load=load)
    classes, _, even = figures(problem)
    isolated = problem.age_s + problem.remaining_steps / even
    family = FinishTime(
        age=classes.of_jobs(problem.age_s),
        remaining=classes.of_jobs(problem.remaining_steps),
        isolated_time=classes.of_jobs(isolated),
    )
    answer = solve_family(family, classes)
    assert_feasible(classes, answer)
    program = Program(problem)

    def level(rho):
        span = (rho * isolated - problem.age_s)[program.able]
        need = problem.remaining_steps[program.able] / span
        return program.best(cp.min(cp.multiply(1 / need, program.thr)))

    assert level(answer.value * (1 + 2e-6)) >= 1 - 1e-7
    assert level(answer.value * (1 - 2e-6)) <= 1 + 1e-7


@pytest.mark.parametrize(("seed", "k", "gangs", "load"), CASES)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
def test_alpha_fairness_is_optimal(  # noqa: PLR0917
    seed, k, gangs, load, alpha, random_problem
):
    problem = random_problem(seed, types=k, gangs=gangs, load=load)
    classes, fair, _ = figures(problem)
    family = AlphaFair(
        weight=classes.of_jobs(problem.weight), coefficient=classes.of_jobs(fair), alpha=alpha
    )
    answer = solve_family(family, classes)
    program = Program(problem)
    t = cp.multiply(fair[program.able], program.thr)
    weight = problem.weight[program.able]
    utility = cp.log(t) if alpha == 1 else cp.power(t, 1 - alpha) / (1 - alpha)
    expected = program.best(weight @ utility, "CLARABEL")
    size = max(abs(expected), weight.sum())
    assert abs(answer.value - expected) <= 2e-6 * size
    assert answer.bound >= expected - 1e-6 * size
    assert_feasible(classes, answer)


@pytest.mark.parametrize("seed", range(4))
def test_the_value_does_not_depend_on_the_order_or_on_the_collapse(seed, random_problem):
    problem = random_problem(seed, jobs=30, load=2.0)
    order = np.random.default_rng(seed).permutation(30)
    shuffled = replace(
        problem,
        **{
            name: getattr(problem, name)[order]
            for name in ("profile", "scale_factor", "weight", "remaining_steps", "age_s")
        },
    )
    values = []
    for given, keys in (
        (problem, ()),
        (shuffled, ()),
        (problem, (np.arange(30.0),)),
    ):
        classes = ClassProblem.build(given, keys)
        even = np.maximum(classes.throughput.mean(axis=1), 1e-9)
        values.append(solve_family(MaxMin(coefficient=1 / even), classes).value)
    assert values == pytest.approx([values[0]] * 3, rel=1e-7)


def test_the_canonical_answer_is_pareto_efficient():
    # Job 0 runs on type 0 only, at rate 1 of at most 1; job 1 could have all of type 1.
    table = make_table([[1.0, 0.0], [0.0, 5.0]])
    classes = ClassProblem.build(make_problem(table, capacity=[1, 1]))
    answer = solve_family(MaxMin(coefficient=np.ones(2)), classes)
    assert answer.value == pytest.approx(1.0, rel=1e-7)
    assert answer.x.sum(axis=1) == pytest.approx([1.0, 1.0], rel=1e-7)


def test_one_job_on_one_worker_gets_all_of_it():
    classes = ClassProblem.build(make_problem(make_table([[2.0]]), capacity=[1]))
    one = np.ones(1)
    for family, value in (
        (MaxMin(coefficient=one), 2.0),
        (WeightedSum(coefficient=one), 2.0),
        (AlphaFair(weight=one, coefficient=one), np.log(2.0)),
        (FinishTime(age=one, remaining=one * 4, isolated_time=one * 6), 0.5),
    ):
        answer = solve_family(family, classes)
        assert answer.value == pytest.approx(value, rel=1e-6)
        assert answer.x == pytest.approx(np.ones((1, 1)), rel=1e-6)


def test_a_job_that_nothing_can_run_gets_nothing_and_is_named():
    table = make_table([[4.0], [8.0]], scale_factor=[1, 9])
    classes = ClassProblem.build(make_problem(table, capacity=[2]))
    kind, two = table.profiles[1].job_type, np.ones(2)
    for family in (
        MaxMin(coefficient=np.array([1.0, np.inf])),
        WeightedSum(coefficient=np.array([1.0, np.nan])),
        AlphaFair(weight=two, coefficient=two),
        FinishTime(age=two, remaining=two, isolated_time=two),
    ):
        answer = solve_family(family, classes)
        assert answer.x == pytest.approx(np.array([[1.0], [0.0]]), rel=1e-6)
        assert "1 jobs receive nothing" in answer.warnings[0]
        assert answer.warnings[0].endswith(f"of type '{kind}' at scale factor 9")


def test_nothing_at_all_can_run():
    table = make_table([[8.0]], scale_factor=[9])
    classes = ClassProblem.build(make_problem(table, capacity=[2]))
    one = np.ones(1)
    for family in (
        MaxMin(coefficient=one),
        WeightedSum(coefficient=one),
        AlphaFair(weight=one, coefficient=one),
        FinishTime(age=one, remaining=one, isolated_time=one),
    ):
        answer = solve_family(family, classes)
        assert (answer.x == 0).all()
        assert answer.solver == "none"
        assert len(answer.warnings) == 1


def test_highs_answers_where_the_kernel_gives_up(monkeypatch, random_problem):
    classes, fair, even = figures(random_problem(3, load=0.6))
    age, remaining = classes.problem.age_s, classes.problem.remaining_steps
    families = (
        MaxMin(coefficient=classes.of_jobs(fair)),
        FinishTime(age=age, remaining=remaining, isolated_time=age + remaining / even),
        AlphaFair(weight=np.ones(classes.size), coefficient=classes.of_jobs(fair)),
    )
    expected = [solve_family(f, classes) for f in families]
    monkeypatch.setattr(discipline, "solve_structured", lambda *_: None)
    monkeypatch.setattr(finish_time, "solve_structured_finish", lambda *_: None)
    monkeypatch.setattr(alpha_fair, "solve_structured_utility", lambda *_: None)
    for family, by_kernel in zip(families, expected, strict=True):
        answer = solve_family(family, classes)
        assert answer.solver in {"highs", "clarabel"}
        assert answer.value == pytest.approx(by_kernel.value, rel=2e-6)


def test_the_error_says_what_each_solver_got_wrong():
    classes = ClassProblem.build(make_problem(make_table([[1.0]]), capacity=[1]))
    impossible = WeightedSum(coefficient=np.ones(1), required=np.array([5.0]))
    with pytest.raises(SolveError, match=r"interior: .*; highs .*Infeasible"):
        solve_family(impossible, classes)
