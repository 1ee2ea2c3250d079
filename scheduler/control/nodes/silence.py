"""Silent nodes: cordoned, then lost; and back in service under operators' orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.facts.requests import NodeAction
from scheduler.control.leases.ends import is_young
from scheduler.control.nodes.images import upcoming_images
from scheduler.control.state.transaction import TIME_PASSES
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction


def lose_silent_nodes(state: ControlState, transaction: Transaction) -> None:
    """Mark nodes as lost that have been silent for ``node_timeout_s``."""
    timeout_s = state.settings.node_timeout_s
    for node in list(state.nodes.silent(transaction.now_s, timeout_s=timeout_s)):
        node.lost = True
        state.nodes.touch(node.name)
        transaction.emit(ev.WorkersLost(workers=node.workers))
        transaction.cause = Cause(fact=FactKind.NODE_SILENT, subject=node.name)
        transaction.give_reason(transaction.cause, node=node.name)
        note_death(state, transaction, node)
        silent_s = round(transaction.now_s - node.silent_since(), 1)
        transaction.record_event("node_lost", "node", node.name, silent_s=silent_s)
        transaction.cause = TIME_PASSES
        transaction.set(f"lost/{node.name}", {"silent_s": silent_s})


def cordon_silent_nodes(state: ControlState, transaction: Transaction) -> None:
    """Grant nothing new on nodes that may soon be lost; they keep their leases."""
    timeout_s = state.settings.node_timeout_s
    for node in list(state.nodes.fall_silent(transaction.now_s, timeout_s=timeout_s)):
        node.silent = True
        state.nodes.touch(node.name)
        cause = Cause(fact=FactKind.NODE_SILENT, subject=node.name)
        if node.order is None and node.doubt is None and node.usable:
            transaction.give_reason(cause, node=node.name)
            transaction.emit(ev.WorkersCordoned(workers=node.usable))
        silent_s = round(transaction.now_s - node.silent_since(), 1)
        transaction.record_event_for(cause, "node_silent", "node", node.name, silent_s=silent_s)


def end_silence(state: ControlState, transaction: Transaction, node: NodeState) -> None:
    """Allow new leases again on a node that was silent."""
    node.silent = False
    state.nodes.touch(node.name)
    if node.order is None and node.doubt is None:
        apply_order(transaction, node)


def note_death(
    state: ControlState, transaction: Transaction, node: NodeState, told: Collection[int] = ()
) -> None:
    """Report to the engine the jobs that may have made an agent die.

    These are the jobs that had been started on the node less than a minute before its last report
    and had saved nothing since. Under one lease a job is suspected once, because all jobs beside a
    guilty job would be suspected as often. It is suspected again only if it is alone there.

    Args:
        state: of the leader.
        transaction: the decision.
        node: the node of the dead agent.
        told: ids of leases that the next agent found started there.
    """
    there = [live for live, _ in state.leases.held_by(node.name) if not live.revoked]
    for live in there:
        if is_young(live, node, told) and (not live.suspected or len(there) == 1):
            live.suspected = True
            state.leases.touched.add(live.lease.lease_id)
            node.suspects.append(live.lease.job_id)
    suspects = tuple(dict.fromkeys(node.suspects))
    node.suspects.clear()
    if suspects:
        transaction.emit(ev.AgentDied(node=node.name, job_ids=suspects))
    transaction.record_event("agent_died", "node", node.name, suspects=list(suspects))


def apply_order(transaction: Transaction, node: NodeState) -> None:
    """Bring a node's workers in the engine in line with its state and its operator's order."""
    usable = node.usable
    if not usable or node.lost:
        return
    transaction.emit(ev.WorkersReturned(workers=usable))
    doubted = node.doubt is not None or node.silent
    if node.order is NodeAction.CORDON or (node.order is None and doubted):
        transaction.emit(ev.WorkersCordoned(workers=usable))
    elif node.order is NodeAction.DRAIN:
        transaction.emit(ev.WorkersDrained(workers=usable, by_s=transaction.now_s))


def update_images(state: ControlState) -> None:
    """Publish to nodes new images that they may soon need."""
    if not (most := state.settings.prepull_images):
        return
    before, state.images = state.images, upcoming_images(state, most=most)
    for name, images in state.images.items():
        if set(images) - set(before.get(name, ())):
            state.leases.changed.add(name)
