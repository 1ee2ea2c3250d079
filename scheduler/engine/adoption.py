"""An engine that takes over decisions of another version instead of deriving them again.

Entries of the journal are facts; the decisions that followed are stored in rows only. So a replay
gives the same state only under the rules of the version that wrote the entries. If another version
wrote a tail of the journal, its facts are applied (jobs that came, wishes, workers), and the
decisions come from rows: which jobs exist, and which leases hold which workers until when.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease import Lease
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.engine.events import on_answers, on_jobs, on_leases, on_reservations, on_workers
from scheduler.engine.snapshot import dump, restore
from scheduler.engine.state.restart_costs import set_restarts
from scheduler.engine.state.state import PLAN, RETRY
from scheduler.engine.tables.jobs import HELD, NONE, RUNNING, WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.rows import AttemptRow, JobRow
    from scheduler.engine.engine import Engine
    from scheduler.engine.state.state import State

#: Facts that mean the same under the rules of every version, and their handlers.
_HANDLERS: Final = {
    kind: handler
    for module in (on_answers, on_jobs, on_leases, on_reservations, on_workers)
    for kind, handler in module.HANDLERS.items()
    if kind
    in {
        ev.ConfigurationsChanged,
        ev.EntityChanged,
        ev.FundsChanged,
        ev.JobEntitled,
        ev.LeasesSkipped,
        ev.NodesJoined,
        ev.QuotasChanged,
        ev.ReservationsChanged,
        ev.RestartsMeasured,
        ev.LengthsRevised,
        ev.WorkersCordoned,
        ev.WorkersDrained,
        ev.WorkersLost,
        ev.WorkersRetired,
        ev.WorkersReturned,
    }
}


def adopt(
    base: Engine,
    tail: Sequence[tuple[float, Sequence[ev.Event]]],
    *,
    revoked: Mapping[int, RevokeReason],
    jobs: Mapping[str, JobRow],
    attempts: Mapping[str, Sequence[AttemptRow]],
) -> tuple[Engine, list[do.Command]]:
    """Return an engine that holds the stored leases, and asks a question of its own.

    Data that no row contains are as in ``base``: credits, the allocation, losses in a row, nodes
    that jobs avoid. Jobs that came later start without them.

    Args:
        base: the engine before the tail; it does not change.
        tail: (time, events) of each call, in order; another version decided.
        revoked: leases that ``base`` has revoked, and why.
        jobs: stored rows of the jobs that have not ended, by id.
        attempts: their leases, oldest first.

    Returns:
        The engine, and the commands that inform a shell of its state: a grant of each lease,
        revocations, and timers. None of them is new.
    """
    adoption = _Adoption(base, jobs, attempts)
    for now_s, events in tail:
        adoption.now(now_s)
        for event in events:
            adoption.take(event)
    return adoption.engine, adoption.settle(revoked)


class _Adoption:
    """An adoption in progress."""

    def __init__(
        self,
        base: Engine,
        jobs: Mapping[str, JobRow],
        attempts: Mapping[str, Sequence[AttemptRow]],
    ) -> None:
        self.engine = _without_leases(base)
        self._state: State = self.engine.state
        self._jobs, self._attempts = jobs, attempts
        self._job_of = {a.lease_id: a.job_id for rows in attempts.values() for a in rows}
        self._cancelled = {
            base.book.leases[lease_id].job_id
            for lease_id, wish in base.state.after_end.items()
            if wish == RevokeReason.CANCEL
        }
        #: job -> (when, why) it was last requeued.
        self._requeued: dict[str, tuple[float, RevokeReason]] = {}
        #: worker -> why it last went out of service.
        self._out: dict[int, RevokeReason] = {}
        #: lease -> last reported steps of its job.
        self._steps: dict[int, float] = {
            lease_id: float(base.jobs["steps_done"][base.jobs.row_of(lease.job_number)])
            for lease_id, lease in base.book.leases.items()
        }
        #: job -> time since which its leases must be added to its received worker-seconds.
        self._since_s = dict.fromkeys(base.jobs.number_of, base.now_s)

    # -- facts ----------------------------------------------------------------------------------

    def now(self, now_s: float) -> None:
        """Set the time of the facts that follow."""
        self._state.now_s = self._state.assigner.now_s = max(self._state.now_s, now_s)

    def take(self, event: ev.Event) -> None:
        """Apply a fact, as far as it means the same under all rules."""
        self._of_jobs(event)
        self._of_leases(event)
        self._of_rounds_and_workers(event)
        if type(event) in _HANDLERS:
            self._state.event, self._state.told = event, None
            _HANDLERS[type(event)](self._state, event)
            self._state.event = self._state.told = None

    def _of_jobs(self, event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                self._submitted(event)
            case ev.JobCancelled():
                self._cancelled.add(event.job_id)
            case ev.JobRequeued():
                self._requeued[event.job_id] = self._state.now_s, RevokeReason(event.reason)
            case ev.JobReleased():
                self._set(event.job_id, losses=0, deaths=0)
            case ev.JobDeferred():
                self._set(event.job_id, retry_at_s=event.until_s)

    def _of_leases(self, event: ev.Event) -> None:
        match event:
            case ev.ProgressReported():
                told = zip(event.lease_ids.tolist(), event.steps_done.tolist(), strict=True)
                for lease_id, steps in told:
                    self._steps[lease_id] = np.fmax(self._steps.get(lease_id, 0.0), steps)
            case ev.LeaseEnded():
                self._ended(event)
            case ev.LeasesReleased():
                self._skip(int(event.lease_ids.max(initial=0)))

    def _of_rounds_and_workers(self, event: ev.Event) -> None:
        state = self._state
        match event:
            case ev.WorkersLost() | ev.WorkersRetired():
                self._out |= dict.fromkeys(event.workers, RevokeReason.WORKER_LOST)
            case ev.WorkersDrained():
                self._out |= dict.fromkeys(event.workers, RevokeReason.DRAIN)
            case ev.AllocationComputed() | ev.AllocationFailed():
                state.generation = max(state.generation, event.generation)
            case ev.TimerFired():
                state.round_number += event.timer == PLAN

    def _submitted(self, event: ev.JobSubmitted) -> None:
        state, job_id = self._state, event.job.job_id
        self._forget(job_id)  # an earlier life of the job: control never submits an active one
        self._cancelled.discard(job_id)
        self._requeued.pop(job_id, None)
        if job_id not in self._jobs:
            return
        entity = on_jobs.entity_of(state, event.job.entity)
        state.jobs.widen(state.table.throughput.shape[1])
        group = state.quotas.group(event.job)
        state.jobs.add(
            event.job, number=state.next_number, profile=event.profile, entity=entity, group=group
        )
        if event.job.restarts:
            set_restarts(state, [len(state.jobs) - 1])
        state.next_number += 1
        self._since_s[job_id] = state.now_s

    def _ended(self, event: ev.LeaseEnded) -> None:
        self._skip(event.lease_id)
        job_id = self._job_of.get(event.lease_id, "")
        if event.reason is EndReason.FAILED and job_id in self._jobs:
            wait_s = on_leases.failure_wait_s(self._state, max(self._jobs[job_id].failures, 1))
            self._set(job_id, retry_at_s=self._state.now_s + wait_s)

    def _skip(self, lease_id: int) -> None:
        self._state.assigner.next_lease = max(self._state.assigner.next_lease, lease_id)

    def _set(self, job_id: str, **values: float) -> None:
        row = self._state.row_of_job(job_id)
        if row != NONE:
            record = self._state.jobs.record(row)
            for column, value in values.items():
                record[column] = value

    def _forget(self, job_id: str) -> None:
        row = self._state.row_of_job(job_id)
        if row != NONE:
            self._state.assigner.avoidance.forget(int(self._state.jobs["number"][row]))
            self._state.jobs.remove(row)

    # -- stored rows ------------------------------------------------------------------------------

    def settle(self, revoked: Mapping[int, RevokeReason]) -> list[do.Command]:
        """Apply the rows to jobs and leases; return the commands that inform a shell."""
        state = self._state
        for job_id in [job_id for job_id in state.jobs.number_of if job_id not in self._jobs]:
            self._forget(job_id)
        leases = [self._hold(attempt) for attempt in self._open()]
        state.book.restore(leases, ())
        state.rows_moved()
        self._share(leases)
        for job_id in state.jobs.number_of:
            self._follow_row(job_id)
        ends_s = max((lease.deadline_s for lease in leases), default=-np.inf)
        state.round_end_s = ends_s if leases else None
        cause = Cause(fact=FactKind.RESTARTED)
        commands: list[do.Command] = [do.GrantLease(lease=lease, cause=cause) for lease in leases]
        for lease in leases:
            reason = self._why_revoked(lease, revoked.get(lease.lease_id), round_end_s=ends_s)
            if reason is not None:
                state.book.stopping.add(lease.lease_id)
                by_s = state.now_s
                commands.append(
                    do.RevokeLease(lease_id=lease.lease_id, by_s=by_s, reason=reason, cause=cause)
                )
            if reason is RevokeReason.CANCEL:
                state.after_end[lease.lease_id] = RevokeReason.CANCEL.value
            elif self._jobs[lease.job_id].status is JobStatus.HELD:
                state.after_end[lease.lease_id] = RevokeReason.HOLD.value
        if state.round_end_s is not None:
            state.set_timer(PLAN, state.round_end_s - state.settings.plan_lead_s, cause)
        state.set_timer(RETRY, state.now_s, cause)  # at once, so that it asks the policy
        timers = [command for command in state.commands if isinstance(command, do.SetTimer)]
        state.commands = []
        return commands + timers

    def _open(self) -> list[AttemptRow]:
        """Return the leases in force by id: those without an end, of jobs that the engine knows."""
        known = self._state.jobs.number_of
        newest = (rows[-1] for job_id, rows in self._attempts.items() if rows and job_id in known)
        return sorted((a for a in newest if a.ended_s is None), key=lambda a: a.lease_id)

    def _hold(self, attempt: AttemptRow) -> Lease:
        """Let a job hold a stored lease, alone for now; charged if X gives it time there."""
        state, jobs = self._state, self._state.jobs
        row = state.row_of_job(attempt.job_id)
        record = jobs.record(row)
        alone = state.assigner.single_on(row, attempt.workers)
        record["lease"] = attempt.lease_id
        record["configuration"] = alone
        record["charged"] = alone != NONE and jobs.x[row, alone] > 0
        record["workers_held"] = len(attempt.workers)
        record["retry_at_s"] = min(record["retry_at_s"], state.now_s)
        self._skip(attempt.lease_id)
        return Lease(
            lease_id=attempt.lease_id,
            attempt=attempt.attempt,
            job_number=int(record["number"]),
            job_id=attempt.job_id,
            profile=int(record["profile"]),
            configuration=alone,
            workers=attempt.workers,
            token=attempt.token,
            start_s=attempt.start_s,
            deadline_s=attempt.deadline_s,
        )

    def _share(self, leases: Sequence[Lease]) -> None:
        """Turn jobs that hold the same workers into pairs."""
        state, jobs = self._state, self._state.jobs
        by_workers: dict[tuple[int, ...], list[Lease]] = {}
        for lease in leases:
            by_workers.setdefault(lease.workers, []).append(lease)
        for workers, sharing in by_workers.items():
            if len(sharing) == 1:
                continue
            members = sorted(sharing, key=lambda lease: (lease.profile, lease.job_number))
            entry = self._pair_of(members, workers)
            for lease in members:
                record = jobs.record(jobs.row_of(lease.job_number))
                record["configuration"], record["pair"] = NONE, entry
                record["charged"] = state.pairs.x[entry] > 0
                record["workers_held"] = len(workers) / 2.0

    def _pair_of(self, members: Sequence[Lease], workers: tuple[int, ...]) -> int:
        """Return the pair table's entry of two jobs on their workers; add one if necessary."""
        state, pairs, table = self._state, self._state.pairs, self._state.table
        numbers = [lease.job_number for lease in members]
        demand = np.bincount(
            state.fleet.type_of[list(workers)], minlength=table.pair_demand.shape[1]
        )
        profiles = [lease.profile for lease in members]
        fits = (table.pair_profiles == profiles).all(axis=1)
        fits &= (table.pair_demand == demand).all(axis=1)
        index = int(np.flatnonzero(fits)[0]) if fits.any() else NONE
        same = (np.sort(pairs.numbers, axis=1) == sorted(numbers)).all(axis=1)
        known = np.flatnonzero(same & (pairs.index == index))
        if len(known):
            return int(known[0])
        pairs.numbers = np.vstack([pairs.numbers, np.array([numbers], dtype=np.int64)])
        pairs.index = np.append(pairs.index, index)
        pairs.x, pairs.credit_s = np.append(pairs.x, 0.0), np.append(pairs.credit_s, 0.0)
        return len(pairs) - 1

    def _follow_row(self, job_id: str) -> None:
        state, stored = self._state, self._jobs[job_id]
        record = state.jobs.record(state.row_of_job(job_id))
        lease_id = int(record["lease"])
        leaves = job_id in self._cancelled and lease_id != NONE
        if stored.status is JobStatus.HELD or leaves:
            record["status"] = HELD
        else:
            record["status"] = WAITING if lease_id == NONE else RUNNING
        record["weight"] = stored.weight
        record["deadline_s"] = np.inf if stored.deadline_s is None else stored.deadline_s
        record["attempts"], record["failures"] = stored.attempts, stored.failures
        record["steps_safe"] = min(stored.steps_done, record["total_steps"])
        steps = np.fmax(self._steps.get(lease_id, 0.0), stored.steps_done)
        record["steps_done"] = min(steps, record["total_steps"])
        self._add_attempts(job_id, record)
        # When and at which step it failed last is not stored: it has made no progress since.
        record["failed_held_s"], record["failed_steps"] = record["held_s"], record["steps_safe"]

    def _add_attempts(self, job_id: str, record: Any) -> None:
        """Add the time under leases since the base; jobs that share workers count fully."""
        since_s, now_s = self._since_s[job_id], self._state.now_s
        for attempt in self._attempts.get(job_id, ()):
            until_s = now_s if attempt.ended_s is None else attempt.ended_s
            new_s = max(until_s - max(attempt.start_s, since_s), 0.0)
            record["attained_worker_s"] += len(attempt.workers) * new_s
            if attempt.ended_s is not None and attempt.ended_s > since_s:
                record["held_s"] += attempt.ended_s - attempt.start_s

    def _why_revoked(
        self, lease: Lease, before: RevokeReason | None, *, round_end_s: float
    ) -> RevokeReason | None:
        """Return why a lease is ending; None for a lease that goes on."""
        fleet, job_id = self._state.fleet, lease.job_id
        out = [worker for worker in lease.workers if not fleet.in_service[worker]]
        why = {self._out.get(worker, before) for worker in out}
        asked_s, asked = self._requeued.get(job_id, (-np.inf, RevokeReason.REQUEUE))
        causes = [
            (job_id in self._cancelled, RevokeReason.CANCEL),
            (RevokeReason.WORKER_LOST in why, RevokeReason.WORKER_LOST),
            (before is not None, before),
            (self._jobs[job_id].status is JobStatus.HELD, RevokeReason.HOLD),
            (asked_s >= lease.start_s, asked),
            (bool(out), RevokeReason.DRAIN),
            # Leases that go on end with the round; this one was not extended with the others.
            (lease.deadline_s < round_end_s, RevokeReason.OUTBID),
        ]
        return next((reason for holds, reason in causes if holds), None)


def _without_leases(base: Engine) -> Engine:
    """Return a copy of an engine without leases, in which a question to the policy is due."""
    stored = dump(base)
    columns = dict(stored.columns)
    for name in ("lease", "configuration", "pair"):
        columns[name] = np.full_like(columns[name], NONE)
    for name in ("charged", "workers_held"):
        columns[name] = np.zeros_like(columns[name])
    columns["status"] = np.full_like(columns["status"], WAITING)
    bare = replace(
        stored,
        columns=columns,
        leases=(),
        stopping=(),
        planned=(),
        after_end={},
        question_open=False,
        blocked=False,
        changed=True,
        plan_due=False,
        serve_due=True,
    )
    return restore(bare, base.settings)
