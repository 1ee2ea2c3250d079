"""The lease book: the leases on each worker, and the planned leases that wait for workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.domain.lease import Lease, Leases
from scheduler.domain.lease_life import LeasePhase
from scheduler.engine.tables.fleet import Growing
from scheduler.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.facts.causes import Cause
    from scheduler.engine.tables.fleet import Fleet


class WhyGranted(Protocol):
    """Gives the reasons of planned leases."""

    def of_grant(self, plan: PlannedLease) -> Cause:
        """Return why a lease is granted; every call returns the same."""
        ...


@dataclass(slots=True, kw_only=True)
class PlannedLease:
    """A lease that is granted as soon as the leases that block it have ended.

    Attributes:
        number: job number.
        job_id: the job's id.
        row: row of the job at planning.
        moves: whether the job held other workers then.
        why: gives the reason of this plan.
        configuration: single configuration, NONE in a pair.
        pair: entry of the pair table, NONE for a single job.
        charged: whether its time counts against X.
        workers: the workers that it will hold.
        blockers: leases that must end first: those that hold these workers or that the job itself
            holds, and those that must end before a quota has room.
    """

    number: int
    job_id: str
    row: int
    moves: bool
    why: WhyGranted
    configuration: int
    pair: int
    charged: bool
    workers: tuple[int, ...]
    blockers: set[int] = field(default_factory=set)

    @property
    def cause(self) -> Cause:
        """The reason of this plan."""
        return self.why.of_grant(self)


class InForce(Mapping[int, Lease]):
    """Lease id -> lease; each ``Lease`` is made on access."""

    def __init__(self, batch_of: Mapping[int, Leases]) -> None:
        self._batch_of = batch_of

    def __getitem__(self, lease_id: int) -> Lease:
        return self._batch_of[lease_id].lease(lease_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._batch_of)

    def __len__(self) -> int:
        return len(self._batch_of)


class LeaseBook:
    """Leases in force and planned, by worker."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        #: lease id -> the leases that it was granted with.
        self._batch_of: dict[int, Leases] = {}
        #: lease id -> lease, for exactly the leases in force (revoked ones too until they end).
        self.leases: Mapping[int, Lease] = InForce(self._batch_of)
        #: leases that are revoked and have not ended; a subset of ``leases``.
        self.stopping: set[int] = set()
        #: worker -> ids of the leases on it; at most two, and two only for jobs that share.
        self.on_worker: list[list[int]] = [[] for _ in range(fleet.workers)]
        #: job number -> planned lease; its job holds no lease that is not stopping.
        self.planned: dict[int, PlannedLease] = {}
        #: lease id -> plans that it blocks or blocked; may contain plans that were dropped since.
        self.blocked_by: dict[int, list[PlannedLease]] = {}
        #: (W,) planned leases on each worker.
        self._reserved = Growing(np.zeros(fleet.workers, dtype=np.int64))
        #: (W,) leases on each worker, the lengths of ``on_worker``.
        self._holders = Growing(np.zeros(fleet.workers, dtype=np.int64))

    def grow(self) -> None:
        """Extend the arrays to a fleet that has grown."""
        more = self._fleet.workers - len(self.on_worker)
        self.on_worker += [[] for _ in range(more)]
        self._reserved.extend(np.zeros(more, dtype=np.int64))
        self._holders.extend(np.zeros(more, dtype=np.int64))

    def idle(self) -> BoolArray:
        """Return (W,) workers that may be granted and are neither held nor planned."""
        free = (self._holders.view == 0) & (self._reserved.view == 0)
        result: BoolArray = self._fleet.grantable & free
        return result

    def idle_of(self, workers: Iterable[int]) -> BoolArray:
        """Return (W,) those of some workers that are in service, uncordoned and free."""
        result: BoolArray = np.zeros(len(self.on_worker), dtype=bool)
        result[list(workers)] = True
        result &= (self._holders.view == 0) & (self._reserved.view == 0)
        result &= self._fleet.in_service & ~self._fleet.cordoned
        return result

    def held(self) -> BoolArray:
        """Return (W,) workers under leases."""
        result: BoolArray = self._holders.view > 0
        return result

    def stays(self) -> BoolArray:
        """Return (W,) workers under leases that are not stopping."""
        stop = [worker for lease_id in self.stopping for worker in self.workers_of(lease_id)]
        stopping = np.bincount(np.array(stop, dtype=np.int64), minlength=len(self.on_worker))
        result: BoolArray = self._holders.view > stopping
        return result

    def workers_of(self, lease_id: int) -> tuple[int, ...]:
        """Return the workers of a lease in force."""
        batch = self._batch_of[lease_id]
        return batch.workers[lease_id - batch.first_id]

    def granted_with(self, lease_ids: Iterable[int]) -> list[Leases]:
        """Return for each of some leases in force the batch of leases that it was granted in."""
        batch_of = self._batch_of
        return [batch_of[lease_id] for lease_id in lease_ids]

    def start_s_of(self, lease_id: int) -> float:
        """Return when a lease in force was granted."""
        return self._batch_of[lease_id].start_s

    def add(self, leases: Leases) -> None:
        """Put granted leases in force."""
        batch_of, on_worker, holders = self._batch_of, self.on_worker, self._holders.view
        for lease_id, workers in zip(leases.ids, leases.workers, strict=True):
            batch_of[lease_id] = leases
            for worker in workers:
                on_worker[worker].append(lease_id)
                holders[worker] += 1

    def end(self, lease_ids: Iterable[int]) -> tuple[list[PlannedLease], list[int]]:
        """Take leases out of force.

        Args:
            lease_ids: in the order in which the leases ended.

        Returns:
            The planned leases that nothing blocks any more, and for each of them the position
            of the last lease that blocked it; ascending.
        """
        batch_of, on_worker, holders = self._batch_of, self.on_worker, self._holders.view
        ready, last = [], []
        for position, lease_id in enumerate(lease_ids):
            batch = batch_of.pop(lease_id)
            self.stopping.discard(lease_id)
            for worker in batch.workers[lease_id - batch.first_id]:
                on_worker[worker].remove(lease_id)
                holders[worker] -= 1
            for plan in self.blocked_by.get(lease_id, ()):
                if self.planned.get(plan.number) is plan:
                    plan.blockers.discard(lease_id)
                    if not plan.blockers:
                        ready.append(plan)
                        last.append(position)
        return ready, last

    def plan(self, plan: PlannedLease, own_lease: int, partner_lease: int) -> None:
        """Reserve workers for a plan, and find the leases that block it.

        Args:
            plan: the planned lease.
            own_lease: the lease that the job still holds, or -1.
            partner_lease: a lease on the same workers that it will share with, or -1.
        """
        reserved, blockers = self._reserved.view, plan.blockers
        for worker in plan.workers:
            blockers.update(self.on_worker[worker])
            reserved[worker] += 1
        blockers.discard(partner_lease)
        if own_lease >= 0:
            blockers.add(own_lease)
        for lease_id in blockers:
            self.blocked_by.setdefault(lease_id, []).append(plan)
        self.planned[plan.number] = plan

    def wait_for(self, waits: Iterable[tuple[PlannedLease, Iterable[int]]]) -> None:
        """Let planned leases wait for further leases to end, without using their workers.

        Args:
            waits: planned leases, each with the ids of the leases to wait for.
        """
        touched: set[int] = set()
        for plan, lease_ids in waits:
            for lease_id in lease_ids:
                if lease_id not in plan.blockers:
                    plan.blockers.add(lease_id)
                    self.blocked_by.setdefault(lease_id, []).append(plan)
                    touched.add(lease_id)
        if touched:
            # In the order of planning, which a restart restores too.
            place = {number: i for i, number in enumerate(self.planned)}
            for lease_id in touched:
                self.blocked_by[lease_id].sort(key=lambda one: place.get(one.number, -1))

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop the planned leases of some jobs, if they have any."""
        reserved = self._reserved.view
        for number in numbers:
            plan = self.planned.pop(number, None)
            if plan is not None:
                for worker in plan.workers:
                    reserved[worker] -= 1

    def forget_all(self) -> None:
        """Drop every planned lease."""
        self.planned.clear()
        self.blocked_by = {}  # objects that explain a plan keep the old dict
        self._reserved.view[:] = 0

    def restore(self, leases: Iterable[Lease], stopping: Iterable[int]) -> None:
        """Restore leases in force."""
        for lease in leases:
            self.add(Leases.of(lease))
        self.stopping.update(stopping)

    def restore_plan(self, plan: PlannedLease) -> None:
        """Reserve workers for a stored plan; unlike in ``plan``, its blockers are known."""
        reserved = self._reserved.view
        for worker in plan.workers:
            reserved[worker] += 1
        for lease_id in plan.blockers:
            self.blocked_by.setdefault(lease_id, []).append(plan)
        self.planned[plan.number] = plan

    def phases(self) -> dict[int, LeasePhase]:
        """Return the phase of each lease in force, as far as the engine knows it."""
        return {
            lease_id: LeasePhase.STOPPING if lease_id in self.stopping else LeasePhase.GRANTED
            for lease_id in self.leases
        }

    def check_invariants(self) -> None:
        """Raise InvariantError if the views of the leases contradict each other."""
        holders: list[list[int]] = [[] for _ in self.on_worker]
        for lease_id, lease in self.leases.items():
            for worker in lease.workers:
                holders[worker].append(lease_id)
        reserved = np.zeros(len(holders), dtype=np.int64)
        for plan in self.planned.values():
            reserved[list(plan.workers)] += 1
        checks = {
            "workers know their leases": [sorted(h) for h in holders]
            == [sorted(h) for h in self.on_worker],
            "holders are counted": [len(h) for h in self.on_worker] == self._holders.view.tolist(),
            "a worker is shared by two at most": all(len(h) <= 2 for h in holders),
            "reservations are counted": bool(np.array_equal(reserved, self._reserved.view)),
            "stopping leases are in force": self.stopping <= set(self.leases),
            "tokens grow with leases": all(
                lease.token == lease_id for lease_id, lease in self.leases.items()
            ),
            "a job holds one lease": len({lease.job_number for lease in self.leases.values()})
            == len(self.leases),
        }
        broken = [name for name, holds in checks.items() if not holds]
        if broken:
            raise InvariantError(f"lease book: {'; '.join(broken)}")
