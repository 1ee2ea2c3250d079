"""Gandiva: time slices, and pairs found by trial."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import offers_of, same_workers
from policies.parameters import parameter
from policies.quotas import within_quotas
from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Gandiva(Policy):
    """Give every job its turn on all worker types; pack and migrate by trial.

    Program: none. Jobs, or pairs of them, take turns: each gets worker-seconds in proportion to
    its weight, first spread over the worker types that run it in proportion to their workers. When
    the gangs exceed the workers and the table has pairs, each call tries random pairs among the
    jobs that run alone; a pair is kept while it pays (normalised throughputs sum to more than 1)
    and both jobs are there. Then two random units at a time try to migrate: they swap time on two
    types if the sum of their normalised throughputs rises. Which pairs were found is the
    instance's memory; a new instance starts without.

    Source: Gandiva (Xiao et al., OSDI 2018, sections 3.2 to 3.4: time slices, packing, migration);
    turns and packing as modelled by Gavel (2020), which leaves migration out.
    """

    name: ClassVar[str] = "gandiva"

    seed: int = parameter(0, ge=0, help="Seed of the random trials.")
    migrations: int = parameter(
        40, ge=0, help="Migrations tried per unit and worker type; 0 for none."
    )
    _partner: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        pairs = self._pairs(problem)
        modes = _Modes.of(problem, pairs)
        fractions = self._take_turns(problem, modes, pairs)
        rank = np.empty(problem.jobs)
        by_service = np.lexsort((problem.job_number, problem.attained_worker_s / problem.weight))
        rank[by_service] = np.arange(problem.jobs)
        x = np.zeros((problem.jobs, problem.table.throughput.shape[1]))
        single = modes.row < 0
        x[modes.first[single], modes.configuration[single]] = fractions[single]
        answer = Allocation(
            x=x,
            pair_jobs=np.stack((modes.first[~single], modes.second[~single]), axis=1),
            pair_index=modes.row[~single],
            pair_x=fractions[~single],
            rank=rank,
            solver="round robin",
        )
        return within_quotas(problem, answer)

    def _pairs(self, problem: Problem) -> IntArray:
        """Return (Q, 2) positions of the pairs in force, the smaller profile first."""
        none = np.empty((0, 2), dtype=np.int64)
        short = problem.scale_factor.sum() > problem.capacity.sum()
        if not (problem.table.has_pairs and short):
            self._partner.clear()
            return none
        position = {int(n): i for i, n in enumerate(problem.job_number)}
        pays = _Judge(problem)
        kept = {
            a: b
            for a, b in self._partner.items()
            if a in position and b in position and pays(position[a], position[b])
        }
        kept |= self._trials(problem, pays, set(kept))
        self._partner.clear()
        self._partner.update(kept)
        found = [sorted((position[a], position[b])) for a, b in kept.items() if a < b]
        pairs = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
        profiles = problem.profile[pairs]
        swap = np.flatnonzero(profiles[:, 0] > profiles[:, 1])
        pairs[swap] = pairs[swap][:, ::-1]
        return pairs

    def _take_turns(self, problem: Problem, modes: _Modes, pairs: IntArray) -> FloatArray:
        """Return (E,) fractions: equal worker-seconds by weight, then improved by trades."""
        units = int(modes.unit.max(initial=-1)) + 1
        weight = problem.weight.copy()
        weight[pairs] = weight[pairs].mean(axis=1, keepdims=True)
        unit_weight, gang = np.zeros(units), np.ones(units)
        unit_weight[modes.unit] = weight[modes.first]
        gang[modes.unit] = problem.scale_factor[modes.first]
        time = _weighted_time(unit_weight / gang, gang, float(problem.capacity.sum()))
        kind = modes.demand.argmax(axis=1)
        runs = np.zeros((units, len(problem.capacity)))
        runs[modes.unit, kind] = 1.0
        spread = runs * problem.capacity
        split = time[:, None] * spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-300)
        used = gang @ split
        split *= np.minimum(1.0, problem.capacity / np.maximum(used, 1e-300))
        if self.migrations and units:
            split = self._migrate(problem, split, gang, _worth(problem, modes, units, kind))
        result: FloatArray = split[modes.unit, kind] * modes.part
        return result

    def _migrate(
        self, problem: Problem, split: FloatArray, gang: FloatArray, worth: FloatArray
    ) -> FloatArray:
        """Try random migrations; the workers that are free take part as a unit without worth."""
        from policies.kernels.trades import trade  # noqa: PLC0415  numba takes 0.4 s to import

        units, kinds = split.shape
        free = np.maximum(problem.capacity - gang @ split, 0.0)
        split = np.vstack((split, free))
        rng = np.random.default_rng((self.seed, int(problem.job_number[-1]), problem.jobs))
        tries = self.migrations * units * kinds
        who = rng.integers(0, units + 1, (tries, 2))
        where = rng.integers(0, kinds, (tries, 2))
        idle = np.full((1, kinds), np.finfo(float).tiny)
        trade(split, np.append(gang, 1.0), np.vstack((worth, idle)), np.hstack((who, where)))
        return split[:-1]

    def _trials(self, problem: Problem, pays: _Judge, taken: set[int]) -> dict[int, int]:
        """Try one random pairing of the jobs that run alone; return the partners that pay."""
        free = [i for i in range(problem.jobs) if int(problem.job_number[i]) not in taken]
        # Seeded by the jobs and not by a counter, so that a replay finds the same pairs.
        newest = int(problem.job_number[-1])
        shuffled = np.random.default_rng((self.seed, newest, len(free))).permutation(free)
        waiting: dict[int, int] = {}
        partner: dict[int, int] = {}
        for i in shuffled:
            gang = int(problem.scale_factor[i])
            other = waiting.pop(gang, None)
            if other is None:
                waiting[gang] = int(i)
            elif pays(other, int(i)):
                a, b = int(problem.job_number[other]), int(problem.job_number[i])
                partner[a], partner[b] = b, a
        return partner


class _Judge:
    """Says whether two jobs of a problem pay as a pair on workers that are there."""

    def __init__(self, problem: Problem) -> None:
        self.profile = problem.profile
        self.rows = paying_rows(problem.table)
        self.fits = np.logical_and.reduce(problem.table.pair_demand <= problem.capacity, axis=1)

    def __call__(self, first: int, second: int) -> bool:
        a, b = sorted((int(self.profile[first]), int(self.profile[second])))
        rows = self.rows.get((a, b), ())
        return any(self.fits[row] for row in rows)


@lru_cache(maxsize=4)  # a pure function of a frozen table, which is compared by identity
def paying_rows(table: ConfigurationTable) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the rows of a table's pairs that pay, by the members' profiles."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for row in np.unique(offers_of(table).row):
        a, b = (int(u) for u in table.pair_profiles[row])
        found[a, b] = (*found.get((a, b), ()), int(row))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Modes:
    """Ways in which units (jobs alone, or pairs) can take their turns; E in all.

    Attributes:
        unit: (E,) which unit.
        first: (E,) position of the job, or of the pair's first member.
        second: (E,) position of the second member, -1 for a job alone.
        configuration: (E,) single configuration, -1 for a pair.
        row: (E,) row of the table's pairs, -1 for a job alone.
        part: (E,) part of the unit's time on these workers.
        demand: (E, K) workers held.
    """

    unit: IntArray
    first: IntArray
    second: IntArray
    configuration: IntArray
    row: IntArray
    part: FloatArray
    demand: FloatArray

    @classmethod
    def of(cls, problem: Problem, pairs: IntArray) -> _Modes:
        """Lay out the units: where a pair does not pay, its members take turns."""
        table = problem.table
        q, row = _rows_in_force(problem, pairs)
        alone = (table.demand <= problem.capacity).all(axis=2) & (table.throughput > 0)
        runs = alone[problem.profile]
        runs[pairs[q], same_workers(table)[row]] = False
        job, configuration = np.nonzero(runs)
        unit = np.arange(problem.jobs)
        unit[pairs[:, 1]] = pairs[:, 0]
        part = np.ones(problem.jobs)
        part[pairs] = 0.5
        none, paired = np.full(len(job), -1), np.full(len(q), -1)
        single_demand = table.demand[problem.profile[job], configuration]
        return cls(
            unit=np.unique(np.concatenate((unit[job], pairs[q, 0])), return_inverse=True)[1],
            first=np.concatenate((job, pairs[q, 0])),
            second=np.concatenate((none, pairs[q, 1])),
            configuration=np.concatenate((configuration, paired)),
            row=np.concatenate((none, row)),
            part=np.concatenate((part[job], np.ones(len(q)))),
            demand=np.concatenate((single_demand, table.pair_demand[row])).astype(float),
        )


def _rows_in_force(problem: Problem, pairs: IntArray) -> tuple[IntArray, IntArray]:
    """Return (R,) positions in ``pairs`` and (R,) rows of the table that pay and fit."""
    judge = _Judge(problem)
    rows = [
        (q, row)
        for q, (a, b) in enumerate(pairs)
        for row in judge.rows[int(problem.profile[a]), int(problem.profile[b])]
        if judge.fits[row]
    ]
    q, row = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return q, row


def _worth(problem: Problem, modes: _Modes, units: int, kind: IntArray) -> FloatArray:
    """Return (U, K) the normalised throughput of each unit on each type, 0 where it cannot run."""
    table = problem.table
    best = table.throughput.max(axis=1)[problem.profile]
    single = modes.row < 0
    value = np.empty(len(modes.unit))
    first = modes.first[single]
    rate = table.throughput[problem.profile[first], modes.configuration[single]]
    value[single] = rate / best[first]
    members = np.stack((modes.first[~single], modes.second[~single]), axis=1)
    value[~single] = (table.pair_throughput[modes.row[~single]] / best[members]).sum(axis=1)
    worth = np.zeros((units, len(problem.capacity)))
    np.add.at(worth, (modes.unit, kind), value * modes.part)
    return worth


def _weighted_time(weight: FloatArray, gang: FloatArray, workers: float) -> FloatArray:
    """Return min(1, c * weight) with c such that the gangs use all workers, or 1 if they fit."""
    if gang.sum() <= workers:
        return np.ones(len(weight))
    order = np.argsort(-weight)
    w, g = weight[order], gang[order]
    full = np.concatenate(([0.0], np.cumsum(g)[:-1]))  # gangs before this one run all the time
    shared = np.cumsum((w * g)[::-1])[::-1]
    level = (workers - full) / shared
    first = int(np.argmax(level * w < 1.0))  # the first that is not served all the time
    result: FloatArray = np.minimum(1.0, level[first] * weight)
    return result
