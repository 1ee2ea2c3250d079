"""Actions on existing jobs: cancel, hold, release, requeue, change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.facts.requests import Acted, JobAction
from scheduler.control.facts.specs import missed_deadline, spec_from_json
from scheduler.control.jobs.declared_throughputs import declare_missing
from scheduler.control.jobs.learning import keep_learner
from scheduler.control.jobs.waiting import end_parked, submit_to_engine
from scheduler.control.projects.rules import broken_rule, too_heavy_for
from scheduler.control.state.jobs import ENDED, JobRecord
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.control.facts.facts import JobActionAsked, JobChangeAsked
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.rows import JobRow


def act_on_jobs(
    state: ControlState, transaction: Transaction, fact: JobActionAsked
) -> tuple[Acted, ...]:
    """Apply an action to jobs; one that fails does not affect the others."""
    why = {"reason": fact.reason} if fact.reason else {}
    return tuple(
        _act(
            state,
            transaction,
            job_id,
            fact.action,
            fact.rows.get(job_id),
            actor=fact.actor,
            why=why,
        )
        for job_id in fact.job_ids
    )


def try_act(
    state: ControlState | PublishedState,
    job_ids: Sequence[str],
    action: JobAction,
    rows: Mapping[str, JobRow],
) -> tuple[Acted, ...]:
    """Return the result that ``act_on_jobs`` would have, and change nothing."""
    back: dict[str, set[str]] = {}  # project -> jobs that would be active again
    results = []
    for job_id in job_ids:
        row = rows.get(job_id)
        others = set() if row is None else back.setdefault(row.project, set()) - {job_id}
        acted = _checked(state, job_id, action, row, others=len(others))
        if acted.changed and row is not None and job_id not in state.jobs.by_id:
            back[row.project].add(job_id)
        results.append(acted)
    return tuple(results)


def _checked(
    state: ControlState | PublishedState,
    job_id: str,
    action: JobAction,
    row: JobRow | None,
    *,
    others: int = 0,
) -> Acted:
    """Return the result of an action if so many other jobs of its project come back before."""
    record = state.jobs.by_id.get(job_id)
    if record is None:
        return _check_ended(state, job_id, action, row, others)
    may = {
        JobAction.CANCEL: True,
        JobAction.HOLD: record.status is not JobStatus.HELD,
        JobAction.RELEASE: record.status is JobStatus.HELD,
        JobAction.REQUEUE: record.status is JobStatus.RUNNING,
    }
    return Acted(job_id=job_id, changed=may[action])


def _act(
    state: ControlState,
    transaction: Transaction,
    job_id: str,
    action: JobAction,
    row: JobRow | None,
    *,
    actor: str,
    why: Mapping[str, str],
) -> Acted:
    record = state.jobs.by_id.get(job_id)
    acted = _checked(state, job_id, action, row)
    if record is None:
        if acted.changed and row is not None:
            _take_up_again(state, transaction, row, actor, why)
        return acted
    transaction.actors[job_id] = actor
    if acted.changed:
        work = {
            JobAction.CANCEL: _cancel,
            JobAction.HOLD: _hold,
            JobAction.RELEASE: _release,
            JobAction.REQUEUE: _requeue,
        }[action]
        work(state, transaction, record)
        transaction.record_event(f"{action.value}_requested", "job", job_id, actor=actor, **why)
    return acted


def _check_ended(
    state: ControlState | PublishedState,
    job_id: str,
    action: JobAction,
    row: JobRow | None,
    others: int,
) -> Acted:
    if row is None:
        return Acted(job_id=job_id, code="not_found", error=f"there is no job '{job_id}'")
    if row.status not in ENDED:
        # The row was read before the decision that admitted the job; a second request finds the
        # job.
        return Acted(job_id=job_id, code="conflict", error=f"job '{job_id}' has just changed")
    if action is JobAction.CANCEL and row.status is JobStatus.CANCELLED:
        return Acted(job_id=job_id)  # so that a request can be repeated
    if action is not JobAction.REQUEUE:
        return Acted(
            job_id=job_id,
            code="conflict",
            error=f"job '{job_id}' has ended as {row.status.value}; it can only be requeued",
        )
    limits = state.jobs.limits.get(row.project)
    if limits is not None:
        broken = broken_rule(limits, spec_from_json(row.spec), row.weight)
        if beyond := broken or state.jobs.too_many_jobs(row.project, others + 1):
            return Acted(job_id=job_id, code="quota", error=beyond)
    return Acted(job_id=job_id, changed=True)


def _take_up_again(
    state: ControlState, transaction: Transaction, row: JobRow, actor: str, why: Mapping[str, str]
) -> None:
    """Let a job that has ended wait again; a completed job starts from step 0.

    It waits only for those of its dependencies that are still active.
    """
    changes = state.knowledge.profile_changes
    record = JobRecord.of_row(row, profile=-1)
    record.profile = state.knowledge.profile_of(record.spec, record.job_id)
    state.table_due |= state.knowledge.profile_changes > changes
    if record.spec.batch:
        keep_learner(state, transaction)
    declare_missing(state, (record.spec,), state.engine.cluster.type_names)
    if row.status is JobStatus.COMPLETED:
        record.steps_done = 0.0
    record.status, record.reason, record.finished_s = JobStatus.WAITING, "", None
    record.failures = 0
    record.admitted_by = Cause(fact=FactKind.JOB_REQUEUED, subject=record.job_id)
    active = state.jobs.by_id
    record.waits_for = frozenset(other for other in record.spec.depends_on if other in active)
    record.blocked_on = state.jobs.parked_reason(record)
    record.reason = "" if record.blocked_on is None else record.blocked_on.value
    state.jobs.add(record)
    state.jobs.touch(record, transaction.now_s)
    transaction.actors[record.job_id] = actor
    words = {"was": row.status.value, **why}
    transaction.record_event("requeue_requested", "job", record.job_id, actor=actor, **words)
    if record.blocked_on is None:
        submit_to_engine(state, transaction, record)


def _cancel(state: ControlState, transaction: Transaction, record: JobRecord) -> None:
    if record.blocked_on is not None:
        end_parked(state, transaction, record, JobStatus.CANCELLED, "")
    else:
        transaction.emit(ev.JobCancelled(job_id=record.job_id))


def _hold(state: ControlState, transaction: Transaction, record: JobRecord) -> None:
    if record.blocked_on is not None:
        record.status = JobStatus.HELD
        state.jobs.touch(record, transaction.now_s)
        state.jobs.recheck = True
    else:
        transaction.emit(ev.JobHeld(job_id=record.job_id))


def _release(state: ControlState, transaction: Transaction, record: JobRecord) -> None:
    if record.blocked_on is not None:
        record.status = JobStatus.WAITING
        state.jobs.touch(record, transaction.now_s)
        state.jobs.recheck = True
    else:
        transaction.emit(ev.JobReleased(job_id=record.job_id))


def _requeue(_state: ControlState, transaction: Transaction, record: JobRecord) -> None:
    transaction.emit(ev.JobRequeued(job_id=record.job_id))


def change_jobs(
    state: ControlState, transaction: Transaction, fact: JobChangeAsked
) -> tuple[Acted, ...]:
    """Change weight or deadline of active jobs; one that fails does not affect the others."""
    deadline_s, rows, actor = fact.deadline_s, fact.rows, fact.actor
    results = []
    for job_id in fact.job_ids:
        record = state.jobs.by_id.get(job_id)
        if record is None:
            results.append(_unchangeable(job_id, rows.get(job_id)))
            continue
        due_s = None if deadline_s == record.deadline_s else deadline_s
        if late := missed_deadline(due_s, now_s=transaction.wall_s):
            results.append(Acted(job_id=job_id, code="invalid", error=late))
            continue
        if wide := _too_heavy(state, record, fact.weight):
            results.append(Acted(job_id=job_id, code="quota", error=wide))
            continue
        changed = _change_weight(transaction, record, fact.weight)
        if deadline_s is not None or fact.clear_deadline:
            changed |= _change_deadline(
                transaction, record, None if fact.clear_deadline else deadline_s
            )
        if changed:
            state.jobs.touch(record, transaction.now_s)
            transaction.record_event(
                "job_changed",
                "job",
                job_id,
                actor=actor,
                weight=record.weight,
                deadline_s=record.deadline_s,
            )
        results.append(Acted(job_id=job_id, changed=changed))
    return tuple(results)


def _too_heavy(state: ControlState, record: JobRecord, weight: float | None) -> str:
    """Return why a job may not have a weight; a smaller weight is always allowed."""
    if weight is None or weight <= record.weight:
        return ""
    return too_heavy_for(state.jobs.limits.get(record.project), weight)


def _unchangeable(job_id: str, row: JobRow | None) -> Acted:
    if row is None:
        return Acted(job_id=job_id, code="not_found", error=f"there is no job '{job_id}'")
    return Acted(
        job_id=job_id,
        code="conflict",
        error=f"job '{job_id}' has ended as {row.status.value}; it cannot be changed",
    )


def _change_weight(transaction: Transaction, record: JobRecord, weight: float | None) -> bool:
    if weight is None or weight == record.weight:
        return False
    record.weight = weight
    if record.blocked_on is None:
        transaction.emit(ev.WeightChanged(job_id=record.job_id, weight=weight))
    return True


def _change_deadline(transaction: Transaction, record: JobRecord, deadline_s: float | None) -> bool:
    if deadline_s == record.deadline_s:
        return False
    record.deadline_s = deadline_s
    if record.blocked_on is None:
        transaction.emit(ev.DeadlineChanged(job_id=record.job_id, deadline_s=deadline_s))
    return True
