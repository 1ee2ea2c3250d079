"""Random problems, and linear programs written out job by job for scipy: the independent truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import linprog

from policies.testing import make_problem, make_table
from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.problem import Entity
from scheduler.domain.quota import Caps

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem

#: Two methods of HiGHS, each with tight tolerances and with its own; see ``most``.
EXACT = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)
METHODS = [(name, options) for options in (EXACT, {}) for name in ("highs-ds", "highs-ipm")]


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


def any_profile(rng, types: int, number: int, *, wide: bool) -> Profile:
    """Draw a profile: at one count, at several, or over two worker types (and perhaps each)."""
    rates = 10.0 ** rng.uniform(-4, 4, types) if wide else rng.uniform(1, 10, types).round(2)
    rates = rates * (rng.random(types) < 0.75)
    if not rates.any():
        rates[rng.integers(types)] = 1.0
    workers, shape = int(rng.choice([1, 1, 2, 3])), rng.integers(3 if types > 1 else 2)
    ways = [(workers * row, rate) for row, rate in zip(np.eye(types), rates, strict=True)]
    if shape == 1:
        power = rng.uniform(0.5, 1.1)
        ways = [(n * demand, n**power * rate) for n in (1, 2, 4) for demand, rate in ways]
    elif shape == 2:
        mixed = np.zeros(types)
        mixed[rng.choice(types, 2, replace=False)] = 1, workers
        ways = [(mixed, rates.sum()), *(ways if rng.random() < 0.4 else [])]
    made = tuple(
        Configuration(demand=tuple(int(n) for n in demand), throughput=float(rate))
        for demand, rate in ways
        if rate > 0
    )
    least = min(sum(way.demand) for way in made)
    return Profile(job_type=f"profile-{number}", scale_factor=least, configurations=made)


def any_pairs(rng, profiles: list[Profile]) -> list[PairConfiguration]:
    """Draw pairs of profiles on the same workers, some of which are not worth their while."""
    pairs = []
    numbered = combinations_with_replacement(enumerate(profiles), 2)
    for (a, one), (b, other) in numbered:
        mine, theirs = (
            {way.demand: way.throughput for way in profile.configurations}
            for profile in (one, other)
        )
        for demand in sorted(mine.keys() & theirs.keys()):
            part = rng.uniform(0.3, 0.95, 2)
            if a == b and rng.random() < 0.7:
                part[1] = part[0]
            rates = mine[demand] * part[0], theirs[demand] * part[1]
            if rng.random() < 0.6:
                pairs.append(PairConfiguration(profiles=(a, b), demand=demand, throughput=rates))
    return pairs


def any_problem(
    seed: int, *, wide: bool = False, pairs: bool | None = None, quotas: bool | None = None
) -> Problem:
    """Draw a problem with jobs of every shape, of which some may fit nowhere.

    Args:
        seed: of the draw.
        wide: whether throughputs, lengths and weights are many powers of ten apart.
        pairs: whether jobs may share workers; None: in some draws.
        quotas: whether quotas bind; None: in some draws.
    """
    rng = np.random.default_rng(seed)
    types, jobs = int(rng.integers(1, 4)), int(rng.integers(1, 9))
    profiles = [any_profile(rng, types, u, wide=wide) for u in range(rng.integers(1, 6))]
    shares, capped = rng.random(2) < 0.4
    made = any_pairs(rng, profiles) if (shares if pairs is None else pairs) else []
    table = ConfigurationTable.build(tuple("abc"[:types]), tuple(profiles), tuple(made))
    weight = 10.0 ** rng.uniform(-3, 3, jobs) if wide else rng.choice([1.0, 1.5, 2.0, 4.0], jobs)
    left = 10.0 ** rng.uniform(2, 6, jobs) if wide else rng.uniform(100, 1e4, jobs).round()
    problem = make_problem(
        table,
        capacity=rng.integers(0 if seed % 5 == 0 else 1, 6, types),
        profile=rng.integers(0, len(profiles), jobs),
        remaining_steps=left,
        total_steps=left * rng.uniform(1, 3, jobs),
        age_s=rng.uniform(0, 5000, jobs),
        weight=weight if seed % 3 else np.ones(jobs),
        attained_worker_s=rng.uniform(0, 5e4, jobs),
        entity=rng.integers(0, 3, jobs),
        entities=(Entity(name="a", weight=3.0), Entity(name="b", policy="fifo"), Entity(name="c")),
        cost_usd_per_hour=rng.choice([0.0, 0.5, 1.0, 3.0], types),
        restart_s=rng.choice([0.0, 60.0], jobs),
        time_left_s=np.where(rng.random(jobs) < 0.3, 10.0 ** rng.uniform(1, 6, jobs), np.inf),
        round_length_s=float(rng.choice([0.0, 300.0])),
    )
    if not (capped if quotas is None else quotas):
        return problem
    number = int(rng.integers(1, 4))
    counts = (rng.random((number, types)) < 0.5) | (rng.random((number, 1)) < 0.5)
    caps = Caps(
        limit=rng.integers(0, 5, number).astype(float),
        counts=counts,
        member=rng.random((3, number)) < 0.6,
        group=rng.integers(0, 3, jobs),
    )
    return replace(problem, caps=caps)


def most(worth, rows, right) -> float:
    """Return what no v with rows @ v <= right and 0 <= v <= 1 can beat in worth @ v, by scipy.

    The prices prove it (weak duality), so that no tolerance of a solver can make it too small. The
    best of several solvers' is taken: on figures many powers of ten apart each has its failures.
    """
    if (rows >= 0).all():  # what costs more than it is worth only takes room
        rows, worth = rows[:, worth > 0], worth[worth > 0]
    if not len(worth):
        return 0.0
    size, bound = np.abs(worth).max(initial=1e-300), np.inf
    for method, options in METHODS:
        answer = linprog(
            -worth / size, A_ub=rows, b_ub=right, bounds=(0, 1), method=method, options=options
        )
        if answer.status == 0:
            price = np.maximum(-answer.ineqlin.marginals, 0.0) * size
            proven = price @ right + np.maximum(worth - price @ rows, 0.0).sum()
            bound = min(bound, float(proven))
            if bound + answer.fun * size <= 1e-9 * abs(bound):
                break
    return bound


@dataclass
class Reference:
    """Every configuration of every job, and every pair of jobs, as a column of its own.

    Rows are jobs' time, worker types and quotas. What ``most`` says of an optimum is a bound.
    """

    problem: Problem

    def __post_init__(self):
        p, table, caps = self.problem, self.problem.table, self.problem.caps
        self.bounds = np.concatenate(
            [np.ones(p.jobs), p.capacity, [] if caps is None else caps.limit]
        )
        self.columns = []  # (throughput (N,), time (N,), held (K + quotas,))
        for n in range(p.jobs):
            for rate, held in zip(p.throughput[n], p.demand[n], strict=True):
                self._add({n: rate}, held)
        for row, (a, b) in enumerate(table.pair_profiles):
            for m, n in combinations(range(p.jobs), 2):
                rates = table.pair_throughput[row]
                if (p.profile[m], p.profile[n]) == (a, b):
                    self._add({m: rates[0], n: rates[1]}, table.pair_demand[row])
                if (p.profile[n], p.profile[m]) == (a, b):
                    self._add({n: rates[0], m: rates[1]}, table.pair_demand[row])
        jobs, limits = p.jobs, len(self.bounds) - p.jobs
        self.rate = np.array([c[0] for c in self.columns]).T.reshape(jobs, -1)  # (N, C)
        self.time = np.array([c[1] for c in self.columns]).T.reshape(jobs, -1)
        self.held = np.array([c[2] for c in self.columns]).T.reshape(limits, -1)
        self.fastest = self.rate.max(axis=1, initial=0.0)
        self.able = self.fastest > 0

    def _add(self, rates, demand):
        """Add a column, unless it makes no progress, or holds more than there is of anything."""
        rate, time = np.zeros(self.problem.jobs), np.zeros(self.problem.jobs)
        for n, value in rates.items():
            rate[n], time[n] = value, 1.0
        held, caps = np.asarray(demand, dtype=float), self.problem.caps
        if caps is not None:
            falls = caps.member[caps.group[list(rates)]].any(axis=0)
            held = np.concatenate((held, np.where(falls, caps.counts @ held, 0.0)))
        if rate.max() > 0 and (held <= self.bounds[self.problem.jobs :]).all():
            self.columns.append((rate, time, held))

    @property
    def rows(self):
        return np.vstack([self.time, self.held])

    def _floors(self, floor):
        """Return rows and right side that say thr >= floor, in units of each job's fastest."""
        asked = np.flatnonzero(floor > 0)
        unit = self.fastest[asked]
        return -self.rate[asked] / unit[:, None], -floor[asked] / unit

    def max_min(self, coefficient, who=None):
        """Return the largest z with coefficient * thr >= z for ``who``, or all able jobs."""
        who = self.able if who is None else who
        gain = (np.asarray(coefficient)[:, None] * self.rate)[who]
        top = gain.max(axis=1)
        level = np.hstack([-gain / top[:, None], (top.min() / top)[:, None]])
        limits = np.hstack([self.rows, np.zeros((len(self.rows), 1))])
        right = np.concatenate([np.zeros(len(top)), self.bounds])
        worth = np.append(np.zeros(gain.shape[1]), 1.0)
        return top.min() * most(worth, np.vstack([level, limits]), right)

    def weighted_sum(self, coefficient, floor=None, price=None):
        """Return the largest sum of coefficient * thr, less price * held, with thr >= floor."""
        worth = np.where(self.able, coefficient, 0.0) @ self.rate
        if price is not None:
            worth = worth - price @ self.held[: len(price)]
        rows, right = self._floors(np.zeros(len(self.able)) if floor is None else floor)
        return most(worth, np.vstack([rows, self.rows]), np.append(right, self.bounds))

    def met(self, need):
        """Return the largest sum of weights times the part, at most all, of (N,) steps/s needed."""
        due = np.flatnonzero(need > 0)
        part = self.rate[due] / need[due, None]
        unit = np.minimum(part.max(axis=1), 1.0)  # no more of a need can be met
        kept = np.hstack([-part / unit[:, None], np.eye(len(due))])
        limits = np.hstack([self.rows, np.zeros((len(self.rows), len(due)))])
        worth = np.append(np.zeros(part.shape[1]), self.problem.weight[due] * unit)
        right = np.append(np.zeros(len(due)), self.bounds)
        return most(worth, np.vstack([kept, limits]), right)

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
            A_eq=np.append(np.asarray(price) @ self.held[: len(price)], 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, None)] * (c + 1),
        )
        assert answer.status == 0
        return -answer.fun


@pytest.fixture(scope="session")
def problem_of():
    return random_problem


@pytest.fixture(scope="session")
def any_problem_of():
    return any_problem


@pytest.fixture(scope="session")
def reference_of():
    return Reference
