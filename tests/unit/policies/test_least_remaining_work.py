"""Least remaining work: hand computations, and whole answers against scipy's branch and bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from policies.built_in.least_remaining_work import LeastRemainingWork
from policies.solving import integral
from policies.solving.classes import ClassProblem
from policies.testing import make_problem, make_table
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.errors import SolveError

SEEDS = st.integers(0, 10**6)
HOUR_S = 3600.0


def value_by_hand(problem, shortness, patience):
    """One job at a time, from the formula in the docstring."""
    values = []
    for n in range(problem.jobs):
        profile = problem.profile[n]
        rates = problem.table.throughput[profile]
        demand = problem.table.demand[profile]
        best = max(r for r, d in zip(rates, demand, strict=True) if (d <= problem.capacity).all())
        s = problem.scale_factor[n]
        hours = problem.remaining_steps[n] / best / HOUR_S
        share = problem.capacity / problem.jobs
        on_share = sum(r * share @ (d > 0) for r, d in zip(rates, demand, strict=True))
        isolated = on_share / (max(share.sum() / s, 1.0) * s)
        rho = (problem.age_s[n] + hours * HOUR_S) * isolated / problem.total_steps[n]
        value = problem.weight[n] * s / best * (s * hours) ** -shortness
        values.append(value * max(1.0, rho / patience))
    return np.array(values)


@settings(max_examples=40)
@given(seed=SEEDS, gangs=st.booleans(), pairs=st.booleans())
def test_no_whole_allocation_is_worth_more(problem_of, reference_of, seed, gangs, pairs) -> None:
    problem = problem_of(seed, gangs=gangs, pairs=pairs)
    answer = LeastRemainingWork(shortness=0.3, patience=0.4).allocate(problem)
    value = value_by_hand(problem, 0.3, 0.4)
    columns = reference_of(problem)
    best = milp(
        -(value @ columns.rate),
        constraints=LinearConstraint(columns.rows, ub=columns.bounds),
        bounds=Bounds(0, 1),
        integrality=np.ones(columns.rate.shape[1]),
    )
    assert answer.objective == pytest.approx(-best.fun, rel=1.01e-4)
    assert answer.objective == pytest.approx(value @ answer.effective_throughput(problem))
    assert set(np.unique(answer.x)) <= {0.0, 1.0}
    assert (answer.pair_x == 1.0).all()


@settings(max_examples=20)
@given(seed=SEEDS, gangs=st.booleans(), pairs=st.booleans())
def test_fractions_are_the_optimum_of_the_linear_program(
    problem_of, reference_of, seed, gangs, pairs
) -> None:
    problem = problem_of(seed, gangs=gangs, pairs=pairs)
    answer = LeastRemainingWork(whole=False, shortness=0.3, patience=0.4).allocate(problem)
    best = reference_of(problem).weighted_sum(value_by_hand(problem, 0.3, 0.4))
    assert answer.objective == pytest.approx(best, rel=1e-6)


def test_the_job_with_less_to_go_runs() -> None:
    problem = make_problem(make_table([[2.0], [1.0]]), capacity=[1], remaining_steps=[5e3, 3e3])
    answer = LeastRemainingWork().allocate(problem)
    assert answer.x[:, 0].tolist() == [1.0, 0.0]  # 2,500 s against 3,000 s
    assert answer.rank is not None
    assert answer.rank[0] < answer.rank[1]


def test_a_job_that_waited_beyond_its_isolated_time_overtakes() -> None:
    table = make_table([[1.0]])
    shares = {"capacity": [1], "profile": [0, 0], "remaining_steps": [1e3, 4e3]}
    # Each is entitled to half the worker, so that the long one should need 8,000 s. Its weight is
    # 4 ** -0.15 = 0.81 of the other's, times rho / 0.5 = (age + 4,000) / 4,000.
    patient = make_problem(table, **shares, total_steps=[1e3, 4e3], age_s=[0.0, 400.0])
    assert LeastRemainingWork().allocate(patient).x[:, 0].tolist() == [1.0, 0.0]
    waited = make_problem(table, **shares, total_steps=[1e3, 4e3], age_s=[0.0, 1200.0])
    assert LeastRemainingWork().allocate(waited).x[:, 0].tolist() == [0.0, 1.0]
    never = LeastRemainingWork(patience=None).allocate(waited)
    assert never.x[:, 0].tolist() == [1.0, 0.0]


def test_a_gang_counts_for_the_workers_that_it_keeps_busy() -> None:
    table = make_table([[1.0], [1.0]], scale_factor=[1, 4])
    # Four singles of 4,000 s or a gang of the same work, 4 x 1,000 s: alike but for rounding; with
    # a little less to go the gang runs.
    jobs = {"capacity": [4], "profile": [0, 0, 0, 0, 1]}
    policy = LeastRemainingWork(patience=None)
    gang = make_problem(table, **jobs, remaining_steps=[4e3, 4e3, 4e3, 4e3, 900.0])
    assert policy.allocate(gang).x[:, 0].tolist() == [0, 0, 0, 0, 1]
    singles = make_problem(table, **jobs, remaining_steps=[4e3, 4e3, 4e3, 4e3, 1100.0])
    assert policy.allocate(singles).x[:, 0].tolist() == [1, 1, 1, 1, 0]


def test_fractions_of_gangs_that_never_fit_together_are_not_whole() -> None:
    table = make_table([[1.0], [1.0]], scale_factor=[5, 8])
    problem = make_problem(table, capacity=[8], remaining_steps=[800.0, 500.0])
    fractions = LeastRemainingWork(whole=False).allocate(problem)
    assert fractions.x[:, 0] == pytest.approx([1.0, 3 / 8])
    assert LeastRemainingWork().allocate(problem).x.sum() == 1.0


def test_a_job_moves_only_when_that_pays_for_its_restart() -> None:
    table = make_table([[1.0, 1.1]])
    job = {"capacity": [1, 1], "held": [0], "remaining_steps": 1e5}
    stays = make_problem(table, **job, restart_s=600.0)
    assert LeastRemainingWork().allocate(stays).x[0].tolist() == [1.0, 0.0]  # 1.1 x 5/6 < 1
    moves = make_problem(table, **job, restart_s=120.0)
    assert LeastRemainingWork().allocate(moves).x[0].tolist() == [0.0, 1.0]  # 1.1 x 29/30 > 1
    assert LeastRemainingWork(horizon_s=1000.0).allocate(moves).x[0].tolist() == [1.0, 0.0]


def test_a_job_that_nothing_can_run_gets_nothing_and_a_warning() -> None:
    table = make_table([[1.0], [1.0]], scale_factor=[1, 4])
    problem = make_problem(table, capacity=[2], remaining_steps=[100.0, 100.0])
    answer = LeastRemainingWork().allocate(problem)
    assert answer.x[:, 0].tolist() == [1.0, 0.0]
    assert "receive nothing" in answer.warnings[0]


def test_the_greedy_answer_stands_where_the_search_finds_none(monkeypatch, problem_of) -> None:
    monkeypatch.setattr(integral, "_search", lambda *_: None)
    problem = problem_of(3, gangs=True, pairs=True)
    answer = LeastRemainingWork().allocate(problem)
    assert answer.solver == "prices"
    assert (answer.usage(problem) <= problem.capacity).all()
    assert (answer.time_fraction() <= 1.0).all()


def test_a_whole_allocation_is_over_single_jobs() -> None:
    problem = make_problem(make_table([[1.0]]), capacity=[1], profile=[0, 0])
    classes = ClassProblem.build(problem)
    with pytest.raises(SolveError, match="job_number"):
        integral.solve_whole(classes, np.ones((1, 1)))


def test_an_elastic_job_counts_for_the_workers_that_it_keeps_busy() -> None:
    # 60 s or 60,000 s on all workers: the short one first, though it could run on one worker.
    ways = tuple(Configuration(demand=(n,), throughput=float(n)) for n in (1, 8))
    table = ConfigurationTable.build(
        ("v",),
        (
            Profile(job_type="elastic", scale_factor=1, configurations=ways),
            Profile(job_type="rigid", scale_factor=8, configurations=ways[1:]),
        ),
    )
    problem = make_problem(table, capacity=[8], remaining_steps=[480.0, 480_000.0])
    answer = LeastRemainingWork().allocate(problem)
    assert answer.x.tolist() == [[0, 1], [0, 0]]
    assert answer.rank[0] < answer.rank[1]
