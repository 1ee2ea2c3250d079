"""What agents are told, and what they report."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from scheduler.control.consequences import stop_times
from scheduler.control.housekeeping import apply_order, end_member, note_death
from scheduler.control.leases import MemberEnd
from scheduler.control.nodes import CHANGES_WITHIN_S, MOST_CHANGES
from scheduler.control.progress import take_steps
from scheduler.control.requests import NodeAction
from scheduler.domain import events as ev
from scheduler.domain.cluster import Node, WorkerType
from scheduler.domain.troubles import trouble_of
from scheduler.errors import ConflictError, InputError
from scheduler.protocol.bounds import words
from scheduler.protocol.desired import (
    NODE_NAME,
    Desired,
    DesiredLease,
    LeaseEnd,
    LeaseState,
    to_dict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.control.draft import Turn
    from scheduler.control.leases import LiveLease, Member
    from scheduler.control.nodes import NodeState
    from scheduler.control.state import LiveState
    from scheduler.protocol.desired import LeaseReport, NodeReport

_log = logging.getLogger("leasehold.service")

#: Ports that rank 0 of a gang may listen on; below those that systems give out by themselves.
FIRST_PORT, PORTS = 12_000, 16_000
#: Worker types that a cluster may have, those of nodes that have left included.
MOST_TYPES = 1000
#: After this long without a word of it, an agent that was started later has left its node.
OTHER_AGENT_S = 30.0
#: What changes from one answer to the next while a lease lasts.
_PASSING = ("remaining_s", "notice_in_s")


def desired_set(state: LiveState, name: str, *, now_s: float, held_s: float) -> Desired:
    """Return what a node is to hold; empty for a node that is not known."""
    node = state.nodes.by_name.get(name)
    if node is None:
        return Desired(term=state.term, revision=0, held_s=held_s, leases=())
    told = (_told(state, live, member, now_s) for live, member in _wanted(state, name))
    return Desired(
        term=state.term,
        revision=node.revision,
        held_s=held_s,
        leases=tuple(lease for lease, _ in filter(None, told)),
        images=state.images.get(name, ()),
    )


def desired_json(state: LiveState, name: str, *, now_s: float, held_s: float) -> bytes:
    """Return ``desired_set`` as JSON, made of pieces that last as long as their leases.

    A thousand nodes are told within a second that most of their leases go on as they are.
    """
    node = state.nodes.by_name.get(name)
    revision = 0 if node is None else node.revision
    head: dict[str, object] = {"term": state.term, "revision": revision, "held_s": held_s}
    if images := state.images.get(name):
        head["images"] = [asdict(image) for image in images]
    pieces = (_lease_json(state, *pair, now_s) for pair in _wanted(state, name))
    return b'%b,"leases":[%b]}' % (orjson.dumps(head)[:-1], b",".join(filter(None, pieces)))


def _told(
    state: LiveState, live: LiveLease, member: Member, now_s: float
) -> tuple[DesiredLease, bytes] | None:
    """Return what a node is told of a lease; None where its job's specification cannot be told.

    The node says then that it knows nothing of the lease, which ends by that: it alone.
    """
    try:
        lease = _desired(state, live, member, now_s)
        plain = to_dict(lease)
        for name in _PASSING:
            del plain[name]
        return lease, orjson.dumps(plain)[:-1]
    except (InputError, TypeError, ValueError, OverflowError) as error:
        if not member.untold:
            member.untold = words(f"the lease cannot be told to node '{member.node}': {error}")
            _log.error("job '%s': %s", live.lease.job_id, member.untold)
        return None


def _lease_json(state: LiveState, live: LiveLease, member: Member, now_s: float) -> bytes:
    address = _master(state, live)
    if member.told is None or member.told[0] != address:
        told = _told(state, live, member, now_s)
        if told is None:
            return b""
        member.told = address, told[1]
    passing = orjson.dumps(dict(zip(_PASSING, _times(live, member, now_s), strict=True)))
    return b"%b,%b" % (member.told[1], passing[1:])


def _wanted(state: LiveState, name: str) -> Iterator[tuple[LiveLease, Member]]:
    for live, member in state.leases.held_by(name):
        # A job that has just completed is forgotten before the end of its lease is committed.
        if member.wanted and live.lease.job_id in state.jobs.by_id:
            yield live, member


def _times(live: LiveLease, member: Member, now_s: float) -> tuple[float, float | None]:
    """Return the seconds until the deadline and until the notice."""
    remaining_s = min(live.deadline_s, member.leave_by_s or math.inf) - now_s
    return remaining_s, 0.0 if live.revoked or member.leave_by_s is not None else None


def _master(state: LiveState, live: LiveLease) -> str:
    master = state.nodes.by_name.get(live.members[0].node)
    return master.address if master is not None else "127.0.0.1"


def _desired(state: LiveState, live: LiveLease, member: Member, now_s: float) -> DesiredLease:
    lease = live.lease
    record = state.jobs.by_id[lease.job_id]
    spec = record.spec
    notice_s, grace_s = stop_times(state, spec)
    remaining_s, notice_in_s = _times(live, member, now_s)
    return DesiredLease(
        lease_id=lease.lease_id,
        attempt=lease.attempt,
        token=lease.token,
        job_id=lease.job_id,
        command=spec.command,
        env=spec.env,
        working_dir=spec.working_dir,
        checkpoint_dir=spec.checkpoint_dir,
        workers=member.local,
        rank=member.rank,
        world_size=len(lease.workers),
        local_ranks=tuple(range(len(member.local))),
        master_addr=_master(state, live),
        master_port=FIRST_PORT + lease.lease_id % PORTS,
        total_steps=None if spec.total_steps is None else int(spec.total_steps),
        steps_done=int(live.base_steps),
        remaining_s=remaining_s,
        notice_in_s=notice_in_s,
        notice_s=notice_s,
        grace_s=grace_s,
        progress_regex=spec.progress_regex,
        progress_file=spec.progress_file,
        memory_bytes=spec.memory_bytes,
        cpus=spec.cpus,
        image=spec.image,
        gang=tuple(len(m.local) for m in live.members) if len(live.members) > 1 else (),
        node_rank=live.members.index(member),
        kubernetes=spec.kubernetes,
        project=spec.project,
        owner=record.owner,
    )


def take_report(
    state: LiveState, turn: Turn, report: NodeReport, *, address: str, version: str
) -> None:
    """Take in what an agent knows; a report that was overtaken by a newer one changes nothing.

    Raises:
        InputError: the node's name or its workers cannot be used.
        ConflictError: another agent that was started later reports under the same name.
    """
    if not NODE_NAME.fullmatch(report.node):
        raise InputError(
            f"node name {report.node!r} cannot be used; take letters, digits, '.', '_' and '-', "
            "128 at most, the first one a letter or digit"
        )
    node = state.nodes.by_name.get(report.node)
    types = tuple(worker.worker_type for worker in report.workers)
    _check_types(state, types)
    if node is None or node.is_news(report):
        _note_sharing(turn, node, report)
    if node is not None and node.is_news(report) and types != node.types:
        _check_changes(state, turn, node)
    joins = any(isinstance(e, ev.NodesJoined) and _joins(e, report.node) for e in turn.events)
    if node is None:
        if not joins:
            _join(state, turn, report.node, types)
        turn.after.append(lambda: _meet(state, turn, report, address, version))
        return
    if not node.is_news(report) and not _is_left_over(node, report, now_s=turn.now_s):
        return
    if report.crashed and report.incarnation > node.incarnation and not node.lost:
        note_death(state, turn, node)
    _meet(state, turn, report, address, version)
    if types != node.types:
        if not joins:  # two such reports in a turn: the next one tells again
            state.nodes.note_change(node.name, turn.now_s)
            _replace(state, turn, node, types)
        turn.after.append(lambda: _meet(state, turn, report, address, version))
        return
    _heed_problems(state, turn, node, report)
    _take_leases(state, turn, node, report)


def _is_left_over(node: NodeState, report: NodeReport, *, now_s: float) -> bool:
    """Tell whether a report is of an agent that serves a node again which a later one has left.

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


def _check_types(state: LiveState, types: tuple[str, ...]) -> None:
    """Refuse more worker types than a cluster has: each has its rows and columns for good."""
    known = set(state.engine.cluster.type_names)
    most = max(len(known), MOST_TYPES)
    if len(known | set(types)) > most:
        raise InputError(
            f"the node names {len(set(types) - known)} worker types that are new, and the cluster "
            f"has {len(known)} of at most {MOST_TYPES}; call workers of one kind by one name"
        )


def _check_changes(state: LiveState, turn: Turn, node: NodeState) -> None:
    """Refuse workers that change all the time: each change takes new numbers for good."""
    if state.nodes.changes_since(node.name, turn.now_s - CHANGES_WITHIN_S) < MOST_CHANGES:
        return
    why = (
        f"the workers of node '{node.name}' have changed {MOST_CHANGES} times within an hour, and "
        "differ again; look whether two agents use this name, or what makes the agent find other "
        "workers each time (--worker sets them)"
    )
    if state.nodes.is_first_refusal(node.name):
        _log.warning("%s; its reports are refused until an hour after the first of them", why)
    raise ConflictError(why)


def _meet(state: LiveState, turn: Turn, report: NodeReport, address: str, version: str) -> None:
    """Note that an agent has spoken, and where it can be reached."""
    node = state.nodes.by_name.get(report.node)
    if node is not None:
        node.suspects.clear()
        node.incarnation, node.sequence = report.incarnation, report.sequence
        node.last_seen_s, node.version = turn.now_s, version
        node.address = address or node.address  # an agent that tells none is not found at ""
        exclusive = _exclusive(report)
        state.table_due |= exclusive != node.exclusive
        node.exclusive = exclusive


def _exclusive(report: NodeReport) -> frozenset[str]:
    """Return the worker types that two jobs cannot share on a node."""
    return frozenset(w.worker_type for w in report.workers if w.sharing == "exclusive")


def _note_sharing(turn: Turn, node: NodeState | None, report: NodeReport) -> None:
    """Keep what a node says of sharing, so that the next leader plans alike from the start."""
    exclusive = _exclusive(report)
    if exclusive != (frozenset() if node is None else node.exclusive):
        turn.set(f"exclusive/{report.node}", sorted(exclusive) or None)


def _joins(event: ev.NodesJoined, name: str) -> bool:
    return any(node.name == name for node in event.nodes)


def _join(state: LiveState, turn: Turn, name: str, types: tuple[str, ...]) -> None:
    known = set(state.engine.cluster.type_names)
    for event in turn.events:
        if isinstance(event, ev.NodesJoined):
            known |= {worker_type.name for worker_type in event.worker_types}
    new = [WorkerType(name=t) for t in dict.fromkeys(types) if t not in known]
    turn.tell(ev.NodesJoined(nodes=(Node(name=name, workers=types),), worker_types=tuple(new)))


def _replace(state: LiveState, turn: Turn, node: NodeState, types: tuple[str, ...]) -> None:
    """Take a node's workers out for ever and its new ones in: somebody changed its hardware."""
    for live, _ in list(state.leases.held_by(node.name)):
        end = MemberEnd(reason=LeaseEnd.LOST, message=f"node '{node.name}' has other workers now")
        end_member(state, turn, live, node.name, end)
    turn.tell(ev.WorkersRetired(workers=node.workers))
    turn.set(f"lost/{node.name}", None)
    turn.note("node_changed", "node", node.name, before=list(node.types), now=list(types))
    _join(state, turn, node.name, types)


def _heed_problems(state: LiveState, turn: Turn, node: NodeState, report: NodeReport) -> None:
    """Bring the engine to what a node says of its workers.

    What the engine holds is compared, and not what was last reported: after a restart nobody knows
    that, and workers may have broken or been repaired meanwhile.
    """
    engine = state.engine
    problems = {worker.index: worker.problem for worker in report.workers if worker.problem}
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
    if lost:
        turn.tell(ev.WorkersLost(workers=tuple(node.workers[i] for i in lost)))
        turn.note(
            "workers_failed",
            "node",
            node.name,
            problems={str(i): problems[i] for i in lost},
        )
    if node.lost:
        node.lost = False
        turn.note("node_returned", "node", node.name)
        turn.set(f"lost/{node.name}", None)
        apply_order(turn, node)
    elif back:
        turn.note("workers_recovered", "node", node.name, workers=back)
        apply_order(turn, node)


def _take_leases(state: LiveState, turn: Turn, node: NodeState, report: NodeReport) -> None:
    told = {lease.lease_id: lease for lease in report.leases}
    current = report.term == state.term
    for live, member in list(state.leases.held_by(node.name)):
        lease = told.get(live.lease.lease_id)
        if lease is not None and lease.token == live.lease.token:
            _take_lease(state, turn, live, member, lease)
        elif member.end is None and current and report.revision >= member.since:
            # An agent lists what it holds and what it is about to start; the rest is not there.
            end_member(state, turn, live, node.name, _missing(member))


def _missing(member: Member) -> MemberEnd:
    """Say how a lease ended of which its node has nothing to say."""
    if member.untold:
        return MemberEnd(reason=LeaseEnd.FAILED, message=member.untold)
    if member.wanted or member.seen:
        return MemberEnd(reason=LeaseEnd.LOST, message="the node knows nothing of the lease")
    return MemberEnd(reason=LeaseEnd.RELEASED)


def _take_lease(
    state: LiveState, turn: Turn, live: LiveLease, member: Member, lease: LeaseReport
) -> None:
    member.seen = True
    member.ran |= lease.state is LeaseState.RUNNING
    member.ran |= lease.exit_code is not None or lease.launch_s is not None
    if lease.state is not LeaseState.STARTING and live.running_s is None:
        live.running_s = turn.now_s
    if member.rank == 0:
        take_steps(
            state,
            live,
            steps_done=float(lease.steps_done),
            steps_live=float(lease.steps_live),
            now_s=turn.now_s,
        )
    _heed_trouble(turn, live, member, lease)
    _heed_progress(turn, live, member, lease)
    _take_launch(state, turn, live, member, lease)
    if lease.state is LeaseState.ENDED and member.end is None and lease.reason is not None:
        end = MemberEnd(
            reason=lease.reason,
            exit_code=lease.exit_code,
            message=lease.message,
            reason_code=lease.reason_code,
        )
        end_member(state, turn, live, member.node, end)


def _take_launch(
    state: LiveState, turn: Turn, live: LiveLease, member: Member, lease: LeaseReport
) -> None:
    """Take in how a launch went, where the node has timed it; once for each member of a gang."""
    if lease.launch_s is None or member.launched:
        return
    member.launched = True
    record = state.jobs.by_id[live.lease.job_id]
    if state.settings.learn:
        took_s = lease.launch_s if lease.ready_s is None else lease.ready_s
        state.knowledge.note_launch(record.spec.type_key, took_s)
        state.launches_due = True
    turn.launches.append((lease.image_s, lease.launch_s, lease.ready_s))
    times = {"image_s": lease.image_s, "launch_s": lease.launch_s, "ready_s": lease.ready_s}
    found: dict[str, Any] = {name: round(s, 3) for name, s in times.items() if s is not None}
    found |= {"devices": list(lease.devices)} if lease.devices else {}
    lease_id, node = live.lease.lease_id, member.node
    turn.note("lease_launched", "job", record.job_id, lease=lease_id, node=node, **found)


def _heed_progress(turn: Turn, live: LiveLease, member: Member, lease: LeaseReport) -> None:
    """Tell why a job's steps are not seen, once for each reason."""
    before, member.progress_problem = member.progress_problem, lease.progress_problem
    if lease.progress_problem not in {"", before}:
        turn.note(
            "progress_off",
            "job",
            live.lease.job_id,
            lease=live.lease.lease_id,
            node=member.node,
            message=lease.progress_problem,
        )


def _heed_trouble(turn: Turn, live: LiveLease, member: Member, lease: LeaseReport) -> None:
    """Tell what keeps a lease from starting, once for each kind of trouble."""
    starting = lease.state is LeaseState.STARTING
    words = (lease.reason_code, lease.message) if starting else ("", "")
    before, member.trouble = member.trouble, words
    trouble = trouble_of(*words)
    if trouble is not None and trouble is not trouble_of(*before):
        turn.note(
            "lease_waits",
            "job",
            live.lease.job_id,
            lease=live.lease.lease_id,
            node=member.node,
            code=words[0],
            trouble=trouble.value,
            message=words[1],
        )
