"""Gandiva: time slices, and pairs found by trial."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import offers_of
from policies.parameters import parameter
from policies.quotas import within_quotas
from policies.shares import best_by_type, part_of_cluster
from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Gandiva(Policy):
    """Give every job its turn on all worker types; pack and migrate by trial.

    Program: none. Jobs, or pairs of them, take turns: each gets worker-seconds in proportion to its
    weight, first spread over the worker types that run it in proportion to their workers. On each
    type a job runs on the count that does most per worker, or a faster one within 1/N of the type,
    of those that its quota has room for; only a job that no single type runs takes turns on several
    types at once. When the gangs exceed the workers and the table has pairs, each call tries random
    pairs among the jobs that run alone; a pair is kept while it pays (normalised throughputs sum to
    more than 1) and both jobs are there. Then two random units at a time try to migrate: they swap
    time on two types if the sum of their normalised throughputs rises, and if each holds as many
    workers on either. Which pairs were found is the instance's memory; a new instance starts
    without.

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
        unit_weight = np.zeros(units)
        unit_weight[modes.unit] = weight[modes.first]
        kinds = len(problem.capacity)
        held = np.zeros((units, kinds + 1, kinds))  # (U, K + 1, K) workers
        np.maximum.at(held, (modes.unit, modes.kind), modes.demand)
        gang = held.sum(axis=2)
        workers = np.where(held > 0, problem.capacity, np.inf).min(axis=2)
        spread = np.where(gang > 0, workers, 0.0)
        whole = np.maximum(spread.sum(axis=1), 1e-300)
        size = np.maximum((spread * gang).sum(axis=1) / whole, 1.0)
        time = _weighted_time(unit_weight / size, size, float(problem.capacity.sum()))
        split = time[:, None] * spread / whole[:, None]
        used = np.einsum("uk,ukt->t", split, held)
        room = np.minimum(1.0, problem.capacity / np.maximum(used, 1e-300))
        split *= np.where(held > 0, room, 1.0).min(axis=2)
        if self.migrations and units:
            free = np.maximum(problem.capacity - np.einsum("uk,ukt->t", split, held), 0.0)
            one_type = split[:, :-1], gang[:, :-1], _worth(problem, modes, units)[:, :-1]
            split[:, :-1] = self._migrate(problem, free, *one_type)
        result: FloatArray = split[modes.unit, modes.kind] * modes.part
        return result

    def _migrate(
        self,
        problem: Problem,
        free: FloatArray,
        split: FloatArray,
        gang: FloatArray,
        worth: FloatArray,
    ) -> FloatArray:
        """Try random migrations; the free workers take part as a unit without worth."""
        from policies.kernels.trades import trade  # noqa: PLC0415  numba takes 0.4 s to import

        units, kinds = split.shape
        split = np.vstack((split, free))
        rng = np.random.default_rng((self.seed, int(problem.job_number[-1]), problem.jobs))
        tries = self.migrations * units * kinds
        who = rng.integers(0, units + 1, (tries, 2))
        where = rng.integers(0, kinds, (tries, 2))
        idle = np.full((1, kinds), np.finfo(float).tiny)
        gang = np.vstack((gang, np.ones((1, kinds))))
        trade(split, gang, np.vstack((worth, idle)), np.hstack((who, where)))
        return split[:-1]

    def _trials(self, problem: Problem, pays: _Judge, taken: set[int]) -> dict[int, int]:
        """Try one random pairing of the jobs that run alone; return the partners that pay."""
        free = [i for i in range(problem.jobs) if int(problem.job_number[i]) not in taken]
        # Seeded by the jobs, not by a counter, so that a replay finds the same pairs.
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
    """Evaluates whether two jobs of a problem pay as a pair on workers in service."""

    def __init__(self, problem: Problem) -> None:
        self.profile, self.caps = problem.profile, problem.caps
        self.paying = paying_rows(problem.table)
        self.demand = problem.table.pair_demand
        self.fits = np.logical_and.reduce(self.demand <= problem.capacity, axis=1)

    def __call__(self, first: int, second: int) -> bool:
        return bool(self.rows(first, second))

    def rows(self, first: int, second: int) -> list[int]:
        """Return the rows of the table that pay and fit, also under the quotas of both."""
        a, b = sorted((int(self.profile[first]), int(self.profile[second])))
        return [
            r for r in self.paying.get((a, b), ()) if self.fits[r] and self._may(first, second, r)
        ]

    def _may(self, first: int, second: int, row: int) -> bool:
        if self.caps is None:
            return True
        groups = self.caps.group[[first]], self.caps.group[[second]]
        held = self.caps.held_by_pairs(*groups, self.demand[[row]])
        return bool((held <= self.caps.limit).all())


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
    """Ways in which units (jobs alone, or pairs) take their turns; E in total.

    A unit has one way for each kind of workers: a worker type, or (kind K) several types at once.

    Attributes:
        unit: (E,) which unit.
        first: (E,) position of the job, or of the pair's first member.
        second: (E,) position of the second member, -1 for a job alone.
        configuration: (E,) single configuration, -1 for a pair.
        row: (E,) row of the table's pairs, -1 for a job alone.
        kind: (E,) which workers.
        part: (E,) part of the unit's time on these workers.
        demand: (E, K) workers held.
    """

    unit: IntArray
    first: IntArray
    second: IntArray
    configuration: IntArray
    row: IntArray
    kind: IntArray
    part: FloatArray
    demand: FloatArray

    @classmethod
    def of(cls, problem: Problem, pairs: IntArray) -> _Modes:
        """Build the units; if a pair does not pay, its members take turns."""
        table, types = problem.table, len(problem.capacity)
        q, row = _rows_in_force(problem, pairs)
        rates, choice = best_by_type(problem, share=part_of_cluster(problem))
        demand = problem.demand[np.arange(problem.jobs)[:, None], choice]  # (N, K, K)
        runs = np.zeros((problem.jobs, types + 1), dtype=bool)
        job, k = np.nonzero(rates > 0)
        runs[job, _kinds(demand[job, k])] = True
        kind = _kinds(table.pair_demand[row])
        runs[pairs[q], kind[:, None]] = False
        job, k = np.nonzero(runs)
        # A mixed configuration is listed at each of its types.
        at = np.where(k < types, k, rates[job].argmax(axis=1))
        unit = np.arange(problem.jobs)
        unit[pairs[:, 1]] = pairs[:, 0]
        part = np.ones(problem.jobs)
        part[pairs] = 0.5
        none, paired = np.full(len(job), -1), np.full(len(q), -1)
        return cls(
            unit=np.unique(np.concatenate((unit[job], pairs[q, 0])), return_inverse=True)[1],
            first=np.concatenate((job, pairs[q, 0])),
            second=np.concatenate((none, pairs[q, 1])),
            configuration=np.concatenate((choice[job, at], paired)),
            row=np.concatenate((none, row)),
            kind=np.concatenate((k, kind)),
            part=np.concatenate((part[job], np.ones(len(q)))),
            demand=np.concatenate((demand[job, at], table.pair_demand[row])).astype(float),
        )


def _kinds(demand: IntArray) -> IntArray:
    """Return (R,) the one worker type of each (R, K) demand, or K if there are several."""
    several = np.count_nonzero(demand, axis=1) > 1
    result: IntArray = np.where(several, demand.shape[1], demand.argmax(axis=1))
    return result


def _rows_in_force(problem: Problem, pairs: IntArray) -> tuple[IntArray, IntArray]:
    """Return (R,) positions in ``pairs`` and (R,) the best row of the table for each kind."""
    judge, table = _Judge(problem), problem.table
    kind = _kinds(table.pair_demand)
    alone = np.maximum(table.throughput.max(axis=1), 1e-300)[table.pair_profiles]
    workers = np.maximum(table.pair_demand.sum(axis=1), 1)
    gain = (table.pair_throughput / alone).sum(axis=1) / workers
    best: dict[tuple[int, int], int] = {}
    for q, (a, b) in enumerate(pairs):
        for row in sorted(judge.rows(int(a), int(b)), key=lambda r: float(gain[r])):
            best[q, int(kind[row])] = row
    found = sorted((q, row) for (q, _), row in best.items())
    positions, rows = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return positions, rows


def _worth(problem: Problem, modes: _Modes, units: int) -> FloatArray:
    """Return (U, K + 1) the normalised throughput of units on kinds, 0 if they cannot run."""
    table = problem.table
    best = table.throughput.max(axis=1)[problem.profile]
    single = modes.row < 0
    value = np.empty(len(modes.unit))
    first = modes.first[single]
    rate = table.throughput[problem.profile[first], modes.configuration[single]]
    value[single] = rate / best[first]
    members = np.stack((modes.first[~single], modes.second[~single]), axis=1)
    value[~single] = (table.pair_throughput[modes.row[~single]] / best[members]).sum(axis=1)
    worth = np.zeros((units, len(problem.capacity) + 1))
    np.add.at(worth, (modes.unit, modes.kind), value * modes.part)
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
    first = int(np.argmax(level * w < 1.0))  # the first that does not run all the time
    result: FloatArray = np.minimum(1.0, level[first] * weight)
    return result
