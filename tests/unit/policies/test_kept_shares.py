"""Policies that share, on jobs of every shape, under quotas: shares are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.built_in.partitioned import _PER_JOB
from policies.registry import make_policy
from scheduler.domain.problem import Entity

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
#: Those with an objective of throughput: trades of gandiva may cost one of two jobs something.
WEIGHED = tuple(name for name in SHARES if name != "gandiva")


@pytest.fixture
def drawn(any_problem_of):
    """Draw jobs of every shape and of one entity, which share no workers."""

    def made(seed, *, quotas):
        problem = any_problem_of(seed, pairs=False, quotas=quotas)
        alone = {"entity": np.zeros(problem.jobs, dtype=np.int64), "entities": (Entity(name=""),)}
        return like(replace(problem, **alone))

    return made


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


@pytest.mark.parametrize("name", SHARES)
def test_whoever_can_run_gets_something(drawn, name) -> None:
    for seed in range(16):
        problem = drawn(seed, quotas=seed % 2 == 1)
        starved = can_run(problem) & (speeds(name, problem) <= 0)
        assert not starved.any(), seed


@pytest.mark.parametrize("name", [name for name in WEIGHED if name != "partitioned"])
def test_like_jobs_get_alike(drawn, name) -> None:
    for seed in range(16):
        speed = speeds(name, drawn(seed, quotas=seed % 2 == 1))
        assert speed[-1] == pytest.approx(speed[0], rel=1e-6), seed


@pytest.mark.parametrize("name", WEIGHED)
def test_more_weight_never_means_less(drawn, name) -> None:
    for seed in range(32):
        problem = drawn(seed, quotas=seed % 4 == 3)
        job = seed % problem.jobs
        weight = problem.weight.copy()
        weight[job] *= (1.01, 1.5, 4.0)[seed // 2 % 3]
        before = speeds(name, problem)[job]
        after = speeds(name, replace(problem, weight=weight))[job]
        assert after >= before * (1 - 1e-5), seed
