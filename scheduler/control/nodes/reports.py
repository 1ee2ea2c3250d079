"""Reports of agents, checked and taken in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.requests import NodeAction
from scheduler.control.jobs.learning import take_learning
from scheduler.control.leases.ends import end_member
from scheduler.control.leases.idle_gpus import take_use
from scheduler.control.leases.launches import time_launch
from scheduler.control.leases.progress import take_steps
from scheduler.control.nodes.health import note_end
from scheduler.control.nodes.inventory import check_inventory, inventory_of
from scheduler.control.nodes.silence import apply_order, end_silence, note_death
from scheduler.control.state.leases import MemberEnd
from scheduler.control.state.nodes import CHANGES_WITHIN_S, MOST_CHANGES
from scheduler.domain.cluster import Node, WorkerType
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.troubles import REFUSED, trouble_of
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import ConflictError, InputError
from scheduler.protocol.desired import NODE_NAME
from scheduler.protocol.reports import LEAVING

if TYPE_CHECKING:
    from scheduler.control.facts.facts import NodeReported
    from scheduler.control.nodes.inventory import AcceptedWorkers
    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.protocol.reports import LeaseReport, NodeReport

#: The most worker types of a cluster, those of nodes that have left included.
MOST_TYPES = 1000
#: The most jobs that one warning names.
MOST_NAMED = 20
#: The most stalls of an agent that one report adds.
MOST_STALLS = 1000
#: An agent that was started later counts as gone after this much silence.
OTHER_AGENT_S = 30.0


def take_report(state: ControlState, transaction: Transaction, fact: NodeReported) -> None:
    """Take in an agent's report; a report that is older than the newest one changes nothing.

    Raises:
        InputError: the node's name or its workers cannot be used.
        ConflictError: another agent, started later, reports under the same name.
    """
    report = fact.report
    if not NODE_NAME.fullmatch(report.node):
        raise InputError(
            f"node name {report.node!r} cannot be used; take letters, digits, '.', '_' and '-', "
            "128 at most, the first one a letter or digit"
        )
    node = state.nodes.by_name.get(report.node)
    inventory = inventory_of(state, fact)
    types, indices = inventory.types, inventory.indices
    _check_types(state, types)
    if node is not None and not _is_news(state, transaction, node, report):
        return
    _note_sharing(transaction, node, report, types)
    _note_agent(transaction, node, report)
    _note_lost_entries(state, transaction, report)
    changed = node is not None and (types, indices) != (node.types, node.indices)
    if node is not None and changed:
        _check_changes(state, transaction, node)
    joins = any(
        isinstance(e, ev.NodesJoined) and _joins(e, report.node) for e in transaction.events
    )
    if node is None:
        check_inventory(state, transaction, fact, inventory)
        if not joins:
            _join(state, transaction, report.node, types)
        transaction.met.append(fact)
        return
    other = (report.place, report.incarnation) != (node.place, node.incarnation)
    if report.crashed and other and not node.lost:
        note_death(state, transaction, node, {lease.lease_id for lease in report.leases})
    check_inventory(state, transaction, fact, inventory)
    store_report(state, transaction, fact, inventory)
    if changed:
        if not joins:  # two such reports in one decision: the next one repeats it
            state.nodes.note_change(node.name, transaction.now_s)
            _replace(state, transaction, node, types)
        transaction.met.append(fact)
        return
    _heed_problems(state, transaction, node, report)
    _take_leases(state, transaction, node, report)


def _is_news(
    state: ControlState, transaction: Transaction, node: NodeState, report: NodeReport
) -> bool:
    """Return whether a report is the newest of the agent that serves its node, or its successor's.

    Raises:
        ConflictError: another agent serves the node.
    """
    if report.place and node.place and report.place != node.place:
        why = _other_place(state, node, report, now_s=transaction.now_s)
        if why and state.nodes.may_tell(report.place, transaction.now_s):
            transaction.warnings.append(why)
        if why:
            raise ConflictError(why)
        return True
    return node.is_news(report) or _is_left_over(node, report, now_s=transaction.now_s)


def _other_place(state: ControlState, node: NodeState, report: NodeReport, *, now_s: float) -> str:
    """Return why an agent cannot serve a node in another folder or boot, or on another machine.

    Empty if it can. Within a place the folder's lock proves that the previous agent has ended.
    """
    if not node.lost and now_s - node.silent_since() <= OTHER_AGENT_S:
        return (
            f"another agent serves node '{report.node}', with another state folder or on another "
            "machine; stop it, or give this one another name with --node and a folder of its own. "
            f"This one is taken {OTHER_AGENT_S:g} s after the last report of the other"
        )
    if report.place.partition("/")[0] == node.place.partition("/")[0]:
        return ""
    held = state.leases.held_by(node.name)
    left_s = max((live.promised_s - now_s for live, m in held if m.end is None), default=0.0)
    if left_s <= 0:
        return ""
    return (
        f"node '{report.node}' was served by an agent on another machine, where its jobs may run "
        f"for {math.ceil(left_s)} s more; this agent is taken then"
    )


def _note_agent(transaction: Transaction, node: NodeState | None, report: NodeReport) -> None:
    """Store which agent serves a node, so that the next leader knows it."""
    known = None if node is None else (node.place, node.incarnation)
    if known != (report.place, report.incarnation):
        serves = {"place": report.place, "incarnation": report.incarnation}
        transaction.set(f"agent/{report.node}", serves)


def _is_left_over(node: NodeState, report: NodeReport, *, now_s: float) -> bool:
    """Return whether an earlier agent serves a node again after a later one has left.

    Raises:
        ConflictError: the later one still reports.
    """
    if report.incarnation >= node.incarnation:
        return False
    if node.lost or now_s - node.silent_since() > OTHER_AGENT_S:
        return True
    raise ConflictError(
        f"another agent, which was started later, reports as node '{report.node}'; stop one of "
        "them, or give it another name with --node"
    )


def _check_types(state: ControlState, types: tuple[str, ...]) -> None:
    """Refuse too many worker types: each keeps its rows and columns permanently."""
    known = set(state.engine.cluster.type_names)
    most = max(len(known), MOST_TYPES)
    if len(known | set(types)) > most:
        raise InputError(
            f"the node names {len(set(types) - known)} worker types that are new, and the cluster "
            f"has {len(known)} of at most {MOST_TYPES}; call workers of one kind by one name"
        )


def _check_changes(state: ControlState, transaction: Transaction, node: NodeState) -> None:
    """Refuse workers that change all the time: each change uses new worker numbers permanently."""
    if state.nodes.changes_since(node.name, transaction.now_s - CHANGES_WITHIN_S) < MOST_CHANGES:
        return
    why = (
        f"the workers of node '{node.name}' have changed {MOST_CHANGES} times within an hour, and "
        "differ again; look whether two agents use this name, or why the agent finds other "
        "workers each time (--worker sets them)"
    )
    if state.nodes.is_first_refusal(node.name):
        transaction.warnings.append(
            f"{why}; its reports are refused until an hour after the first of them"
        )
    raise ConflictError(why)


def store_report(
    state: ControlState,
    transaction: Transaction,
    fact: NodeReported,
    inventory: AcceptedWorkers | None = None,
) -> None:
    """Store the state of an agent that reported, and its address.

    Args:
        state: of the leader.
        transaction: of the decision.
        fact: the report.
        inventory: its accepted workers, if they are known already.
    """
    report = fact.report
    node = state.nodes.by_name.get(report.node)
    if node is not None:
        state.nodes.touch(node.name)
        node.suspects.clear()
        _note_stalls(transaction, node, report)
        if report.crashed and report.incarnation != node.incarnation:
            node.outage = node.silent_since(), transaction.now_s
        node.incarnation, node.sequence = report.incarnation, report.sequence
        node.place = report.place
        node.last_seen_s, node.version = transaction.now_s, fact.version
        inventory = inventory or inventory_of(state, fact)
        node.refused = inventory.refused
        if inventory.types == node.types:
            node.indices = inventory.indices
        node.address = fact.address or node.address  # an agent without an address keeps its old one
        exclusive = _exclusive(report, inventory.types)
        state.table_due |= exclusive != node.exclusive
        node.exclusive = exclusive
        if node.silent:
            end_silence(state, transaction, node)


def _note_stalls(transaction: Transaction, node: NodeState, report: NodeReport) -> None:
    """Count the new stalls of an agent; those before its first report to this leader are old."""
    before = node.stalls if report.incarnation == node.incarnation else 0
    if node.sequence >= 0 and report.stalls > before:
        transaction.stalls += min(report.stalls - before, MOST_STALLS)
        transaction.warnings.append(
            f"the agent on {node.name} stood still for over a second; its log says where"
        )
    node.stalls = report.stalls


def _exclusive(report: NodeReport, types: tuple[str, ...]) -> frozenset[str]:
    """Return the accepted worker types that two jobs cannot share on a node."""
    told = frozenset(w.worker_type for w in report.workers if w.sharing == "exclusive")
    return told.intersection(types)


def _note_sharing(
    transaction: Transaction, node: NodeState | None, report: NodeReport, types: tuple[str, ...]
) -> None:
    """Store a node's report on sharing, so that the next leader plans the same from the start."""
    exclusive = _exclusive(report, types)
    if exclusive != (frozenset() if node is None else node.exclusive):
        transaction.set(f"exclusive/{report.node}", sorted(exclusive) or None)


def _joins(event: ev.NodesJoined, name: str) -> bool:
    return any(node.name == name for node in event.nodes)


def _join(state: ControlState, transaction: Transaction, name: str, types: tuple[str, ...]) -> None:
    known = set(state.engine.cluster.type_names)
    for event in transaction.events:
        if isinstance(event, ev.NodesJoined):
            known |= {worker_type.name for worker_type in event.worker_types}
    new = [WorkerType(name=t) for t in dict.fromkeys(types) if t not in known]
    transaction.emit(
        ev.NodesJoined(nodes=(Node(name=name, workers=types),), worker_types=tuple(new))
    )


def _replace(
    state: ControlState, transaction: Transaction, node: NodeState, types: tuple[str, ...]
) -> None:
    """Retire a node's workers and add its new ones: its hardware was changed."""
    for live, _ in list(state.leases.held_by(node.name)):
        end = MemberEnd(reason=EndReason.LOST, message=f"node '{node.name}' has other workers now")
        end_member(state, transaction, live, node.name, end)
    transaction.emit(ev.WorkersRetired(workers=node.workers))
    transaction.set(f"lost/{node.name}", None)
    transaction.record_event(
        "node_changed", "node", node.name, before=list(node.types), now=list(types)
    )
    _join(state, transaction, node.name, types)


def _heed_problems(
    state: ControlState, transaction: Transaction, node: NodeState, report: NodeReport
) -> None:
    """Bring the engine's workers in line with a node's report.

    The report is compared with the engine, not with the last report: a restart forgets that report,
    and workers may have broken or been repaired meanwhile.
    """
    engine = state.engine
    state.nodes.touch(node.name)
    told = report.workers
    problems = {
        i: told[node.index_of(i)].problem
        for i in range(len(node.types))
        if told[node.index_of(i)].problem
    }
    lost = [
        i
        for i in problems
        if i not in node.problems
        and (engine.in_service[node.workers[i]] or engine.book.on_worker[node.workers[i]])
    ]
    node.problems = problems
    drained = node.order is NodeAction.DRAIN
    back = [
        i
        for i, w in enumerate(node.workers)
        if i not in problems and not drained and not engine.in_service[w]
    ]
    leaving = [i for i in lost if problems[i] == LEAVING]
    if leaving:
        workers = tuple(node.workers[i] for i in leaving)
        transaction.emit(ev.WorkersDrained(workers=workers, by_s=transaction.now_s))
        transaction.record_event("agent_stopped", "node", node.name)
    if broken := [i for i in lost if problems[i] != LEAVING]:
        transaction.emit(ev.WorkersLost(workers=tuple(node.workers[i] for i in broken)))
        transaction.record_event(
            "workers_failed",
            "node",
            node.name,
            problems={str(node.index_of(i)): problems[i] for i in broken},
        )
    if node.lost:
        node.lost = False
        transaction.record_event("node_returned", "node", node.name)
        transaction.set(f"lost/{node.name}", None)
        apply_order(transaction, node)
    elif back:
        transaction.record_event("workers_recovered", "node", node.name, workers=back)
        apply_order(transaction, node)


def _take_leases(
    state: ControlState, transaction: Transaction, node: NodeState, report: NodeReport
) -> None:
    told = {lease.lease_id: lease for lease in report.leases}
    current = report.term == state.term
    for live, member in list(state.leases.held_by(node.name)):
        lease = told.get(live.lease.lease_id)
        if lease is not None and lease.nonce not in {"", live.lease.nonce}:
            continue  # another lease of that number, which ends first
        if lease is not None and lease.token == live.lease.token:
            _take_lease(state, transaction, live, member, lease, current=current)
        elif member.end is None and current and report.revision >= member.since:
            # An agent lists the leases it holds and is about to start; any other is not there.
            end_member(state, transaction, live, node.name, _missing(member))


def _note_lost_entries(state: ControlState, transaction: Transaction, report: NodeReport) -> None:
    """Warn that the database has lost its newest entries, and name the jobs.

    A node shows that by a lease number that was not given out yet, or belongs to another lease, on
    whichever node. The lost entries may include the node itself.
    """
    newest, by_id = state.engine.newest_lease, state.leases.by_id
    first, last = state.skipped
    unknown = [
        lease
        for lease in report.leases
        if lease.lease_id > newest
        or first < lease.lease_id <= last
        or ((live := by_id.get(lease.lease_id)) and lease.nonce not in {"", live.lease.nonce})
    ]
    jobs = sorted({f"'{lease.job_id}'" for lease in unknown if lease.job_id})
    if not jobs or not state.nodes.may_tell(f"{report.node} lost entries", transaction.now_s):
        return
    transaction.warnings.append(
        f"the database has lost its newest entries: node '{report.node}' holds leases of "
        f"{', '.join(jobs[:MOST_NAMED])} that it does not know. They end there. Submit those jobs "
        "again that `leasehold jobs` does not show"
    )


def _missing(member: Member) -> MemberEnd:
    """Return the end of a lease that its node does not report any more."""
    if member.untold:
        return MemberEnd(reason=EndReason.FAILED, message=member.untold)
    if member.wanted or member.seen:
        return MemberEnd(reason=EndReason.LOST, message="the node knows nothing of the lease")
    return MemberEnd(reason=EndReason.RELEASED)


def _take_lease(
    state: ControlState,
    transaction: Transaction,
    live: LiveLease,
    member: Member,
    lease: LeaseReport,
    *,
    current: bool,
) -> None:
    before = _picture(live, member)
    member.seen = True
    member.ran |= lease.state is LeasePhase.RUNNING
    member.ran |= lease.exit_code is not None or lease.launch_s is not None
    if lease.state is LeasePhase.STARTING:
        live.restored = False  # its processes begin after the restart
    elif live.running_s is None:
        launched_s = live.lease.start_s + (lease.launch_s or 0.0)
        live.running_s = launched_s if live.restored else transaction.now_s
    if member.rank == 0:
        take_steps(
            state,
            live,
            steps_done=float(lease.steps_done),
            steps_live=float(lease.steps_live),
            now_s=transaction.now_s,
        )
        if live.told is not None and not live.first_step_noted:
            live.first_step_noted = True
            _note_first_step(transaction, live)
        time_launch(state, transaction, live)
        if lease.learning is not None:
            take_learning(state, live, lease.learning)
    if lease.gpu is not None:
        take_use(state, transaction, live, member, lease.gpu)
    _heed_trouble(transaction, live, member, lease)
    _heed_progress(transaction, live, member, lease)
    _take_launch(state, transaction, live, member, lease)
    changed = state.leases.stepped if _picture(live, member) == before else state.leases.touched
    changed.add(live.lease.lease_id)
    if lease.state is LeasePhase.ENDED and member.end is None and lease.reason is not None:
        end = MemberEnd(
            reason=lease.reason,
            exit_code=lease.exit_code,
            message=lease.message,
            reason_code=lease.reason_code,
        )
        note_end(state, transaction, live, member.node, end)
        # It still follows the desired set of an earlier leader, and may be about to drop this end.
        end_member(state, transaction, live, member.node, end, forgets=not current)


def _picture(live: LiveLease, member: Member) -> tuple[object, ...]:
    """Return the state of a lease, besides its steps and its end, that a report may change."""
    told = member.trouble, member.progress_problem, member.launched
    return live.running_s, live.learning, member.seen, member.ran, *told


def _take_launch(
    state: ControlState,
    transaction: Transaction,
    live: LiveLease,
    member: Member,
    lease: LeaseReport,
) -> None:
    """Take in the times of a launch, if the node measured it; once for each member of a gang."""
    if lease.launch_s is None or member.launched:
        return
    member.launched = True
    record = state.jobs.by_id[live.lease.job_id]
    if state.settings.learning.learn:
        took_s = lease.launch_s if lease.ready_s is None else lease.ready_s
        key = record.spec.type_key, len(live.lease.workers), live.worker_type
        state.knowledge.note_launch(*key, took_s, first_step=False)
        state.launches_due = True
    times = {"image_s": lease.image_s, "launch_s": lease.launch_s, "ready_s": lease.ready_s}
    found: dict[str, Any] = {name: round(s, 3) for name, s in times.items() if s is not None}
    phases = {"image": lease.image_s, "start": lease.launch_s, "ready": lease.ready_s}
    transaction.launches.append({phase: s for phase, s in phases.items() if s is not None})
    found |= {"devices": list(lease.devices)} if lease.devices else {}
    lease_id, node = live.lease.lease_id, member.node
    transaction.record_event(
        "lease_launched", "job", record.job_id, lease=lease_id, node=node, **found
    )


def _note_first_step(transaction: Transaction, live: LiveLease) -> None:
    """Record the times from the grant to running processes and to the first reported step."""
    lease = live.lease
    times = {"first_step_s": transaction.now_s, "running_s": live.running_s}
    found: dict[str, Any] = {
        name: round(s - lease.start_s, 3) for name, s in times.items() if s is not None
    }
    transaction.record_event("first_step", "job", lease.job_id, lease=lease.lease_id, **found)


def _heed_progress(
    transaction: Transaction, live: LiveLease, member: Member, lease: LeaseReport
) -> None:
    """Record why a job's steps cannot be read, once for each reason."""
    before, member.progress_problem = member.progress_problem, lease.progress_problem
    if lease.progress_problem not in {"", before}:
        transaction.record_event(
            "progress_off",
            "job",
            live.lease.job_id,
            lease=live.lease.lease_id,
            node=member.node,
            message=lease.progress_problem,
        )


def _heed_trouble(
    transaction: Transaction, live: LiveLease, member: Member, lease: LeaseReport
) -> None:
    """Record the trouble that keeps a lease from starting, once for each kind.

    A running lease has trouble if its gang cannot meet: its Service is refused.
    """
    words = (lease.reason_code, lease.message)
    lacking = lease.state is LeasePhase.RUNNING and trouble_of(*words) in REFUSED
    if lease.state is not LeasePhase.STARTING and not lacking:
        words = ("", "")
    before, member.trouble = member.trouble, words
    trouble = trouble_of(*words)
    if trouble is not None and trouble is not trouble_of(*before):
        transaction.record_event(
            "lease_waits",
            "job",
            live.lease.job_id,
            lease=live.lease.lease_id,
            node=member.node,
            code=words[0],
            trouble=trouble.value,
            message=words[1],
        )
