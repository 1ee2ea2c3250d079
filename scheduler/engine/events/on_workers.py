"""Events of workers: joined, lost, drained, cordoned, returned, retired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import RevokeReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.state.state import State


def _joined(state: State, event: ev.NodesJoined) -> None:
    fleet = state.fleet
    if event.worker_types:
        fleet.add_types(event.worker_types)
        state.assigner.table = state.table.with_worker_types(fleet.type_names)
    for node in event.nodes:
        fleet.join(node)
    state.book.grow()
    state.mark_dirty()


def _lost(state: State, event: ev.WorkersLost | ev.WorkersRetired) -> None:
    state.fleet.in_service[list(event.workers)] = False
    for lease_id in _leases_on(state, event.workers):
        state.revoke(lease_id, by_s=state.now_s, reason=RevokeReason.WORKER_LOST)
    _drop_plans(state, event.workers)
    state.mark_dirty()


def _retired(state: State, event: ev.WorkersRetired) -> None:
    state.fleet.retire(event.workers)
    _lost(state, event)


def _drained(state: State, event: ev.WorkersDrained) -> None:
    state.fleet.in_service[list(event.workers)] = False
    _drop_plans(state, event.workers)
    for lease_id in _leases_on(state, event.workers):
        if lease_id not in state.book.stopping:
            assert state.round_end_s is not None
            by_s = min(state.round_end_s, max(event.by_s, state.now_s))
            state.revoke(lease_id, by_s=by_s, reason=RevokeReason.DRAIN)
    state.mark_dirty()


def _cordoned(state: State, event: ev.WorkersCordoned) -> None:
    state.fleet.set_cordoned(list(event.workers), cordoned=True)
    _drop_plans(state, event.workers)
    state.mark_dirty()


def _returned(state: State, event: ev.WorkersReturned) -> None:
    fleet, workers = state.fleet, list(event.workers)
    fleet.set_cordoned(workers, cordoned=False)
    fleet.in_service[workers] = ~fleet.retired[workers]
    state.mark_dirty()


def _leases_on(state: State, workers: tuple[int, ...]) -> list[int]:
    return sorted({lease_id for worker in workers for lease_id in state.book.on_worker[worker]})


def _drop_plans(state: State, workers: tuple[int, ...]) -> None:
    """Drop the planned leases that use one of the workers."""
    gone = set(workers)
    for number in [n for n, plan in state.book.planned.items() if gone & set(plan.workers)]:
        state.assigner.drop_plan(number)


HANDLERS: Final[dict[type, Callable[[State, Any], None]]] = {
    ev.NodesJoined: _joined,
    ev.WorkersLost: _lost,
    ev.WorkersRetired: _retired,
    ev.WorkersDrained: _drained,
    ev.WorkersCordoned: _cordoned,
    ev.WorkersReturned: _returned,
}
