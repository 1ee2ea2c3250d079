"""Every policy on jobs of every shape, under quotas: answers are feasible, and shares are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.partitioned import _PER_JOB
from policies.quotas import held_of_quotas
from policies.registry import BUILT_IN, make_policy
from policies.testing import make_problem
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.quota import Caps

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem

#: Policies by which every job that can run gets something.
SHARES = (
    "alpha_fairness",
    "finish_time_fairness",
    "gandiva",
    "hierarchical",
    "isolated",
    "makespan",
    "max_min_fairness",
    "partitioned",
    "proportional_fairness",
    "water_filling",
)
#: Those whose answer is about throughput: trades of gandiva may cost one of two jobs something.
WEIGHED = tuple(name for name in SHARES if name != "gandiva")


def rigid(rng, rates, workers):
    return [(workers * row, rate) for row, rate in zip(np.eye(len(rates)), rates, strict=True)]


def elastic(rng, rates, workers):
    power = rng.uniform(0.5, 1.1)
    sizes = (1, 2, 4)
    return [(n * d, r * n**power) for n in sizes for d, r in rigid(rng, rates, workers)]


def mixed(rng, rates, workers):
    demand = np.zeros(len(rates))
    demand[rng.choice(len(rates), 2, replace=False)] = 1, workers
    return [(demand, rates.sum())]


def profile(rng, types: int) -> Profile:
    rates = rng.uniform(1, 10, types).round(2) * (rng.random(types) < 0.75)
    rates[rng.integers(types)] += 1.0
    shapes = [rigid, elastic, mixed] if types > 1 else [rigid, elastic]
    ways = shapes[rng.integers(len(shapes))](rng, rates, int(rng.choice([1, 1, 2])))
    made = tuple(
        Configuration(demand=tuple(int(n) for n in demand), throughput=float(rate))
        for demand, rate in ways
        if rate > 0
    )
    least = min(sum(way.demand) for way in made)
    return Profile(job_type="any", scale_factor=least, configurations=made)


def drawn(seed: int, *, quotas: bool) -> Problem:
    """Draw a problem of 3 to 7 jobs, the last of which is like the first."""
    rng = np.random.default_rng(seed)
    types, jobs = int(rng.integers(1, 4)), int(rng.integers(3, 8))
    profiles = tuple(profile(rng, types) for _ in range(rng.integers(1, 5)))
    table = ConfigurationTable.build(tuple("abc"[:types]), profiles)
    remaining = rng.uniform(100, 10000, jobs).round()
    problem = make_problem(
        table,
        capacity=rng.integers(1, 7, types),
        profile=rng.integers(0, len(profiles), jobs),
        remaining_steps=remaining,
        total_steps=remaining * rng.uniform(1, 3, jobs),
        age_s=rng.uniform(0, 5000, jobs),
        weight=np.ones(jobs) if seed % 3 == 0 else rng.choice([1.0, 1.5, 2.0, 4.0], jobs),
        attained_worker_s=rng.uniform(0, 5e4, jobs),
    )
    if quotas:
        caps = Caps(
            limit=rng.integers(1, 5, 1).astype(float),
            counts=np.ones((1, types), dtype=bool),
            member=np.array([[True], [False]]),
            group=rng.integers(0, 2, jobs),
        )
        problem = replace(problem, caps=caps)
    return like(problem)


def like(problem: Problem) -> Problem:
    """Make the last job one like the first."""
    twins = np.append(np.arange(problem.jobs - 1), 0)
    figures = {name: getattr(problem, name)[twins] for name in _PER_JOB if name != "job_number"}
    caps = None if problem.caps is None else problem.caps.of_jobs(twins)
    return replace(problem, caps=caps, **figures)


def can_run(problem: Problem) -> np.ndarray:
    fits = (problem.demand <= problem.capacity).all(axis=2) & (problem.throughput > 0)
    if problem.caps is not None:
        held = problem.caps.held(problem.caps.group, problem.demand)
        fits &= (held <= problem.caps.limit).all(axis=2)
    return fits.any(axis=1)


def speeds(name: str, problem: Problem) -> np.ndarray:
    return make_policy(name).allocate(problem).effective_throughput(problem)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_answers_keep_within_time_workers_and_quotas(name) -> None:
    for seed in range(16):
        problem = drawn(seed, quotas=seed % 2 == 1)
        answer = make_policy(name).allocate(problem)
        assert (answer.x >= 0).all(), seed
        assert (answer.x[problem.throughput == 0] == 0).all(), seed
        assert (answer.time_fraction() <= 1 + 1e-9).all(), seed
        assert (answer.usage(problem) <= problem.capacity * (1 + 1e-9)).all(), seed
        if problem.caps is not None:
            held = held_of_quotas(problem, answer)
            assert (held <= problem.caps.limit * (1 + 1e-7)).all(), seed


@pytest.mark.parametrize("name", SHARES)
def test_whoever_can_run_gets_something(name) -> None:
    for seed in range(16):
        problem = drawn(seed, quotas=seed % 2 == 1)
        starved = can_run(problem) & (speeds(name, problem) <= 0)
        assert not starved.any(), seed


@pytest.mark.parametrize("name", [name for name in WEIGHED if name != "partitioned"])
def test_like_jobs_get_alike(name) -> None:
    for seed in range(16):
        speed = speeds(name, drawn(seed, quotas=seed % 2 == 1))
        assert speed[-1] == pytest.approx(speed[0], rel=1e-6), seed


@pytest.mark.parametrize("name", WEIGHED)
def test_more_weight_never_means_less(name) -> None:
    for seed in range(32):
        problem = drawn(seed, quotas=seed % 4 == 3)
        job = seed % problem.jobs
        weight = problem.weight.copy()
        weight[job] *= (1.01, 1.5, 4.0)[seed // 2 % 3]
        before = speeds(name, problem)[job]
        after = speeds(name, replace(problem, weight=weight))[job]
        assert after >= before * (1 - 1e-5), seed
