"""Quotas in force: the caps at one moment.

A project may lend the part of a quota that its jobs do not ask for. Borrowers are projects with a
quota on the same worker type (or on all types) that shares; each may use as much as its jobs ask
for beyond their own quota. ``IdleQuota`` says which projects lend and share. No worker is lent
twice: all lenders and sharers together hold at most the sum of their quotas. A job that cannot be
preempted, or not for a time, runs within its project's own quota, so that lent workers can be taken
back at the end of a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.domain.quota import Caps, IdleQuota, Quota
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.engine.tables.jobs import JobTable

#: Project, owner, and whether workers of such jobs cannot always be taken back at a round's end.
_Group = tuple[str, str, bool]
_NOBODY: Final[_Group] = ("", "", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapOf:
    """The quota and the jobs that a cap is about.

    Attributes:
        quota: the quota that it comes from; of several that lend to each other, the first.
        owner: the user, if the quota holds for each user.
        shared: whether it bounds several projects together, or a project's jobs that cannot borrow.
    """

    quota: Quota
    owner: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pool:
    """Quotas that lend to each other.

    Attributes:
        rows: (n,) rows of the quotas' own caps.
        shares: (n,) quotas of projects that use the workers that others lend.
        joint: row of the cap over all projects that use more than their own.
    """

    rows: IntArray
    shares: BoolArray
    joint: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """The parts of the caps that only rules and groups determine; letters as in ``Caps``.

    Attributes:
        of: the quota and jobs of each cap.
        limit: (Q,)
        counts: (Q, K)
        member: (G, Q)
        pools: quotas that lend to each other.
        strict: rows of the caps that do not lend. Those of users come before those of projects, and
            those of one type before those of all, since each cuts what the next ones count.
    """

    of: tuple[CapOf, ...]
    limit: FloatArray
    counts: BoolArray
    member: BoolArray
    pools: tuple[_Pool, ...]
    strict: IntArray


class Quotas:
    """The quotas in force, and the groups of jobs that fall under the same ones."""

    def __init__(self) -> None:
        #: quotas in force, in the order in which they were set.
        self.rules: tuple[Quota, ...] = ()
        #: groups of submitted jobs; the column ``group`` of the job table indexes them.
        self.groups: list[_Group] = [_NOBODY]
        self._group_of: dict[_Group, int] = {_NOBODY: 0}
        self._made: tuple[tuple[object, ...], _Layout] | None = None

    def group(self, job: Job) -> int:
        """Return the number of the group that a job belongs to."""
        return self.group_of(job.project, job.owner, firm=is_firm(job))

    def group_of(self, project: str, owner: str, *, firm: bool) -> int:
        """Return the number of a group, appending the group if it is new."""
        key = (project, owner, firm)
        found = self._group_of.get(key)
        if found is None:
            found = self._group_of[key] = len(self.groups)
            self.groups.append(key)
        return found

    def restore(self, rules: Sequence[Quota], groups: Sequence[_Group]) -> None:
        """Restore the quotas in force and the groups."""
        self.rules = tuple(rules)
        for project, owner, firm in groups:
            self.group_of(project, owner, firm=firm)

    def of(self, types: tuple[str, ...]) -> tuple[CapOf, ...]:
        """Return the quota and jobs that each of the caps is about."""
        return self._layout(types).of if self.rules else ()

    def caps(
        self, jobs: JobTable, table: ConfigurationTable, workers: IntArray, now_s: float
    ) -> Caps | None:
        """Return the caps of this moment over all jobs; None if there are no quotas.

        Args:
            jobs: the job table.
            table: configurations by profile.
            workers: (K,) workers of each type that jobs may be granted.
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
        if not layout.pools:
            return caps
        runs = jobs["lease"] != NONE  # it holds workers, whatever may be granted now
        asks = np.flatnonzero(jobs.runnable(now_s) | runs)
        profile = jobs["profile"][asks]
        most = most_held(table, workers)[profile]
        most[runs[asks]] = most_held(table)[profile[runs[asks]]]
        return _lend(caps, layout, _asked(caps.of_jobs(asks), layout, most))

    def _layout(self, types: tuple[str, ...]) -> _Layout:
        key = (self.rules, len(self.groups), types)
        if self._made is None or self._made[0] != key:
            self._made = key, _lay_out(self.rules, self.groups, types)
        return self._made[1]


def is_firm(job: Job) -> bool:
    """Return whether a job's lease may have to last beyond the end of a round."""
    return not job.preemptible or job.min_run_time_s > 0.0


def _asked(caps: Caps, layout: _Layout, most: IntArray) -> FloatArray:
    """Return (Q,) what jobs would hold at most if quotas that do not lend were the only ones.

    Args:
        caps: over these jobs.
        layout: of the caps.
        most: (N, K) most workers of each type that each job could hold.
    """
    groups = len(caps.member)
    by_type = [np.bincount(caps.group, one, groups) for one in most.T]
    asks = np.array(by_type).reshape(most.shape[1], groups).T
    counts, member = caps.counts.astype(float), caps.member.T.astype(float)
    over = (member @ asks * counts).sum(axis=1) > caps.limit
    for row in layout.strict[over[layout.strict]].tolist():
        part = np.ix_(caps.member[:, row], caps.counts[row])
        wants = asks[part].sum()
        if wants > caps.limit[row]:
            asks[part] *= caps.limit[row] / wants
    result: FloatArray = (member @ asks * counts).sum(axis=1)
    return result


def _lend(caps: Caps, layout: _Layout, asked: FloatArray) -> Caps:
    """Add the lent workers to the caps of projects that ask for more than their own quota."""
    limit, member = caps.limit.copy(), caps.member.copy()
    for pool in layout.pools:
        own, wants = caps.limit[pool.rows], asked[pool.rows]
        idle = float(np.maximum(own - np.ceil(wants - 1e-9), 0.0).sum())
        short = pool.shares & (wants > own)
        limit[pool.rows[short]] += idle
        limit[pool.joint] = own[short].sum() + idle
        member[:, pool.joint] = member[:, pool.rows[short]].any(axis=1)
    return Caps(limit=limit, counts=caps.counts, member=member, group=caps.group)


def most_held(table: ConfigurationTable, workers: IntArray | None = None) -> IntArray:
    """Return (U, K) the most workers of each type that a job of each profile can hold.

    Args:
        table: configurations by profile.
        workers: (K,) workers of each type that there are; None for any number.
    """
    runs = table.throughput > 0
    if workers is not None:
        runs &= (table.demand <= workers).all(axis=2)
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
    lending = {row for lent in lenders.values() for _, row in lent}
    strict = [row for row, cap in enumerate(of) if not cap.shared and row not in lending]
    strict.sort(key=lambda row: (not of[row].owner, of[row].quota.worker_type == ""))
    return _Layout(
        of=tuple(of),
        limit=np.array(limits, dtype=float),
        counts=np.array(counts, dtype=bool).reshape(len(of), len(types)),
        member=np.array(members, dtype=bool).reshape(len(of), len(groups)).T.copy(),
        pools=tuple(pools),
        strict=np.array(strict, dtype=np.int64),
    )
