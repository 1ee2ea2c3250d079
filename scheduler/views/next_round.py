"""The plan of the next round, as far as the engine has made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.views.types import PlannedLeaseView, PlanView

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.view import PublishedState
    from scheduler.engine.view import EngineView

#: A deadline that is less than this after the start of a round belongs to the round before.
_SAME_MOMENT_S = 1e-3


def round_at(engine: EngineView, now_s: float) -> tuple[int, float | None]:
    """Return the current round and its end; the end is None while nothing is active.

    The engine plans the next round ahead of time, and holds that round's end from then on.
    """
    number, ends_s, length_s = (
        engine.round_number,
        engine.round_end_s,
        engine.settings.round_length_s,
    )
    if ends_s is None or max(now_s, engine.now_s) >= ends_s - length_s or number <= 1:
        return number, ends_s
    return number - 1, ends_s - length_s


def plan_of(view: PublishedState, *, now_s: float) -> PlanView:
    """Return the plan of the next round."""
    engine = view.engine
    current, begins_s = round_at(engine, now_s)
    if current == engine.round_number:
        begins_s = None  # the next round is not planned yet
    held = view.leases.by_id
    leases = [
        _continued(view, held[lease_id], begins_s)
        for lease_id in sorted(held)
        if begins_s is not None
        and not held[lease_id].revoked
        and held[lease_id].deadline_s > begins_s + _SAME_MOMENT_S
    ]
    free_s: dict[int, float] = {}
    for live in held.values():
        for worker in live.lease.workers:
            free_s[worker] = max(free_s.get(worker, 0.0), live.until_s)
    earliest_s = now_s if begins_s is None else begins_s
    for number, workers in zip(engine.planned, engine.planned_workers, strict=True):
        starts_s = max(earliest_s, *(free_s.get(worker, 0.0) for worker in workers))
        leases.append(_granted_later(view, number, workers, starts_s))
    return PlanView(
        round_number=None if begins_s is None else engine.round_number,
        begins_s=begins_s,
        ends_s=engine.round_end_s,
        leases=tuple(leases),
    )


def _continued(view: PublishedState, live: LiveLease, begins_s: float) -> PlannedLeaseView:
    return PlannedLeaseView(
        job_id=live.lease.job_id,
        project=_project_of(view, live.lease.job_id),
        worker_type=live.worker_type,
        workers=live.lease.workers,
        nodes=tuple(dict.fromkeys(live.nodes)),
        begins_s=begins_s,
        ends_s=live.deadline_s,
        goes_on=True,
    )


def _granted_later(
    view: PublishedState, number: int, workers: tuple[int, ...], begins_s: float
) -> PlannedLeaseView:
    engine = view.engine
    cluster, job_id = engine.cluster, engine.jobs.job_of[number].job_id
    types = {cluster.type_names[engine.type_of[worker]] for worker in workers}
    end_s = engine.round_end_s
    if end_s is None or end_s <= begins_s:
        end_s = begins_s + engine.settings.round_length_s
    return PlannedLeaseView(
        job_id=job_id,
        project=_project_of(view, job_id),
        worker_type=types.pop() if len(types) == 1 else "",
        workers=workers,
        nodes=tuple(dict.fromkeys(cluster.nodes[n].name for n in cluster.node_of[[*workers]])),
        begins_s=begins_s,
        ends_s=end_s,
        goes_on=False,
    )


def _project_of(view: PublishedState, job_id: str) -> str:
    record = view.jobs.by_id.get(job_id)
    return "" if record is None else record.project
