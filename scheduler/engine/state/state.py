"""The engine's state: everything that must survive a restart, and helpers for all handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.facts import commands as do
from scheduler.domain.facts.causes import Cause
from scheduler.engine.limits.entity_usage import Usage
from scheduler.engine.limits.quota_usage import held_by_leases, held_by_plans
from scheduler.engine.limits.quotas import Quotas
from scheduler.engine.limits.reservations import Reservations
from scheduler.engine.placement.assignment import Assigner
from scheduler.engine.rounds.round_milp import SearchSchedule
from scheduler.engine.state.triggers import PendingTriggers, trigger_of
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.facts import events as ev
    from scheduler.domain.facts.causes import Occasion
    from scheduler.domain.lease import Lease
    from scheduler.domain.lease_life import RevokeReason
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Caps
    from scheduler.engine.rounds.certificate import Certificate
    from scheduler.engine.settings import EngineSettings

#: Names of the engine's timers.
PLAN, GRACE, RETRY = "plan", "grace", "retry"


class State:
    """The data of the engine. Events change it, decisions follow from it.

    An attribute added here belongs into ``snapshot`` as well, unless it is derived.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: EngineSettings,
        *,
        time_dependent: bool,
        usage_half_life_s: float = 0.0,
    ) -> None:
        self.settings = settings
        self.assigner = Assigner(cluster)
        self.fleet = self.assigner.fleet
        self.jobs = self.assigner.jobs
        self.pairs = self.assigner.pairs
        self.book = self.assigner.book
        #: whether the policy's answer changes with progress alone.
        self.time_dependent = time_dependent
        #: whether the policy may use the lengths of jobs, see ``Allocation``.
        self.may_use_remaining_work = True
        #: whether the policy wants rounds to follow X as closely as possible, see ``Allocation``.
        self.follow_exactly = False
        #: when a search for the best round is allowed.
        self.search = SearchSchedule()
        #: proof of how good the last planned round was; None before the first. Not in snapshots.
        self.certificate: Certificate | None = None
        self.entities: list[Entity] = list(settings.entities)
        #: name -> its position in ``entities``.
        self.entity_of = {entity.name: e for e, entity in enumerate(self.entities)}
        #: decayed usage of the entities, if the policy asks for it.
        self.usage = Usage(usage_half_life_s)
        #: (C,) worker-seconds that the last completed jobs took in all, the newest last; None
        #: before the first completion.
        self.completed_worker_s: FloatArray | None = None
        self.quotas = Quotas()
        self.now_s = 0.0
        #: number of the next job.
        self.next_number = 0
        #: generation of the newest question; answers of older ones are dropped.
        self.generation = 0
        #: whether the newest question is open.
        self.question_open = False
        #: whether decisions wait for the open question.
        self.blocked = False
        #: whether jobs, weights, workers or throughputs changed since the last question.
        self.changed = False
        #: whether a round must be planned now.
        self.plan_due = False
        #: whether workers may be idle while jobs wait.
        self.serve_due = False
        #: number of the current round; 0 before the first.
        self.round_number = 0
        #: end of the current round, and so of every lease that is not stopping; None while no job
        #: is active.
        self.round_end_s: float | None = None
        #: lease id -> "cancel" or "hold": the next state of the job when the lease has ended.
        self.after_end: dict[int, str] = {}
        #: workers that are reserved, and the jobs that may use them.
        self.reservations = Reservations()
        #: recent events that may cause later decisions.
        self.triggers = PendingTriggers()
        #: the event being handled; None during decisions. Not in snapshots, like the next two,
        #: which last for one call.
        self.event: ev.Event | None = None
        #: the lease that the event ends; None if it ends no lease, or several.
        self.ending: Lease | None = None
        #: the event as an ``Occasion``; made on first access.
        self.told: Occasion | None = None
        #: commands of the current call.
        self.commands: list[do.Command | do.Batch] = []
        #: rows of the running jobs by ascending lease id; None when it must be computed again.
        self._running_rows: IntArray | None = None

    @property
    def table(self) -> ConfigurationTable:
        """Configurations by profile."""
        return self.assigner.table

    # -- jobs and leases ------------------------------------------------------------------------

    def row_of_job(self, job_id: str) -> int:
        """Return the row of an active job, NONE if no active job has that id."""
        number = self.jobs.number_of.get(job_id)
        return NONE if number is None else self.jobs.row_of(number)

    def remove_job(self, row: int, kind: str, **data: float | str) -> str:
        """Remove a job that has ended, and return its id; ``kind`` is its kind in the history."""
        self.assigner.drop_plan(int(self.jobs["number"][row]))
        self.assigner.avoidance.forget(int(self.jobs["number"][row]))
        job = self.jobs.remove(row)
        self.rows_moved()
        self.mark_dirty()
        self.record(kind, job.job_id, **data)
        return job.job_id

    def rows_moved(self) -> None:
        """Drop the cached rows after rows or their leases have changed."""
        self._running_rows = None

    def rows_by_lease(self) -> IntArray:
        """Return the rows that hold leases, by ascending lease id."""
        if self._running_rows is None:
            leases = self.jobs["lease"]
            rows = (leases >= 0).nonzero()[0]
            self._running_rows = rows[np.argsort(leases[rows])]
        return self._running_rows

    def rows_under(self, lease_ids: IntArray) -> IntArray:
        """Return the rows of the jobs under leases, NONE for a lease that is not in force."""
        rows = self.rows_by_lease()
        if not len(rows):
            return np.full(len(lease_ids), NONE, dtype=np.int64)
        own = self.jobs["lease"][rows]
        if len(own) == len(lease_ids) and (own == lease_ids).all():
            return rows  # most reports are about all running jobs
        at = np.minimum(np.searchsorted(own, lease_ids), len(own) - 1)
        return np.where(own[at] == lease_ids, rows[at], NONE)

    def revoke(self, lease_id: int, *, by_s: float, reason: RevokeReason) -> None:
        """Give notice to a lease."""
        command = self.assigner.revoke(lease_id, by_s=by_s, reason=reason, cause=self.cause)
        self.commands.append(command)

    # -- quotas ---------------------------------------------------------------------------------

    def caps(self) -> Caps | None:
        """Return the caps of this moment over all jobs; None if there are no quotas."""
        workers = self.fleet.count(self.fleet.in_service & ~self.fleet.cordoned)
        return self.quotas.caps(self.jobs, self.table, workers, self.now_s)

    def held_of(self, caps: Caps, rows: IntArray) -> IntArray:
        """Return (Q,) workers that the leases of (R,) rows hold of each cap."""
        return held_by_leases(
            caps, rows, jobs=self.jobs, table=self.table, book=self.book, fleet=self.fleet
        )

    def caps_beside(self, pinned: BoolArray) -> Caps | None:
        """Return the caps that are left beside jobs that go on; None if there are no quotas."""
        caps = self.caps()
        if caps is None or not pinned.any():
            return caps
        return caps.less(self.held_of(caps, np.flatnonzero(pinned)))

    def caps_now(self) -> Caps | None:
        """Return the caps left beside all leases, in force and planned; None without quotas."""
        caps = self.caps()
        if caps is None:
            return None
        taken = self.held_of(caps, np.arange(len(self.jobs)))
        return caps.less(
            taken + held_by_plans(caps, jobs=self.jobs, book=self.book, fleet=self.fleet)
        )

    @property
    def usage_s(self) -> FloatArray | None:
        """(E,) decayed worker-seconds of each entity; None if usage is not counted."""
        usage = self.usage
        return usage.of(len(self.entities)).copy() if usage.half_life_s else None

    def workers_for(self, pinned: BoolArray) -> BoolArray:
        """Return (W,) the workers that all other jobs compete for."""
        grantable = self.fleet.grantable
        if not self.fleet.any_cordoned:
            return grantable
        for lease_id in self.jobs["lease"][pinned].tolist():
            grantable[list(self.book.workers_of(lease_id))] = False
        return grantable

    # -- causes ---------------------------------------------------------------------------------

    @property
    def occasion(self) -> Occasion:
        """The event being handled, as an ``Occasion``."""
        if self.told is None:
            self.told = trigger_of(self.event, self.fleet, self.ending)
        return self.told

    @property
    def cause(self) -> Cause:
        """The event being handled, as a cause; without one, the round being planned."""
        occasion = self.occasion
        number = self.round_number if self.event is None else 0
        return Cause(fact=occasion.fact, subject=occasion.subject, round_number=number)

    def mark_dirty(self, *, ask_policy: bool = True, serve_idle: bool = True) -> None:
        """Note the event, and the decisions that it makes due.

        Args:
            ask_policy: whether the input of the policy has changed, so that it must be asked.
            serve_idle: whether workers may be idle now while jobs wait.
        """
        occasion, triggers = self.occasion, self.triggers
        triggers.note(occasion)
        if ask_policy and triggers.to_ask is None:
            triggers.to_ask = occasion
        self.changed |= ask_policy
        self.serve_due |= serve_idle

    # -- commands -------------------------------------------------------------------------------

    def record(self, kind: str, subject: str, **data: float | str) -> None:
        """Add an entry to the history."""
        self.commands.append(
            do.RecordEvent(kind=kind, subject=subject, at_s=self.now_s, cause=self.cause, data=data)
        )

    def set_timer(self, timer: str, at_s: float, cause: Cause | None = None) -> None:
        """Set a timer; its cause is the current event unless another one is given."""
        at_s = max(at_s, self.now_s)
        self.commands.append(do.SetTimer(timer=timer, at_s=at_s, cause=cause or self.cause))
