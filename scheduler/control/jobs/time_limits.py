"""Time limits: a job is cancelled once it has held workers for its maximum run time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction


def next_limit_s(state: ControlState) -> float:
    """Return when the next check for used-up time limits is due."""
    return max(when_limits_are_over(state), state.next_look_s)


def when_limits_are_over(state: ControlState) -> float:
    """Return when the first running job reaches its time limit; inf if none will."""
    now_s = state.engine.now_s
    return min(
        (
            now_s + max(most_s - _held_s(state, live, now_s), 0.0)
            for live, most_s in _limited(state)
        ),
        default=math.inf,
    )


def _limited(state: ControlState) -> Iterator[tuple[LiveLease, float]]:
    """Yield the leases of jobs that have a time limit, and the limits in seconds."""
    for job_id in sorted(state.jobs.limited):
        record = state.jobs.by_id[job_id]
        lease_id = state.leases.of_job.get(job_id)
        if lease_id is not None and not record.time_limit:
            assert record.spec.max_run_time_s is not None
            yield state.leases.by_id[lease_id], record.spec.max_run_time_s


def _held_s(state: ControlState, live: LiveLease, now_s: float) -> float:
    """Return how many seconds a running job has held workers in all."""
    return state.engine.held_before_s(live.lease.job_id) + now_s - live.lease.start_s


def enforce_time_limits(state: ControlState, transaction: Transaction) -> None:
    """Cancel jobs that have reached their time limit."""
    for live, most_s in list(_limited(state)):
        held_s = _held_s(state, live, transaction.now_s)
        if held_s >= most_s * (1.0 - 1e-12):
            record = state.jobs.by_id[live.lease.job_id]
            record.time_limit = True
            record.forced_end = (JobStatus.FAILED, "time_limit")
            state.jobs.changed.add(record.job_id)
            transaction.emit(ev.JobCancelled(job_id=record.job_id))
            cause = Cause(fact=FactKind.TIME_LIMIT, subject=record.job_id)
            transaction.give_reason(cause, job=record.job_id)
            held_s = round(held_s, 1)
            transaction.record_event_for(cause, "time_limit", "job", record.job_id, held_s=held_s)
