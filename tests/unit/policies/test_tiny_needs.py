"""Jobs that need next to nothing of their time, beside jobs that need all that there is."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from policies import program
from policies.families import MaxMin
from policies.registry import make_policy
from policies.shares import isolated_throughput
from policies.solving import discipline, finish_time, level_then_sum
from policies.solving.classes import ClassProblem
from policies.solving.discipline import UnprovenError
from policies.solving.family import solve_family
from policies.testing import make_problem, make_table
from scheduler.errors import SolveError

#: Beside a partner that needs so much more a job has all that it needs at once.
PLENTY = 1e7
NEEDS = ("the engine's least", "one part in", "of every size", "one giant")


def unequal(problem, kind, seed):
    """Let the steps to go, and for some kinds the steps in all, be many magnitudes apart."""
    rng = np.random.default_rng(seed)
    left, total = problem.remaining_steps.copy(), problem.total_steps.copy()
    some = rng.random(problem.jobs) < rng.uniform(0.2, 0.8)
    some[rng.integers(problem.jobs)] = True
    if kind == NEEDS[0]:
        left[some] = 1e-9 * total[some]
    elif kind == NEEDS[1]:
        left[some] *= 10.0 ** rng.uniform(-14, -6)
    elif kind == NEEDS[2]:
        scale = 10.0 ** rng.uniform(-14, 0, problem.jobs)
        left, total = left * scale, total * scale
    else:
        left[0], total[0] = left[0] * 1e12, total[0] * 1e12
    return replace(problem, remaining_steps=left, total_steps=total)


def attainable(reference, need):
    """Return the largest t <= 2 for which all can have t times the steps/s needed, by scipy.

    Every column is scaled by what its members need of it, so that the program knows no large and
    no small jobs. A pair is offered once in the scale of each of its members.
    """
    rows = []
    for rate, time, held in reference.columns:
        for n in np.flatnonzero(rate):
            scale = need[n] / rate[n]
            level = np.minimum(scale * rate / need, PLENTY)
            rows.append(np.concatenate((-level, scale * time, scale * held)))
    jobs = len(need)
    rises = np.concatenate((np.ones(jobs), np.zeros(len(rows[0]) - jobs)))
    right = np.concatenate((np.zeros(jobs), reference.bounds))
    answer = linprog(
        np.append(np.zeros(len(rows)), -1.0),
        A_ub=np.stack([*rows, rises], axis=1),
        b_ub=right,
        bounds=[(0.0, None)] * len(rows) + [(0.0, 2.0)],
    )
    assert answer.status == 0
    return -answer.fun


def feasible(answer, problem):
    return bool(
        (answer.usage(problem) <= problem.capacity * (1 + 1e-9)).all()
        and (answer.time_fraction() <= 1 + 1e-9).all()
        and (answer.x >= 0).all()
        and (answer.pair_x >= 0).all()
    )


CASES = [
    (seed, kind, gangs, pairs)
    for seed, kind in enumerate(NEEDS * 4)
    for gangs, pairs in ((0, 0), (1, 0), (0, 1))
]


@pytest.mark.parametrize(("seed", "kind", "gangs", "pairs"), CASES)
def test_the_makespan_is_the_shortest_however_unequal_the_jobs(  # noqa: PLR0917
    problem_of, reference_of, seed, kind, gangs, pairs
) -> None:
    problem = unequal(problem_of(seed, jobs=9, gangs=gangs, pairs=pairs), kind, seed)
    answer = make_policy("makespan").allocate(problem)
    assert feasible(answer, problem)
    assert not answer.warnings
    end = (problem.remaining_steps / answer.effective_throughput(problem)).max()
    assert answer.objective == pytest.approx(end, rel=1e-6)
    need = problem.remaining_steps / end
    assert attainable(reference_of(problem), need) == pytest.approx(1.0, abs=2e-6)


@pytest.mark.parametrize(("seed", "kind", "gangs", "pairs"), CASES)
def test_the_worst_rho_is_the_least_however_unequal_the_jobs(  # noqa: PLR0917
    problem_of, reference_of, seed, kind, gangs, pairs
) -> None:
    problem = unequal(problem_of(seed, jobs=9, gangs=gangs, pairs=pairs), kind, seed)
    answer = make_policy("finish_time_fairness").allocate(problem)
    assert feasible(answer, problem)
    assert not answer.warnings
    promised = problem.total_steps / (problem.weight * isolated_throughput(problem))
    to_go = problem.remaining_steps / answer.effective_throughput(problem)
    rho = ((problem.age_s + to_go) / promised).max()
    assert answer.objective == pytest.approx(rho, rel=1e-6)
    reference = reference_of(problem)
    for factor, attained in ((1 + 4e-6, True), (1 - 4e-6, False)):
        left = factor * rho * promised - problem.age_s
        if not (left > 0).all():
            assert not attained
            continue
        t = attainable(reference, problem.remaining_steps / left)
        assert t >= 1 - 1e-7 if attained else t <= 1 + 1e-7


@pytest.mark.parametrize("kind", NEEDS)
def test_highs_answers_as_well_where_the_kernel_gives_up(problem_of, kind, monkeypatch) -> None:
    problem = unequal(problem_of(5, jobs=9), kind, 5)
    by_kernel = [make_policy(n).allocate(problem) for n in ("makespan", "finish_time_fairness")]
    monkeypatch.setattr(discipline, "solve_structured", lambda *_: None)
    monkeypatch.setattr(finish_time, "solve_structured_finish", lambda *_: None)
    for expected in by_kernel:
        name = "makespan" if expected is by_kernel[0] else "finish_time_fairness"
        answer = make_policy(name).allocate(problem)
        assert not answer.warnings
        assert answer.objective == pytest.approx(expected.objective, rel=4e-6)


def test_a_tiny_job_that_runs_only_in_company_is_given_it() -> None:
    # Job 1 makes progress only beside job 0, and needs a trillionth of what job 0 needs.
    table = make_table([[2.0], [0.0]], shared={(0, 1, 0): (1.0, 4.0)})
    problem = make_problem(table, capacity=[1], remaining_steps=[1e6, 1e-6])
    answer = make_policy("makespan").allocate(problem)
    assert not answer.warnings
    assert answer.objective == pytest.approx(5e5, rel=1e-6)
    assert answer.effective_throughput(problem)[1] >= 1e-6 / 5e5 * (1 - 1e-6)


def test_what_the_needy_leave_is_used_although_a_tiny_job_is_there() -> None:
    # Type 1 is only for job 2, which needs half of it; job 1 needs next to nothing of type 0.
    table = make_table([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    problem = make_problem(table, capacity=[1, 1], remaining_steps=[1e6, 1e-6, 5e5])
    answer = make_policy("makespan").allocate(problem)
    assert answer.objective == pytest.approx(1e6, rel=1e-6)
    assert answer.x.sum(axis=1)[[0, 2]] == pytest.approx([1.0, 1.0], rel=1e-5)


def test_without_a_better_second_stage_the_proven_first_stands(monkeypatch, problem_of) -> None:
    problem = unequal(problem_of(2, jobs=9, pairs=True), NEEDS[0], 2)
    expected = make_policy("makespan").allocate(problem).objective
    honest = level_then_sum.solve_level

    def only_first(stage, *before):
        if stage.price == 0.0:
            raise SolveError("no digits left")
        return honest(stage, *before)

    monkeypatch.setattr(level_then_sum, "solve_level", only_first)
    answer = make_policy("makespan").allocate(problem)
    assert answer.objective == pytest.approx(expected, rel=1e-6)
    assert not answer.warnings


def test_a_deadline_ages_away_does_not_break_min_cost() -> None:
    table = make_table([[1.0], [1.0]])
    problem = make_problem(
        table, capacity=[1], remaining_steps=[1e-3, 100.0], time_left_s=[1e12, 125.0]
    )
    answer = make_policy("min_cost").allocate(problem)
    assert not answer.warnings
    thr = answer.effective_throughput(problem)
    assert thr[0] >= 1e-15 * (1 - 1e-5)
    assert thr[1] >= 0.8 * (1 - 1e-5)


def unproven(bound):
    def fail(*_: object) -> None:
        raise UnprovenError("the kernel is out of order", bound)

    return fail


@pytest.fixture
def two_jobs():
    return make_problem(make_table([[4.0], [2.0]]), capacity=[1], remaining_steps=[400.0, 100.0])


def lazy(factor):
    """Let cvxpy's solvers return an honest answer that is ``factor`` of the best."""
    honest = cp.Problem.solve

    def solve(self, *args, **options):
        honest(self, *args, **options)
        (fraction,) = self.variables()
        fraction.value = fraction.value * factor
        self._value = self.objective.value

    return solve


def test_a_fallback_is_held_against_the_bound(two_jobs, monkeypatch) -> None:
    # 400 steps at 4/s and 100 at 2/s on one worker: 150 s in all, which the bound says too.
    classes = ClassProblem.build(two_jobs, (two_jobs.remaining_steps,))
    bound = solve_family(MaxMin(coefficient=1 / two_jobs.remaining_steps), classes).bound
    assert 1 / bound == pytest.approx(150.0)
    monkeypatch.setattr(program, "solve_family", unproven(bound))
    assert make_policy("makespan").allocate(two_jobs).objective == pytest.approx(150.0, rel=1e-5)
    monkeypatch.setattr(cp.Problem, "solve", lazy(1e-5))
    with pytest.raises(SolveError, match=r"CLARABEL: it is 100 % worse than the bound; .*SCS: "):
        make_policy("makespan").allocate(two_jobs)


def test_a_fallback_of_the_mean_utility_is_held_against_its_own_tangent(
    two_jobs, monkeypatch
) -> None:
    best = make_policy("proportional_fairness").allocate(two_jobs)
    monkeypatch.setattr(program, "solve_family", unproven(np.nan))
    answer = make_policy("proportional_fairness").allocate(two_jobs)
    assert answer.objective == pytest.approx(best.objective, abs=1e-6)
    monkeypatch.setattr(cp.Problem, "solve", lazy(0.5))
    with pytest.raises(SolveError, match="worse than the bound"):
        make_policy("proportional_fairness").allocate(two_jobs)


def test_a_fallback_of_a_sum_is_held_against_the_bound(two_jobs, monkeypatch) -> None:
    # All the time for the job that makes 4 steps/s.
    monkeypatch.setattr(program, "solve_family", unproven(4.0))
    assert make_policy("max_throughput").allocate(two_jobs).objective == pytest.approx(4.0)
    monkeypatch.setattr(cp.Problem, "solve", lazy(0.9))
    with pytest.raises(SolveError, match="it is 10 % worse than the bound"):
        make_policy("max_throughput").allocate(two_jobs)


def test_a_fallback_of_finish_times_is_held_against_the_bound(two_jobs, monkeypatch) -> None:
    rho = make_policy("finish_time_fairness").allocate(two_jobs).objective
    monkeypatch.setattr(program, "solve_family", unproven(rho))
    answer = make_policy("finish_time_fairness").allocate(two_jobs)
    assert answer.objective == pytest.approx(rho, rel=1e-5)
    monkeypatch.setattr(cp.Problem, "solve", lazy(0.5))
    with pytest.raises(SolveError, match="it is 100 % worse than the bound"):
        make_policy("finish_time_fairness").allocate(two_jobs)


def test_a_first_order_method_that_stopped_short_is_not_believed(two_jobs, monkeypatch) -> None:
    honest = cp.Problem.solve

    def only_scs(self, *args, solver, **options):
        if solver != "SCS":
            raise cp.error.SolverError("out of digits")
        honest(self, *args, solver=solver, **(options | {"max_iters": 1}))

    monkeypatch.setattr(program, "solve_family", unproven(np.nan))
    monkeypatch.setattr(cp.Problem, "solve", only_scs)
    with pytest.raises(SolveError, match=r"SCS: status .*inaccurate"):
        make_policy("makespan").allocate(two_jobs)


def test_the_yardstick_of_finish_times_knows_only_jobs_that_can_run() -> None:
    table = make_table([[4.0], [2.0], [1.0]], scale_factor=[1, 1, 8])
    figures = {"remaining_steps": 1000.0, "total_steps": 3000.0, "age_s": 500.0}
    alone = make_problem(table, capacity=[2], profile=[0, 1, 1], **figures)
    beside = make_problem(table, capacity=[2], profile=[0, 1, 1, 2, 2, 2], **figures)
    assert isolated_throughput(beside)[:3] == pytest.approx(isolated_throughput(alone))
    assert isolated_throughput(alone) == pytest.approx([8 / 3, 4 / 3, 4 / 3])
    policy = make_policy("finish_time_fairness")
    answer, expected = policy.allocate(beside), policy.allocate(alone)
    assert answer.objective == pytest.approx(expected.objective, rel=1e-6)
    assert answer.x[:3] == pytest.approx(expected.x, rel=1e-5)


def test_a_job_that_runs_only_in_company_counts_among_those_that_share() -> None:
    table = make_table([[4.0], [0.0]], shared={(0, 1, 0): (2.0, 2.0)})
    together = make_problem(table, capacity=[1], profile=[0, 1])
    assert isolated_throughput(together)[0] == pytest.approx(2.0)
    lonely = make_problem(table, capacity=[1], profile=[1, 1])
    assert np.isnan(isolated_throughput(lonely)).all()
