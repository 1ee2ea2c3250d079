"""Applies commands of the engine to leases, timers and jobs, and collects the rows to write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scheduler.control.leases.idle_gpus import measured_use
from scheduler.control.leases.launches import launching_s
from scheduler.control.projects.reservations import note_released
from scheduler.control.state.leases import LiveLease, members_of
from scheduler.domain.configuration import ANYWHERE
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import OF_A_JOB, FactKind
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.facts.troubles import Trouble, trouble_of
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.domain.rows import AttemptRow, LeaseUse
from scheduler.engine.limits.reservations import RELEASED
from scheduler.engine.tables.jobs import HELD, NONE
from scheduler.protocol.desired import MARGIN_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import MemberEnd
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.configuration import Configuration
    from scheduler.domain.facts.causes import Cause
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.lease import Lease

#: Notice and grace of a job with a specification that is no longer known.
UNKNOWN_STOP_S = 10.0
#: The job status for each of the engine's final events of a job.
FINAL = {
    "job_completed": JobStatus.COMPLETED,
    "job_cancelled": JobStatus.CANCELLED,
    "job_failed": JobStatus.FAILED,
    "job_refused": JobStatus.REFUSED,
}


def stop_times(state: ControlState | PublishedState, spec: JobSpec) -> tuple[float, float]:
    """Return a job's seconds from notice to SIGTERM, and from SIGTERM to SIGKILL."""
    settings = state.settings
    return (
        settings.notice_s if spec.notice_s is None else spec.notice_s,
        settings.grace_s if spec.grace_s is None else spec.grace_s,
    )


def stop_time_s(state: ControlState, job_id: str) -> float:
    """Return the seconds from a job's notice to the end of its last process."""
    record = state.jobs.by_id.get(job_id)
    if record is None:
        return UNKNOWN_STOP_S + MARGIN_S
    notice_s, grace_s = stop_times(state, record.spec)
    return notice_s + grace_s + MARGIN_S


def overtime_s(state: ControlState | PublishedState, spec: JobSpec) -> float:
    """Return for how long after the end of a round a job may still be leaving.

    Rounds are planned ``plan_lead_s`` ahead, and a job that is not chosen gets its notice then. One
    that needs longer to leave holds its workers for longer than the round.
    """
    lead_s = state.settings.engine.plan_lead_s
    leaves_in_s = sum(stop_times(state, spec)) + MARGIN_S
    if not 0 < lead_s <= leaves_in_s:
        return 0.0
    return leaves_in_s + state.settings.margin_s - lead_s


def apply_lease_commands(
    state: ControlState, events: Sequence[ev.Event], commands: Sequence[do.Command], now_s: float
) -> None:
    """Bring leases, nodes and timers in line with the engine; the same live and in replay."""
    for event in events:
        _follow_event(state, event)
    for command in commands:
        _follow_command(state, command, now_s)
    if not state.engine.question_open:
        state.leases.question = None


def _follow_event(state: ControlState, event: ev.Event) -> None:
    match event:
        case ev.LeaseEnded():
            state.leases.end(event.lease_id)
            state.progress.pop(event.lease_id, None)
        case ev.TimerFired():
            state.leases.timers.pop(event.timer, None)
        case ev.AllocationComputed():
            state.leases.timers.pop("grace", None)
            state.policy.newest_number = int(event.job_number.max(initial=-1))
        case ev.AllocationFailed():
            state.leases.timers.pop("grace", None)


def _follow_command(state: ControlState, command: do.Command, now_s: float) -> None:
    leases = state.leases
    match command:
        case do.GrantLease():
            leases.grant(_live_lease(state, command))
        case do.ExtendLeases():
            leases.extend(command)
        case do.RevokeLease():
            live = leases.by_id.get(command.lease_id)
            if live is not None:
                stop_s = stop_time_s(state, live.lease.job_id)
                leases.revoke(command, least_s=now_s + stop_s)
        case do.SetTimer():
            leases.timers[command.timer] = command.at_s
        case do.ComputeAllocation():
            leases.question = command


def _live_lease(state: ControlState, command: do.GrantLease) -> LiveLease:
    lease = command.lease
    record = state.jobs.by_id.get(lease.job_id)
    steps = 0.0 if record is None else record.steps_done
    has_model = record is not None and bool(record.spec.model)
    way = _configuration(state, lease)
    gang = state.nodes.gang_of(lease)
    return LiveLease(
        lease=lease,
        cause=command.cause,
        plan="" if way is None else way.plan,
        # With locality or a plan its throughput is another figure, unless all its ways have one.
        learned=way is None or has_model or (not way.plan and way.locality == ANYWHERE),
        gang=gang,
        paces=_paces(state, way, gang),
        worker_type=state.nodes.type_of(lease.workers),
        members=members_of(lease, state.nodes.place),
        deadline_s=lease.deadline_s,
        overtime_s=0.0 if record is None else overtime_s(state, record.spec),
        base_steps=steps,
        steps_done=steps,
        steps_live=steps,
    )


def _configuration(state: ControlState, lease: Lease) -> Configuration | None:
    """Return the configuration of a granted lease; None if it is not known."""
    table = state.engine.table
    if lease.configuration < 0 or lease.profile >= len(table.profiles):
        return None
    ways = table.profiles[lease.profile].configurations
    return ways[lease.configuration] if lease.configuration < len(ways) else None


def _paces(
    state: ControlState, way: Configuration | None, gang: tuple[str, ...]
) -> tuple[float, ...]:
    """Return (n,) paces of a gang's ranks; empty if they are of one type or not known."""
    if way is None or not way.paces:
        return ()
    pace = dict(zip(state.engine.table.worker_types, way.paces, strict=True))
    return tuple(pace[name] for name in gang)


def update_job_records(
    state: ControlState, transaction: Transaction, commands: Sequence[do.Command]
) -> list[JobRecord]:
    """Update the jobs' records after a step, and collect the rows of leases and history.

    Must run before ``apply_lease_commands``, which forgets the leases that have ended.

    Returns:
        The jobs that have ended; they are still in the book.
    """
    touched: set[str] = set()
    for event in transaction.events:
        if isinstance(event, ev.LeaseEnded):
            touched |= _lease_ended(state, transaction, event)
    final: dict[str, tuple[JobStatus, str]] = {}
    for command in commands:
        match command:
            case do.GrantLease():
                _granted(state, transaction, command)
                touched.add(command.lease.job_id)
            case do.RecordEvent():
                _recorded(state, transaction, command, final)
    for job_id in sorted(touched - final.keys()):
        _sync(state, state.jobs.by_id[job_id], transaction.now_s)
    return [
        _finish(state, state.jobs.by_id[job_id], how, transaction.now_s)
        for job_id, how in final.items()
    ]


def _granted(state: ControlState, transaction: Transaction, command: do.GrantLease) -> None:
    live = _live_lease(state, command)
    lease = live.lease
    record = state.jobs.by_id[lease.job_id]
    record.attempts = lease.attempt
    record.started_s = transaction.now_s if record.started_s is None else record.started_s
    transaction.attempts[lease.lease_id] = _attempt(live)
    transaction.record_event_for(
        own_cause(state, record.job_id, command.cause),
        "lease_granted",
        "job",
        lease.job_id,
        lease=lease.lease_id,
        attempt=lease.attempt,
        worker_type=live.worker_type,
        workers=list(lease.workers),
        nodes=list(live.nodes),
    )


def _lease_ended(state: ControlState, transaction: Transaction, event: ev.LeaseEnded) -> set[str]:
    live = state.leases.by_id.get(event.lease_id)
    if live is None:
        return set()
    end = transaction.ends[event.lease_id]
    record = state.jobs.by_id[live.lease.job_id]
    spec, completed = record.spec, event.reason is EndReason.COMPLETED
    # For a job without steps the engine counts seconds, of an assumed length.
    counts = live.counted or spec.total_steps is not None
    told: dict[str, Any] = {"steps_done": event.steps_done} if counts else {}
    if counts or spec.duration_s is not None or not completed:
        record.steps_done = event.steps_done
    for member in live.members:
        if member.kept:
            transaction.set(f"ended/{event.lease_id}/{member.node}", None)
    transaction.attempts[event.lease_id] = _attempt(
        live,
        ended_s=transaction.now_s,
        end_reason=end.reason,
        steps_done=record.steps_done,
        exit_code=end.exit_code,
        message=end.message,
    )
    transaction.record_event_for(
        with_projects(state, _why_ended(transaction, live)),
        "lease_ended",
        "job",
        record.job_id,
        lease=event.lease_id,
        reason=end.reason.value,
        **told,
        exit_code=end.exit_code,
        message=end.message,
        **_launch(state, live, now_s=transaction.now_s),
        **measured_use(live),
        **_trouble(end),
    )
    return {record.job_id}


def _launch(state: ControlState, live: LiveLease, *, now_s: float) -> dict[str, Any]:
    """Return how long a lease has held workers and launched; empty if the launch is not known."""
    found_s = launching_s(state, live, now_s=now_s)
    if found_s is None:
        return {}
    held_s = max(now_s - live.lease.start_s, 0.0)
    return {"launching_s": round(min(found_s, held_s), 3), "held_s": round(held_s, 3)}


def with_projects(state: ControlState | PublishedState, cause: Cause) -> Cause:
    """Return a cause with the projects of the jobs that it names."""
    records = state.jobs.by_id
    subject = records.get(cause.subject) if cause.fact in OF_A_JOB else None
    rival = records.get(cause.rival)
    if subject is None and rival is None:
        return cause
    return replace(
        cause,
        project=cause.project if subject is None else subject.project,
        rival_project="" if rival is None else rival.project,
    )


def own_cause(state: ControlState | PublishedState, job_id: str, cause: Cause) -> Cause:
    """Return the cause of a job's lease; a late admission replaces "it arrived"."""
    record = state.jobs.by_id.get(job_id)
    told = None if record is None else record.admitted_by
    if told is not None and cause.fact is FactKind.JOB_ARRIVED and cause.subject == job_id:
        cause = replace(cause, fact=told.fact, subject=told.subject, project=told.project)
    return with_projects(state, cause)


def with_reasons(transaction: Transaction, commands: Sequence[do.Command]) -> list[do.Command]:
    """Return the engine's commands with the reasons that this decision has recorded."""
    if not transaction.reasons:
        return list(commands)
    return [
        replace(command, cause=transaction.reason_of(command.cause))
        if isinstance(command, do.RevokeLease | do.RecordEvent)
        else command
        for command in commands
    ]


def _why_ended(transaction: Transaction, live: LiveLease) -> Cause:
    lease_id = live.lease.lease_id
    told = transaction.ended_by[lease_id]
    return told if transaction.ends[lease_id].reason is EndReason.COMPLETED else live.notice or told


def _why_recorded(state: ControlState, transaction: Transaction, command: do.RecordEvent) -> Cause:
    """Return the cause of an event; if the job's lease was revoked, the revocation's cause."""
    live = state.leases.by_id.get(state.leases.of_job.get(command.subject, NONE))
    if live is None or live.lease.lease_id not in transaction.ended_by:
        return command.cause
    cause = _why_ended(transaction, live)
    return command.cause if cause.fact is FactKind.NODE_REPORTED else cause


def _trouble(end: MemberEnd) -> dict[str, str]:
    """Return the trouble that ended a lease, as code and kind; empty if there was none."""
    trouble = trouble_of(end.reason_code, end.message)
    if end.reason is EndReason.OOM:
        trouble = Trouble.OUT_OF_MEMORY
    code = {"code": end.reason_code} if end.reason_code else {}
    return code if trouble is None else code | {"trouble": trouble.value}


def _recorded(
    state: ControlState,
    transaction: Transaction,
    command: do.RecordEvent,
    final: dict[str, tuple[JobStatus, str]],
) -> None:
    subject = command.subject
    kind = "job" if subject in state.jobs.by_id and command.kind.startswith("job_") else "policy"
    data = dict(command.data)
    if command.kind == RELEASED:
        cause = with_projects(state, _why_recorded(state, transaction, command))
        note_released(state, transaction, subject, str(data["job"]), cause)
        return
    if command.kind == "reservation_short":
        kind = "reservation"
        transaction.warnings.append(
            f"reservation '{subject}' is short of {data['lacking']} workers that are in service"
            if data["lacking"]
            else f"reservation '{subject}' has all its workers again"
        )
    told, record = command.kind, state.jobs.by_id.get(subject)
    if told in FINAL and record is not None and record.forced_end is not None:
        told, data["reason"] = f"job_{record.forced_end[0].value}", record.forced_end[1]
    transaction.record_event_for(
        with_projects(state, _why_recorded(state, transaction, command)),
        told,
        kind,
        subject,
        actor=transaction.actors.get(subject, ""),
        **data,
    )
    if kind == "job" and "failures" in data:  # of a job that has just failed for good, too
        record = state.jobs.by_id[subject]
        record.failures = int(data["failures"])
    status = FINAL.get(command.kind)
    if kind == "job" and status is not None:
        final[subject] = (status, str(data.get("reason", "")))
    elif kind == "job" and command.kind in {"job_held", "job_released"}:
        _sync(state, state.jobs.by_id[subject], transaction.now_s)
        if command.kind == "job_held":
            state.jobs.by_id[subject].reason = str(data.get("reason", ""))


def _sync(state: ControlState, record: JobRecord, now_s: float) -> None:
    """Copy the engine's state of an active job."""
    jobs = state.engine.jobs
    number = jobs.number_of.get(record.job_id)
    if number is None:
        return
    row = jobs.row_of(number)
    lease_id = int(jobs["lease"][row])
    live = state.leases.by_id.get(lease_id)
    leaving = live is not None and live.revoked == RevokeReason.CANCEL
    if jobs["status"][row] == HELD and not leaving:
        record.status = JobStatus.HELD
    else:
        record.status = JobStatus.WAITING if lease_id == NONE else JobStatus.RUNNING
    if record.status is not JobStatus.HELD:  # a held job keeps its reason
        unfunded = jobs["unfunded"][row] and lease_id == NONE
        record.reason = WaitReason.BUDGET.value if unfunded else ""
    record.failures = int(jobs["failures"][row])
    state.jobs.touch(record, now_s)


def _finish(
    state: ControlState, record: JobRecord, how: tuple[JobStatus, str], now_s: float
) -> JobRecord:
    record.status, record.reason = record.forced_end or how
    if record.status is JobStatus.COMPLETED:
        record.steps_done = max(record.steps_done, float(record.spec.total_steps or 0.0))
    record.finished_s = now_s
    state.jobs.touch(record, now_s)
    return record


def _attempt(live: LiveLease, **ended: object) -> AttemptRow:
    lease = live.lease
    gpu = live.gpu or LeaseUse(lease_id=lease.lease_id)
    return AttemptRow(
        lease_id=lease.lease_id,
        job_id=lease.job_id,
        attempt=lease.attempt,
        token=lease.token,
        worker_type=live.worker_type,
        workers=lease.workers,
        nodes=live.nodes,
        start_s=lease.start_s,
        deadline_s=live.deadline_s,
        gpu_used_us=gpu.gpu_used_us,
        gpu_measured_us=gpu.gpu_measured_us,
        gpu_told_s=gpu.gpu_told_s,
        gpu_marks=gpu.gpu_marks,
        **ended,  # type: ignore[arg-type]  # the callers above name fields of the row
    )
