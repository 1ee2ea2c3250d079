"""Snapshots of the leader's state, and the state that a start begins from."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from scheduler.control.facts.requests import NodeAction, PolicyChoice
from scheduler.control.facts.specs import spec_from_json
from scheduler.control.leases.apply_commands import apply_lease_commands, overtime_s
from scheduler.control.projects.reservations import reservation_of
from scheduler.control.projects.rules import limits_from_json
from scheduler.control.state.jobs import ACTIVE, JobBook, JobRecord
from scheduler.control.state.leases import LiveLease, LiveLeases, MemberEnd, members_of
from scheduler.control.state.nodes import Doubt, NodeBook, NodeState
from scheduler.control.state.owners import Owners
from scheduler.control.state.snapshot import VERSION, Taken
from scheduler.control.state.state import ControlState, PolicyInForce
from scheduler.domain.cluster import Cluster
from scheduler.domain.codec import decode, encode
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.lease_life import ABRUPT, EndReason, RevokeReason
from scheduler.domain.throughputs.knowledge import Part
from scheduler.engine import version
from scheduler.engine.adoption import adopt
from scheduler.engine.engine import Engine
from scheduler.engine.snapshot import decode_state, encode_state, restore
from scheduler.errors import CodecError
from scheduler.runtime.driver.spending import restore_budgets
from scheduler.store.filters import JobFilter
from scheduler.store.protocol import Snapshot
from scheduler.store.queries import MAX_LIMIT, HistoryQuery, JobOrder, JobQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scheduler.domain.lease import Lease
    from scheduler.domain.rows import JobRow
    from scheduler.domain.throughputs.knowledge import MakeKnowledge
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.store.protocol import JournalEntry, Recovered, Store


#: The cause of a grant or a question, if it was not stored.
_RESTARTED: Final = Cause(fact=FactKind.RESTARTED)
_UNTOLD: Final = {name: value for name, value in encode(_RESTARTED).items() if name != "version"}


def store_snapshot(store: Store, taken: Taken, sequence: int, token: int) -> None:
    """Encode a snapshot and write it; takes a while, so run it in a thread.

    Raises:
        StoreError: the store refused it.
    """
    message = {
        "shell": taken.control,
        "question": None if taken.question is None else encode(taken.question),
        "engine": base64.b64encode(encode_state(taken.engine)).decode("ascii"),
    }
    data = zlib.compress(orjson.dumps(message), level=1)
    store.write_snapshot(Snapshot(sequence=sequence, state=data), token=token)


def recover_state(
    store: Store,
    recovered: Recovered,
    settings: RuntimeSettings,
    *,
    knowledge: MakeKnowledge,
    time_dependent: Callable[[PolicyChoice], bool | None],
    term: int,
    now_s: float,
) -> ControlState:
    """Make the leader's state from the store: the last snapshot, then every later entry.

    Replay stops at the first entry that another version decided. From there on the stored rows
    count, see ``scheduler.engine.adoption``.

    Args:
        store: the store of jobs and settings.
        recovered: snapshot and journal entries.
        settings: of the runtime.
        knowledge: makes the knowledge from its stored parts.
        time_dependent: whether a policy's answers change with time; None if the policy is missing.
        term: the leader's fencing token.
        now_s: the time.

    Raises:
        CodecError: the snapshot is of a newer release, or damaged.
    """
    stored = {row.key: row for row in store.settings()}
    policy = policy_in_force(store, settings.policy, now_s=now_s)
    state = ControlState(
        engine=Engine(Cluster(worker_types=(), nodes=()), settings.engine),
        leases=LiveLeases(),
        jobs=JobBook(),
        nodes=NodeBook(),
        knowledge=knowledge({part: stored[part].value for part in Part if part in stored}),
        policy=policy,
        time_dependent=time_dependent(policy.choice),
        settings=settings,
        term=term,
        owners=Owners.of_settings({key: row.value for key, row in stored.items()}),
    )
    if "asked" in stored:
        state.asked = PolicyChoice(**stored["asked"].value)
    _restore_jobs(state, store)
    shell: Mapping[str, Any] = {"timers": {}, "leases": []}
    if recovered.snapshot is not None:
        message = _read(recovered.snapshot)
        shell = message["shell"]
        if message.get("question") is not None:
            # Earlier releases did not store why they asked.
            state.leases.question = decode({"cause": _UNTOLD} | message["question"])
        engine_state = decode_state(base64.b64decode(message["engine"]))
        state.engine = restore(engine_state, settings.engine)
    state.nodes.follow(state.engine.cluster, now_s=now_s)
    _restore_leases(state, shell)
    own, others = by_decider(recovered)
    for entry in own:
        commands = state.engine.handle(*entry.events, now=entry.now_s)
        state.nodes.follow(state.engine.cluster, now_s=now_s)
        apply_lease_commands(state, entry.events, commands, entry.now_s)
    if others:
        _adopt(state, store, others, now_s=now_s)
    _restore_orders(state, stored, now_s)
    restore_budgets(state, store, stored, now_s)
    _restore_launches(state, store)
    # Decisions would wait for these plans.
    planned = {record.profile for record in state.jobs.by_id.values() if record.spec.model}
    keys = map(state.knowledge.key, planned)
    state.knowledge.plan_ahead(keys, state.engine.present.most_on_a_node)
    _park(state)
    for row in store.open_attempts():
        state.leases.restore_use(row)
    state.leases.changed.clear()
    state.jobs.touched.clear()
    state.table_due = True
    return state


def by_decider(recovered: Recovered) -> tuple[Sequence[JournalEntry], Sequence[JournalEntry]]:
    """Return the entries to replay, and those from the first one of another version on."""
    entries = recovered.entries
    foreign = (i for i, entry in enumerate(entries) if entry.decider != version.DECIDER)
    first = next(foreign, len(entries))
    return entries[:first], entries[first:]


def _adopt(
    state: ControlState, store: Store, tail: Sequence[JournalEntry], *, now_s: float
) -> None:
    """Take over the decisions of another version from rows."""
    records, leases = state.jobs.by_id, state.leases.by_id
    state.engine, commands = adopt(
        state.engine,
        [(entry.now_s, entry.events) for entry in tail],
        revoked={i: RevokeReason(live.revoked) for i, live in leases.items() if live.revoked},
        jobs={job_id: record.to_row() for job_id, record in records.items()},
        attempts={i: store.attempts(i) for i, record in records.items() if record.attempts},
    )
    state.nodes.follow(state.engine.cluster, now_s=now_s)
    state.leases = LiveLeases()
    apply_lease_commands(state, (), commands, state.engine.now_s)


def _read(snapshot: Snapshot) -> Any:
    try:
        message = orjson.loads(zlib.decompress(snapshot.state))
        found = message["shell"]["version"]
    except (zlib.error, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise CodecError(f"the stored snapshot is damaged: {error}; restore a backup") from error
    if found > VERSION:
        raise CodecError(
            f"the stored snapshot has version {found}; this release reads 1 to {VERSION}; "
            "run the release that wrote it, or a newer one"
        )
    return message


def policy_in_force(store: Store, configured: PolicyChoice, *, now_s: float) -> PolicyInForce:
    """Return the policy that an operator has put in force, else the configured one."""
    row = next((row for row in store.settings("policy") if row.key == "policy"), None)
    if row is None:
        return PolicyInForce(choice=configured, since_s=now_s)
    return PolicyInForce(choice=PolicyChoice(**row.value), since_s=row.updated_s, actor=row.actor)


def _restore_jobs(state: ControlState, store: Store) -> None:
    newest = store.jobs(JobQuery(limit=1))
    state.jobs.start_numbers_at(newest.rows[0].number + 1 if newest.rows else 1)
    for row in active_rows(store):
        spec = spec_from_json(row.spec)
        profile = state.knowledge.profile_of(spec, row.job_id)
        state.jobs.add(JobRecord.of_row(row, profile=profile))
    # Jobs of the previous release have no uids; these are stored with the first decision.
    pairs = ((record.project, record.owner) for record in state.jobs.by_id.values())
    state.owners.give(pairs, state.settings)


def active_rows(store: Store) -> Iterator[JobRow]:
    """Yield the stored active jobs, oldest first."""
    where = JobFilter(statuses=ACTIVE)
    cursor = None
    while True:
        page = store.jobs(
            JobQuery(
                where=where,
                order=JobOrder.SUBMITTED,
                descending=False,
                limit=MAX_LIMIT,
                cursor=cursor,
            )
        )
        yield from page.rows
        cursor = page.next_cursor
        if cursor is None:
            return


def _restore_leases(state: ControlState, shell: Mapping[str, Any]) -> None:
    engine = state.engine
    for lease_id, deadline_s, revoked, base_steps, *later in shell["leases"]:
        lease: Lease = engine.book.leases[lease_id]
        record = state.jobs.by_id.get(lease.job_id)
        live = LiveLease(
            lease=lease,
            cause=Cause.of_data(later[3] if len(later) > 3 else None) or _RESTARTED,
            notice=Cause.of_data(later[4] if len(later) > 4 else None),
            worker_type=state.nodes.type_of(lease.workers),
            members=members_of(lease, state.nodes.place),
            deadline_s=deadline_s,
            overtime_s=0.0 if record is None else overtime_s(state, record.spec),
            # Earlier releases stored none; then only the lease's first deadline is known.
            promised_s=later[0] if later else lease.deadline_s,
            plan=later[1] if len(later) > 1 else "",
            learned=later[2] if len(later) > 2 else True,
            gang=state.nodes.gang_of(lease),
            paces=tuple(later[5]) if len(later) > 5 else (),
            revoked=revoked,
            base_steps=base_steps,
            steps_done=base_steps,
            steps_live=base_steps,
        )
        for member in live.members:
            member.wanted = revoked not in ABRUPT
        state.leases.grant(live)
    state.leases.timers.update(shell["timers"])
    state.policy.newest_number = shell.get("newest_number", -1)


def _restore_orders(state: ControlState, stored: Mapping[str, Any], now_s: float) -> None:
    for key, row in stored.items():
        kind, _, rest = key.partition("/")
        _restore_one(state, kind, rest, row.value)
    retired = state.engine.retired
    for name, node in list(state.nodes.by_name.items()):
        node.since_s = now_s
        if len(node.types) and all(retired[worker] for worker in node.workers):
            state.nodes.remove(name)
        node.lost = f"lost/{name}" in stored
        cordoned = any(state.engine.cordoned[worker] for worker in node.workers)
        node.silent = cordoned and node.order is None and node.doubt is None


def _restore_one(state: ControlState, kind: str, rest: str, value: Any) -> None:
    """Restore one setting: orders of people, and values that could not be found out again."""
    node, record = state.nodes.by_name.get(rest), state.jobs.by_id.get(rest)
    if node is not None:
        _restore_of_node(node, kind, value)
    match kind:
        case "approved":
            state.nodes.approved = {**state.nodes.approved, rest: value}
        case "reservation":
            found = reservation_of(value)
            state.reservations = {**state.reservations, found.name: found}
        case "project":
            state.jobs.limits[rest] = limits_from_json(value)
        case "spent" if record is not None:
            record.spent = value
        case "ended":
            lease_id, _, name = rest.partition("/")
            end = MemberEnd(**value | {"reason": EndReason(value["reason"])})
            state.leases.restore_end(int(lease_id), name, end)


def _restore_of_node(node: NodeState, kind: str, value: Any) -> None:
    match kind:
        case "node":
            node.order, node.reason = NodeAction(value["order"]), value["reason"]
            # Release 0.2 does not store it; an old order is no news.
            node.drained = value.get("drained", True)
        case "agent":
            node.place, node.incarnation = value["place"], value["incarnation"]
        case "exclusive":
            node.exclusive = frozenset(value)
        case "indices" if len(value) == len(node.types):
            node.indices = tuple(value)
        case "doubt":
            node.doubt = Doubt.of_data(value)


def _restore_launches(state: ControlState, store: Store) -> None:
    """Mark the leases with launches in the history; nodes continue to report them.

    First steps of these leases are not recorded any more. The history may have them already, and a
    first step that is reported now may lie before the restart.
    """
    for live in state.leases.by_id.values():
        live.first_step_noted = live.launch_timed = live.restored = True
    query = HistoryQuery(kinds=("lease_launched",), descending=True, limit=MAX_LIMIT)
    for row in store.history(query):
        known = state.leases.by_id.get(row.data["lease"])
        for member in () if known is None else known.members:
            member.launched |= member.node == row.data["node"]


def _park(state: ControlState) -> None:
    """Park the jobs that the engine does not know, and find the jobs they wait for."""
    known = state.engine.jobs.number_of
    for record in list(state.jobs.by_id.values()):
        if record.job_id not in known:
            state.jobs.park(record)
    state.jobs.recheck = True
