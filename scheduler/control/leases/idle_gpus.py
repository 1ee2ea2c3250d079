"""Jobs that hold GPUs without using them: found, reported and, if an operator wants it, ended.

The start of idling is kept in memory alone: after a change of the leader or of an agent, a job
counts as idle only since then. That may let it run longer, and ends no job too early. The amount of
use is stored, see ``gpu_use``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.control.leases.gpu_use import add_reported_use
from scheduler.control.state.leases import PartUse
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.jobs.job import JobStatus

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.protocol.gpu_use import GpuUse

#: The reason of a job that was ended because its GPUs idled.
IDLE = "idle"


def take_use(
    state: ControlState, transaction: Transaction, live: LiveLease, member: Member, told: GpuUse
) -> None:
    """Take in the use of a lease's GPUs on one node."""
    before, now_s = live.uses.get(member.rank), transaction.now_s
    if (gpu := add_reported_use(live, member, told, now_s)) is not live.gpu:
        live.gpu = gpu
        state.leases.unstored_use.add(live.lease.lease_id)
    measured_s, used_s, since_s = told.measured_s, told.used_s, now_s
    if before is not None:
        since_s = before.at_s
        if measured_s >= before.told.measured_s and used_s >= before.told.used_s:
            measured_s, used_s = measured_s - before.told.measured_s, used_s - before.told.used_s
        # Else another agent has begun to measure.
    if measured_s <= 0.0:
        return
    share = round(min(used_s / measured_s, 1.0), 6)
    idle_since_s = None
    if share * 100.0 < state.settings.idle.use_percent:
        idle_since_s = (
            since_s if before is None or before.idle_since_s is None else (before.idle_since_s)
        )
    part = PartUse(at_s=now_s, told=told, share=share, idle_since_s=idle_since_s)
    live.uses = {**live.uses, member.rank: part}
    state.leases.note_use(live)
    if idle_since_s is None and live.idle_told:
        live.idle_told = False
        state.leases.touched.add(live.lease.lease_id)
        transaction.record_event(
            "job_busy", "job", live.lease.job_id, use_percent=round(100.0 * share, 1)
        )


def check_idle_jobs(state: ControlState, transaction: Transaction) -> None:
    """Report jobs that have been idle for long, and end those that an operator wants ended."""
    settings = state.settings.idle
    for lease_id in sorted(state.leases.used):
        live = state.leases.by_id[lease_id]
        since_s = live.idle_since_s
        if since_s is None or live.revoked:
            continue
        # The use on a silent node is not known.
        idle_s = min(part.at_s for part in live.uses.values()) - since_s
        if settings.after_s and idle_s >= settings.after_s and not live.idle_told:
            live.idle_told = True
            state.leases.touched.add(lease_id)
            transaction.record_event("job_idle", "job", live.lease.job_id, **_figures(live, idle_s))
        if settings.stop_after_s and idle_s >= settings.stop_after_s:
            _stop(state, transaction, live, idle_s)


def measured_use(live: LiveLease) -> dict[str, Any]:
    """Return the GPU-seconds of a lease that were used and measured; empty if none were."""
    if live.gpu is None:
        return {}
    used_s, measured_s = live.gpu.gpu_used_us / 1e6, live.gpu.gpu_measured_us / 1e6
    return {"gpu_used_s": round(used_s, 1), "gpu_measured_s": round(measured_s, 1)}


def _figures(live: LiveLease, idle_s: float) -> dict[str, Any]:
    return {
        "use_percent": round(100.0 * (live.use or 0.0), 1),
        "idle_s": round(idle_s, 1),
        "workers": len(live.lease.workers),
        "nodes": list(dict.fromkeys(live.nodes)),
    }


def _stop(state: ControlState, transaction: Transaction, live: LiveLease, idle_s: float) -> None:
    record = state.jobs.by_id[live.lease.job_id]
    settings = state.settings.idle
    if record.forced_end is not None or record.project in settings.exempt_projects:
        return
    record.forced_end = (JobStatus.FAILED, IDLE)
    state.jobs.changed.add(record.job_id)
    transaction.emit(ev.JobCancelled(job_id=record.job_id))
    cause = Cause(fact=FactKind.IDLE, subject=record.job_id)
    transaction.give_reason(cause, job=record.job_id)
    bounds = {"least_percent": settings.use_percent, "stop_after_s": settings.stop_after_s}
    figures = _figures(live, idle_s) | bounds
    transaction.record_event_for(cause, "idle_limit", "job", record.job_id, **figures)
