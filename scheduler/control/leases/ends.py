"""Ends of leases: reported by nodes, past their deadline, or never started."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from scheduler.control.leases.apply_commands import stop_time_s
from scheduler.control.leases.launches import time_launch
from scheduler.control.leases.progress import safe_steps
from scheduler.control.leases.retries import category_of, spend_retry
from scheduler.control.state.leases import MemberEnd
from scheduler.control.state.transaction import TIME_PASSES
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.facts.troubles import trouble_of
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import ABRUPT, MEMORY_ERROR, EndReason, RevokeReason
from scheduler.domain.throughputs.knowledge import Part
from scheduler.engine.events.on_leases import GOT_ON_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction


def end_lease(state: ControlState, transaction: Transaction, live: LiveLease) -> None:
    """Report to the engine that a lease has ended, once all of its members have."""
    lease_id = live.lease.lease_id
    if not live.ended or lease_id in transaction.ends or lease_id not in state.leases.by_id:
        return
    end = live.outcome()
    if end.reason is not EndReason.COMPLETED and _on_broken_workers(state, live):
        # If the worker broke, the end is not the job's failure, even if the job reported one.
        end = replace(end, reason=EndReason.LOST)
    if end.reason is not EndReason.COMPLETED and live.revoked == RevokeReason.NOT_STARTED:
        code = end.reason_code or "NotStarted"
        message = end.message or f"it did not run within {state.settings.start_timeout_s:g} s"
        end = replace(end, reason=EndReason.LOST, reason_code=code, message=message)
    time_launch(state, transaction, live, over=True)
    transaction.ends[lease_id] = end
    transaction.ended_by[lease_id] = transaction.cause
    steps = safe_steps(state, live, end, now_s=transaction.now_s)
    ran_s = _ran_s(state, live, end, now_s=transaction.now_s)
    transaction.emit(
        ev.LeaseEnded(
            lease_id=lease_id,
            reason=end.reason.for_engine(),
            steps_done=steps,
            unstarted=live.unstarted,
            failed=live.failed,
            ran_s=ran_s,
            left=end.reason is EndReason.RELEASED and live.left_unasked,
        )
    )
    record = state.jobs.by_id[live.lease.job_id]
    if end.reason is EndReason.OOM and not record.spec.retry_oom:
        record.forced_end = (JobStatus.FAILED, "out_of_memory")
        why = Cause(fact=FactKind.OUT_OF_MEMORY, subject=record.job_id)
        transaction.give_reason(why, job=record.job_id)
        state.jobs.changed.add(record.job_id)
        transaction.emit(ev.JobCancelled(job_id=record.job_id))
    category = category_of(end.reason, trouble_of(end.reason_code, end.message))
    spend_retry(state, transaction, record, category, revoked=live.revoked)
    if live.plan and end.reason is EndReason.OOM and end.message == MEMORY_ERROR:
        _give_plan_up(state, transaction, live)


def _give_plan_up(state: ControlState, transaction: Transaction, live: LiveLease) -> None:
    """Let jobs of a type have plans with less memory, if one of them has run out of it."""
    job_type = state.jobs.by_id[live.lease.job_id].spec.type_key
    place = len(live.lease.workers), live.worker_type
    if state.knowledge.note_out_of_memory(job_type, *place, live.plan):
        state.table_due = state.estimates_due = True
        transaction.set(Part.PLANS.value, state.knowledge.dump(Part.PLANS))


def _ran_s(state: ControlState, live: LiveLease, end: MemberEnd, *, now_s: float) -> float:
    """Return for how long its processes surely ran; on a silent node until its last report."""
    if live.running_s is None:
        return 0.0
    until_s = now_s
    if end.reason is EndReason.LOST:
        lost = [m.node for m in live.members if m.end and m.end.reason is EndReason.LOST]
        nodes = state.nodes.by_name
        until_s = min((nodes[n].ran_until(now_s) for n in lost if n in nodes), default=now_s)
    return max(until_s - live.running_s, 0.0)


def _on_broken_workers(state: ControlState, live: LiveLease) -> bool:
    nodes = ((state.nodes.by_name.get(member.node), member.local) for member in live.members)
    broken = any(node is not None and not node.broken.isdisjoint(w) for node, w in nodes)
    return broken or live.revoked == RevokeReason.WORKER_LOST


def end_member(
    state: ControlState,
    transaction: Transaction,
    live: LiveLease,
    node: str,
    end: MemberEnd,
    *,
    forgets: bool = False,
) -> None:
    """Note how a lease ended on one node; unless it completed, the gang ends everywhere.

    Args:
        state: control's.
        transaction: the current decision.
        live: the lease.
        node: the node on which its processes have ended.
        end: how they ended.
        forgets: whether the node may forget the lease although it is wanted there.
    """
    state.leases.touched.add(live.lease.lease_id)
    for member in live.members:
        if member.node == node and member.end is None:
            member.end = end
            if forgets and member.wanted:
                member.wanted = False
                state.leases.changed.add(node)
            if not (member.wanted or live.ended or live.revoked in ABRUPT):
                # Its node forgets the end, and would start the lease again if the desired set had
                # it.
                member.kept = True
                transaction.set(f"ended/{live.lease.lease_id}/{node}", asdict(end))
    if end.reason is EndReason.RELEASED:
        by_s = transaction.now_s + stop_time_s(state, live.lease.job_id)
        state.leases.let_others_leave(live, by_s=by_s)
    elif end.reason is not EndReason.COMPLETED:
        state.leases.stop_others(live)
    end_lease(state, transaction, live)


def expire_leases(state: ControlState, transaction: Transaction) -> None:
    """Mark leases as lost that no report ended by their deadlines; nothing runs under them."""
    settings = state.settings
    for live in state.leases.overdue(transaction.now_s, after_s=settings.margin_s):
        for member in live.members:
            node = state.nodes.by_name.get(member.node)
            # After a restart every node first gets its time to report how its leases ended.
            if (
                node is not None
                and node.last_seen_s is None
                and transaction.now_s - node.since_s <= settings.node_timeout_s
            ):
                continue
            if node is not None and member.end is None and is_young(live, node):
                node.suspects.append(live.lease.job_id)  # if its agent turns out to have died
            end = MemberEnd(
                reason=EndReason.LOST,
                message=f"node '{member.node}' did not say how the lease ended",
            )
            transaction.cause = Cause(fact=FactKind.LEASE_EXPIRED, subject=member.node)
            end_member(state, transaction, live, member.node, end)
            transaction.cause = TIME_PASSES


def give_up_starts(state: ControlState, transaction: Transaction) -> None:
    """Revoke leases that do not run on each of their nodes in time.

    An agent ends a lease that it cannot start. This is for an agent that hangs or cannot end it.
    """
    most_s, starting = state.settings.start_timeout_s, state.leases.starting
    for lease_id in list(starting):
        live = state.leases.by_id[lease_id]
        if all(member.ran or member.end is not None for member in live.members):
            del starting[lease_id]
            continue
        if live.revoked or live.lease.lease_id in transaction.ends:
            continue
        late = [
            m.node for m in live.members if _is_late(state, live, m, transaction.now_s - most_s)
        ]
        if late:
            why = RevokeReason.NOT_STARTED.value
            transaction.emit(ev.JobRequeued(job_id=live.lease.job_id, reason=why))
            cause = Cause(fact=FactKind.START_LATE, subject=live.lease.job_id)
            transaction.give_reason(cause, job=live.lease.job_id)
            transaction.record_event_for(
                cause,
                "lease_overdue",
                "job",
                live.lease.job_id,
                lease=live.lease.lease_id,
                nodes=late,
                after_s=most_s,
            )


def _is_late(state: ControlState, live: LiveLease, member: Member, since_s: float) -> bool:
    """Return whether a member that does not run was granted, and its node known, before a time."""
    node = state.nodes.by_name.get(member.node)
    if member.ran or member.end is not None or node is None:
        return False
    return max(live.lease.start_s, node.since_s) < since_s


def is_young(live: LiveLease, node: NodeState, told: Collection[int] = ()) -> bool:
    """Return whether a job had only just started, and saved nothing, at a node's last report."""
    if node.last_seen_s is None or live.steps_done > live.base_steps:
        return False
    if live.lease.start_s > node.last_seen_s and live.lease.lease_id not in told:
        return False  # the agent did not ask again, so it has not started the lease
    started_s = live.lease.start_s if live.running_s is None else live.running_s
    return node.last_seen_s - started_s < GOT_ON_S
