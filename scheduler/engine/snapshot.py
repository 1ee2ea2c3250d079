"""Snapshots: the engine's state as a value, so that a restart need not replay everything.

Invariant: an engine restored from a snapshot answers the same further inputs with the same commands
as the original.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import orjson

from scheduler.domain.codec import DOMAIN_TYPES, Codec
from scheduler.domain.facts.causes import Cause, FactKind, Occasion
from scheduler.engine.engine import Engine
from scheduler.engine.rounds.decision_reasons import FixedReason
from scheduler.engine.rounds.round_milp import SearchSchedule
from scheduler.engine.tables.jobs import NONE
from scheduler.engine.tables.leases import PlannedLease
from scheduler.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.lease import Lease
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Quota
    from scheduler.engine.settings import EngineSettings
    from scheduler.engine.state.state import State

#: Version of ``EngineState``; grows when a field is renamed or changes its meaning.
VERSION: Final = 1

#: First line of stored snapshots: the version of the layout around the codec's own.
_HEAD: Final = b"leasehold-engine-%d\n"

_LEVEL: Final = 1  # of zlib; 2048 jobs: 2.0 MB to 78 kB in 2.5 ms; level 6 makes 68 kB in 5.5 ms


#: Cause of a plan that was stored by a release without causes.
_UNKNOWN: Final = Cause(fact=FactKind.RESTARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """A planned lease; see ``PlannedLease``."""

    number: int
    configuration: int
    pair: int
    charged: bool
    workers: tuple[int, ...]
    blockers: tuple[int, ...]
    cause: Cause = _UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineState:
    """The data of an engine as plain values; later calls of the engine do not change it.

    Attributes:
        now_s: time of its last call.
        time_dependent: whether the policy's answer changes with progress alone.
        round_number: of the current round.
        round_end_s: end of the current round, or None.
        next_number: number of the next job.
        next_lease: id of the newest lease.
        generation: of the newest question.
        question_open: whether it waits for an answer.
        blocked: whether decisions wait for it.
        changed: whether a question is due.
        plan_due: whether a round is to be planned.
        serve_due: whether workers may idle while jobs wait.
        entities: in the order of their indices.
        after_end: lease id -> the next state of its job.
        cluster: the fleet.
        in_service: (W,)
        cordoned: (W,)
        retired: (W,)
        table: configurations by profile.
        jobs: by row.
        columns: name -> (N,) column of the job table.
        x: (N, J)
        credit_s: (N, J)
        pair_numbers: (Q, 2)
        pair_index: (Q,)
        pair_x: (Q,)
        pair_credit_s: (Q,)
        leases: in force, in the order in which they were granted.
        stopping: ids of revoked ones, ascending.
        planned: in the order in which they were planned.
        avoided: see ``NodeExclusions.dump``.
        recent: see ``PendingTriggers``, like the next two.
        served: number of these at the time when idle workers were last served.
        to_ask: the fact for which the policy is to be asked.
        usage_half_life_s: see ``Usage``, like the next one.
        usage_s: (E,) worker-seconds by entity; None if they are not counted.
        quotas: in force.
        groups: of jobs, see ``Quotas``.
        reservations: see ``Reservations.dump``; empty if there are no reservations.
        may_use_remaining_work: whether the policy may use the lengths of jobs.
        follow_exactly: whether the policy wants rounds to follow X as closely as possible.
        completed_worker_s: see ``Problem``.
        search: the attributes of ``SearchSchedule``.
        restarts_s: (N, J) see ``JobTable``; None in snapshots of release 0.2.
    """

    #: Field -> its name in stored snapshots.
    STORED_NAMES: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"may_use_remaining_work": "by_lengths", "follow_exactly": "by_lag"}
    )

    now_s: float
    time_dependent: bool
    round_number: int
    round_end_s: float | None
    next_number: int
    next_lease: int
    generation: int
    question_open: bool
    blocked: bool
    changed: bool
    plan_due: bool
    serve_due: bool
    entities: tuple[Entity, ...]
    after_end: Mapping[int, str]
    cluster: Cluster
    in_service: BoolArray
    cordoned: BoolArray
    retired: BoolArray
    table: ConfigurationTable
    jobs: tuple[Job, ...]
    columns: Mapping[str, NDArray[Any]]
    x: FloatArray
    credit_s: FloatArray
    pair_numbers: IntArray
    pair_index: IntArray
    pair_x: FloatArray
    pair_credit_s: FloatArray
    leases: tuple[Lease, ...]
    stopping: tuple[int, ...]
    planned: tuple[PlanState, ...]
    avoided: tuple[tuple[int, int, int, float], ...] = ()
    recent: tuple[Occasion, ...] = ()
    served: int = 0
    to_ask: Occasion | None = None
    usage_half_life_s: float = 0.0
    usage_s: FloatArray | None = None
    quotas: tuple[Quota, ...] = ()
    groups: tuple[tuple[str, str, bool], ...] = ()
    reservations: Mapping[str, Any] = field(default_factory=dict)
    may_use_remaining_work: bool = True
    follow_exactly: bool = False
    completed_worker_s: FloatArray | None = None
    search: tuple[float, int, int] = (0.0, 0, 1)
    restarts_s: FloatArray | None = None


#: Fields that ``State`` has under the same name.
_SAME: Final = (
    *("time_dependent", "now_s", "round_number", "round_end_s", "next_number", "generation"),
    *(
        "question_open",
        "blocked",
        "changed",
        "plan_due",
        "serve_due",
        "may_use_remaining_work",
        "follow_exactly",
    ),
    "completed_worker_s",
)

_CODEC: Final = Codec((*DOMAIN_TYPES, EngineState, PlanState))


def dump(engine: Engine) -> EngineState:
    """Return the state of an engine. Cheap: arrays are copied, values are shared.

    Args:
        engine: between two calls of ``handle``.
    """
    state = engine.state
    jobs, pairs, book, fleet = state.jobs, state.pairs, state.book, state.fleet
    return EngineState(
        **{name: getattr(state, name) for name in _SAME},
        next_lease=state.assigner.next_lease,
        entities=tuple(state.entities),
        after_end=dict(state.after_end),
        cluster=fleet.cluster,
        in_service=fleet.in_service.copy(),
        cordoned=fleet.cordoned.copy(),
        retired=fleet.retired.copy(),
        table=state.table,
        jobs=tuple(jobs.job_of.values()),
        columns=jobs.columns(),
        x=jobs.x.copy(),
        credit_s=jobs.credit_s.copy(),
        restarts_s=jobs.restarts_s.copy(),
        pair_numbers=pairs.numbers.copy(),
        pair_index=pairs.index.copy(),
        pair_x=pairs.x.copy(),
        pair_credit_s=pairs.credit_s.copy(),
        leases=tuple(book.leases.values()),
        stopping=tuple(sorted(book.stopping)),
        planned=tuple(_plan_state(plan) for plan in book.planned.values()),
        avoided=state.assigner.avoidance.dump(),
        recent=tuple(state.triggers.recent),
        served=state.triggers.served,
        to_ask=state.triggers.to_ask,
        usage_half_life_s=state.usage.half_life_s,
        usage_s=engine.usage_s,
        quotas=state.quotas.rules,
        groups=tuple(state.quotas.groups),
        reservations=state.reservations.dump() if state.reservations else {},
        search=(state.search.begun_s, state.search.wait, state.search.pause),
    )


def _plan_state(plan: PlannedLease) -> PlanState:
    return PlanState(
        number=plan.number,
        configuration=plan.configuration,
        pair=plan.pair,
        charged=plan.charged,
        workers=plan.workers,
        blockers=tuple(sorted(plan.blockers)),
        cause=plan.cause,
    )


def restore(stored: EngineState, settings: EngineSettings) -> Engine:
    """Return an engine in a stored state, which goes on as if there had been no restart.

    Args:
        stored: the value of ``dump``; it may be used again.
        settings: of the round mechanism; the entities are those of the stored state.
    """
    engine = Engine(stored.cluster, settings)
    state = engine.state
    for name in _SAME:
        setattr(state, name, getattr(stored, name))
    state.entities = list(stored.entities)
    state.entity_of = {entity.name: e for e, entity in enumerate(stored.entities)}
    state.usage.begin(stored.usage_half_life_s)
    if stored.usage_s is not None:
        state.usage.by_entity = stored.usage_s.copy()
    state.quotas.restore(stored.quotas, stored.groups)
    state.search = SearchSchedule(*stored.search)
    state.after_end = dict(stored.after_end)
    state.assigner.now_s = stored.now_s
    state.assigner.next_lease = stored.next_lease
    state.assigner.table = stored.table
    state.fleet.restore(stored.in_service, stored.cordoned, stored.retired)
    state.jobs.restore(stored.jobs, stored.columns, stored.x, stored.credit_s, stored.restarts_s)
    _restore_pairs(state, stored)
    state.assigner.avoidance.restore(stored.avoided)
    state.triggers.restore(stored.recent, stored.served, stored.to_ask)
    state.reservations.restore(stored.reservations)
    workers = state.reservations.workers
    state.fleet.set_set_aside(
        [w for rule in state.reservations.in_force for w in workers[rule.name]]
    )
    state.book.restore(stored.leases, stored.stopping)
    if "held_s" not in stored.columns:
        _estimate_held(state, stored.leases)
    for plan in stored.planned:
        state.book.restore_plan(
            PlannedLease(
                number=plan.number,
                job_id=state.jobs.job_of[plan.number].job_id,
                row=NONE,
                moves=False,
                why=FixedReason(plan.cause),
                configuration=plan.configuration,
                pair=plan.pair,
                charged=plan.charged,
                workers=plan.workers,
                blockers=set(plan.blockers),
            )
        )
    return engine


def _estimate_held(state: State, leases: Sequence[Lease]) -> None:
    """Estimate the time under ended leases, which release 0.2 did not store."""
    jobs = state.jobs
    running_s = {lease.job_number: state.now_s - lease.start_s for lease in leases}
    own_s = np.array([running_s.get(number, 0.0) for number in jobs["number"].tolist()])
    jobs["held_s"][:] = np.maximum(jobs["attained_worker_s"] / jobs["scale_factor"] - own_s, 0.0)
    jobs["failed_held_s"][:], jobs["failed_steps"][:] = jobs["held_s"], jobs["steps_safe"]


def _restore_pairs(state: State, stored: EngineState) -> None:
    pairs = state.pairs
    pairs.numbers, pairs.index = stored.pair_numbers.copy(), stored.pair_index.copy()
    pairs.x, pairs.credit_s = stored.pair_x.copy(), stored.pair_credit_s.copy()


def encode_state(stored: EngineState) -> bytes:
    """Return a snapshot as bytes. May run in another thread than the engine."""
    return _HEAD % VERSION + zlib.compress(orjson.dumps(_CODEC.encode(stored)), _LEVEL)


def decode_state(data: bytes) -> EngineState:
    """Return the snapshot that ``encode_state`` encoded.

    Raises:
        CodecError: the data are damaged, or of another version.
    """
    head, _, body = data.partition(b"\n")
    if head + b"\n" != _HEAD % VERSION:
        raise CodecError(
            f"stored engine state begins with {head[:40]!r}; this release reads version {VERSION}; "
            "run the release that wrote it, or a newer one"
        )
    try:
        value = _CODEC.decode(orjson.loads(zlib.decompress(body)))
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise CodecError(f"stored engine state is damaged: {error}") from error
    if not isinstance(value, EngineState):
        raise CodecError(f"stored engine state is a {type(value).__name__}; the data are damaged")
    return value
