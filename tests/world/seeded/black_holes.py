"""Nodes on which each job fails at once: jobs get on elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.rows import AttemptRow
    from scheduler.store.protocol import Entry
    from seeded.world import World

#: Events that close workers to new leases.
_CLOSING = ev.WorkersCordoned | ev.WorkersLost | ev.WorkersDrained | ev.WorkersRetired
#: For this time at least a job stays away from a node on which it has failed.
AWAY_S = 8.0


class BlackHoles:
    """Looks at where jobs go that have failed.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        #: job -> nodes on which it has failed, or could not be started.
        self._bad: dict[str, set[str]] = {}
        #: job -> nodes that it avoids, and until when by the scheduler's clock.
        self._avoids: dict[str, tuple[tuple[str, ...], float]] = {}
        #: workers that the entry at hand closes to new leases.
        self._gone: set[int] = set()

    def forget(self) -> None:
        """Drop expectations about entries that the database has lost."""
        self._avoids.clear()

    def committed(self, entry: Entry) -> None:
        """Look at the ends and the grants in an entry."""
        rows = {row.lease_id: row for row in entry.projections.attempts}
        self._gone = {
            worker
            for event in entry.events
            if isinstance(event, _CLOSING)
            for worker in event.workers
        }
        for event in entry.events:
            row = rows.get(event.lease_id) if isinstance(event, ev.LeaseEnded) else None
            if row is not None and isinstance(event, ev.LeaseEnded):
                self._ended(row, event, entry.now_s)
        for row in rows.values():
            if row.ended_s is None and row.start_s >= entry.now_s:
                self._granted(row)

    def _ended(self, row: AttemptRow, event: ev.LeaseEnded, now_s: float) -> None:
        bad = self._bad.setdefault(row.job_id, set())
        if event.unstarted or event.failed:
            bad.update(row.nodes)
        if event.reason is EndReason.FAILED and event.failed:
            self._avoids.pop(row.job_id, None)  # if all nodes are bad, it avoids the last one
            if len(row.nodes) == 1 and self._has_others(row, bad):
                self._avoids[row.job_id] = row.nodes, now_s + AWAY_S

    def _has_others(self, row: AttemptRow, bad: set[str]) -> bool:
        """Return whether a job can run on nodes on which nothing has gone wrong for it."""
        world = self._world
        if world.scenario.bookings:
            return False  # workers that are reserved for others do not count
        order = world.orders[row.job_id]
        for view in self._views():
            types = [
                kind
                for node in view.nodes.by_name.values()
                if node.name not in bad and self._is_well(view, node)
                for kind in node.types
            ]
            return any(types.count(kind) >= order.gang for kind in order.types or set(types))
        return False

    def _views(self) -> Iterator[PublishedState]:
        """Yield the leader's published state."""
        leader = self._world.database.store.leader()
        for service in self._world.services.values():
            driver = service._driver
            if driver is not None and leader is not None and driver.view.term == leader.token:
                yield driver.view

    def _is_well(self, view: PublishedState, node: NodeState) -> bool:
        said = node.lost or node.silent or node.order is not None or node.doubt is not None
        in_service = all(bool(view.engine.in_service[worker]) for worker in node.workers)
        stays = self._gone.isdisjoint(node.workers)
        return in_service and stays and not said and not node.problems

    def _granted(self, row: AttemptRow) -> None:
        nodes, until_s = self._avoids.get(row.job_id, ((), 0.0))
        if row.start_s < until_s and not set(nodes).isdisjoint(row.nodes):
            self._world.blame(f"{row} is granted where the job has just failed")
