"""Least cost against cvxpy and HiGHS, Gavel's ratio against a linear program; deadlines by hand."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from policies.registry import make_policy
from policies.testing import make_problem, make_table
from scheduler.domain.quota import Caps

#: The cost of a step beyond the cheapest, by the policy's own account.
ALIKE = 1e-6
PRICE = np.array([3.0, 1.0, 0.4])


@pytest.mark.parametrize("seed", range(6))
def test_gavel_s_ratio_is_that_of_the_exact_linear_program(problem_of, reference_of, seed) -> None:
    problem = problem_of(seed, gangs=seed > 2, pairs=seed % 2 == 1, cost_usd_per_hour=PRICE)
    answer = make_policy("min_cost", {"normaliser": "none"}).allocate(problem)
    exact = reference_of(problem).best_ratio(problem.weight, PRICE)
    progress = problem.weight @ answer.effective_throughput(problem)
    assert answer.objective == pytest.approx(exact, rel=1e-5)
    assert progress / (answer.usage(problem) @ PRICE) == pytest.approx(exact, rel=1e-5)


def drawn_caps(rng, jobs, types) -> Caps:
    q = int(rng.integers(1, 4))
    return Caps(
        limit=rng.integers(1, 4, q).astype(float),
        counts=rng.random((q, types)) < 0.7,
        member=rng.random((3, q)) < 0.6,
        group=rng.integers(0, 3, jobs),
    )


def cheapest(problem) -> np.ndarray:
    """Return (N,) USD per hour for a step/s where each job is cheapest by itself."""
    fits = (problem.demand <= problem.capacity).all(axis=2) & (problem.throughput > 0)
    if problem.caps is not None:
        held = problem.caps.held(problem.caps.group, problem.demand)
        fits &= (held <= problem.caps.limit).all(axis=2)
    step = np.full(problem.throughput.shape, np.inf)
    np.divide(problem.demand @ PRICE, problem.throughput, out=step, where=fits)
    least = step.min(axis=1)
    return np.where(np.isfinite(least), least, 0.0)


def by_cvxpy(problem, reference, required, dear=1.0) -> tuple[float, float]:
    """Solve the two programs one after the other, over every job and pair, with HiGHS."""
    rate, held = reference.rate, reference.held[: len(PRICE)]
    v = cp.Variable(rate.shape[1], nonneg=True)
    rows = [reference.rows @ v <= reference.bounds, rate @ v >= required]
    step = cheapest(problem)
    saving = (step @ rate - dear * PRICE @ held) @ v
    most = cp.Problem(cp.Maximize(saving), rows).solve(solver=cp.HIGHS)
    first = (1 + problem.weight / problem.weight.max()) * step
    kept = [*rows, saving >= most - 1e-7]
    return most, cp.Problem(cp.Maximize(first @ (rate @ v)), kept).solve(solver=cp.HIGHS)


@pytest.mark.parametrize("quotas", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_nothing_saves_more_and_of_what_does_nothing_does_more(
    problem_of, reference_of, seed, quotas
) -> None:
    rng = np.random.default_rng(1000 + seed)
    jobs, due = int(rng.integers(5, 12)), seed % 3 > 0
    shape = {"jobs": jobs, "gangs": seed % 4 > 1, "pairs": seed % 2 == 1 and not quotas}
    weight = rng.choice([1.0, 2.0, 5.0, 100.0], jobs)
    plain = problem_of(seed, **shape, cost_usd_per_hour=PRICE, weight=weight)
    if quotas:
        plain = replace(plain, caps=drawn_caps(rng, jobs, 3))
    # Half of what max-min fairness gives is asked of some jobs: that is attainable.
    fair = make_policy("max_min_fairness").allocate(plain).effective_throughput(plain)
    asked = np.where((rng.random(jobs) < 0.5) & (fair > 1e-6) & due, 0.5 * fair, 0.0)
    left = np.divide(plain.remaining_steps, asked, out=np.full(jobs, np.inf), where=asked > 0)
    problem = replace(plain, time_left_s=left)
    answer = make_policy("min_cost").allocate(problem)
    # Floors are aimed at two rounds early; what that comes to is part of the program.
    thr = answer.effective_throughput(problem)
    assert (thr >= asked * (1 - 1e-5)).all()
    margin = 2 * problem.round_length_s + problem.restart_s
    fits = (problem.demand <= problem.capacity).all(axis=2)
    fastest = np.where(fits, problem.throughput, 0.0).max(axis=1)
    aim = np.maximum(left - margin, np.minimum(problem.remaining_steps / fastest, left))
    early = np.where(asked > 0, problem.remaining_steps / aim, 0.0)
    required = np.where(thr >= early * (1 - 1e-5), early, asked) * (1 - 2e-5)
    reference, step, dear = reference_of(problem), cheapest(problem), 1.0
    if shape["pairs"]:
        dear = max(reference.best_ratio(step, PRICE, required), 1.0)
    most, best = by_cvxpy(problem, reference, required, dear)
    saved = step @ thr - dear * answer.usage(problem) @ PRICE
    worth = max(step @ thr, 1e-3)
    assert saved >= most - (ALIKE + 3e-5) * worth
    first = (1 + problem.weight / problem.weight.max()) * step
    assert first @ thr >= best - 1e-4 * worth
    assert answer.objective == pytest.approx(step @ thr / (answer.usage(problem) @ PRICE or 1.0))


def test_light_jobs_run_beside_heavy_ones_as_long_as_a_worker_is_left() -> None:
    # Progress per dollar summed by weight was best with the three heavy jobs alone.
    weight = [1, 1, 1, 5, 5, 5]
    table = make_table([[2.0, 1.0]])  # the second type is dearer for every step
    problem = make_problem(
        table,
        capacity=[4, 4],
        profile=[0] * 6,
        weight=weight,
        cost_usd_per_hour=[1.46, 3.06],
    )
    answer = make_policy("min_cost").allocate(problem)
    assert answer.x[:, 0] == pytest.approx([1 / 3] * 3 + [1.0] * 3, abs=1e-5)
    assert answer.usage(problem) == pytest.approx([4.0, 0.0], abs=1e-5)
    assert answer.objective == pytest.approx(1.0)


@pytest.mark.parametrize("light", [1e-3, 1e-9])
def test_however_light_a_job_is_it_gets_what_nobody_else_can_use(light) -> None:
    problem = make_problem(
        make_table([[1.0]]), capacity=[3], profile=[0, 0], weight=[light, 1.0 / light]
    )
    assert make_policy("min_cost").allocate(problem).x[:, 0] == pytest.approx([1.0, 1.0])


def test_a_deadline_on_a_dear_worker_brings_nobody_else_there() -> None:
    # The ratio of all progress to all cost fell with the first job's deadline to where the second
    # one's steps on the dear worker, at 5/6 of its best, looked like a gain.
    table = make_table([[3.0, 1.0], [5.0, 1.0]])
    problem = make_problem(
        table,
        capacity=[2, 1],
        cost_usd_per_hour=[6.0, 1.0],
        remaining_steps=[3e5, 5e6],
        time_left_s=[1.02e5, np.inf],
    )
    answer = make_policy("min_cost").allocate(problem)
    assert answer.x[0, 0] > 0.95
    assert answer.x[1, 0] == pytest.approx(0.0, abs=1e-5)


def test_who_is_nowhere_dearer_is_offered_what_rounds_leave_over() -> None:
    # Two gangs of three on four workers leave one idle in each round. It costs a single job no more
    # than any other; the job that could be cheaper elsewhere waits for that.
    table = make_table([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]], scale_factor=[3, 1, 1])
    problem = make_problem(
        table,
        capacity=[4, 1],
        profile=[0, 0, 1, 2],
        weight=[9, 9, 1, 1],
        cost_usd_per_hour=[2.0, 1.0],
    )
    answer = make_policy("min_cost").allocate(problem)
    assert answer.no_backfill.tolist() == [False, False, False, True]


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


def test_to_be_ahead_of_time_costs_no_deadline_anything() -> None:
    """The three need .5, .55 and .95 of one worker. By hand: the first two are met before."""
    problem = make_problem(
        make_table([[1.0]] * 3),
        capacity=[1],
        remaining_steps=[5e5, 550.0, 9.5e5],
        time_left_s=[1e6, 1000.0, 1e6],
        round_length_s=360.0,
    )
    answer = make_policy("min_cost").allocate(problem)
    needs = problem.remaining_steps / problem.time_left_s
    short = 1.0 - np.minimum(answer.effective_throughput(problem) / needs, 1.0)
    assert short.sum() == pytest.approx(1.0 + 0.05 / 0.55, abs=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_deadlines_fall_short_by_the_least(seed) -> None:
    """Against a linear program of shortfalls alone, by another solver."""
    rng = np.random.default_rng(seed)
    jobs, types = 5, 2
    rates = rng.uniform(1.0, 5.0, (jobs, types))
    time_left_s = rng.uniform(800.0, 1e5, jobs)
    needs = rng.uniform(0.3, 1.2, jobs) * rates.max(axis=1)
    problem = make_problem(
        make_table(rates.tolist()),
        capacity=[1, 1],
        remaining_steps=needs * time_left_s,
        time_left_s=time_left_s,
        weight=rng.choice([1.0, 3.0], jobs),
        round_length_s=360.0,
    )
    answer = make_policy("min_cost").allocate(problem)
    short = 1.0 - np.minimum(answer.effective_throughput(problem) / needs, 1.0)
    x, missing = cp.Variable((jobs, types), nonneg=True), cp.Variable(jobs, nonneg=True)
    reached = cp.sum(cp.multiply(rates / needs[:, None], x), axis=1)
    within = [cp.sum(x, axis=1) <= 1, cp.sum(x, axis=0) <= 1, reached + missing >= 1]
    least = cp.Problem(cp.Minimize(problem.weight @ missing), within).solve(solver=cp.CLARABEL)
    assert problem.weight @ short == pytest.approx(least, abs=1e-4)


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
