"""Random problems, and linear programs written out job by job for scipy: the independent truth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import linprog

from policies.testing import make_problem, make_table

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem


def random_problem(
    seed: int,
    *,
    jobs: int = 7,
    types: int = 3,
    gangs: bool = False,
    pairs: bool = False,
    capacity: tuple[int, ...] | None = None,
    **figures: object,
) -> Problem:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, jobs + 1))
    rates = rng.uniform(1, 10, (rows, types)).round(2)
    rates[rng.random((rows, types)) < 0.15] = 0.0
    rates[:, 0] = np.maximum(rates[:, 0], 1.0)
    factors = rng.choice([1, 2], rows) if gangs else np.ones(rows, dtype=int)
    shared = {}
    for a in range(rows if pairs else 0):
        for b in range(a, rows):
            for k in range(types):
                alone = rates[a, k], rates[b, k]
                if factors[a] == factors[b] and min(alone) > 0:
                    part = rng.uniform(0.3, 0.9, 2) if a != b else [rng.uniform(0.3, 0.9)] * 2
                    shared[a, b, k] = (alone[0] * part[0], alone[1] * part[1])
    table = make_table(rates.tolist(), scale_factor=factors.tolist(), shared=shared)
    remaining = rng.uniform(100, 10000, jobs).round()
    given = {
        "capacity": capacity or tuple(int(n) for n in rng.integers(2, 4, types)),
        "profile": rng.integers(0, rows, jobs),
        "remaining_steps": remaining,
        "total_steps": remaining * rng.uniform(1, 3, jobs),
        "age_s": rng.uniform(0, 5000, jobs),
        "weight": rng.choice([1.0, 1.0, 2.0], jobs),
        "attained_worker_s": rng.uniform(0, 5e4, jobs),
    } | figures
    return make_problem(table, **given)


@dataclass
class Reference:
    """Every configuration of every job, and every pair of jobs, as a column of its own."""

    problem: Problem

    def __post_init__(self):
        p, table = self.problem, self.problem.table
        self.columns = []  # (throughput (N,), time (N,), held (K,))
        for n in range(p.jobs):
            for j in range(table.throughput.shape[1]):
                rate, held = p.throughput[n, j], p.demand[n, j]
                if rate > 0 and (held <= p.capacity).all():
                    self._add({n: rate}, held)
        for row, (a, b) in enumerate(table.pair_profiles):
            if (table.pair_demand[row] > p.capacity).any():
                continue
            for m, n in combinations(range(p.jobs), 2):
                rates = table.pair_throughput[row]
                if (p.profile[m], p.profile[n]) == (a, b):
                    self._add({m: rates[0], n: rates[1]}, table.pair_demand[row])
                elif (p.profile[n], p.profile[m]) == (a, b):
                    self._add({n: rates[0], m: rates[1]}, table.pair_demand[row])
        self.rate = np.array([c[0] for c in self.columns]).T  # (N, C)
        self.time = np.array([c[1] for c in self.columns]).T
        self.held = np.array([c[2] for c in self.columns]).T

    def _add(self, rates, held):
        rate, time = np.zeros(self.problem.jobs), np.zeros(self.problem.jobs)
        for n, value in rates.items():
            rate[n], time[n] = value, 1.0
        self.columns.append((rate, time, np.asarray(held, dtype=float)))

    @property
    def rows(self):
        return np.vstack([self.time, self.held])

    @property
    def bounds(self):
        return np.concatenate([np.ones(self.problem.jobs), self.problem.capacity])

    def max_min(self, coefficient):
        c = self.rate.shape[1]
        level = np.hstack(
            [-np.asarray(coefficient)[:, None] * self.rate, np.ones((len(self.rate), 1))]
        )
        limits = np.hstack([self.rows, np.zeros((len(self.rows), 1))])
        answer = linprog(
            np.append(np.zeros(c), -1.0),
            A_ub=np.vstack([level, limits]),
            b_ub=np.concatenate([np.zeros(len(self.rate)), self.bounds]),
        )
        assert answer.status == 0
        return -answer.fun

    def weighted_sum(self, coefficient):
        answer = linprog(-np.asarray(coefficient) @ self.rate, A_ub=self.rows, b_ub=self.bounds)
        assert answer.status == 0
        return -answer.fun

    def best_ratio(self, coefficient, price, required=None):
        """Charnes and Cooper: scale the allocation so that its cost is 1."""
        c = self.rate.shape[1]
        rows = [np.hstack([self.rows, -self.bounds[:, None]])]
        if required is not None:
            rows.append(np.hstack([-self.rate, np.asarray(required)[:, None]]))
        rows = np.vstack(rows)
        answer = linprog(
            np.append(-np.asarray(coefficient) @ self.rate, 0.0),
            A_ub=rows,
            b_ub=np.zeros(len(rows)),
            A_eq=np.append(np.asarray(price) @ self.held, 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * (c + 1),
        )
        assert answer.status == 0
        return -answer.fun


@pytest.fixture(scope="session")
def problem_of():
    return random_problem


@pytest.fixture(scope="session")
def reference_of():
    return Reference
