"""The lease book: who holds which workers, and who waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.fleet import Growing
from scheduler.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.lease import Lease
    from scheduler.engine.fleet import Fleet


@dataclass(slots=True, kw_only=True)
class PlannedLease:
    """A lease that is granted as soon as the leases that block it have ended.

    Attributes:
        number: job number.
        configuration: single configuration, NONE in a pair.
        pair: entry of the pair table, NONE for a single job.
        charged: whether its time counts against X.
        workers: where it will run.
        blockers: leases that still hold these workers, or the job itself.
    """

    number: int
    configuration: int
    pair: int
    charged: bool
    workers: tuple[int, ...]
    blockers: set[int] = field(default_factory=set)


class LeaseBook:
    """Leases in force and planned, by worker."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        #: lease id -> lease, for exactly the leases in force (revoked ones too until they end).
        self.leases: dict[int, Lease] = {}
        #: leases that have been revoked and not ended; a subset of ``leases``.
        self.stopping: set[int] = set()
        #: worker -> ids of the leases on it; two only where they share.
        self.on_worker: list[list[int]] = [[] for _ in range(fleet.workers)]
        #: job number -> planned lease; its job holds no lease that is not stopping.
        self.planned: dict[int, PlannedLease] = {}
        #: lease id -> plans that it blocks or blocked; may name plans that were dropped since.
        self._blocked_by: dict[int, list[PlannedLease]] = {}
        #: (W,) planned leases on each worker.
        self._reserved = Growing(np.zeros(fleet.workers, dtype=np.int64))
        #: (W,) leases on each worker, the lengths of ``on_worker``.
        self._holders = Growing(np.zeros(fleet.workers, dtype=np.int64))

    def grow(self) -> None:
        """Follow the fleet, which has grown."""
        more = self._fleet.workers - len(self.on_worker)
        self.on_worker += [[] for _ in range(more)]
        self._reserved.extend(np.zeros(more, dtype=np.int64))
        self._holders.extend(np.zeros(more, dtype=np.int64))

    def idle(self) -> BoolArray:
        """Return (W,) workers that may be granted and that nobody holds or is about to hold."""
        free = (self._holders.view == 0) & (self._reserved.view == 0)
        result: BoolArray = self._fleet.grantable & free
        return result

    def held(self) -> BoolArray:
        """Return (W,) workers under leases."""
        result: BoolArray = self._holders.view > 0
        return result

    def add(self, lease: Lease) -> None:
        """Put a granted lease in force."""
        self.leases[lease.lease_id] = lease
        holders = self._holders.view
        for worker in lease.workers:
            self.on_worker[worker].append(lease.lease_id)
            holders[worker] += 1

    def end(self, lease_id: int) -> list[PlannedLease]:
        """Take a lease out of force; returns the planned leases that nothing blocks any more."""
        lease = self.leases.pop(lease_id)
        self.stopping.discard(lease_id)
        holders = self._holders.view
        for worker in lease.workers:
            self.on_worker[worker].remove(lease_id)
            holders[worker] -= 1
        ready = []
        for plan in self._blocked_by.pop(lease_id, ()):
            if self.planned.get(plan.number) is plan:
                plan.blockers.discard(lease_id)
                if not plan.blockers:
                    ready.append(plan)
        return ready

    def plan(self, plan: PlannedLease, own_lease: int, partner_lease: int) -> None:
        """Reserve workers; what stands in the way is worked out here.

        Args:
            plan: the planned lease.
            own_lease: the lease that the job still holds, or -1.
            partner_lease: a lease on the same workers that it will share with, or -1.
        """
        reserved = self._reserved.view
        for worker in plan.workers:
            plan.blockers.update(self.on_worker[worker])
            reserved[worker] += 1
        plan.blockers.discard(partner_lease)
        if own_lease >= 0:
            plan.blockers.add(own_lease)
        for lease_id in plan.blockers:
            self._blocked_by.setdefault(lease_id, []).append(plan)
        self.planned[plan.number] = plan

    def forget(self, number: int) -> None:
        """Drop a job's planned lease, if it has one."""
        plan = self.planned.pop(number, None)
        if plan is not None:
            reserved = self._reserved.view
            for worker in plan.workers:
                reserved[worker] -= 1

    def forget_all(self) -> None:
        """Drop every planned lease."""
        self.planned.clear()
        self._blocked_by.clear()
        self._reserved.view[:] = 0

    def restore(self, leases: Iterable[Lease], stopping: Iterable[int]) -> None:
        """Put leases in force that were so before."""
        for lease in leases:
            self.add(lease)
        self.stopping.update(stopping)

    def restore_plan(self, plan: PlannedLease) -> None:
        """Reserve workers as before; unlike ``plan``, what stands in the way is known."""
        reserved = self._reserved.view
        for worker in plan.workers:
            reserved[worker] += 1
        for lease_id in plan.blockers:
            self._blocked_by.setdefault(lease_id, []).append(plan)
        self.planned[plan.number] = plan

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
