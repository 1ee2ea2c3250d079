"""What is done unasked: leases that ran out, silent nodes, time limits, parked jobs."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.control.budgets import FREED, keep_budgets
from scheduler.control.consequences import stop_time_s
from scheduler.control.draft import TIME_PASSES
from scheduler.control.figures import declare_joined
from scheduler.control.idle import heed_idle_jobs
from scheduler.control.images import upcoming_images
from scheduler.control.launching import time_launch
from scheduler.control.leases import ABRUPT, END_REASON, MemberEnd
from scheduler.control.progress import safe_steps
from scheduler.control.requests import NodeAction
from scheduler.control.reservations import end_reservations, entitle, release_reservations
from scheduler.control.retries import category_of, spend
from scheduler.control.specs import engine_job
from scheduler.domain import events as ev
from scheduler.domain.causes import Cause, FactKind
from scheduler.domain.job import JobStatus
from scheduler.domain.knowledge import Part
from scheduler.domain.lease import RevokeReason
from scheduler.domain.reasons import WaitReason
from scheduler.domain.troubles import trouble_of
from scheduler.engine.events.on_leases import GOT_ON_S
from scheduler.engine.state.restart_costs import restarts_in
from scheduler.protocol.reports import LeaseEnd

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from scheduler.control.draft import Draft
    from scheduler.control.jobs import JobRecord
    from scheduler.control.leases import LiveLease, Member
    from scheduler.control.nodes import NodeState
    from scheduler.control.state import ControlState
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.job import Restarts
    from scheduler.domain.spec import JobSpec

#: Why a job was cancelled that waited for one which did not complete.
DEPENDENCY_FAILED: Final = "dependency_failed"


#: A restart's cost is news where it has changed by so many seconds, and by such a share.
NEWS_S: Final = 1.0
NEWS_SHARE: Final = 0.25


def keep_house(state: ControlState, draft: Draft) -> None:
    """Find what has become due without anybody telling."""
    if draft.now_s >= state.next_look_s:
        state.next_look_s = draft.now_s + state.settings.tick_s
        _expire(state, draft)
        _lose_silent_nodes(state, draft)
        _hush_silent_nodes(state, draft)
        enforce_time_limits(state, draft)
        heed_idle_jobs(state, draft)
        _give_up_starts(state, draft)
        _look_for_images(state)
        state.budgets.due |= bool(state.jobs.stopped)
        end_reservations(state, draft)
    if state.reservations:
        release_reservations(state, draft)
    state.owners.store(draft)
    keep_budgets(state, draft)
    admit(state, draft)
    renew_table(state, draft)
    renew_restarts(state, draft)


def settle(state: ControlState, draft: Draft, live: LiveLease) -> None:
    """Tell the engine that a lease has ended, once all of its members have."""
    lease_id = live.lease.lease_id
    if not live.ended or lease_id in draft.ends or lease_id not in state.leases.by_id:
        return
    end = live.outcome()
    if end.reason is not LeaseEnd.COMPLETED and _on_broken_workers(state, live):
        # Whatever the job said when its worker broke under it, it is not the job's failure.
        end = replace(end, reason=LeaseEnd.LOST)
    if end.reason is not LeaseEnd.COMPLETED and live.revoked == RevokeReason.NOT_STARTED:
        code = end.reason_code or "NotStarted"
        message = end.message or f"it did not run within {state.settings.start_timeout_s:g} s"
        end = replace(end, reason=LeaseEnd.LOST, reason_code=code, message=message)
    time_launch(state, draft, live, over=True)
    draft.ends[lease_id] = end
    draft.ended_by[lease_id] = draft.cause
    steps = safe_steps(state, live, end, now_s=draft.now_s)
    ran_s = 0.0 if live.running_s is None else max(draft.now_s - live.running_s, 0.0)
    draft.tell(
        ev.LeaseEnded(
            lease_id=lease_id,
            reason=END_REASON[end.reason],
            steps_done=steps,
            unstarted=live.unstarted,
            failed=live.failed,
            ran_s=ran_s,
        )
    )
    record = state.jobs.by_id[live.lease.job_id]
    if end.reason is LeaseEnd.OOM and not record.spec.retry_oom:
        record.ending = (JobStatus.FAILED, "out_of_memory")
        why = Cause(fact=FactKind.OUT_OF_MEMORY, subject=record.job_id)
        draft.give_reason(why, job=record.job_id)
        state.jobs.changed.add(record.job_id)
        draft.tell(ev.JobCancelled(job_id=record.job_id))
    trouble = trouble_of(end.reason_code, end.message)
    spend(state, draft, record, category_of(end.reason, trouble), revoked=live.revoked)


def _on_broken_workers(state: ControlState, live: LiveLease) -> bool:
    nodes = ((state.nodes.by_name.get(member.node), member.local) for member in live.members)
    broken = any(node is not None and not node.broken.isdisjoint(w) for node, w in nodes)
    return broken or live.revoked == RevokeReason.WORKER_LOST


def end_member(
    state: ControlState,
    draft: Draft,
    live: LiveLease,
    node: str,
    end: MemberEnd,
    *,
    forgets: bool = False,
) -> None:
    """Note how a lease ended on one node; except for completion, that ends the gang everywhere.

    Args:
        state: control's.
        draft: the decision at hand.
        live: the lease.
        node: where its processes have ended.
        end: how.
        forgets: whether the node may forget it although it is wanted there.
    """
    state.leases.touched.add(live.lease.lease_id)
    for member in live.members:
        if member.node == node and member.end is None:
            member.end = end
            if forgets and member.wanted:
                member.wanted = False
                state.leases.changed.add(node)
            if not (member.wanted or live.ended or live.revoked in ABRUPT):
                # Its node forgets it, and would begin anew if it were told of it again.
                member.kept = True
                draft.set(f"ended/{live.lease.lease_id}/{node}", asdict(end))
    if end.reason is LeaseEnd.RELEASED:
        by_s = draft.now_s + stop_time_s(state, live.lease.job_id)
        state.leases.let_others_leave(live, by_s=by_s)
    elif end.reason is not LeaseEnd.COMPLETED:
        state.leases.stop_others(live)
    settle(state, draft, live)


def _expire(state: ControlState, draft: Draft) -> None:
    """Take leases for lost whose deadlines passed without a word; nothing can run under them."""
    settings = state.settings
    for live in state.leases.overdue(draft.now_s, after_s=settings.margin_s):
        for member in live.members:
            node = state.nodes.by_name.get(member.node)
            # After a restart every node first gets its time to tell how its leases ended.
            if (
                node is not None
                and node.last_seen_s is None
                and draft.now_s - node.since_s <= settings.node_timeout_s
            ):
                continue
            if node is not None and member.end is None and _is_young(live, node):
                node.suspects.append(live.lease.job_id)  # should its agent turn out to have died
            end = MemberEnd(
                reason=LeaseEnd.LOST,
                message=f"node '{member.node}' did not say how the lease ended",
            )
            draft.cause = Cause(fact=FactKind.LEASE_EXPIRED, subject=member.node)
            end_member(state, draft, live, member.node, end)
            draft.cause = TIME_PASSES


def _give_up_starts(state: ControlState, draft: Draft) -> None:
    """Revoke leases that do not run on each of their nodes in time, whatever their agents do.

    An agent ends what it cannot start; this is for an agent that hangs, or cannot end it.
    """
    most_s, starting = state.settings.start_timeout_s, state.leases.starting
    for lease_id in list(starting):
        live = state.leases.by_id[lease_id]
        if all(member.ran or member.end is not None for member in live.members):
            del starting[lease_id]
            continue
        if live.revoked or live.lease.lease_id in draft.ends:
            continue
        late = [m.node for m in live.members if _is_late(state, live, m, draft.now_s - most_s)]
        if late:
            why = RevokeReason.NOT_STARTED.value
            draft.tell(ev.JobRequeued(job_id=live.lease.job_id, reason=why))
            cause = Cause(fact=FactKind.START_LATE, subject=live.lease.job_id)
            draft.give_reason(cause, job=live.lease.job_id)
            draft.note_for(
                cause,
                "lease_overdue",
                "job",
                live.lease.job_id,
                lease=live.lease.lease_id,
                nodes=late,
                after_s=most_s,
            )


def _is_late(state: ControlState, live: LiveLease, member: Member, since_s: float) -> bool:
    """Tell whether a member that does not run was granted, and its node known, before a time."""
    node = state.nodes.by_name.get(member.node)
    if member.ran or member.end is not None or node is None:
        return False
    return max(live.lease.start_s, node.since_s) < since_s


def _lose_silent_nodes(state: ControlState, draft: Draft) -> None:
    timeout_s = state.settings.node_timeout_s
    for node in list(state.nodes.silent(draft.now_s, timeout_s=timeout_s)):
        node.lost = True
        state.nodes.touch(node.name)
        draft.tell(ev.WorkersLost(workers=node.workers))
        draft.cause = Cause(fact=FactKind.NODE_SILENT, subject=node.name)
        draft.give_reason(draft.cause, node=node.name)
        note_death(state, draft, node)
        silent_s = round(draft.now_s - node.silent_since(), 1)
        draft.note("node_lost", "node", node.name, silent_s=silent_s)
        draft.cause = TIME_PASSES
        draft.set(f"lost/{node.name}", {"silent_s": silent_s})


def _hush_silent_nodes(state: ControlState, draft: Draft) -> None:
    """Grant nothing new on nodes that may soon be lost; what they hold they keep."""
    timeout_s = state.settings.node_timeout_s
    for node in list(state.nodes.fall_silent(draft.now_s, timeout_s=timeout_s)):
        node.silent = True
        state.nodes.touch(node.name)
        cause = Cause(fact=FactKind.NODE_SILENT, subject=node.name)
        if node.order is None and node.doubt is None and node.usable:
            draft.give_reason(cause, node=node.name)
            draft.tell(ev.WorkersCordoned(workers=node.usable))
        silent_s = round(draft.now_s - node.silent_since(), 1)
        draft.note_for(cause, "node_silent", "node", node.name, silent_s=silent_s)


def hear(state: ControlState, draft: Draft, node: NodeState) -> None:
    """Let a node that was silent have new leases again."""
    node.silent = False
    state.nodes.touch(node.name)
    if node.order is None and node.doubt is None:
        apply_order(draft, node)


def note_death(
    state: ControlState, draft: Draft, node: NodeState, told: Collection[int] = ()
) -> None:
    """Tell the engine of jobs that an agent may have died of.

    That is: those that had been started on its node less than a minute before it was last heard,
    and had saved nothing since. Under one lease a job is suspected once, since whoever is on a node
    with a guilty job would be so as often as that; again only where it is alone there.

    Args:
        state: of the leader.
        draft: the decision.
        node: whose agent has died.
        told: ids of leases that the next agent there has found begun.
    """
    there = [live for live, _ in state.leases.held_by(node.name) if not live.revoked]
    for live in there:
        if _is_young(live, node, told) and (not live.suspected or len(there) == 1):
            live.suspected = True
            state.leases.touched.add(live.lease.lease_id)
            node.suspects.append(live.lease.job_id)
    suspects = tuple(dict.fromkeys(node.suspects))
    node.suspects.clear()
    if suspects:
        draft.tell(ev.AgentDied(node=node.name, job_ids=suspects))
    draft.note("agent_died", "node", node.name, suspects=list(suspects))


def _is_young(live: LiveLease, node: NodeState, told: Collection[int] = ()) -> bool:
    """Tell whether a job had only just been started, and had saved nothing, when a node spoke."""
    if node.last_seen_s is None or live.steps_done > live.base_steps:
        return False
    if live.lease.start_s > node.last_seen_s and live.lease.lease_id not in told:
        return False  # an agent that asked no more has not begun it
    started_s = live.lease.start_s if live.running_s is None else live.running_s
    return node.last_seen_s - started_s < GOT_ON_S


def _look_for_images(state: ControlState) -> None:
    """Tell nodes of images that they may soon need and have not been told of."""
    if not (most := state.settings.prepull_images):
        return
    before, state.images = state.images, upcoming_images(state, most=most)
    for name, images in state.images.items():
        if set(images) - set(before.get(name, ())):
            state.leases.changed.add(name)


def next_limit_s(state: ControlState) -> float:
    """Return when the first running job has used up its time, or is looked at for that."""
    return max(when_limits_are_over(state), state.next_look_s)


def when_limits_are_over(state: ControlState) -> float:
    """Return when the first running job has used up its time; inf if none ever will."""
    now_s = state.engine.now_s
    return min(
        (
            now_s + max(most_s - _held_s(state, live, now_s), 0.0)
            for live, most_s in _limited(state)
        ),
        default=math.inf,
    )


def _limited(state: ControlState) -> Iterator[tuple[LiveLease, float]]:
    """Yield the leases of jobs that may hold workers for so long in all."""
    for job_id in sorted(state.jobs.limited):
        record = state.jobs.by_id[job_id]
        lease_id = state.leases.of_job.get(job_id)
        if lease_id is not None and not record.time_limit:
            assert record.spec.max_run_time_s is not None
            yield state.leases.by_id[lease_id], record.spec.max_run_time_s


def _held_s(state: ControlState, live: LiveLease, now_s: float) -> float:
    """Return how long a running job has held workers in all."""
    worker_s = state.engine.attained_worker_s_of(live.lease.job_id)
    return worker_s / max(len(live.lease.workers), 1) + now_s - state.engine.now_s


def enforce_time_limits(state: ControlState, draft: Draft) -> None:
    """Cancel jobs that have held workers for as long as they may."""
    for live, most_s in list(_limited(state)):
        held_s = _held_s(state, live, draft.now_s)
        if held_s >= most_s * (1.0 - 1e-12):
            record = state.jobs.by_id[live.lease.job_id]
            record.time_limit = True
            record.ending = (JobStatus.FAILED, "time_limit")
            state.jobs.changed.add(record.job_id)
            draft.tell(ev.JobCancelled(job_id=record.job_id))
            cause = Cause(fact=FactKind.TIME_LIMIT, subject=record.job_id)
            draft.give_reason(cause, job=record.job_id)
            held_s = round(held_s, 1)
            draft.note_for(cause, "time_limit", "job", record.job_id, held_s=held_s)


def admit(state: ControlState, draft: Draft) -> None:
    """Let in whom dependencies kept out, and tell the engine what projects may hold."""
    if state.jobs.recheck:
        state.jobs.recheck = False
        _tell_quotas(state, draft)
        _admit_parked(state, draft)


def _tell_quotas(state: ControlState, draft: Draft) -> None:
    """Tell the engine of quotas, where it knows others."""
    engine, limits = state.engine, state.jobs.limits
    quotas = tuple(quota for _, one in sorted(limits.items()) for quota in one.quotas)
    if quotas == engine.quotas.rules:
        return
    changed = {quota.project for quota in {*quotas} ^ {*engine.quotas.rules}}
    # Of jobs that a release told of which knew no quotas, the engine does not know whose they are.
    owners = {
        job.job_id: (record.project, record.owner)
        for job in engine.jobs.job_of.values()
        if not job.project and (record := state.jobs.by_id.get(job.job_id)) is not None
    }
    project = changed.pop() if len(changed) == 1 else ""
    draft.tell(ev.QuotasChanged(quotas=quotas, project=project, owners=owners))


def _end_old_waits(state: ControlState, draft: Draft) -> None:
    """Let jobs run that the release before this one deferred until their quota had room."""
    jobs = state.engine.jobs
    for number in jobs["number"][np.isposinf(jobs["retry_at_s"])].tolist():
        record = state.jobs.by_id.get(jobs.job_of[number].job_id)
        if record is not None:
            record.reason = ""
            state.jobs.touch(record, draft.now_s)
            draft.tell(ev.JobDeferred(job_id=record.job_id, until_s=draft.now_s))


def _admit_parked(state: ControlState, draft: Draft) -> None:
    """Let jobs in that nothing keeps out any more, the oldest first."""
    _end_old_waits(state, draft)
    for record in list(state.jobs.parked()):
        reason = state.jobs.parked_reason(record)
        if reason is None:
            if record.parked is WaitReason.QUOTA:
                record.let_in = Cause(fact=FactKind.QUOTA_FREED, subject=record.job_id)
            elif record.parked is WaitReason.BUDGET:
                record.let_in = FREED
            state.jobs.admit(record)
            tell_submitted(state, draft, record)
        elif record.reason != reason:
            record.parked = reason
            record.reason = reason.value
            state.jobs.touch(record, draft.now_s)


def tell_submitted(state: ControlState, draft: Draft, record: JobRecord) -> None:
    """Tell the engine of a job."""
    if record.let_in is not None:
        draft.give_reason(record.let_in, job=record.job_id)
    job = engine_job(
        record.spec,
        job_id=record.job_id,
        owner=record.owner,
        arrival_s=record.submitted_s,
        weight=record.weight,
        deadline_s=record.deadline_s,
        attempts=record.attempts,
        steps_done=record.steps_done,
        restarts=restarts(state, record.spec),
    )
    if state.reservations:
        entitle(state, draft, record)
    draft.tell(ev.JobSubmitted(job=job, profile=record.profile))


def renew_table(state: ControlState, draft: Draft) -> None:
    """Make the configuration table anew where profiles, types or throughputs have changed."""
    engine, choice, settings = state.engine, state.policy.choice, state.settings
    # What was measured is told when a round is planned, and not with every report.
    due = state.estimates_due or state.batches_due or state.mixed_due
    learned = due and any(isinstance(e, ev.TimerFired) for e in draft.events)
    if not (state.table_due or learned):
        return
    declare_joined(state)
    if due:
        active = (record.spec.type_key for record in state.jobs.by_id.values())
        state.knowledge.forget_oldest(active)
        state.knowledge.keep_learners(state.jobs.by_id)
    table = state.knowledge.renewed(
        engine.table,
        engine.cluster,
        agnostic=choice.agnostic,
        space_sharing=choice.space_sharing,
        exclusive=state.nodes.exclusive,
        profiling=settings.profiling,
        tolerance=settings.relearn_tolerance if not state.table_due else 0.0,
    )
    if state.estimates_due:
        draft.set(Part.THROUGHPUTS.value, state.knowledge.dump(Part.THROUGHPUTS))
    if state.batches_due:
        draft.set(Part.BATCHES.value, state.knowledge.dump(Part.BATCHES))
    if state.mixed_due:
        draft.set(Part.MIXED_GANGS.value, state.knowledge.dump(Part.MIXED_GANGS))
    state.table_due = state.estimates_due = state.batches_due = state.mixed_due = False
    if table is not None:
        draft.set(Part.PROFILES.value, state.knowledge.dump(Part.PROFILES))
        draft.tell(ev.ConfigurationsChanged(table=table))


def restarts(state: ControlState, spec: JobSpec) -> Restarts:
    """Return what a change of workers costs a job: as it says, else as launches were measured.

    Returns:
        Seconds on any workers, and on some, see ``Job.restarts``.
    """
    if spec.restart_s > 0.0 or spec.restarts or not state.settings.learn:
        return spec.restart_s, spec.restarts
    return state.knowledge.launch_s(spec.type_key), state.knowledge.launches_s(spec.type_key)


def renew_restarts(state: ControlState, draft: Draft) -> None:
    """Tell the engine what starting costs if that is news, when a round is planned."""
    if not state.launches_due or not any(isinstance(e, ev.TimerFired) for e in draft.events):
        return
    state.launches_due = False
    draft.set(Part.LAUNCHES.value, state.knowledge.dump(Part.LAUNCHES))
    jobs, table = state.engine.jobs, state.engine.table
    news: dict[str, Restarts] = {}
    #: profile -> what is learned of its jobs, and the (J,) seconds in its configurations.
    learned: dict[int, tuple[Restarts, FloatArray]] = {}
    for job_id, number in jobs.number_of.items():
        record = state.jobs.by_id.get(job_id)
        if record is None:  # it ends in this decision
            continue
        row, spec, profile = jobs.row_of(number), record.spec, record.profile
        if spec.restart_s > 0.0 or spec.restarts or profile >= len(table.profiles):
            continue
        if profile not in learned:
            found = restarts(state, spec)
            learned[profile] = found, restarts_in(table, profile, *found)
        found, found_s = learned[profile]
        known_s = jobs.restarts_s[row, : len(found_s)]
        if (np.abs(found_s - known_s) > np.maximum(NEWS_S, NEWS_SHARE * known_s)).any():
            news[job_id] = found
    if news:
        costs = np.array([usual_s for usual_s, _ in news.values()], dtype=float)
        on_some = tuple(some for _, some in news.values())
        draft.tell(ev.RestartsMeasured(job_ids=tuple(news), restart_s=costs, restarts=on_some))


def after_step(
    state: ControlState, draft: Draft, joined: Sequence[NodeState], ended: Sequence[JobRecord]
) -> None:
    """Draw the consequences of a step that need no word of the engine."""
    for node in joined:
        cause = Cause(fact=FactKind.NODE_REPORTED, subject=node.name)
        draft.note_for(cause, "node_joined", "node", node.name, workers=list(node.types))
    if set(state.engine.cluster.type_names) - set(state.engine.table.worker_types) or joined:
        state.table_due = True
    for record in ended:
        if record.spent:
            draft.set(f"spent/{record.job_id}", None)
        state.jobs.remove(record.job_id)
        for dependent in list(state.jobs.dependents(record.job_id)):
            _dependency_ended(state, draft, dependent, record)


def _dependency_ended(
    state: ControlState, draft: Draft, dependent: JobRecord, record: JobRecord
) -> None:
    if record.status is JobStatus.COMPLETED:
        dependent.waits_for -= {record.job_id}
        dependent.let_in = Cause(
            fact=FactKind.DEPENDENCY_ENDED, subject=record.job_id, project=record.project
        )
        state.jobs.changed.add(dependent.job_id)
        return
    cause = Cause(fact=FactKind.DEPENDENCY_ENDED, subject=record.job_id, project=record.project)
    end_parked(state, draft, dependent, JobStatus.CANCELLED, DEPENDENCY_FAILED, cause=cause)


def end_parked(
    state: ControlState,
    draft: Draft,
    record: JobRecord,
    status: JobStatus,
    reason: str,
    *,
    cause: Cause | None = None,
) -> None:
    """End a job that the engine has never known."""
    record.status, record.reason = status, reason
    record.finished_s = draft.now_s
    state.jobs.touch(record, draft.now_s)
    state.jobs.remove(record.job_id)
    kind = f"job_{status.value}"
    actor = draft.actors.get(record.job_id, "")
    why = draft.cause if cause is None else cause
    draft.note_for(why, kind, "job", record.job_id, actor=actor, reason=reason)
    for dependent in list(state.jobs.dependents(record.job_id)):
        _dependency_ended(state, draft, dependent, record)


def apply_order(draft: Draft, node: NodeState) -> None:
    """Bring a node's workers in the engine to what its state and its operator's order say."""
    usable = node.usable
    if not usable or node.lost:
        return
    draft.tell(ev.WorkersReturned(workers=usable))
    doubted = node.doubt is not None or node.silent
    if node.order is NodeAction.CORDON or (node.order is None and doubted):
        draft.tell(ev.WorkersCordoned(workers=usable))
    elif node.order is NodeAction.DRAIN:
        draft.tell(ev.WorkersDrained(workers=usable, by_s=draft.now_s))
