"""Quotas in force: the caps of a moment, and what is held of them.

What a project does not ask for of a quota may be lent: to those of the same worker type (or of all
types) that share, as much as they ask for beyond their own. ``IdleQuota`` says who does what. What
is lent is never used twice: all who lend and share together hold no more than their quotas add up
to. A job that others may not have the workers of, or not for a time, runs within its project's own
quota, so that what is lent can be taken back at the end of a round.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.domain.quota import Caps, IdleQuota, Quota
from scheduler.engine.jobs import HELD, NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.job import Job
    from scheduler.engine.assignment import Assigner
    from scheduler.engine.jobs import JobTable
    from scheduler.engine.leases import PlannedLease

#: Project, owner, and whether the workers of such jobs cannot always be taken back in time.
_Group = tuple[str, str, bool]
_NOBODY: Final[_Group] = ("", "", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapOf:
    """What a cap is about.

    Attributes:
        quota: the quota that it comes from; of several that lend to each other, the first.
        owner: the user, where it is a quota of each.
        shared: whether it bounds several projects together, or what of a project cannot be lent.
    """

    quota: Quota
    owner: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pool:
    """Quotas that lend to each other: their (n,) rows, who shares, and the row of those together.

    Attributes:
        rows: (n,) of the quotas' own caps.
        shares: (n,) whose projects use what others lend.
        joint: row of the cap over all who use more than their own.
    """

    rows: IntArray
    shares: BoolArray
    joint: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """Caps without what changes from moment to moment; letters as in ``Caps``."""

    of: tuple[CapOf, ...]
    limit: FloatArray
    counts: BoolArray
    member: BoolArray
    pools: tuple[_Pool, ...]


class Quotas:
    """The quotas in force, and the groups of jobs that fall under the same ones."""

    def __init__(self) -> None:
        #: what is in force, in the order in which it was told.
        self.rules: tuple[Quota, ...] = ()
        #: of jobs that have come; the column ``group`` of the job table counts in them.
        self.groups: list[_Group] = [_NOBODY]
        self._group_of: dict[_Group, int] = {_NOBODY: 0}
        self._made: tuple[tuple[object, ...], _Layout] | None = None

    def group(self, job: Job) -> int:
        """Return the number of the group that a job belongs to."""
        return self.group_of(job.project, job.owner, firm=is_firm(job))

    def group_of(self, project: str, owner: str, *, firm: bool) -> int:
        """Return the number of a group, which is appended where it is new."""
        key = (project, owner, firm)
        found = self._group_of.get(key)
        if found is None:
            found = self._group_of[key] = len(self.groups)
            self.groups.append(key)
        return found

    def restore(self, rules: Sequence[Quota], groups: Sequence[_Group]) -> None:
        """Bring back what was in force, and the groups."""
        self.rules = tuple(rules)
        for project, owner, firm in groups:
            self.group_of(project, owner, firm=firm)

    def of(self, types: tuple[str, ...]) -> tuple[CapOf, ...]:
        """Return what each of the caps is about."""
        return self._layout(types).of if self.rules else ()

    def caps(self, jobs: JobTable, table: ConfigurationTable, now_s: float) -> Caps | None:
        """Return the caps of this moment over all jobs; None where there are no quotas.

        Args:
            jobs: the job table.
            table: configurations by profile.
            now_s: the time.
        """
        if not self.rules:
            return None
        layout = self._layout(table.worker_types)
        caps = Caps(
            limit=layout.limit,
            counts=layout.counts,
            member=layout.member,
            group=jobs.ints("group"),
        )
        return self._lent(caps, layout.pools, jobs, table, now_s) if layout.pools else caps

    def _lent(
        self,
        caps: Caps,
        pools: tuple[_Pool, ...],
        jobs: JobTable,
        table: ConfigurationTable,
        now_s: float,
    ) -> Caps:
        """Add what is lent to those who ask for more than their own."""
        asks = np.flatnonzero((jobs["status"] != HELD) & (jobs["retry_at_s"] <= now_s))
        asked = caps.of_jobs(asks).asked(most_held(table)[jobs["profile"][asks]])
        limit, member = caps.limit.copy(), caps.member.copy()
        for pool in pools:
            own, wants = caps.limit[pool.rows], asked[pool.rows]
            idle = float(np.maximum(own - wants, 0.0).sum())
            short = pool.shares & (wants > own)
            limit[pool.rows[short]] += idle
            limit[pool.joint] = own[short].sum() + idle
            member[:, pool.joint] = member[:, pool.rows[short]].any(axis=1)
        return Caps(limit=limit, counts=caps.counts, member=member, group=caps.group)

    def _layout(self, types: tuple[str, ...]) -> _Layout:
        key = (self.rules, len(self.groups), types)
        if self._made is None or self._made[0] != key:
            self._made = key, _lay_out(self.rules, self.groups, types)
        return self._made[1]


def is_firm(job: Job) -> bool:
    """Tell whether a lease of a job may have to be left to it beyond the end of a round."""
    return not job.preemptible or job.min_run_time_s > 0.0


def most_held(table: ConfigurationTable) -> IntArray:
    """Return (U, K) most workers of each type that a job of each profile can hold."""
    runs = table.throughput > 0
    most: IntArray = np.where(runs[:, :, None], table.demand, 0).max(axis=1, initial=0)
    return most


def _lay_out(rules: Sequence[Quota], groups: Sequence[_Group], types: tuple[str, ...]) -> _Layout:
    of: list[CapOf] = []
    limits: list[float] = []
    counts: list[BoolArray] = []
    members: list[BoolArray] = []
    projects = np.array([group[0] for group in groups], dtype=object)
    owners = np.array([group[1] for group in groups], dtype=object)
    firm = np.array([group[2] for group in groups], dtype=bool)

    def add(cap: CapOf, limit: float, member: BoolArray) -> int:
        name = cap.quota.worker_type
        of.append(cap)
        limits.append(limit)
        members.append(member)
        counts.append(np.array([name in {"", worker_type} for worker_type in types], dtype=bool))
        return len(of) - 1

    lenders: dict[str, list[tuple[Quota, int]]] = {}
    for rule in rules:
        own = projects == rule.project
        if rule.each_user:
            for owner in dict.fromkeys(owners[own].tolist()):
                add(CapOf(quota=rule, owner=owner), rule.limit, own & (owners == owner))
            continue
        row = add(CapOf(quota=rule), rule.limit, own)
        if rule.idle is not IdleQuota.KEEP:
            lenders.setdefault(rule.worker_type, []).append((rule, row))
    pools = []
    for lent in lenders.values():
        shares = np.array([rule.idle is IdleQuota.SHARE for rule, _ in lent], dtype=bool)
        if len(lent) < 2 or not shares.any():
            continue
        rows = np.array([row for _, row in lent], dtype=np.int64)
        of_all = CapOf(quota=lent[0][0], shared=True)
        everybody = np.any([members[row] for row in rows], axis=0)
        add(of_all, float(sum(rule.limit for rule, _ in lent)), everybody)
        joint = add(of_all, 0.0, np.zeros(len(groups), dtype=bool))
        for (rule, row), uses in zip(lent, shares.tolist(), strict=True):
            if uses and (members[row] & firm).any():
                add(CapOf(quota=rule, shared=True), rule.limit, members[row] & firm)
        pools.append(_Pool(rows=rows, shares=shares, joint=joint))
    return _Layout(
        of=tuple(of),
        limit=np.array(limits, dtype=float),
        counts=np.array(counts, dtype=bool).reshape(len(of), len(types)),
        member=np.array(members, dtype=bool).reshape(len(of), len(groups)).T.copy(),
        pools=tuple(pools),
    )


# -- what is held -----------------------------------------------------------------------------


def held(caps: Caps, rows: IntArray, assigner: Assigner) -> IntArray:
    """Return (Q,) workers that the leases of (R,) rows hold of each cap; those without hold none.

    Args:
        caps: over all jobs.
        rows: of jobs.
        assigner: knows jobs and leases.
    """
    jobs, table = assigner.jobs, assigner.table
    rows = rows[(jobs["lease"][rows] != NONE) & caps.member[caps.group[rows]].any(axis=1)]
    configuration = jobs["configuration"][rows]
    alone = rows[configuration != NONE]
    demand = table.demand[jobs["profile"][alone], jobs["configuration"][alone]]
    total: IntArray = caps.held(caps.group[alone], demand).sum(axis=0)
    shared: dict[int, BoolArray] = {}  # worker -> the caps that its jobs fall under
    for row in rows[configuration == NONE].tolist():
        member = caps.member[caps.group[row]]
        for worker in assigner.book.workers_of(int(jobs["lease"][row])):
            shared[worker] = shared.get(worker, False) | member
    for worker, member in shared.items():
        total = total + (member & caps.counts[:, assigner.fleet.type_of[worker]])
    return total


def planned(caps: Caps, assigner: Assigner) -> IntArray:
    """Return (Q,) workers at most that planned leases are about to hold of each cap."""
    return _planned(caps, *_plans(caps, assigner), assigner.fleet.type_of)


def _plans(caps: Caps, assigner: Assigner) -> tuple[IntArray, _Spots]:
    """Return (n,) the groups of planned leases' jobs, and where they will run."""
    plans, row_of = assigner.book.planned.values(), assigner.jobs.row_of
    rows = np.fromiter((row_of(p.number) for p in plans), dtype=np.int64, count=len(plans))
    return caps.group[rows], _spots([plan.workers for plan in plans])


def _planned(caps: Caps, group: IntArray, spots: _Spots, type_of: IntArray) -> IntArray:
    groups, types = len(caps.member), caps.counts.shape[1]
    cell = group[spots.whose] * types + type_of[spots.worker]
    held_by_group = np.bincount(cell, minlength=groups * types).reshape(groups, types)
    total: IntArray = (caps.member * (held_by_group @ caps.counts.T)).sum(axis=0)
    return total


def hold_back(caps: Caps, assigner: Assigner) -> list[int]:
    """Let planned leases wait for those that must end before a cap has room for both.

    What a lease gives back is left to one plan alone, so that a plan waits for as many leases as it
    needs, and not for all those that others need before it.

    Returns:
        Numbers of the jobs for whose planned leases there is no room at all.
    """
    book, jobs = assigner.book, assigner.jobs
    if not book.planned:
        return []
    plans = list(book.planned.values())
    group, spots = _plans(caps, assigner)
    most = held(caps, np.arange(len(jobs)), assigner)
    most = most + _planned(caps, group, spots, assigner.fleet.type_of)
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
        type_of=assigner.fleet.type_of,
    )
    waits: dict[int, list[int]] = {}  # plan -> leases
    homeless: list[int] = []
    for q in short.tolist():
        homeless += _hold_back(caps, q, now, waits)
    book.wait_for((plans[at], waits[at]) for at in sorted(waits))
    return homeless


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spots:
    """The workers of n leases, one after the other: whose each is, and which."""

    whose: IntArray
    worker: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Now:
    """Leases in force, ascending, and planned ones, in the order in which they were planned.

    Attributes:
        plans: n planned leases.
        plan_group: (n,) group of each one's job.
        plan_spots: where they will run.
        leases: ids of those in force under a cap that has not room for all.
        lease_group: (L,) group of each one's job.
        lease_spots: where they run.
        leaves: (L,) whether each is stopping.
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
    """Add to ``waits`` what plans under a cap wait for; returns jobs that it has no room for."""
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
    known: dict[tuple[int, ...], list[int]] = {}  # workers of several plans are held once
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
    """What a cap has room for: at once, and when leases that are stopping have ended.

    Args:
        free: workers that may be taken at once; below 0 what must first be given back.
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
        #: [lease, workers of it that nobody has been promised], in the order of leases.
        self._leaving = deque([lease_id, counts[lease_id]] for lease_id in sorted(counts))
        self.left = free + sum(counts.values())
        self._first: list[int] = []
        if free < 0:
            self._first = self._of_leaving(min(-free, self.left - free))

    def take(self, workers: int) -> list[int]:
        """Return what must end before a plan has so many workers, no more than are left."""
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
