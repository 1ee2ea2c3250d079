"""Events of jobs: submitted, stopped, released, changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.reasons import BITS, WaitReason
from scheduler.domain.lease_life import RevokeReason
from scheduler.domain.problem import Entity
from scheduler.engine.events.on_leases import set_retry_timer
from scheduler.engine.events.on_reservations import end_job
from scheduler.engine.limits.admission import check_admission
from scheduler.engine.limits.quotas import is_firm
from scheduler.engine.state.restart_costs import set_restarts
from scheduler.engine.tables.jobs import HELD, NONE, RUNNING, WAITING
from scheduler.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.state.state import State


def _submitted(state: State, event: ev.JobSubmitted) -> None:
    job, jobs = event.job, state.jobs
    try:
        check_admission(
            job,
            event.profile,
            state.table,
            state.fleet.capacity,
            taken=job.job_id in jobs.number_of,
            must_fit=state.settings.refuse_what_cannot_fit,
        )
    except AdmissionError as error:
        state.record("job_refused", job.job_id, reason=str(error))
        return
    entity = entity_of(state, job.entity)
    jobs.widen(state.table.throughput.shape[1])
    group = state.quotas.group(job)
    jobs.add(job, number=state.next_number, profile=event.profile, entity=entity, group=group)
    if job.restarts:
        set_restarts(state, [len(jobs) - 1])
    state.next_number += 1
    state.rows_moved()
    state.mark_dirty()
    state.record("job_admitted", job.job_id)


def entity_of(state: State, name: str) -> int:
    """Return the position of an entity, appending the entity if it is new."""
    entity = state.entity_of.get(name)
    if entity is None:
        entity = state.entity_of[name] = len(state.entities)
        state.entities.append(Entity(name=name))
    return entity


def _cancelled(state: State, event: ev.JobCancelled) -> None:
    _stop(state, event.job_id, RevokeReason.CANCEL)


def _held(state: State, event: ev.JobHeld) -> None:
    _stop(state, event.job_id, RevokeReason.HOLD)


def _agent_died(state: State, event: ev.AgentDied) -> None:
    most = state.settings.hold_after_deaths
    for job_id in event.job_ids:
        row = state.row_of_job(job_id)
        if row == NONE:
            continue
        state.jobs["deaths"][row] += 1
        deaths = int(state.jobs["deaths"][row])
        if most and deaths >= most:
            why = (
                f"{deaths} agents in a row died soon after it had been started on their nodes, the "
                f"last one on node '{event.node}'; see its output, then release it"
            )
            _stop(state, job_id, RevokeReason.HOLD, why)


def _stop(state: State, job_id: str, how: RevokeReason, why: str = "") -> None:
    """Cancel or hold a job; a lease that it holds is revoked first."""
    row = state.row_of_job(job_id)
    if row == NONE:
        return
    jobs = state.jobs
    lease_id = int(jobs["lease"][row])
    if how is RevokeReason.HOLD and jobs["status"][row] == HELD:
        return
    state.assigner.drop_plan(int(jobs["number"][row]))
    jobs["status"][row] = HELD
    state.mark_dirty()
    if lease_id != NONE:
        state.after_end[lease_id] = how.value
        state.revoke(lease_id, by_s=state.now_s, reason=how)
    elif how is RevokeReason.CANCEL:
        end_job(state, row, "job_cancelled")
        return
    if how is RevokeReason.HOLD:
        state.record("job_held", job_id, **({"reason": why} if why else {}))


def _released(state: State, event: ev.JobReleased) -> None:
    row = state.row_of_job(event.job_id)
    if row == NONE or state.jobs["status"][row] != HELD:
        return
    lease_id = int(state.jobs["lease"][row])
    if state.after_end.get(lease_id) == RevokeReason.CANCEL:
        return
    state.after_end.pop(lease_id, None)
    state.jobs["losses"][row] = state.jobs["deaths"][row] = 0
    state.jobs["status"][row] = WAITING if lease_id == NONE else RUNNING
    state.mark_dirty()
    state.record("job_released", event.job_id)


def _requeued(state: State, event: ev.JobRequeued) -> None:
    row = state.row_of_job(event.job_id)
    if row == NONE or state.jobs["status"][row] != RUNNING:
        return
    lease_id = int(state.jobs["lease"][row])
    if lease_id in state.book.stopping:
        return
    state.revoke(lease_id, by_s=state.now_s, reason=RevokeReason(event.reason))
    if event.reason == RevokeReason.REQUEUE:
        state.record("job_requeued", event.job_id)


def _deferred(state: State, event: ev.JobDeferred) -> None:
    row = state.row_of_job(event.job_id)
    if row == NONE or state.jobs["lease"][row] != NONE:
        return
    state.jobs["retry_at_s"][row] = event.until_s
    if event.until_s > state.now_s:
        state.jobs["wait_reasons"][row] |= BITS[WaitReason.BACKOFF]
        state.assigner.drop_plan(int(state.jobs["number"][row]))
        set_retry_timer(state)
    state.mark_dirty()


def _funds(state: State, event: ev.FundsChanged) -> None:
    for job_id in event.job_ids:
        row = state.row_of_job(job_id)
        if row != NONE:
            state.jobs["unfunded"][row] = event.unfunded
            if event.unfunded:
                state.assigner.drop_plan(int(state.jobs["number"][row]))
    state.mark_dirty()


def _weight(state: State, event: ev.WeightChanged) -> None:
    row = state.row_of_job(event.job_id)
    if row != NONE:
        state.jobs["weight"][row] = event.weight
        state.mark_dirty(serve_idle=False)


def _deadline(state: State, event: ev.DeadlineChanged) -> None:
    row = state.row_of_job(event.job_id)
    if row != NONE:
        deadline_s = np.inf if event.deadline_s is None else event.deadline_s
        state.jobs["deadline_s"][row] = deadline_s
        state.mark_dirty(serve_idle=False)


def _restarts(state: State, event: ev.RestartsMeasured) -> None:
    rows = [state.row_of_job(job_id) for job_id in event.job_ids]
    jobs, on_some = state.jobs, event.restarts or ({},) * len(rows)
    for row, restart_s, restarts in zip(rows, event.restart_s.tolist(), on_some, strict=True):
        if row != NONE:
            number = int(jobs["number"][row])
            job = jobs.job_of[number]
            jobs.job_of[number] = replace(job, restart_s=restart_s, restarts=restarts)
    known = [row for row in rows if row != NONE]
    if known:
        set_restarts(state, known)
        state.mark_dirty(serve_idle=False)


def _lengths(state: State, event: ev.LengthsRevised) -> None:
    rows = [state.row_of_job(job_id) for job_id in event.job_ids]
    for row, total_steps in zip(rows, event.total_steps.tolist(), strict=True):
        if row != NONE:
            state.jobs["total_steps"][row] = max(total_steps, state.jobs["steps_done"][row])
    if any(row != NONE for row in rows):
        state.mark_dirty(serve_idle=False)


def _entity(state: State, event: ev.EntityChanged) -> None:
    position = state.entity_of.setdefault(event.entity.name, len(state.entities))
    state.entities[position : position + 1] = [event.entity]
    state.mark_dirty(serve_idle=False)


def _quotas(state: State, event: ev.QuotasChanged) -> None:
    quotas, jobs = state.quotas, state.jobs
    quotas.rules = event.quotas
    for job_id, (project, owner) in event.owners.items():
        row = state.row_of_job(job_id)
        if row != NONE:
            firm = is_firm(jobs.job_of[int(jobs["number"][row])])
            jobs["group"][row] = quotas.group_of(project, owner, firm=firm)
    state.mark_dirty()


HANDLERS: Final[dict[type, Callable[[State, Any], None]]] = {
    ev.JobSubmitted: _submitted,
    ev.JobCancelled: _cancelled,
    ev.JobHeld: _held,
    ev.AgentDied: _agent_died,
    ev.JobReleased: _released,
    ev.JobDeferred: _deferred,
    ev.FundsChanged: _funds,
    ev.JobRequeued: _requeued,
    ev.RestartsMeasured: _restarts,
    ev.LengthsRevised: _lengths,
    ev.WeightChanged: _weight,
    ev.DeadlineChanged: _deadline,
    ev.EntityChanged: _entity,
    ev.QuotasChanged: _quotas,
}
