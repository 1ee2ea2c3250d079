"""Progress per dollar, against the Charnes-Cooper linear program; deadlines by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policies.registry import make_policy
from policies.testing import make_problem, make_table


@pytest.mark.parametrize("normaliser", ["cost", "none"])
@pytest.mark.parametrize("seed", range(6))
def test_the_ratio_is_that_of_the_exact_linear_program(
    problem_of, reference_of, seed, normaliser
) -> None:
    price = [3.0, 1.0, 0.4]
    problem = problem_of(seed, gangs=seed > 2, pairs=seed % 2 == 1, cost_usd_per_hour=price)
    answer = make_policy("min_cost", {"normaliser": normaliser}).allocate(problem)
    fits = (problem.demand <= problem.capacity).all(axis=2) & (problem.throughput > 0)
    cost = np.where(fits, problem.demand @ price, np.inf)
    best = (problem.throughput / cost).max(axis=1) if normaliser == "cost" else 1.0
    coefficient = problem.weight / best
    exact = reference_of(problem).best_ratio(coefficient, price)
    progress = coefficient @ answer.effective_throughput(problem)
    assert answer.objective == pytest.approx(exact, rel=1e-5)
    assert progress / (answer.usage(problem) @ price) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_deadlines_that_can_be_met_are_met_at_the_best_ratio(
    problem_of, reference_of, seed
) -> None:
    price = np.array([5.0, 1.0, 1.0])
    plain = problem_of(seed, cost_usd_per_hour=price, weight=1.0)
    # Ask of two jobs for what max-min fairness gives them: that is attainable.
    fair = make_policy("max_min_fairness").allocate(plain).effective_throughput(plain)
    time_left = np.full(plain.jobs, np.inf)
    time_left[[1, 4]] = (plain.remaining_steps / fair)[[1, 4]] * 1.01
    problem = problem_of(seed, cost_usd_per_hour=price, weight=1.0, time_left_s=time_left)
    required = np.where(np.isfinite(time_left), plain.remaining_steps / time_left, 0.0)
    answer = make_policy("min_cost", {"normaliser": "none"}).allocate(problem)
    assert answer.warnings == ()
    assert (answer.effective_throughput(problem) >= required * (1 - 1e-5)).all()
    exact = reference_of(problem).best_ratio(np.ones(problem.jobs), price, required)
    assert answer.objective == pytest.approx(exact, rel=1e-4)


def test_a_job_runs_where_it_is_cheapest_and_elsewhere_only_for_its_deadline() -> None:
    # The fast worker is twice as fast and five times as dear.
    table = make_table([[2.0, 1.0]])
    price = [5.0, 1.0]
    problem = make_problem(table, capacity=[1, 1], cost_usd_per_hour=price)
    assert make_policy("min_cost").allocate(problem).x[0] == pytest.approx([0.0, 1.0])
    hurried = make_problem(
        table, capacity=[1, 1], cost_usd_per_hour=price, remaining_steps=150.0, time_left_s=100.0
    )
    answer = make_policy("min_cost").allocate(hurried)
    assert answer.x[0] == pytest.approx([0.5, 0.5], abs=1e-4)
    calm = make_policy("min_cost", {"deadlines": "no"}).allocate(hurried)
    assert calm.x[0] == pytest.approx([0.0, 1.0])


def test_deadlines_that_cannot_be_met_are_named_and_missed_by_the_least() -> None:
    table = make_table([[1.0]])
    problem = make_problem(
        table,
        capacity=[1],
        profile=[0, 0, 0, 0],
        job_number=[3, 5, 8, 9],
        remaining_steps=[60, 60, 500, 10],
        time_left_s=[100, 100, -1, np.inf],
    )
    answer = make_policy("min_cost").allocate(problem)
    assert answer.warnings[0] == "job 8: its deadline has passed"
    # 0.6 + 0.6 steps/s are asked for; the two jobs are alike and get 0.5 each.
    for number, warning in zip((3, 5), answer.warnings[1:], strict=True):
        assert f"job {number}: its deadline cannot be met; it needs 0.6 steps/s" in warning
    assert answer.x[:, 0] == pytest.approx([0.5, 0.5, 0, 0], abs=1e-5)


def test_a_deadline_beyond_the_job_s_best_is_served_as_well_as_can_be() -> None:
    problem = make_problem(
        make_table([[1.0, 0.5]]), capacity=[1, 1], remaining_steps=900.0, time_left_s=100.0
    )
    answer = make_policy("min_cost").allocate(problem)
    assert "needs 9 steps/s and can have 1" in answer.warnings[0]
    assert answer.x[0] == pytest.approx([1.0, 0.0], abs=1e-5)


def test_free_workers_are_preferred_and_a_price_list_of_zeros_is_reported() -> None:
    table = make_table([[2.0, 1.0]])
    problem = make_problem(table, capacity=[1, 1], cost_usd_per_hour=[4.0, 0.0])
    assert make_policy("min_cost").allocate(problem).x[0] == pytest.approx([0.0, 1.0])
    unpriced = make_problem(table, capacity=[1, 1], cost_usd_per_hour=[0.0, 0.0])
    answer = make_policy("min_cost").allocate(unpriced)
    assert "no worker type has a price" in answer.warnings[0]
    assert answer.x[0] == pytest.approx([1.0, 0.0])


def test_slack_keeps_more_workers_busy() -> None:
    # Steps per dollar: 3 on the cheap worker, 2 on the dear one.
    table = make_table([[2.0, 3.0]])
    problem = make_problem(table, capacity=[1, 1], profile=[0, 0])
    assert make_policy("min_cost").allocate(problem).usage(problem) == pytest.approx([0, 1])
    patient = make_policy("min_cost", {"slack": "0.5"}).allocate(problem)
    assert patient.usage(problem) == pytest.approx([1, 1])
    assert patient.objective == pytest.approx((2 + 3) / 3 / 2)


def test_where_nothing_can_run_the_answer_is_zeros() -> None:
    problem = make_problem(make_table([[1.0]], scale_factor=[4]), capacity=[2], time_left_s=10.0)
    answer = make_policy("min_cost").allocate(problem)
    assert answer.x.sum() == 0
    assert answer.objective == 0
