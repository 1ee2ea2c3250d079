"""Quotas: how many workers groups of jobs may hold at once.

A quota is set for a project, or for each user of one, on all worker types or on one. ``Caps`` are
the quotas of a moment as arrays: further rows of capacity, of which every configuration of a job
that counts holds as many as it holds workers that count.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray


class IdleQuota(enum.StrEnum):
    """What becomes of the part of a quota that its project does not ask for."""

    KEEP = "keep"  #: it stays idle
    LEND = "lend"  #: projects that share may use it until this one asks for it
    SHARE = "share"  #: as ``LEND``, and this project may use workers that others lend


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Most workers that jobs of a project may hold at once.

    A worker counts for a project while any of its jobs runs there, alone or in a pair.

    Attributes:
        project: the project with the jobs that count.
        limit: workers, >= 0.
        worker_type: which workers count; empty for all.
        each_user: whether each user of the project may hold so many, and not all of them together.
        idle: what becomes of the part that is not asked for; ``KEEP`` for that of users.
    """

    project: str
    limit: int
    worker_type: str = ""
    each_user: bool = False
    idle: IdleQuota = IdleQuota.KEEP

    def __post_init__(self) -> None:
        """Refuse a negative limit, and quotas of users that lend."""
        what = f"project '{self.project}'"
        if self.limit < 0:
            raise InputError(f"{what}: its quota of workers is {self.limit}; it must be >= 0")
        if self.each_user and self.idle is not IdleQuota.KEEP:
            raise InputError(f"{what}: the quota of each user is to {self.idle}; it can only keep")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Caps:
    """Quotas as rows of capacity. Arrays must not be written to.

    Letters: Q caps, K worker types, N jobs, G groups of jobs that fall under the same caps.

    Attributes:
        limit: (Q,) workers that may be held at once.
        counts: (Q, K) which worker types count.
        member: (G, Q) which caps each group falls under.
        group: (N,) row of ``member`` of each job.
    """

    limit: FloatArray
    counts: BoolArray
    member: BoolArray
    group: IntArray

    @property
    def size(self) -> int:
        """Q, the number of caps."""
        return len(self.limit)

    def of_jobs(self, jobs: IntArray | slice) -> Caps:
        """Return the same caps over some of the jobs."""
        return Caps(
            limit=self.limit, counts=self.counts, member=self.member, group=self.group[jobs]
        )

    def only(self, caps: BoolArray) -> Caps:
        """Return some of the caps."""
        return Caps(
            limit=self.limit[caps],
            counts=self.counts[caps],
            member=self.member[:, caps],
            group=self.group,
        )

    def less(self, used: FloatArray | IntArray) -> Caps:
        """Return the same caps with (Q,) workers taken already."""
        return Caps(
            limit=self.limit - used, counts=self.counts, member=self.member, group=self.group
        )

    def held(self, groups: IntArray, demand: NDArray[Any]) -> NDArray[Any]:
        """Return (R, ..., Q) what configurations hold of each cap.

        Args:
            groups: (R,) of the jobs.
            demand: (R, ..., K) workers that they hold.
        """
        counted = demand @ self.counts.T.astype(demand.dtype)
        member = self.member[groups].reshape(len(groups), *(1,) * (demand.ndim - 2), self.size)
        result: NDArray[Any] = counted * member
        return result

    def held_by_pairs(
        self, first: IntArray, second: IntArray, demand: NDArray[Any]
    ) -> NDArray[Any]:
        """Return (P, Q) what pairs hold of each cap: once, if one member counts or both.

        Args:
            first: (P,) group of the first member.
            second: (P,) of the second.
            demand: (P, K) workers that they hold together.
        """
        either = self.member[first] | self.member[second]
        result: NDArray[Any] = (demand @ self.counts.T.astype(demand.dtype)) * either
        return result

    def widened(self, groups: IntArray, demand: IntArray) -> IntArray:
        """Return (R, ..., K + Q) workers, followed by the workers held of each cap."""
        result: IntArray = np.concatenate((demand, self.held(groups, demand)), axis=-1)
        return result

    def asked(self, most: IntArray) -> IntArray:
        """Return (Q,) what the jobs would hold at most, were there no quota.

        Args:
            most: (N, K) most workers of each type that each job could hold.
        """
        result: IntArray = (most @ self.counts.T.astype(most.dtype) * self.member[self.group]).sum(
            axis=0
        )
        return result
