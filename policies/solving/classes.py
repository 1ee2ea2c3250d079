"""Classes of interchangeable jobs: the exact collapse that makes the programs small.

Jobs are interchangeable if they have the same profile, weight, scale factor and other figures that
the policy reads. If the objective is concave and does not change when such jobs swap places, an
optimum exists in which they receive the same (average the optimum over all swaps). So it is enough
to solve for one job per class, counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from policies.fitting import fitting
from policies.kernels.grouping import group_rows
from policies.kernels.level import fit
from policies.solving.expansion import expand_pairs
from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.problem import Problem
    from scheduler.domain.quota import Caps

#: Fractions below this are rounding noise of a solver, unless the job needs no more.
NOISE = 1e-9
#: A job that needs less of its time than this has a proportionally smaller noise threshold.
TINY = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassProblem:
    """An allocation problem over classes of interchangeable jobs.

    Letters: N jobs, M classes in order of their first job, J configurations, K worker types,
    P class pairs. If quotas bind, K has one more row of capacity for each quota after the worker
    types. A configuration's demand for that row is its number of workers that count for the quota.

    Attributes:
        problem: the problem over jobs.
        class_of: (N,) class of each job.
        count: (M,) jobs in each class.
        representative: (M,) position of the first job of each class.
        profile: (M,) row of the configuration table.
        throughput: (M, J) steps/s of one job; 0 if the configuration is not usable.
        demand: (M, J, K) workers held by one job.
        capacity: (K,) workers in service, and limits of quotas.
        usable: (M, J) whether the configuration fits the capacity and makes progress.
        types: how many of the K are worker types.
    """

    problem: Problem
    class_of: IntArray
    count: FloatArray
    representative: IntArray
    profile: IntArray
    throughput: FloatArray
    demand: FloatArray
    capacity: FloatArray
    usable: BoolArray
    types: int

    @classmethod
    def build(cls, problem: Problem, keys: tuple[FloatArray, ...] = ()) -> ClassProblem:
        """Group the jobs of a problem.

        Args:
            problem: N jobs.
            keys: further arrays (N,) that must be equal within a class: all other figures that the
                policy's objective reads beside profile, weight and scale factor.
        """
        columns = (problem.profile, problem.weight, problem.scale_factor, *keys)
        caps = problem.caps
        if caps is not None:
            columns = (*columns, caps.group)
        # + 0.0 turns -0.0 into 0.0
        values = np.array(columns, dtype=float) + 0.0
        class_of, representative, count = group_rows(values.view(np.uint64))
        profile = problem.profile[representative]
        fits, capacity = fitting(problem), problem.capacity.astype(float)
        found = fits.rate[profile], fits.demand[profile], capacity, fits.usable[profile]
        if caps is not None:
            found = _under_caps(caps.of_jobs(representative), *found)
        return cls(
            problem=problem,
            class_of=class_of,
            count=count,
            representative=representative,
            profile=profile,
            throughput=found[0],
            demand=found[1],
            capacity=found[2],
            usable=found[3],
            types=len(problem.capacity),
        )

    @property
    def size(self) -> int:
        """M, the number of classes."""
        return len(self.count)

    def of_jobs(self, values: FloatArray) -> FloatArray:
        """Return (M, ...) the values of each class's first job, from values per job (N, ...)."""
        result: FloatArray = values[self.representative]
        return result

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        return _class_pairs(self)

    @property
    def pair_classes(self) -> IntArray:
        """(P, 2) classes of the first and the second member of each class pair."""
        return self._pairs[0]

    @property
    def pair_index(self) -> IntArray:
        """(P,) row of the configuration table's pairs."""
        return self._pairs[1]

    @cached_property
    def pair_throughput(self) -> FloatArray:
        """(P, 2) steps/s of each member while they share."""
        return self.problem.table.pair_throughput[self.pair_index]

    @cached_property
    def pair_demand(self) -> FloatArray:
        """(P, K) workers held by a pair of jobs together."""
        return self.pair_held(slice(None))

    def pair_held(self, pairs: IntArray | slice) -> FloatArray:
        """Return (Q, K) workers held by some of the pairs."""
        demand = self.problem.table.pair_demand[self.pair_index[pairs]].astype(float)
        caps = self.problem.caps
        if caps is None:
            return demand
        groups = caps.group[self.representative[self.pair_classes[pairs]]]
        held = caps.held_by_pairs(groups[:, 0], groups[:, 1], demand)
        return np.concatenate((demand, held), axis=1)

    def pair_prices(self, price: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the pricing data of pairs: (P,) rows, and by row (R, 2) steps/s and (R,) rent.

        Args:
            price: (K,) of one worker.
        """
        if self.capped:
            rows = np.arange(len(self.pair_index))
            return rows, self.pair_throughput, self.pair_demand @ price
        table = self.problem.table
        return self.pair_index, table.pair_throughput, table.pair_demand @ price

    @property
    def capped(self) -> bool:
        """Whether quotas bind."""
        return len(self.capacity) > self.types

    @cached_property
    def runnable(self) -> BoolArray:
        """(M,) whether a job of the class can make progress at all, alone or in a pair."""
        able: BoolArray = np.logical_or.reduce(self.usable, axis=1)
        if not able.all() and len(self.pair_index):
            for side in (0, 1):
                gains = self.pair_throughput[:, side] > 0
                able[self.pair_classes[gains, side]] = True
        return able

    def effective_throughput(self, x: FloatArray, pair_x: FloatArray) -> FloatArray:
        """Return (M,) steps/s of one job of each class.

        Args:
            x: (M, J) fractions of one job.
            pair_x: (P,) fractions summed over all job pairs of a class pair.
        """
        result: FloatArray = (self.throughput * x).sum(axis=1)
        if len(pair_x):
            used = np.flatnonzero(pair_x)
            rate = self.problem.table.pair_throughput[self.pair_index[used]]
            result = result + self._over_members(used, pair_x[used, None] * rate)
        return result

    def time_fraction(self, x: FloatArray, pair_x: FloatArray) -> FloatArray:
        """Return (M,) the fraction of time in which one job of each class runs."""
        result: FloatArray = x.sum(axis=1)
        if len(pair_x):
            used = np.flatnonzero(pair_x)
            result = result + self._over_members(used, np.repeat(pair_x[used, None], 2, axis=1))
        return result

    def usage(self, x: FloatArray, pair_x: FloatArray) -> FloatArray:
        """Return (K,) the workers in use on average."""
        m, j, k = self.demand.shape
        weighted = (x * self.count[:, None]).reshape(m * j)
        result: FloatArray = np.einsum("r,rk->k", weighted, self.demand.reshape(m * j, k))
        if len(pair_x):
            used = np.flatnonzero(pair_x)
            held = self.pair_held(used)
            result = result + pair_x[used] @ held
        return result

    def _over_members(self, pairs: IntArray, shares: FloatArray) -> FloatArray:
        """Return (M,) per job: the sum of (Q, 2) shares over the (Q,) pairs of its class."""
        members = self.pair_classes[pairs]
        total = np.bincount(members[:, 0], shares[:, 0], minlength=self.size)
        total += np.bincount(members[:, 1], shares[:, 1], minlength=self.size)
        result: FloatArray = total / self.count
        return result

    @cached_property
    def fastest_alone(self) -> FloatArray:
        """(M,) steps/s of one job in its fastest configuration alone; 0 without any."""
        best: FloatArray = self.throughput.max(axis=1, initial=0.0)
        return best

    @cached_property
    def fastest(self) -> FloatArray:
        """(M,) steps/s of one job in its fastest configuration; in a pair, if never alone."""
        best = self.fastest_alone
        if len(self.pair_index) and (best == 0.0).any():
            shared = np.zeros(self.size)
            np.maximum.at(shared, self.pair_classes.ravel(), self.pair_throughput.ravel())
            best = np.where(best > 0, best, shared)
        return best

    def repair(
        self, x: FloatArray, pair_x: FloatArray, need: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Remove a solver's rounding noise, so that rows and capacity hold exactly.

        Args:
            x: (M, J) nearly feasible.
            pair_x: (P,) nearly feasible.
            need: (M,) the fraction of its time that a job needs. It separates a tiny real fraction
                from noise; 0 if it needs no time. None: as much as it has here.

        Returns:
            Fractions clipped and scaled down to >= 0, with every job's time <= 1 and every worker
            type within its capacity.
        """
        if need is None:
            need = self.time_fraction(np.maximum(x, 0.0) * self.usable, np.maximum(pair_x, 0.0))
        tiny = (need > 0) & (need < TINY)
        x, pair_x = self.clip(x, pair_x, np.where(tiny, need, TINY) if tiny.any() else None)
        return self.fit(x, pair_x)

    def clip(
        self, x: FloatArray, pair_x: FloatArray, tiny: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Clip the fractions that are noise; see ``repair``.

        Args:
            x: (M, J).
            pair_x: (P,).
            tiny: (M,) the fraction of its time that a job needs, at most ``TINY``; None if all
                need more.
        """
        noise = np.array([NOISE]) if tiny is None else NOISE / TINY * tiny
        x = np.where(self.usable & (x > noise[:, None]), x, 0.0)
        if len(pair_x):
            used = np.flatnonzero(pair_x > 0)
            least = np.broadcast_to(noise, self.size)[self.pair_classes[used]].min(axis=1)
            kept = used[pair_x[used] > least]
            clipped = np.zeros(len(pair_x))
            clipped[kept] = pair_x[kept]
            pair_x = clipped
        return x, pair_x

    def fit(self, x: FloatArray, pair_x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scale fractions >= 0 down to jobs' time and to the capacity; see ``repair``.

        Args:
            x: (M, J).
            pair_x: (P,); may be changed in place.
        """
        if not len(pair_x):
            return fit(x, self.count, self.demand, self.capacity), pair_x
        shrink = 1.0 / np.maximum(self.time_fraction(x, pair_x), 1.0)
        x = x * shrink[:, None]
        used_pairs = np.flatnonzero(pair_x)
        pair_x[used_pairs] *= shrink[self.pair_classes[used_pairs]].min(axis=1)
        used = self.usage(x, pair_x)
        over = used > self.capacity
        if over.any():
            scale = float((self.capacity[over] / used[over]).min())
            x, pair_x = x * scale, pair_x * scale
        return x, pair_x

    def expand(
        self,
        x: FloatArray,
        pair_x: FloatArray | None = None,
        *,
        rank: FloatArray | None = None,
        objective: float = float("nan"),
        solver: str = "",
        warnings: tuple[str, ...] = (),
        no_backfill: BoolArray | None = None,
    ) -> Allocation:
        """Give every job its class's average.

        Args:
            x: (M, J) fractions of one job of each class, without noise.
            pair_x: (P,) fractions summed over the job pairs of each class pair; None without any.
            rank: (N,) passed on.
            objective: passed on.
            solver: passed on.
            warnings: passed on.
            no_backfill: passed on.

        Returns:
            An allocation over jobs. Pairs are spread over few job pairs (the north-west corner
            rule of transportation problems), in the order of job numbers.
        """
        x, pair_x = self.fit(x, np.zeros(0) if pair_x is None else pair_x.copy())
        jobs, rows, fractions = expand_pairs(self, pair_x)
        return Allocation(
            x=x[self.class_of],
            pair_jobs=jobs,
            pair_index=rows,
            pair_x=fractions,
            rank=rank,
            objective=objective,
            solver=solver,
            warnings=warnings,
            no_backfill=no_backfill,
        )


def _under_caps(
    caps: Caps,
    throughput: FloatArray,
    demand: FloatArray,
    capacity: FloatArray,
    usable: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Return a class problem's arrays with a row of capacity for each quota."""
    held = caps.held(caps.group, demand)
    usable = usable & (held <= caps.limit).all(axis=2)
    held = np.where(usable[:, :, None], held, 0.0)
    return (
        np.where(usable, throughput, 0.0),
        np.concatenate((demand, held), axis=2),
        np.concatenate((capacity, np.maximum(caps.limit, 1.0))),
        usable,
    )


def _class_pairs(classes: ClassProblem) -> tuple[IntArray, IntArray]:
    """Return (P, 2) class pairs and (P,) table rows that are present, fit and may help."""
    table = classes.problem.table
    rows = _useful_rows(classes)
    if not len(rows):
        return np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int64)
    by_profile = np.argsort(classes.profile, kind="stable")
    number = np.bincount(classes.profile, minlength=len(table.throughput))
    start = np.concatenate(([0], np.cumsum(number)))
    a, b = table.pair_profiles[rows].T
    repeats = number[a] * number[b]
    rows_out = np.repeat(rows, repeats)
    within = np.arange(len(rows_out)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    a, b = table.pair_profiles[rows_out].T
    first = by_profile[start[a] + within // number[b]]
    second = by_profile[start[b] + within % number[b]]
    lopsided = table.pair_throughput[rows_out, 0] != table.pair_throughput[rows_out, 1]
    keep = (a != b) | (first < second) | (lopsided & (first > second))
    keep |= (first == second) & (classes.count[first] >= 2)
    keep &= (a != b) | (first != second) | (classes.count[first] >= 2)
    keep &= _allowed(classes, first, second, rows_out)
    return np.stack((first[keep], second[keep]), axis=1), rows_out[keep]


def _allowed(classes: ClassProblem, first: IntArray, second: IntArray, rows: IntArray) -> BoolArray:
    """Return (P,) whether the quotas have room for the pair."""
    caps = classes.problem.caps
    if caps is None:
        return np.ones(len(rows), dtype=bool)
    one, other = (caps.group[classes.representative[side]] for side in (first, second))
    held = caps.held_by_pairs(one, other, classes.problem.table.pair_demand[rows])
    result: BoolArray = np.all(held <= caps.limit, axis=1, keepdims=True)[:, 0]
    return result


def _useful_rows(classes: ClassProblem) -> IntArray:
    """Return the rows of the pair table that an optimum may need.

    Divide each member's throughput by its throughput alone on the same workers. If the two ratios
    sum to 1 or less, the pair is no better than taking turns, and dropping it loses nothing.
    """
    table = classes.problem.table
    if not table.has_pairs:
        return np.empty(0, dtype=np.int64)
    present = np.zeros(len(table.throughput), dtype=bool)
    present[classes.profile] = True
    demand = table.pair_demand
    fits = (demand <= classes.capacity[: classes.types]).all(axis=1)
    keep = present[table.pair_profiles].all(axis=1) & fits
    keep &= (table.pair_throughput > 0).any(axis=1) & (demand.max(axis=1, initial=0) > 0)
    rows: IntArray = np.flatnonzero(keep)
    gain = np.zeros(len(rows))
    for side in (0, 1):
        profile = table.pair_profiles[rows, side]
        same = (table.demand[profile] == demand[rows][:, None, :]).all(axis=2)
        alone = np.where(same, table.throughput[profile], 0.0).max(axis=1, initial=0.0)
        shared = table.pair_throughput[rows, side]
        gain += np.where(alone > 0, shared / np.where(alone > 0, alone, 1.0), (shared > 0) * 2.0)
    return rows[gain > 1.0 + NOISE]
