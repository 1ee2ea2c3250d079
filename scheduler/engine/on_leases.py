"""What happens to leases: progress under them, and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain import events as ev
from scheduler.domain.lease import EndReason
from scheduler.engine.jobs import NONE, RUNNING, WAITING
from scheduler.engine.state import RETRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.domain.lease import Lease
    from scheduler.engine.state import State


def _progress(state: State, event: ev.ProgressReported) -> None:
    jobs = state.jobs
    rows = state.rows_by_lease()
    own = jobs["lease"][rows]
    at = np.searchsorted(own, event.lease_ids)
    at[at == len(own)] = 0
    known = own[at] == event.lease_ids if len(own) else np.zeros(len(at), dtype=bool)
    rows = rows[at[known]]
    done = np.minimum(event.steps_done[known], jobs["total_steps"][rows])
    # A late report of the same lease, or one that is no number, takes nothing back.
    jobs["steps_done"][rows] = np.fmax(jobs["steps_done"][rows], done)


def _ended(state: State, event: ev.LeaseEnded) -> None:
    lease = state.book.leases.get(event.lease_id)
    if lease is None:
        return  # a repeated report
    revoked = event.lease_id in state.book.stopping
    ready = state.book.end(event.lease_id)
    row = state.jobs.row_of(lease.job_number)
    state.assigner.leave_pair(row)
    record = state.jobs.record(row)
    record["steps_done"] = min(event.steps_done, record["total_steps"])
    record["lease"] = record["configuration"] = record["pair"] = NONE
    record["charged"] = 0
    record["workers_held"] = 0.0
    if record["status"] == RUNNING:
        record["status"] = WAITING
    state.rows_moved()
    # A job on cordoned workers competed for nothing; now it does.
    if state.fleet.any_cordoned and state.fleet.cordoned[list(lease.workers)].any():
        state.changed = True
    _after(state, event, lease, row, preempted=revoked)
    state.serve_due = True
    assert state.round_end_s is not None
    if state.round_end_s <= state.now_s:
        return  # the next round is due and plans anew
    for plan in ready:
        if plan.number in state.book.planned:
            state.commands.append(state.assigner.grant(plan, end_s=state.round_end_s))
            state.rows_moved()


def _after(state: State, event: ev.LeaseEnded, lease: Lease, row: int, *, preempted: bool) -> None:
    """Decide what becomes of the job whose lease ended."""
    wish = state.after_end.pop(event.lease_id, None)
    if event.reason is EndReason.COMPLETED:
        state.remove_job(row, "job_completed")
    elif wish == "cancel":
        state.remove_job(row, "job_cancelled")
    elif event.reason is EndReason.FAILED:
        _failed(state, row, lease)
    elif event.reason is EndReason.LOST:
        state.record("job_interrupted", lease.job_id, lease=lease.lease_id)
    elif preempted and wish is None:
        state.record("job_preempted", lease.job_id, lease=lease.lease_id)


def _failed(state: State, row: int, lease: Lease) -> None:
    jobs = state.jobs
    jobs["failures"][row] += 1
    failures = int(jobs["failures"][row])
    if failures > jobs.job_of[lease.job_number].max_failures:
        state.remove_job(row, "job_failed", failures=failures)
        return
    wait_s = state.settings.retry_backoff_s * 2.0 ** (failures - 1)
    jobs["retry_at_s"][row] = state.now_s + wait_s
    state.assigner.drop_plan(lease.job_number)
    state.changed = True
    state.record("job_retried", lease.job_id, failures=failures, wait_s=wait_s)
    set_retry_timer(state)


def set_retry_timer(state: State) -> None:
    """Ask to be woken when the next job may be tried again."""
    due = state.jobs["retry_at_s"]
    due = due[due > state.now_s]
    if len(due):
        state.set_timer(RETRY, float(due.min()))


def _skipped(state: State, event: ev.LeasesSkipped) -> None:
    state.assigner.next_lease = max(state.assigner.next_lease, event.last)


HANDLERS: Final[dict[type, Callable[[State, Any], None]]] = {
    ev.ProgressReported: _progress,
    ev.LeasesSkipped: _skipped,
    ev.LeaseEnded: _ended,
}
