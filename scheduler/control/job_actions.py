"""What people do to jobs that are there: cancel, hold, release, requeue, change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.housekeeping import end_parked, tell_submitted
from scheduler.control.jobs import ENDED, JobRecord
from scheduler.control.requests import Acted, JobAction
from scheduler.control.specs import missed_deadline
from scheduler.domain import events as ev
from scheduler.domain.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.control.draft import Turn
    from scheduler.control.state import LiveState
    from scheduler.domain.rows import JobRow


def act(
    state: LiveState,
    turn: Turn,
    job_ids: Sequence[str],
    action: JobAction,
    rows: Mapping[str, JobRow],
    *,
    actor: str,
    reason: str = "",
) -> tuple[Acted, ...]:
    """Do something to jobs; each stands for itself.

    Args:
        state: the leader's state.
        turn: the turn under way.
        job_ids: which.
        action: what.
        rows: stored rows of those that have ended.
        actor: who asks for it.
        reason: why, in words for the history; empty: none was given.
    """
    why = {"reason": reason} if reason else {}
    return tuple(
        _act(state, turn, job_id, action, rows.get(job_id), actor=actor, why=why)
        for job_id in job_ids
    )


def try_act(
    state: LiveState, job_ids: Sequence[str], action: JobAction, rows: Mapping[str, JobRow]
) -> tuple[Acted, ...]:
    """Return what ``act`` would do to jobs, and do nothing."""
    return tuple(
        _checked(state.jobs.by_id.get(job_id), job_id, action, rows.get(job_id))
        for job_id in job_ids
    )


def _checked(record: JobRecord | None, job_id: str, action: JobAction, row: JobRow | None) -> Acted:
    if record is None:
        return _check_ended(job_id, action, row)
    may = {
        JobAction.CANCEL: True,
        JobAction.HOLD: record.status is not JobStatus.HELD,
        JobAction.RELEASE: record.status is JobStatus.HELD,
        JobAction.REQUEUE: record.status is JobStatus.RUNNING,
    }
    return Acted(job_id=job_id, changed=may[action])


def _act(
    state: LiveState,
    turn: Turn,
    job_id: str,
    action: JobAction,
    row: JobRow | None,
    *,
    actor: str,
    why: Mapping[str, str],
) -> Acted:
    record = state.jobs.by_id.get(job_id)
    acted = _checked(record, job_id, action, row)
    if record is None:
        if acted.changed and row is not None:
            _take_up_again(state, turn, row, actor, why)
        return acted
    turn.actors[job_id] = actor
    if acted.changed:
        work = {
            JobAction.CANCEL: _cancel,
            JobAction.HOLD: _hold,
            JobAction.RELEASE: _release,
            JobAction.REQUEUE: _requeue,
        }[action]
        work(state, turn, record)
        turn.note(f"{action.value}_requested", "job", job_id, actor=actor, **why)
    return acted


def _check_ended(job_id: str, action: JobAction, row: JobRow | None) -> Acted:
    if row is None:
        return Acted(job_id=job_id, code="not_found", error=f"there is no job '{job_id}'")
    if row.status not in ENDED:
        # It was read before the turn that took it in; whoever asks again will find it.
        return Acted(job_id=job_id, code="conflict", error=f"job '{job_id}' has just changed")
    if action is JobAction.CANCEL and row.status is JobStatus.CANCELLED:
        return Acted(job_id=job_id)  # so that a request can be sent again
    if action is not JobAction.REQUEUE:
        return Acted(
            job_id=job_id,
            code="conflict",
            error=f"job '{job_id}' has ended as {row.status.value}; it can only be requeued",
        )
    return Acted(job_id=job_id, changed=True)


def _take_up_again(
    state: LiveState, turn: Turn, row: JobRow, actor: str, why: Mapping[str, str]
) -> None:
    """Let a job that has ended wait again; one that completed begins anew.

    It waits for those of its dependencies that are active, and for none that has ended.
    """
    profiles = state.knowledge.profiles
    record = JobRecord.of_row(row, profile=-1)
    record.profile = state.knowledge.profile_of(record.spec)
    state.table_due |= record.profile == profiles
    if row.status is JobStatus.COMPLETED:
        record.steps_done = 0.0
    record.status, record.reason, record.finished_s = JobStatus.WAITING, "", None
    record.failures = 0
    record.waits_for = {other for other in record.spec.depends_on if other in state.jobs.by_id}
    record.parked = state.jobs.parked_reason(record)
    record.reason = "" if record.parked is None else record.parked.value
    state.jobs.add(record)
    state.jobs.touch(record, turn.now_s)
    turn.actors[record.job_id] = actor
    words = {"was": row.status.value, **why}
    turn.note("requeue_requested", "job", record.job_id, actor=actor, **words)
    if record.parked is None:
        tell_submitted(state, turn, record)


def _cancel(state: LiveState, turn: Turn, record: JobRecord) -> None:
    if record.parked is not None:
        end_parked(state, turn, record, JobStatus.CANCELLED, "")
    else:
        turn.tell(ev.JobCancelled(job_id=record.job_id))


def _hold(state: LiveState, turn: Turn, record: JobRecord) -> None:
    if record.parked is not None:
        record.status = JobStatus.HELD
        state.jobs.touch(record, turn.now_s)
        state.jobs.recheck = True
    else:
        turn.tell(ev.JobHeld(job_id=record.job_id))


def _release(state: LiveState, turn: Turn, record: JobRecord) -> None:
    if record.parked is not None:
        record.status = JobStatus.WAITING
        state.jobs.touch(record, turn.now_s)
        state.jobs.recheck = True
    else:
        turn.tell(ev.JobReleased(job_id=record.job_id))


def _requeue(_state: LiveState, turn: Turn, record: JobRecord) -> None:
    turn.tell(ev.JobRequeued(job_id=record.job_id))


def change(
    state: LiveState,
    turn: Turn,
    job_ids: Sequence[str],
    rows: Mapping[str, JobRow],
    *,
    actor: str,
    weight: float | None,
    deadline_s: float | None,
    clear_deadline: bool,
) -> tuple[Acted, ...]:
    """Change weight or deadline of jobs that have not ended; each stands for itself."""
    results = []
    for job_id in job_ids:
        record = state.jobs.by_id.get(job_id)
        if record is None:
            results.append(_unchangeable(job_id, rows.get(job_id)))
            continue
        due_s = None if deadline_s == record.deadline_s else deadline_s
        if late := missed_deadline(due_s, now_s=turn.now_s):
            results.append(Acted(job_id=job_id, code="invalid", error=late))
            continue
        changed = _change_weight(turn, record, weight)
        if deadline_s is not None or clear_deadline:
            changed |= _change_deadline(turn, record, None if clear_deadline else deadline_s)
        if changed:
            state.jobs.touch(record, turn.now_s)
            turn.note(
                "job_changed",
                "job",
                job_id,
                actor=actor,
                weight=record.weight,
                deadline_s=record.deadline_s,
            )
        results.append(Acted(job_id=job_id, changed=changed))
    return tuple(results)


def _unchangeable(job_id: str, row: JobRow | None) -> Acted:
    if row is None:
        return Acted(job_id=job_id, code="not_found", error=f"there is no job '{job_id}'")
    return Acted(
        job_id=job_id,
        code="conflict",
        error=f"job '{job_id}' has ended as {row.status.value}; it cannot be changed",
    )


def _change_weight(turn: Turn, record: JobRecord, weight: float | None) -> bool:
    if weight is None or weight == record.weight:
        return False
    record.weight = weight
    if record.parked is None:
        turn.tell(ev.WeightChanged(job_id=record.job_id, weight=weight))
    return True


def _change_deadline(turn: Turn, record: JobRecord, deadline_s: float | None) -> bool:
    if deadline_s == record.deadline_s:
        return False
    record.deadline_s = deadline_s
    if record.parked is None:
        turn.tell(ev.DeadlineChanged(job_id=record.job_id, deadline_s=deadline_s))
    return True
