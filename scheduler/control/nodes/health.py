"""Nodes on which jobs fail that succeed elsewhere, and nodes that are slow.

Two kinds of ends count against a node: those that it reports as its own fault, and failures of jobs
that complete elsewhere. Each job counts once, and all ends within a few seconds (a machine that
reboots) count once. After some of them nothing new starts on the node for a while; after one more,
until an operator uncordons it. Nothing new starts there for a while either if jobs of different
types fail there at once and nowhere else. This keeps out at most a share of the workers of each
type, and none that a job needs. A slow node is only reported, since it still works.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from scheduler.control.leases.retries import Category, category_of
from scheduler.control.nodes.silence import apply_order
from scheduler.control.state.node_evidence import LASTING, MOST_FAULTS, PASSING, JobFailure
from scheduler.control.state.nodes import Doubt
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.facts.troubles import Trouble, trouble_of
from scheduler.domain.lease_life import EndReason, words_of_code
from scheduler.engine.events.on_leases import GOT_ON_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.state.leases import LiveLease, MemberEnd
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction

#: A fault that is older counts no more.
WINDOW_S: Final = 3600.0
#: Faults within this time count as one.
AT_ONCE_S: Final = 10.0
#: How long a node is avoided.
AVOID_S: Final = 600.0
#: The most characters of a fault's message.
LONGEST_SAID: Final = 200
#: A node is reported as slow below this speed relative to others of its type, and as fast again
#: above the second figure.
SLOW: Final = 0.85
FAST_AGAIN: Final = 0.92
#: Troubles of a lease that are its node's fault; no trouble at all is its fault too.
_OWN: Final = frozenset({None, Trouble.NODE_REFUSED, Trouble.NOT_STARTED, Trouble.DISK})


def note_end(
    state: ControlState, transaction: Transaction, live: LiveLease, name: str, end: MemberEnd
) -> None:
    """Take in how a lease ended on a node, as the node reports it."""
    job_id = live.lease.job_id
    trouble = trouble_of(end.reason_code, end.message)
    category = category_of(end.reason, trouble)
    ran_s = 0.0 if live.running_s is None else transaction.now_s - live.running_s
    if end.reason is EndReason.COMPLETED:
        _note_completion(state, transaction, live)
    if end.reason is EndReason.COMPLETED or ran_s >= GOT_ON_S:
        state.health.sudden.pop(name, None)
    if category is None or live.revoked or not state.settings.quarantine_after:
        return
    said = end.message or ("" if end.exit_code is None else words_of_code(end.exit_code))
    said = said[:LONGEST_SAID]
    fault = JobFailure(job_id=job_id, at_s=transaction.now_s, category=category.value, said=said)
    if category is Category.NODE_FAULT and trouble in _OWN:
        _hold_against(state, transaction, name, fault)
    elif end.reason.is_failure and category is not Category.IMAGE:
        failures = state.health.failures.setdefault(job_id, deque(maxlen=MOST_FAULTS))
        failures.append((name, fault))
        if ran_s < GOT_ON_S:
            _suspect(state, transaction, name, fault)


def _note_completion(state: ControlState, transaction: Transaction, live: LiveLease) -> None:
    """Count earlier failures of a job against their nodes, since it completed elsewhere."""
    failures = state.health.failures.pop(live.lease.job_id, ())
    for name, fault in failures:
        if name not in live.nodes:
            _hold_against(state, transaction, name, fault)


def drop_evidence(
    state: ControlState, transaction: Transaction, node: NodeState, *, actor: str = ""
) -> None:
    """Drop all evidence against a node; the caller brings its workers back."""
    state.health.trust(node.name)
    if node.doubt is not None:
        node.doubt = None
        transaction.set(f"doubt/{node.name}", None, actor=actor)


def check_node_health(state: ControlState, transaction: Transaction) -> None:
    """Try nodes again that were avoided for long enough, and report slow ones."""
    for node in state.nodes.by_name.values():
        if node.doubt is not None and node.doubt.until_s <= transaction.now_s:
            drop_evidence(state, transaction, node)
            state.nodes.touch(node.name)
            apply_order(transaction, node)
            transaction.record_event("node_tried_again", "node", node.name)
    measured, state.health.measured = state.health.measured, set()
    for name in sorted(measured & state.nodes.by_name.keys()):
        _tell_speed(state, transaction, state.nodes.by_name[name])


def doubt_in_words(node: NodeState) -> str:
    """Return why control starts nothing new on a node, or that it is slow; empty if neither."""
    doubt = node.doubt
    if doubt is None:
        return "" if node.slow is None else f"jobs run at {node.slow:.0%} of its type's speed"
    jobs = list(dict.fromkeys(str(one["job"]) for one in doubt.evidence))
    last = doubt.evidence[-1]["message"] if doubt.evidence else ""
    what = LASTING if doubt.lasts else PASSING
    words = f"{what}: {len(jobs)} jobs failed here ({', '.join(jobs[-5:])})"
    return f"{words}; the last: {last}" if last else words


def _hold_against(
    state: ControlState, transaction: Transaction, name: str, fault: JobFailure
) -> None:
    node = state.nodes.by_name.get(name)
    if node is None or node.lost:
        return
    faults = state.health.faults.setdefault(name, deque(maxlen=MOST_FAULTS))
    faults.append(fault)
    recent = [one for one in faults if transaction.now_s - one.at_s <= WINDOW_S]
    recent.sort(key=lambda one: one.at_s)
    counted = min(len({one.job_id for one in recent}), _occasions(recent))
    most = state.settings.quarantine_after
    if node.order is not None or (node.doubt is not None and node.doubt.lasts):
        return
    if counted >= most:
        _doubt(state, transaction, node, recent, until_s=math.inf)
    elif counted >= max(most - 1, 2) and node.doubt is None:
        _doubt(state, transaction, node, recent, until_s=transaction.now_s + AVOID_S)


def _suspect(state: ControlState, transaction: Transaction, name: str, fault: JobFailure) -> None:
    """Avoid a node for a while if jobs of different types failed there at once, and only there."""
    health, job_id = state.health, fault.job_id
    elsewhere = {other for other, _ in health.failures[job_id]} - {name}
    for other in elsewhere:
        health.sudden.get(other, {}).pop(job_id, None)
    node = state.nodes.by_name.get(name)
    if elsewhere or node is None or node.lost or node.order is not None or node.doubt is not None:
        return
    found = health.sudden.setdefault(name, {})
    found[job_id] = state.jobs.by_id[job_id].spec.type_key, fault
    for known, (_, earlier) in list(found.items()):
        if transaction.now_s - earlier.at_s > WINDOW_S or len(found) > MOST_FAULTS:
            del found[known]
    if len({kind for kind, _ in found.values()}) >= max(state.settings.quarantine_after - 1, 2):
        faults = [fault for _, fault in health.sudden.pop(name).values()]
        _doubt(state, transaction, node, faults, until_s=transaction.now_s + AVOID_S)


def _occasions(faults: Sequence[JobFailure]) -> int:
    """Return the number of occasions; faults within ``AT_ONCE_S`` count as one."""
    count, began_s = 0, -math.inf
    for fault in faults:
        if fault.at_s - began_s > AT_ONCE_S:
            count, began_s = count + 1, fault.at_s
    return count


def _doubt(
    state: ControlState,
    transaction: Transaction,
    node: NodeState,
    faults: Sequence[JobFailure],
    *,
    until_s: float,
) -> None:
    evidence = tuple(fault.to_data() for fault in faults)
    cause = Cause(fact=FactKind.NODE_REPORTED, subject=node.name)
    shown = [dict(one) for one in evidence]
    if not _has_room(state, node):
        transaction.record_event_for(cause, "node_suspected", "node", node.name, evidence=shown)
        return
    node.doubt = Doubt(since_s=transaction.now_s, until_s=until_s, evidence=evidence)
    state.nodes.touch(node.name)
    transaction.set(f"doubt/{node.name}", node.doubt.to_data())
    apply_order(transaction, node)
    if not node.doubt.lasts:
        transaction.record_event_for(cause, "node_avoided", "node", node.name, evidence=shown)
    else:
        transaction.record_event_for(cause, "node_quarantined", "node", node.name, evidence=shown)
        transaction.warnings.append(
            f"node '{node.name}' is {doubt_in_words(node)}; `leasehold uncordon {node.name}` "
            "takes it back"
        )


def _has_room(state: ControlState, node: NodeState) -> bool:
    """Return whether enough workers of each of a node's types remain without it."""
    known: dict[str, int] = {}
    out: dict[str, int] = {}
    for other in state.nodes.by_name.values():
        for worker_type in other.types if not other.lost else ():
            known[worker_type] = known.get(worker_type, 0) + 1
            if other is node or other.doubt is not None or other.order is not None:
                out[worker_type] = out.get(worker_type, 0) + 1
    share = state.settings.quarantine_share
    needed = max((min(r.spec.scale_factors) for r in state.jobs.by_id.values()), default=0)
    return all(
        out[kind] <= share * known[kind] and not known[kind] - out[kind] < needed <= known[kind]
        for kind in set(node.types)
    )


def _tell_speed(state: ControlState, transaction: Transaction, node: NodeState) -> None:
    speed = state.health.relative_speed(node.name)
    if speed is None:
        return
    cause = Cause(fact=FactKind.NODE_REPORTED, subject=node.name)
    relative = round(speed, 3)
    if node.slow is None and speed <= SLOW:
        node.slow = relative
        transaction.record_event_for(cause, "node_slow", "node", node.name, relative_speed=relative)
        transaction.warnings.append(
            f"jobs run on node '{node.name}' at {speed:.0%} of the speed of others of its type"
        )
    elif node.slow is not None and speed >= FAST_AGAIN:
        node.slow = None
        transaction.record_event_for(
            cause, "node_fast_again", "node", node.name, relative_speed=relative
        )
    else:
        return
    state.nodes.touch(node.name)
