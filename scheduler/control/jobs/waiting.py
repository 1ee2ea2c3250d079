"""Jobs that dependencies, quotas or budgets keep out, and their admission to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.control.facts.specs import engine_job
from scheduler.control.jobs.table import restart_costs
from scheduler.control.projects.budgets import FREED
from scheduler.control.projects.reservations import entitle_job
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction

#: The reason of a cancelled job that waited for a job which did not complete.
DEPENDENCY_FAILED: Final = "dependency_failed"


def admit_jobs(state: ControlState, transaction: Transaction) -> None:
    """Admit jobs that nothing keeps out any more, and pass changed quotas to the engine."""
    if state.jobs.recheck:
        state.jobs.recheck = False
        _tell_quotas(state, transaction)
        _admit_parked(state, transaction)


def _tell_quotas(state: ControlState, transaction: Transaction) -> None:
    """Pass quotas to the engine if they differ from those it knows."""
    engine, limits = state.engine, state.jobs.limits
    quotas = tuple(quota for _, one in sorted(limits.items()) for quota in one.quotas)
    if quotas == engine.quotas.rules:
        return
    changed = {quota.project for quota in {*quotas} ^ {*engine.quotas.rules}}
    # Jobs from a release without quotas carry no project or owner in the engine.
    owners = {
        job.job_id: (record.project, record.owner)
        for job in engine.jobs.job_of.values()
        if not job.project and (record := state.jobs.by_id.get(job.job_id)) is not None
    }
    project = changed.pop() if len(changed) == 1 else ""
    transaction.emit(ev.QuotasChanged(quotas=quotas, project=project, owners=owners))


def _end_old_waits(state: ControlState, transaction: Transaction) -> None:
    """Let jobs run that the previous release deferred until their quota had room."""
    jobs = state.engine.jobs
    for number in jobs["number"][np.isposinf(jobs["retry_at_s"])].tolist():
        record = state.jobs.by_id.get(jobs.job_of[number].job_id)
        if record is not None:
            record.reason = ""
            state.jobs.touch(record, transaction.now_s)
            transaction.emit(ev.JobDeferred(job_id=record.job_id, until_s=transaction.now_s))


def _admit_parked(state: ControlState, transaction: Transaction) -> None:
    """Admit jobs that nothing keeps out any more, oldest first."""
    _end_old_waits(state, transaction)
    for record in list(state.jobs.parked()):
        reason = state.jobs.parked_reason(record)
        if reason is None:
            if record.blocked_on is WaitReason.QUOTA:
                record.admitted_by = Cause(fact=FactKind.QUOTA_FREED, subject=record.job_id)
            elif record.blocked_on is WaitReason.BUDGET:
                record.admitted_by = FREED
            state.jobs.admit(record)
            submit_to_engine(state, transaction, record)
        elif record.reason != reason:
            record.blocked_on = reason
            record.reason = reason.value
            state.jobs.touch(record, transaction.now_s)


def submit_to_engine(state: ControlState, transaction: Transaction, record: JobRecord) -> None:
    """Submit a job to the engine."""
    if record.admitted_by is not None:
        transaction.give_reason(record.admitted_by, job=record.job_id)
    job = engine_job(
        record.spec,
        job_id=record.job_id,
        owner=record.owner,
        arrival_s=record.submitted_s,
        weight=record.weight,
        deadline_s=record.deadline_s,
        attempts=record.attempts,
        steps_done=record.steps_done,
        restarts=restart_costs(state, record.spec),
    )
    if state.reservations:
        entitle_job(state, transaction, record)
    transaction.emit(ev.JobSubmitted(job=job, profile=record.profile))


def after_step(
    state: ControlState,
    transaction: Transaction,
    joined: Sequence[NodeState],
    ended: Sequence[JobRecord],
) -> None:
    """Apply the effects of a step that need no further call of the engine."""
    for node in joined:
        cause = Cause(fact=FactKind.NODE_REPORTED, subject=node.name)
        transaction.record_event_for(
            cause, "node_joined", "node", node.name, workers=list(node.types)
        )
    new = set(state.engine.cluster.type_names) - set(state.engine.table.worker_types)
    # The largest node of a type may have joined or left.
    left = any(isinstance(event, ev.WorkersRetired) for event in transaction.events)
    state.table_due |= bool(new or joined or left)
    for record in ended:
        if record.spent:
            transaction.set(f"spent/{record.job_id}", None)
        state.jobs.remove(record.job_id)
        for dependent in list(state.jobs.dependents(record.job_id)):
            _dependency_ended(state, transaction, dependent, record)


def _dependency_ended(
    state: ControlState, transaction: Transaction, dependent: JobRecord, record: JobRecord
) -> None:
    if record.status is JobStatus.COMPLETED:
        dependent.waits_for -= {record.job_id}
        dependent.admitted_by = Cause(
            fact=FactKind.DEPENDENCY_ENDED, subject=record.job_id, project=record.project
        )
        state.jobs.changed.add(dependent.job_id)
        return
    cause = Cause(fact=FactKind.DEPENDENCY_ENDED, subject=record.job_id, project=record.project)
    end_parked(state, transaction, dependent, JobStatus.CANCELLED, DEPENDENCY_FAILED, cause=cause)


def end_parked(
    state: ControlState,
    transaction: Transaction,
    record: JobRecord,
    status: JobStatus,
    reason: str,
    *,
    cause: Cause | None = None,
) -> None:
    """End a parked job."""
    record.status, record.reason = status, reason
    record.finished_s = transaction.now_s
    state.jobs.touch(record, transaction.now_s)
    state.jobs.remove(record.job_id)
    kind = f"job_{status.value}"
    actor = transaction.actors.get(record.job_id, "")
    why = transaction.cause if cause is None else cause
    transaction.record_event_for(why, kind, "job", record.job_id, actor=actor, reason=reason)
    for dependent in list(state.jobs.dependents(record.job_id)):
        _dependency_ended(state, transaction, dependent, record)
