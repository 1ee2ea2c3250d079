"""How many workers leases in force and planned leases hold of each quota."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.tables.fleet import Fleet
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.leases import LeaseBook, PlannedLease


def held_by_leases(
    caps: Caps,
    rows: IntArray,
    *,
    jobs: JobTable,
    table: ConfigurationTable,
    book: LeaseBook,
    fleet: Fleet,
) -> IntArray:
    """Return (Q,) workers of each cap that the leases of (R,) rows hold.

    Args:
        caps: over all jobs.
        rows: of jobs.
        jobs: the job table.
        table: configurations by profile.
        book: leases.
        fleet: workers.
    """
    rows = rows[(jobs["lease"][rows] != NONE) & caps.member[caps.group[rows]].any(axis=1)]
    configuration = jobs["configuration"][rows]
    alone = rows[configuration != NONE]
    demand = table.demand[jobs["profile"][alone], jobs["configuration"][alone]]
    total: IntArray = caps.held(caps.group[alone], demand).sum(axis=0)
    shared: dict[int, BoolArray] = {}  # worker -> the caps of its jobs
    for row in rows[configuration == NONE].tolist():
        member = caps.member[caps.group[row]]
        for worker in book.workers_of(int(jobs["lease"][row])):
            shared[worker] = shared.get(worker, False) | member
    for worker, member in shared.items():
        total = total + (member & caps.counts[:, fleet.type_of[worker]])
    return total


def held_by_plans(caps: Caps, *, jobs: JobTable, book: LeaseBook, fleet: Fleet) -> IntArray:
    """Return (Q,) the most workers of each cap that planned leases will hold."""
    return _planned(caps, *_plans(caps, jobs, book), fleet.type_of)


def _plans(caps: Caps, jobs: JobTable, book: LeaseBook) -> tuple[IntArray, _Spots]:
    """Return (n,) the groups of planned leases' jobs, and the workers of these leases."""
    plans, row_of = book.planned.values(), jobs.row_of
    rows = np.fromiter((row_of(p.number) for p in plans), dtype=np.int64, count=len(plans))
    return caps.group[rows], _spots([plan.workers for plan in plans])


def _planned(caps: Caps, group: IntArray, spots: _Spots, type_of: IntArray) -> IntArray:
    groups, types = len(caps.member), caps.counts.shape[1]
    cell = group[spots.whose] * types + type_of[spots.worker]
    held_by_group = np.bincount(cell, minlength=groups * types).reshape(groups, types)
    total: IntArray = (caps.member * (held_by_group @ caps.counts.T)).sum(axis=0)
    return total


def hold_back(
    caps: Caps, *, jobs: JobTable, table: ConfigurationTable, book: LeaseBook, fleet: Fleet
) -> list[int]:
    """Let planned leases wait for leases that must end before a cap has room for both.

    Each worker that an ending lease frees is given to one plan. So a plan waits for as many leases
    as it needs, and not for those of earlier plans.

    Returns:
        Numbers of the jobs with planned leases that a cap has no room for at all.
    """
    if not book.planned:
        return []
    plans = list(book.planned.values())
    group, spots = _plans(caps, jobs, book)
    most = held_by_leases(
        caps, np.arange(len(jobs)), jobs=jobs, table=table, book=book, fleet=fleet
    )
    most = most + _planned(caps, group, spots, fleet.type_of)
    short = np.flatnonzero(most > caps.limit)
    if not len(short):
        return []
    rows = np.flatnonzero(jobs["lease"] != NONE)
    rows = rows[np.argsort(jobs["lease"][rows])]
    rows = rows[caps.member[caps.group[rows]][:, short].any(axis=1)]
    ids = jobs["lease"][rows].tolist()
    now = _Now(
        plans=plans,
        plan_group=group,
        plan_spots=spots,
        leases=ids,
        lease_group=caps.group[rows],
        lease_spots=_spots([book.workers_of(lease_id) for lease_id in ids]),
        leaves=np.array([lease_id in book.stopping for lease_id in ids], dtype=bool),
        type_of=fleet.type_of,
    )
    waits: dict[int, list[int]] = {}  # plan -> leases
    homeless: list[int] = []
    for q in short.tolist():
        homeless += _hold_back(caps, q, now, waits)
    book.wait_for((plans[at], waits[at]) for at in sorted(waits))
    return homeless


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spots:
    """The workers of n leases, one lease after the other, each with the position of its lease."""

    whose: IntArray
    worker: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Now:
    """Leases in force, ascending, and planned leases, in the order of planning.

    Attributes:
        plans: n planned leases.
        plan_group: (n,) group of each plan's job.
        plan_spots: the workers of the plans.
        leases: ids of L leases in force under a cap that has not room for all.
        lease_group: (L,) group of each lease's job.
        lease_spots: the workers of these leases.
        leaves: (L,) whether each lease is stopping.
        type_of: (W,) type of each worker.
    """

    plans: list[PlannedLease]
    plan_group: IntArray
    plan_spots: _Spots
    leases: list[int]
    lease_group: IntArray
    lease_spots: _Spots
    leaves: BoolArray
    type_of: IntArray


def _spots(groups: Sequence[Sequence[int]]) -> _Spots:
    lengths = np.fromiter(map(len, groups), dtype=np.int64, count=len(groups))
    worker = np.fromiter(chain.from_iterable(groups), dtype=np.int64, count=int(lengths.sum()))
    return _Spots(whose=np.repeat(np.arange(len(groups)), lengths), worker=worker)


def _hold_back(caps: Caps, q: int, now: _Now, waits: dict[int, list[int]]) -> list[int]:
    """Add to ``waits`` the leases that plans under a cap wait for; return jobs without room."""
    counted: BoolArray = caps.counts[q][now.type_of]
    plans = caps.member[now.plan_group, q]
    leases = caps.member[now.lease_group, q]
    held_now, held_later = np.zeros_like(counted), np.zeros_like(counted)
    planned, there = plans[now.plan_spots.whose], leases[now.lease_spots.whose]
    stays = there & ~now.leaves[now.lease_spots.whose]
    held_now[now.lease_spots.worker[there]] = True
    held_later[now.lease_spots.worker[stays]] = True
    held_later[now.plan_spots.worker[planned]] = True
    new = planned & (counted & ~held_now)[now.plan_spots.worker]
    need = np.bincount(now.plan_spots.whose[new], minlength=len(now.plans)).tolist()
    gone = there & (counted & ~held_later)[now.lease_spots.worker]
    room = _Room(int(caps.limit[q]) - int((held_now & counted).sum()), now, gone)
    homeless: list[int] = []
    known: dict[tuple[int, ...], list[int]] = {}  # two plans on the same workers count them once
    for at in np.flatnonzero(plans).tolist():
        if not need[at]:
            continue
        workers = now.plans[at].workers
        if workers not in known:
            if need[at] > room.left:
                homeless.append(now.plans[at].number)
                continue
            known[workers] = room.take(need[at])
        waits.setdefault(at, []).extend(known[workers])
    return homeless


class _Room:
    """The room under a cap, now and after stopping leases have ended.

    Args:
        free: workers that may be taken at once; below 0, workers that must first be given back.
        now: leases.
        gone: which of the leases' workers will be given back.
    """

    def __init__(self, free: int, now: _Now, gone: BoolArray) -> None:
        self._free = max(free, 0)
        last: dict[int, int] = {}  # worker -> position of the last lease on it
        self._beside: dict[int, set[int]] = {}  # lease -> others that hold its workers
        pairs = zip(now.lease_spots.worker[gone].tolist(), now.lease_spots.whose[gone].tolist(),
                    strict=True)  # fmt: skip
        for worker, whose in pairs:
            if worker in last:
                self._beside.setdefault(now.leases[whose], set()).add(now.leases[last[worker]])
            last[worker] = whose
        counts = Counter(now.leases[whose] for whose in last.values())
        #: [lease, workers of it that are not yet given to a plan], in the order of leases.
        self._leaving = deque([lease_id, counts[lease_id]] for lease_id in sorted(counts))
        self.left = free + sum(counts.values())
        self._first: list[int] = []
        if free < 0:
            self._first = self._of_leaving(min(-free, self.left - free))

    def take(self, workers: int) -> list[int]:
        """Return the leases that must end before a plan has ``workers`` of the ``left`` workers."""
        self.left -= workers
        at_once = min(workers, self._free)
        self._free -= at_once
        return [*self._first, *self._of_leaving(workers - at_once)]

    def _of_leaving(self, workers: int) -> list[int]:
        found: list[int] = []
        while workers > 0:
            lease_id, count = self._leaving[0]
            found += [lease_id, *sorted(self._beside.get(lease_id, ()))]
            self._leaving[0][1] -= min(workers, count)
            if workers >= count:
                self._leaving.popleft()
            workers -= count
        return found
