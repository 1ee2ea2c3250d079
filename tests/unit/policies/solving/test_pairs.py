"""Space sharing against the whole linear program, job pair by job pair."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from policies.families import AlphaFair, FinishTime, MaxMin, WeightedSum
from policies.solving import discipline
from policies.solving.classes import ClassProblem
from policies.solving.family import solve_family


def columns_of(problem):
    """Every single and every ordered pair of jobs: (N, C) throughput, (N, C) time, (K, C) held."""
    table, n = problem.table, problem.jobs
    rate, time, held = [], [], []

    def add(members, rates, demand):
        if (demand <= problem.capacity).all() and max(rates) > 0:
            column, share = np.zeros(n), np.zeros(n)
            column[list(members)] = rates
            share[list(members)] = 1
            rate.append(column)
            time.append(share)
            held.append(demand)

    for m in range(n):
        for j, speed in enumerate(problem.throughput[m]):
            add((m,), (speed,), problem.demand[m, j])
    for (a, b), demand, rates in zip(
        table.pair_profiles, table.pair_demand, table.pair_throughput, strict=True
    ):
        for m in np.flatnonzero(problem.profile == a):
            for q in np.flatnonzero(problem.profile == b):
                if m != q:
                    add((m, q), rates, demand)
    return np.array(rate).T, np.array(time).T, np.array(held).T


def highest_level(problem, need):
    """Largest z such that thr >= need z for every job that can run."""
    rate, time, held = columns_of(problem)
    able = rate.max(axis=1) > 0
    level = np.hstack([-rate[able] / need[able, None], np.ones((able.sum(), 1))])
    limits = np.hstack([np.vstack([time, held]), np.zeros((len(time) + len(held), 1))])
    answer = linprog(
        np.append(np.zeros(rate.shape[1]), -1.0),
        A_ub=np.vstack([level, limits]),
        b_ub=np.concatenate([np.zeros(able.sum()), np.ones(len(time)), problem.capacity]),
    )
    return -answer.fun


def largest_sum(problem, coefficient):
    rate, time, held = columns_of(problem)
    answer = linprog(
        -coefficient @ rate,
        A_ub=np.vstack([time, held]),
        b_ub=np.concatenate([np.ones(len(time)), problem.capacity]),
    )
    return -answer.fun


@pytest.fixture(params=[discipline.MANY_PAIRS, 0], ids=["all pairs at once", "columns"])
def offered(request, monkeypatch):
    monkeypatch.setattr(discipline, "MANY_PAIRS", request.param)
    return "highs" if request.param else "columns"


@pytest.mark.parametrize("seed", range(6))
def test_max_min_sum_and_finish_times_with_pairs_are_optimal(seed, offered, random_problem):
    problem = random_problem(seed, jobs=14, pairs=True, gangs=seed % 2 == 0, load=2.0)
    even = np.maximum(problem.throughput.mean(axis=1), 1e-9)
    classes = ClassProblem.build(problem)
    assert len(classes.pair_index)
    answer = solve_family(MaxMin(coefficient=classes.of_jobs(1 / even)), classes)
    assert answer.value == pytest.approx(highest_level(problem, even), rel=1e-6)
    assert answer.solver == offered
    total = solve_family(WeightedSum(coefficient=classes.of_jobs(1 / even)), classes)
    assert total.value == pytest.approx(largest_sum(problem, 1 / even), rel=1e-6)

    classes = ClassProblem.build(problem, (problem.remaining_steps, problem.age_s))
    isolated = problem.age_s + problem.remaining_steps / even
    family = FinishTime(
        age=classes.of_jobs(problem.age_s),
        remaining=classes.of_jobs(problem.remaining_steps),
        isolated_time=classes.of_jobs(isolated),
    )
    rho = solve_family(family, classes).value
    for nudge, sign in ((2e-6, 1), (-2e-6, -1)):
        need = problem.remaining_steps / (rho * (1 + nudge) * isolated - problem.age_s)
        assert sign * (highest_level(problem, need) - 1) >= -1e-7


@pytest.mark.parametrize("seed", range(3))
def test_what_pairs_receive_is_feasible_for_every_job(seed, random_problem):
    problem = random_problem(seed, jobs=31, profiles=3, pairs=True, load=3.0, dead=0.0)
    classes = ClassProblem.build(problem)
    even = problem.throughput.mean(axis=1)
    answer = solve_family(MaxMin(coefficient=classes.of_jobs(1 / even)), classes)
    allocation = classes.expand(answer.x, answer.pair_x)
    assert len(allocation.pair_x)
    assert allocation.time_fraction().max() <= 1 + 1e-12
    assert (allocation.usage(problem) <= problem.capacity * (1 + 1e-12)).all()
    assert (allocation.effective_throughput(problem) / even).min() == pytest.approx(answer.value)


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_alpha_fairness_with_pairs_beats_every_other_allocation_nearby(alpha, random_problem):
    problem = random_problem(2, jobs=12, pairs=True, load=2.0, dead=0.0)
    classes = ClassProblem.build(problem)
    even = classes.of_jobs(problem.throughput.mean(axis=1))
    one = np.ones(classes.size)
    answer = solve_family(AlphaFair(weight=one, coefficient=1 / even, alpha=alpha), classes)
    thr = classes.effective_throughput(answer.x, answer.pair_x)[classes.class_of]
    slope = (thr / even[classes.class_of]) ** -alpha / even[classes.class_of]
    # Optimality of a concave program: no feasible direction has a positive slope.
    assert largest_sum(problem, slope) <= slope @ thr * (1 + 1e-5)
