"""A frozen copy of the engine's state, for people and agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.events.on_reservations import forbidden_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Caps
    from scheduler.domain.reservation import Reservation
    from scheduler.engine.engine import Engine
    from scheduler.engine.limits.quotas import CapOf
    from scheduler.engine.rounds.certificate import Certificate
    from scheduler.engine.settings import EngineSettings
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.pairs import PairTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationView:
    """A reservation as it was at one moment.

    Attributes:
        rule: the reservation.
        workers: its workers; fewer than it asks for if there were no more.
        in_force: whether they were set aside.
        members: ids of the jobs that may use them.
        used: how many of them its owner's jobs held.
    """

    rule: Reservation
    workers: tuple[int, ...]
    in_force: bool
    members: frozenset[str]
    used: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineView:
    """The engine as it was at one moment; the names are those of ``Engine``.

    Attributes:
        now_s: the time of its last call.
        settings: of the round mechanism.
        round_number: of the round then.
        round_end_s: its end; None while no job was active.
        certificate: how good the last planned round was; None before the first since the start.
        table: configurations by profile.
        cluster: the workers, including retired ones.
        present: the workers that were not retired, with other numbers.
        jobs: a copy of the active jobs.
        pairs: a copy of the pairs that X lets share workers.
        in_service: (W,) workers that were neither lost nor drained nor retired.
        cordoned: (W,) workers on which no new lease was granted.
        retired: (W,) workers that were gone permanently.
        idle: (W,) workers that could be granted and were neither held nor planned.
        held: (W,) workers under leases.
        planned: numbers of the jobs with a planned lease.
        planned_workers: workers of each planned lease, in the same order.
        avoided: job number -> (node, times in a row, until when the job avoids it).
        type_of: (W,) type of each worker.
        entities: the entities that were set or have had jobs.
        usage_s: (E,) their decayed usage; None if it is not counted.
        caps: quotas over the jobs; None if there were no quotas.
        caps_of: (Q,) the quota of each cap.
        caps_held: (Q,) workers held of each cap.
        set_aside: (W,) workers that were kept for the owner of a reservation.
        reservations: with their workers, in the order in which their windows begin.
        forbidden_by: job number -> future reservation with workers on which it must not be placed.
        confined: numbers of the waiting jobs that may start within their entity's share only.
    """

    now_s: float
    settings: EngineSettings
    round_number: int
    round_end_s: float | None
    certificate: Certificate | None
    table: ConfigurationTable
    cluster: Cluster
    present: Cluster
    jobs: JobTable
    pairs: PairTable
    in_service: BoolArray
    cordoned: BoolArray
    retired: BoolArray
    idle: BoolArray
    held: BoolArray
    planned: tuple[int, ...]
    planned_workers: tuple[tuple[int, ...], ...]
    avoided: Mapping[int, list[tuple[str, int, float]]]
    type_of: IntArray
    entities: tuple[Entity, ...]
    usage_s: FloatArray | None
    caps: Caps | None
    caps_of: tuple[CapOf, ...]
    caps_held: IntArray
    set_aside: BoolArray
    reservations: tuple[ReservationView, ...]
    forbidden_by: Mapping[int, Reservation]
    confined: frozenset[int]

    @classmethod
    def of(cls, engine: Engine, before: EngineView | None = None) -> EngineView:
        """Copy the engine; only a few arrays, so that a copy can follow every decision.

        Args:
            engine: the engine.
            before: the last copy; its jobs are updated and reused. None for a first copy.
        """
        jobs = engine.jobs.copy() if before is None else before.jobs
        if before is not None:
            jobs.follow(engine.jobs)
        avoidance, now_s = engine.avoidance, engine.now_s
        caps, caps_of, caps_held = engine.quotas_held()
        return cls(
            now_s=now_s,
            settings=engine.settings,
            round_number=engine.round_number,
            round_end_s=engine.round_end_s,
            certificate=engine.certificate,
            table=engine.table,
            cluster=engine.cluster,
            present=engine.present,
            jobs=jobs,
            pairs=engine.pairs.copy(),
            in_service=engine.in_service.copy(),
            cordoned=engine.cordoned.copy(),
            retired=engine.retired.copy(),
            idle=engine.idle,
            held=engine.held,
            planned=tuple(engine.book.planned),
            planned_workers=tuple(plan.workers for plan in engine.book.planned.values()),
            avoided={
                number: avoidance.of(number, now_s)
                for number in (avoidance.active(now_s) if avoidance else ())
            },
            type_of=engine.fleet.type_of,
            entities=engine.entities,
            usage_s=engine.usage_s,
            caps=caps,
            caps_of=caps_of,
            caps_held=caps_held,
            set_aside=engine.fleet.set_aside.copy(),
            reservations=_reservations(engine) if engine.reservations else (),
            forbidden_by=_forbidden_by(engine) if engine.reservations else {},
            confined=engine.confined,
        )

    def count(self, workers: BoolArray) -> IntArray:
        """Return (K,) how many of the marked workers are of each type."""
        counts: IntArray = np.bincount(
            self.type_of[workers], minlength=len(self.cluster.type_names)
        )
        return counts


def _reservations(engine: Engine) -> tuple[ReservationView, ...]:
    found, book = engine.reservations, engine.book
    views = []
    for rule in found.rules:
        workers = found.workers.get(rule.name, ())
        members = frozenset(found.members.get(rule.name, ()))
        holders = (book.on_worker[worker] for worker in workers)
        used = sum(any(book.leases[i].job_id in members for i in leases) for leases in holders)
        in_force = rule in found.in_force
        views.append(
            ReservationView(
                rule=rule, workers=workers, in_force=in_force, members=members, used=used
            )
        )
    return tuple(views)


def _forbidden_by(engine: Engine) -> dict[int, Reservation]:
    return {
        number: rule
        for rule, numbers, _ in forbidden_workers(engine.state)
        for number in numbers.tolist()
    }
