"""Submission of jobs: refused, parked until they may run, or passed to the engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from scheduler.control.facts.requests import (
    Fit,
    FitConfiguration,
    NodeAction,
    Submitted,
)
from scheduler.control.facts.specs import missed_deadline
from scheduler.control.jobs.declared_throughputs import declare_own
from scheduler.control.jobs.learning import keep_learner
from scheduler.control.jobs.waiting import submit_to_engine
from scheduler.control.leases.apply_commands import overtime_s, stop_times
from scheduler.control.projects.rules import broken_rule, too_many_workers
from scheduler.control.state.jobs import JobRecord
from scheduler.control.state.node_evidence import without_jobs
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus, type_in
from scheduler.domain.jobs.placeholders import filled
from scheduler.domain.rows import IdempotencyRow
from scheduler.domain.throughputs.ways import CatalogueKey, Source, mixed_rate
from scheduler.errors import AdmissionError

#: Worker type -> workers known, workers that can be granted, and idle workers, at one moment.
Room: TypeAlias = tuple[dict[str, int], dict[str, int], dict[str, int]]

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.control.facts.facts import JobsSubmitted
    from scheduler.control.facts.requests import Submission
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.arrays import IntArray
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.rows import JobRow
    from scheduler.domain.throughputs.ways import Way

#: Why a specification with values that JSON cannot hold is refused.
UNPLAIN = (
    "the job cannot be stored or sent to an agent: its fields may hold finite numbers, integers of "
    "64 bits, texts without NUL or halves of characters, and 128 levels of lists and objects"
)
#: The largest number of nodes that a sentence names.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known while the jobs of one submission are checked.

    Attributes:
        room: of this moment.
        fitting: kinds of jobs that fit: what ``_fit_unsubmitted`` reads of them.
    """

    room: Room
    fitting: set[tuple[object, ...]] = field(default_factory=set)


def submit_jobs(
    state: ControlState, transaction: Transaction, fact: JobsSubmitted
) -> tuple[Submitted, ...]:
    """Submit jobs; one that is refused does not affect the others."""
    found = _Found(room_of(state))
    return tuple(
        _submit(state, transaction, fact, place, found) for place in range(len(fact.submissions))
    )


def _submit(
    state: ControlState, transaction: Transaction, fact: JobsSubmitted, place: int, found: _Found
) -> Submitted:
    item, digest, actor = fact.submissions[place], fact.digests[place], fact.actor
    if not digest:
        return Submitted(code="invalid", refusal=UNPLAIN)
    key = item.owner, item.client_id
    # The recent keys were taken in since the store was read, in this decision too.
    earlier = state.recent_keys.get(key) or fact.keys.get(key)
    if item.client_id and earlier is not None:
        return _repeated(earlier, digest, item.client_id)
    if item.job_id and (item.job_id in state.jobs.by_id or item.job_id in fact.rows):
        return Submitted(code="conflict", refusal=f"there is already a job '{item.job_id}'")
    wrong = missed_deadline(item.spec.deadline_s, now_s=transaction.wall_s) or _unread_file(
        item.spec
    )
    if wrong:
        return Submitted(code="invalid", refusal=wrong)
    refusal = _refusal(state, item.spec, item.owner, fact.rows, found)
    if refusal is not None:
        return refusal
    record = _record(state, transaction, item, item.job_id or fact.job_ids[place])
    transaction.actors[record.job_id] = actor
    if fact.documents and record.spec is item.spec:
        transaction.documents[record.job_id] = fact.documents[place]
    if item.client_id:
        row = IdempotencyRow(
            scope=item.owner,
            key=item.client_id,
            job_id=record.job_id,
            digest=digest,
            created_s=transaction.now_s,
        )
        transaction.idempotency.append(row)
        state.remember_key(row)
    transaction.record_event(
        "job_submitted", "job", record.job_id, actor=actor, name=item.spec.name,
        project=item.spec.project, reason=record.reason,
    )  # fmt: skip
    if record.blocked_on is None:
        submit_to_engine(state, transaction, record)
    return Submitted(job_id=record.job_id, created=True)


def _unread_file(spec: JobSpec) -> str:
    """Return why no agent can read the job's progress file; empty if one can."""
    if spec.progress_file is None or not (spec.image or spec.kubernetes):
        return ""
    return (
        f"progress_file is {spec.progress_file!r}, and the job runs in pods; agents do not read "
        "files of pods; print the progress and give progress_regex, or use leasehold's "
        "LeaseIterator"
    )


def _repeated(row: IdempotencyRow, digest: str, client_id: str) -> Submitted:
    if row.digest != digest:
        return Submitted(
            job_id=row.job_id,
            code="conflict",
            refusal=f"client id '{client_id}' was used for another job ('{row.job_id}'); "
            "use a new client id for a new job",
        )
    return Submitted(job_id=row.job_id)


def _record(
    state: ControlState, transaction: Transaction, item: Submission, job_id: str
) -> JobRecord:
    spec = filled(item.spec, job_id=job_id)
    if state.owners.of(spec.project, item.owner) is None:
        state.owners.give(((spec.project, item.owner),), state.settings)
    changes = state.knowledge.profile_changes
    profile = state.knowledge.profile_of(spec, job_id)
    state.table_due |= state.knowledge.profile_changes > changes
    if spec.batch:
        keep_learner(state, transaction)
    declare_own(state, spec)
    record = JobRecord(
        job_id=job_id,
        number=state.jobs.next_number(),
        spec=spec,
        owner=item.owner,
        submitted_s=transaction.now_s,
        profile=profile,
        status=JobStatus.HELD if item.held else JobStatus.WAITING,
        weight=spec.weight,
        deadline_s=spec.deadline_s,
        updated_s=transaction.now_s,
        waits_for=frozenset(other for other in spec.depends_on if other in state.jobs.by_id),
    )
    record.blocked_on = state.jobs.parked_reason(record)
    record.reason = "" if record.blocked_on is None else record.blocked_on.value
    state.jobs.add(record)
    return record


def _refusal(
    state: ControlState, spec: JobSpec, owner: str, rows: Mapping[str, JobRow], found: _Found
) -> Submitted | None:
    if over := _over_quota(state, spec):
        return Submitted(code="quota", refusal=over)
    if wrong := _submission_fault(state, spec, owner, rows):
        return Submitted(code="refused", refusal=wrong)
    if not state.settings.refuse_unfit:
        return None
    kind = CatalogueKey.of(spec), spec.scale_factor, *sorted(spec.throughputs.items())
    if kind in found.fitting:
        return None
    fit = _fit_unsubmitted(state, spec, found.room, rough=True)
    if not fit.fits and any(found.room[0].values()):
        return Submitted(code="refused", refusal=fit.message)
    if fit.fits:
        found.fitting.add(kind)
    return None


def _submission_fault(
    state: ControlState | PublishedState, spec: JobSpec, owner: str, rows: Mapping[str, JobRow]
) -> str:
    """Return why a job is refused although there is room for it; empty if it is not."""
    wrong = _too_long_at_least(state, spec) or _too_slow_to_leave(state, spec)
    wrong = wrong or state.owners.uid_fault(spec.project, owner, state.settings)
    faults = (_dependency_fault(state, other, rows) for other in spec.depends_on)
    return wrong or next(filter(None, faults), "")


def _over_quota(state: ControlState | PublishedState, spec: JobSpec) -> str:
    """Return which limit of its project a job exceeds; empty if none."""
    limits = state.jobs.limits.get(spec.project)
    if limits is None:
        return ""
    if full := state.jobs.too_many_jobs(spec.project):
        return full
    return too_many_workers(limits, spec, _able_types(state, spec)) or broken_rule(
        limits, spec, spec.weight
    )


def _able_types(state: ControlState | PublishedState, spec: JobSpec) -> tuple[str, ...]:
    """Return the worker types that a job is known to run on."""
    ways = state.knowledge.ways(CatalogueKey.of(spec), state.engine.present, rough=True)
    found = {name for way in ways if way.estimate.steps_per_s > 0.0 for name in way.workers}
    return tuple(sorted(found | {name for name, rate in spec.throughputs.items() if rate > 0.0}))


def _too_long_at_least(state: ControlState | PublishedState, spec: JobSpec) -> str:
    """Return why a job's minimum run time is too long; empty if it is not."""
    most_s = state.settings.engine.patience_s
    if spec.min_run_time_s <= most_s:
        return ""
    return (
        f"min_run_time_s is {spec.min_run_time_s:g}, and no lease is kept from others for more "
        f"than {most_s:g} s; lower it, or have engine.patience_s raised"
    )


def _too_slow_to_leave(state: ControlState | PublishedState, spec: JobSpec) -> str:
    """Return why a job may not take so long to leave; empty if it may."""
    most_s = state.settings.engine.patience_s
    notice_s, grace_s = stop_times(state, spec)
    if not overtime_s(state, spec) or notice_s + grace_s <= most_s:
        return ""
    return (
        f"notice_s {notice_s:g} + grace_s {grace_s:g} are {notice_s + grace_s:g} s, and no lease "
        f"is kept from others for more than {most_s:g} s; lower them, or have engine.patience_s "
        "raised"
    )


def _dependency_fault(
    state: ControlState | PublishedState, other: str, rows: Mapping[str, JobRow]
) -> str:
    if other in state.jobs.by_id:
        return ""
    row = rows.get(other)
    if row is None:
        return f"depends_on names job '{other}', which does not exist"
    if row.status is not JobStatus.COMPLETED:
        return f"depends_on names job '{other}', which has ended as {row.status.value}"
    return ""


# -- whether and where a job could run ------------------------------------------------------------


def fit_of(state: ControlState | PublishedState, spec: JobSpec, room: Room | None = None) -> Fit:
    """Return whether and where a job could run, on the nodes known now.

    Args:
        state: of the leader.
        spec: of the job.
        room: of this moment, if many jobs are checked.
    """
    return _fit(state, spec, room or room_of(state))


def try_fit(view: PublishedState, spec: JobSpec, owner: str, rows: Mapping[str, JobRow]) -> Fit:
    """Return whether and where a job could run if it were submitted now.

    Args:
        view: of the leader.
        spec: of the job.
        owner: the user that would submit it.
        rows: those of the jobs that it depends on, as far as they are stored.

    Raises:
        AdmissionError: its submission would be refused; names the field and the value.
    """
    if wrong := _unread_file(spec) or _submission_fault(view, spec, owner, rows):
        raise AdmissionError(wrong)
    fit = _fit_unsubmitted(view, spec, room_of(view))
    if over := _over_quota(view, spec):
        return replace(fit, fits=False, reason=WaitReason.QUOTA, message=over)
    if not fit.fits:
        return fit
    if others := [job_id for job_id in spec.depends_on if job_id in view.jobs.by_id]:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        waits = f"it fits, and waits for {', '.join(others[:3])}{more}"
        return replace(fit, reason=WaitReason.DEPENDENCY, message=waits)
    if spec.project in view.jobs.stopped:
        spent = f"it fits, and waits, since the budget of project '{spec.project}' is spent"
        return replace(fit, reason=WaitReason.BUDGET, message=spent)
    return fit


def _fit_unsubmitted(
    state: ControlState | PublishedState, spec: JobSpec, room: Room, *, rough: bool = False
) -> Fit:
    """Do as ``fit_of`` for a job that has not been submitted: its own throughputs already count.

    Args:
        state: of the leader.
        spec: of the job.
        room: of this moment.
        rough: whether inferred steps/s may be of any size, see ``Knowledge.ways``.
    """
    fit = _fit(state, spec, room, spec.throughputs, rough=rough)
    types = state.engine.cluster.type_names
    named = {"steps/s": spec.throughputs, "restarts": spec.restarts}
    for what, workers in named.items() if types else ():
        if unknown := sorted(one for one in workers if type_in(one, types) not in types):
            none = (
                f"it declares {what} on {', '.join(unknown)}, of which the cluster has no workers"
            )
            fit = replace(fit, message=f"{fit.message}; {none}")
    return fit


def room_of(state: ControlState | PublishedState) -> Room:
    """Return how many workers of each type there are."""
    names = state.engine.cluster.type_names
    known, serving, idle = (
        dict(zip(names, counts.tolist(), strict=True)) for counts in _counts(state)
    )
    return known, serving, idle


def _fit(
    state: ControlState | PublishedState,
    spec: JobSpec,
    room: Room,
    declared: Mapping[str, float] = MappingProxyType({}),
    *,
    rough: bool = False,
) -> Fit:
    names = state.engine.cluster.type_names
    near: Room | None = None
    options, fitting = [], []
    key = CatalogueKey.of(spec)
    for way in state.knowledge.ways(key, state.engine.present, rough=rough):
        steps_per_s, source = way.estimate.steps_per_s, way.estimate.source
        plain = way.locality == ANYWHERE and not way.plan
        own = plain and way.count == spec.scale_factor
        mine = _declared_rate(way, declared) if own else None
        if mine is not None and source is not Source.MEASURED:
            steps_per_s, source = mine, Source.DECLARED
        elif key.timed:
            source = Source.ASSUMED  # it counts its seconds, and no throughput is declared
        if steps_per_s <= 0.0:
            continue
        there = room
        if way.locality == CONSOLIDATED:
            there = near = near or _room_on_a_node(state)
        known, serving, idle = (_usable(way, of_type) for of_type in there)
        option = FitConfiguration(
            worker_type=way.worker_type,
            count=way.count,
            steps_per_s=steps_per_s,
            source=source.value,
            workers_in_service=serving,
            workers_idle=idle,
            locality=way.locality,
            plan=way.plan,
            workers=way.workers,
        )
        options.append(option)
        if way.count <= known:
            fitting.append(option)
    for found in (options, fitting):
        found.sort(key=lambda option: (-option.steps_per_s, option.worker_type, option.count))
    if fitting:
        reason, message = _judge(fitting)
    else:
        why = "" if options else state.knowledge.misfit(key, state.engine.present)
        reason, message = _misfit(spec, options, names, room[0], why)
    if reason is WaitReason.WORKERS_OUT:
        out = out_of_reach(state, spec)
        message = f"{message}: {_whereabouts(out)}{_what_broke(state, out.get('broken', {}))}"
    ways = tuple(fitting or options)
    return Fit(fits=bool(fitting), reason=reason, message=message, configurations=ways)


def _declared_rate(way: Way, declared: Mapping[str, float]) -> float | None:
    """Return the declared steps/s of a way; None if a worker type has none."""
    rates = {name: declared[name] for name in way.workers if name in declared}
    if len(rates) < len(way.workers):
        return None
    return rates[way.worker_type] if len(rates) == 1 else mixed_rate(way.workers, rates)


def _usable(way: Way, there: Mapping[str, int]) -> int:
    """Return how many workers a way could use; of a mixed gang only those that it can hold."""
    if len(way.workers) == 1:
        return there[way.worker_type]
    return sum(min(n, there[name]) for name, n in way.workers.items())


def _room_on_a_node(state: ControlState | PublishedState) -> Room:
    """Return the largest number of workers that one node has, by type."""
    engine = state.engine
    cluster = engine.cluster
    masks = ~engine.retired, engine.in_service & ~engine.cordoned, engine.idle
    size = len(cluster.type_names)
    cells = cluster.node_of * size + cluster.worker_type_of
    counts = (
        np.bincount(cells[mask], minlength=len(cluster.nodes) * size).reshape(-1, size)
        for mask in masks
    )
    known, serving, idle = (
        dict(zip(cluster.type_names, most.max(axis=0, initial=0).tolist(), strict=True))
        for most in counts
    )
    return known, serving, idle


def _judge(fitting: Sequence[FitConfiguration]) -> tuple[WaitReason | None, str]:
    able = [option for option in fitting if option.count <= option.workers_in_service]
    if not able:
        return (
            WaitReason.WORKERS_OUT,
            "enough workers exist, but too few of them can be granted now",
        )
    if any(option.count <= option.workers_idle for option in able):
        return None, "it could start at once"
    return WaitReason.TURN, "it fits, and has to wait for its turn"


def _misfit(
    spec: JobSpec,
    options: Sequence[FitConfiguration],
    names: Sequence[str],
    known: Mapping[str, int],
    why: str,
) -> tuple[WaitReason, str]:
    room = ", ".join(f"{name}: {known[name]}" for name in names if known[name])
    if not room:
        return WaitReason.NO_WORKERS, "the cluster has no workers yet; start an agent on a node"
    if spec.worker_types and not any(known.get(name) for name in spec.worker_types):
        message = (
            f"the job may only run on {', '.join(spec.worker_types)}, and the cluster has {room}; "
            "allow a worker type that is there, or add such a node"
        )
        return WaitReason.NO_WORKERS, message
    if options:
        least = min(option.count for option in options)
        types = "one type or two" if spec.mixed_gangs else "one type"
        if all(option.locality == CONSOLIDATED for option in options):
            message = (
                f"the job needs at least {least} workers of one type on one node, more than any "
                f"node has ({room}); lower its scale factor or add larger nodes"
            )
            return WaitReason.TOO_LARGE, message
        message = (
            f"the job needs at least {least} workers of {types}, more than the cluster has "
            f"({room}); lower its scale factor or add workers"
        )
        return WaitReason.TOO_LARGE, message
    if why:
        message = f"no plan of its model fits on {why}; allow more workers, or other worker types"
        return WaitReason.NO_THROUGHPUT, message
    message = (
        f"job type '{spec.type_key}' is known to run on none of the cluster's worker types "
        f"({room}); give throughputs, or another worker type"
    )
    return WaitReason.NO_THROUGHPUT, message


def _counts(state: ControlState | PublishedState) -> tuple[IntArray, IntArray, IntArray]:
    """Return (K,) workers known, those that can be granted, and idle."""
    engine = state.engine
    known = engine.count(~engine.retired)
    grantable = engine.in_service & ~engine.cordoned
    return known, engine.count(grantable), engine.count(engine.idle)


def out_of_reach(state: ControlState | PublishedState, spec: JobSpec) -> dict[str, dict[str, int]]:
    """Return why -> node -> workers that a job could run on but that cannot be granted."""
    ways = state.knowledge.ways(CatalogueKey.of(spec), state.engine.present, rough=True)
    able = {name for way in ways for name in way.workers}
    found: dict[str, dict[str, int]] = {}
    for name, node in sorted(state.nodes.by_name.items()):
        for local, worker_type in enumerate(node.types):
            why = _why_out(state, node, local) if worker_type in able else ""
            if why:
                nodes = found.setdefault(why, {})
                nodes[name] = nodes.get(name, 0) + 1
    return found


def _types(state: ControlState | PublishedState) -> tuple[str, ...]:
    return state.engine.cluster.type_names


def _why_out(state: ControlState | PublishedState, node: NodeState, local: int) -> str:
    if node.lost:
        return "lost"
    if local in node.problems:
        return "broken"
    if node.order is not None:
        return "cordoned" if node.order is NodeAction.CORDON else "drained"
    if node.silent:
        return "silent"
    return "" if state.engine.in_service[node.workers[local]] else "not in service"


def _whereabouts(out: Mapping[str, Mapping[str, int]]) -> str:
    """Return the workers that are out as text: 'cordoned: 4 (node-1), lost: 2 (node-2)'."""
    return ", ".join(
        f"{why}: {sum(nodes.values())} ({names_of(nodes)})" for why, nodes in out.items()
    )


def _what_broke(state: ControlState | PublishedState, nodes: Iterable[str]) -> str:
    """Return the problems of the first few nodes' workers as text, one for each node."""
    told = (
        f"; {name}: {without_jobs(problem)}"
        for name in list(nodes)[:_NAMED]
        for problem in list(state.nodes.by_name[name].problems.values())[:1]
    )
    return "".join(told)


def names_of(nodes: Iterable[str], separator: str = ", ") -> str:
    """Return the names of nodes as text; of many, only the first ones."""
    names = list(nodes)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{separator.join(names[:_NAMED])}{more}"
