"""The engine: ``handle(*events, now) -> commands``. No clock, no I/O, no randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain import commands as do
from scheduler.domain import events as ev
from scheduler.domain.lease import EndReason
from scheduler.domain.problem import Entity
from scheduler.engine.admission import admit
from scheduler.engine.assignment import Assigner
from scheduler.engine.jobs import HELD, NONE, RUNNING, WAITING
from scheduler.engine.questions import pose, take_over
from scheduler.engine.rounds import choose_round
from scheduler.engine.validation import check_event, fault_of
from scheduler.errors import AdmissionError, InputError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.domain.arrays import IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.lease import Lease
    from scheduler.engine.settings import EngineSettings

#: Names of the engine's timers.
PLAN, GRACE, RETRY = "plan", "grace", "retry"


class Engine:
    """Turns facts into commands. All state that must survive a restart is in its attributes.

    A call first moves the clock (credits and service accrue), then takes in the events in their
    order, and last decides: ask the policy, plan the next round, or serve idle workers. While a
    question is open, decisions wait for its answer, but not longer than ``solve_grace_s``.
    """

    def __init__(
        self, cluster: Cluster, settings: EngineSettings, *, time_dependent: bool = False
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._assigner = Assigner(cluster)
        self._placer = self._assigner.placer
        self.jobs = self._assigner.jobs
        self.pairs = self._assigner.pairs
        self.book = self._assigner.book
        #: whether the policy's answer changes with progress alone.
        self.time_dependent = time_dependent
        self._entities: list[Entity] = list(settings.entities)
        self._entity_of = {entity.name: e for e, entity in enumerate(self._entities)}
        self._now = 0.0
        self._next_number = 0
        self._next_lease = 0
        #: generation of the newest question; answers of older ones are dropped.
        self._generation = 0
        #: whether that question is open.
        self._open = False
        #: whether decisions wait for the open question.
        self._blocked = False
        #: whether jobs, weights, workers or throughputs changed since the last question.
        self._changed = False
        #: whether a round must be planned now.
        self._plan_due = False
        #: whether workers may be idle while jobs wait.
        self._serve_due = False
        #: number of the current round; 0 before the first.
        self.round_number = 0
        #: end of the current round; None while no job is active.
        self._round_end_s: float | None = None
        #: lease ids -> "cancel" or "hold": what becomes of the job when the lease has ended.
        self._after_end: dict[int, str] = {}
        #: what the current call answers.
        self._commands: list[do.Command] = []
        #: rows of the running jobs by ascending lease id; None when it must be made anew.
        self._running_rows: IntArray | None = None
        self._handlers = self._make_handlers()

    @property
    def table(self) -> ConfigurationTable:
        """Configurations by profile."""
        return self._assigner.table

    # -- the one entry ------------------------------------------------------------------------

    def handle(self, *events: ev.Event, now: float) -> list[do.Command]:
        """Take in facts that are true at ``now`` and say what must be done.

        Args:
            events: facts, in the order in which they happened.
            now: seconds; never earlier than in the call before.

        Raises:
            InputError: time runs backwards, or an event is malformed; the state is unchanged.
        """
        if not self._now <= now < np.inf:
            raise InputError(f"now is {now}; it must not be before the last call at {self._now}")
        for event in events:
            check_event(event, self._cluster, self.table)
        self._commands = []
        self._advance(now)
        for event in events:
            self._handlers[type(event)](event)
        self._watch_round()
        self._decide()
        return self._commands

    def _make_handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            ev.ProgressReported: self._on_progress,
            ev.LeaseEnded: self._on_lease_ended,
            ev.TimerFired: self._on_timer,
            ev.AllocationComputed: self._on_allocation,
            ev.AllocationFailed: self._on_failed_allocation,
            ev.JobSubmitted: self._on_submitted,
            ev.JobCancelled: self._on_cancelled,
            ev.JobHeld: self._on_held,
            ev.JobReleased: self._on_released,
            ev.WeightChanged: self._on_weight,
            ev.WorkersLost: self._on_workers_lost,
            ev.WorkersReturned: self._on_workers_returned,
            ev.ConfigurationsChanged: self._on_configurations,
        }

    def _on_configurations(self, event: ev.ConfigurationsChanged) -> None:
        self.pairs.renumber(self.table, event.table)
        self._assigner.table = event.table
        self.jobs.widen(event.table.throughput.shape[1])
        self._changed = True

    def _on_cancelled(self, event: ev.JobCancelled) -> None:
        self._stop_job(event.job_id, "cancel")

    def _on_held(self, event: ev.JobHeld) -> None:
        self._stop_job(event.job_id, "hold")

    def _on_workers_returned(self, event: ev.WorkersReturned) -> None:
        self.book.in_service[list(event.workers)] = True
        self._changed = self._serve_due = True

    # -- time -----------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        """Accrue credits and service up to ``now``."""
        elapsed = now - self._now
        self._now = self._assigner.now_s = now
        if elapsed <= 0 or not len(self.jobs):
            return
        jobs = self.jobs
        credit_s = jobs.credit_s
        credit_s += jobs.x * elapsed
        jobs["attained_worker_s"][:] += jobs["workers_held"] * elapsed
        charged = np.flatnonzero(jobs["charged"])
        held = jobs["configuration"][charged]
        single = held >= 0
        credit_s[charged[single], held[single]] -= elapsed
        if len(self.pairs):
            self.pairs.credit_s += self.pairs.x * elapsed
            running = np.unique(jobs["pair"][charged])
            self.pairs.credit_s[running[running >= 0]] -= elapsed

    # -- jobs -----------------------------------------------------------------------------------

    def _on_submitted(self, event: ev.JobSubmitted) -> None:
        job = event.job
        try:
            admit(
                job,
                event.profile,
                self.table,
                self._cluster.capacity,
                taken=job.job_id in self.jobs.number_of,
            )
        except AdmissionError as error:
            self._record("job_refused", job.job_id, reason=str(error))
            return
        entity = self._entity_of.get(job.entity)
        if entity is None:
            entity = self._entity_of[job.entity] = len(self._entities)
            self._entities.append(Entity(name=job.entity))
        self.jobs.widen(self.table.throughput.shape[1])
        self.jobs.add(job, number=self._next_number, profile=event.profile, entity=entity)
        self._next_number += 1
        self._running_rows = None
        self._changed = self._serve_due = True
        self._record("job_admitted", job.job_id)

    def _on_weight(self, event: ev.WeightChanged) -> None:
        row = self._row_of_job(event.job_id)
        if row != NONE:
            self.jobs["weight"][row] = event.weight
            self._changed = True

    def _on_released(self, event: ev.JobReleased) -> None:
        job_id = event.job_id
        row = self._row_of_job(job_id)
        if row == NONE or self.jobs["status"][row] != HELD:
            return
        lease_id = int(self.jobs["lease"][row])
        if self._after_end.get(lease_id) == "cancel":
            return
        self._after_end.pop(lease_id, None)
        self.jobs["status"][row] = WAITING if lease_id == NONE else RUNNING
        self._changed = self._serve_due = True
        self._record("job_released", job_id)

    def _stop_job(self, job_id: str, how: str) -> None:
        """Cancel or hold a job; a lease that it has is revoked first."""
        row = self._row_of_job(job_id)
        if row == NONE:
            return
        lease_id = int(self.jobs["lease"][row])
        if how == "hold" and self.jobs["status"][row] == HELD:
            return
        self._assigner.drop_plan(int(self.jobs["number"][row]))
        self.jobs["status"][row] = HELD
        self._changed = self._serve_due = True
        if lease_id != NONE:
            self._after_end[lease_id] = how
            self._commands.append(self._assigner.revoke(lease_id, by_s=self._now, reason=how))
        elif how == "cancel":
            self._remove_job(row, "job_cancelled")
            return
        if how == "hold":
            self._record("job_held", job_id)

    def _row_of_job(self, job_id: str) -> int:
        number = self.jobs.number_of.get(job_id)
        return NONE if number is None else self.jobs.row_of(number)

    def _remove_job(self, row: int, kind: str, **data: float | str) -> None:
        self._assigner.drop_plan(int(self.jobs["number"][row]))
        job = self.jobs.remove(row)
        self._running_rows = None
        self._changed = self._serve_due = True
        self._record(kind, job.job_id, **data)

    # -- leases ---------------------------------------------------------------------------------

    def _on_progress(self, event: ev.ProgressReported) -> None:
        rows = self._rows_by_lease()
        own = self.jobs["lease"][rows]
        at = np.searchsorted(own, event.lease_ids)
        at[at == len(own)] = 0
        known = own[at] == event.lease_ids if len(own) else np.zeros(len(at), dtype=bool)
        rows = rows[at[known]]
        done = np.minimum(event.steps_done[known], self.jobs["total_steps"][rows])
        # A late report of the same lease, or one that is no number, takes nothing back.
        self.jobs["steps_done"][rows] = np.fmax(self.jobs["steps_done"][rows], done)

    def _rows_by_lease(self) -> IntArray:
        if self._running_rows is None:
            leases = self.jobs["lease"]
            rows = np.flatnonzero(leases >= 0)
            self._running_rows = rows[np.argsort(leases[rows])]
        return self._running_rows

    def _on_lease_ended(self, event: ev.LeaseEnded) -> None:
        lease = self.book.leases.get(event.lease_id)
        if lease is None:
            return  # a repeated report
        revoked = event.lease_id in self.book.stopping
        ready = self.book.end(event.lease_id)
        row = self.jobs.row_of(lease.job_number)
        self._assigner.leave_pair(row)
        record = self.jobs.record(row)
        record["steps_done"] = min(event.steps_done, record["total_steps"])
        record["lease"] = record["configuration"] = record["pair"] = NONE
        record["charged"] = 0
        record["workers_held"] = 0.0
        if record["status"] == RUNNING:
            record["status"] = WAITING
        self._running_rows = None
        self._after_lease(event, lease, row, preempted=revoked)
        self._serve_due = True
        assert self._round_end_s is not None
        if self._round_end_s <= self._now:
            return  # the next round is due and plans anew
        for plan in ready:
            if plan.number in self.book.planned:
                self._commands.append(self._assigner.grant(plan, end_s=self._round_end_s))
                self._running_rows = None

    def _after_lease(
        self, event: ev.LeaseEnded, lease: Lease, row: int, *, preempted: bool
    ) -> None:
        """Decide what becomes of the job whose lease ended."""
        wish = self._after_end.pop(event.lease_id, None)
        if event.reason is EndReason.COMPLETED:
            self._remove_job(row, "job_completed")
        elif wish == "cancel":
            self._remove_job(row, "job_cancelled")
        elif event.reason is EndReason.FAILED:
            self._after_failure(row, lease)
        elif event.reason is EndReason.LOST:
            self._record("job_interrupted", lease.job_id, lease=lease.lease_id)
        elif preempted and wish is None:
            self._record("job_preempted", lease.job_id, lease=lease.lease_id)

    def _after_failure(self, row: int, lease: Lease) -> None:
        jobs = self.jobs
        jobs["failures"][row] += 1
        failures = int(jobs["failures"][row])
        if failures > jobs.job_of[lease.job_number].max_failures:
            self._remove_job(row, "job_failed", failures=failures)
            return
        wait_s = self._settings.retry_backoff_s * 2.0 ** (failures - 1)
        jobs["retry_at_s"][row] = self._now + wait_s
        self._assigner.drop_plan(lease.job_number)
        self._changed = True
        self._record("job_retried", lease.job_id, failures=failures, wait_s=wait_s)
        self._set_retry_timer()

    def _set_retry_timer(self) -> None:
        due = self.jobs["retry_at_s"]
        due = due[due > self._now]
        if len(due):
            self._commands.append(do.SetTimer(timer=RETRY, at_s=float(due.min())))

    def _on_workers_lost(self, event: ev.WorkersLost) -> None:
        workers = event.workers
        self.book.in_service[list(workers)] = False
        hit = {lease_id for worker in workers for lease_id in self.book.on_worker[worker]}
        for lease_id in sorted(hit):
            command = self._assigner.revoke(lease_id, by_s=self._now, reason="worker lost")
            self._commands.append(command)
        lost = set(workers)
        for number in [n for n, plan in self.book.planned.items() if lost & set(plan.workers)]:
            self._assigner.drop_plan(number)
        self._changed = self._serve_due = True

    # -- questions ------------------------------------------------------------------------------

    def _on_timer(self, event: ev.TimerFired) -> None:
        if event.timer == GRACE:
            self._blocked = False
        elif event.timer == RETRY:
            self._changed = self._serve_due = True
            self._set_retry_timer()

    def _watch_round(self) -> None:
        """See whether the next round must be planned; the timer only makes sure of a call then."""
        due_s = self._round_end_s
        if due_s is None or self._plan_due:
            return
        if self._now >= due_s - self._settings.plan_lead_s - 1e-9:
            self._plan_due = True
            refresh = self.round_number % self._settings.refresh_rounds == 0
            self._changed |= self.time_dependent and refresh

    def _on_allocation(self, event: ev.AllocationComputed) -> None:
        if event.generation != self._generation or not self._open:
            return
        self._open = self._blocked = False
        fault = fault_of(event, self.table)
        if fault:
            self._record("allocation_failed", "policy", reason=fault)
            return
        take_over(
            event,
            self.jobs,
            self.pairs,
            self.book.planned.values(),
            round_length_s=self._settings.round_length_s,
            carry_credit=self._settings.carry_credit,
        )
        for warning in event.allocation.warnings:
            self._record("policy_warning", "policy", text=warning)
        self._serve_due = True

    def _on_failed_allocation(self, event: ev.AllocationFailed) -> None:
        if event.generation == self._generation and self._open:
            self._open = self._blocked = False
            self._record("allocation_failed", "policy", reason=event.reason)

    def _ask(self) -> None:
        self._changed = False
        capacity = self._placer.count(self.book.in_service).astype(float)
        problem = pose(
            self.jobs,
            self.table,
            tuple(self._entities),
            capacity=capacity,
            cost_usd_per_hour=self._cluster.cost_usd_per_hour,
            now_s=self._now,
        )
        self._generation += 1
        self._open = self._blocked = problem is not None
        if problem is not None:
            self._commands.append(
                do.ComputeAllocation(generation=self._generation, problem=problem)
            )
            self._set_timer(GRACE, self._now + self._settings.solve_grace_s)
        else:  # nobody may run, so nobody is promised time
            self.jobs.x[:] = 0.0
            self.pairs.x[:] = 0.0

    # -- decisions ------------------------------------------------------------------------------

    def _decide(self) -> None:
        if self._changed:
            self._ask()
        if self._blocked:
            return
        if self._plan_due:
            self._plan_due = False
            self._plan_round()
        if self._serve_due:
            self._serve_due = False
            self._serve()

    def _plan_round(self) -> None:
        """Plan the next round over all workers in service."""
        assert self._round_end_s is not None
        length_s = self._settings.round_length_s
        # Rounds that nobody planned in time are skipped.
        start_s = self._round_end_s if self._now < self._round_end_s + length_s else self._now
        eligible = self.jobs.runnable(self._now)
        if not len(self.jobs) or not (eligible.any() or self.book.leases):
            self._round_end_s = None
            return
        self.round_number += 1
        self._round_end_s = start_s + length_s
        self.book.forget_all()
        choice = choose_round(
            self.jobs,
            self.pairs,
            self.table,
            eligible=eligible,
            free=self._placer.count(self.book.in_service),
            length_s=length_s,
            lead_s=max(start_s - self._now, 0.0),
            keep_bonus_s=self._settings.keep_bonus * length_s,
        )
        self._commands += self._assigner.realise(
            choice, eligible, start_s=start_s, end_s=self._round_end_s
        )
        self._running_rows = None
        self._set_timer(PLAN, self._round_end_s - self._settings.plan_lead_s)

    def _serve(self) -> None:
        """Let idle workers to waiting jobs for the rest of the round."""
        jobs = self.jobs
        eligible = jobs.runnable(self._now) & (jobs["status"] == WAITING)
        if self.book.planned:
            eligible &= ~np.isin(jobs["number"], list(self.book.planned))
        if not eligible.any():
            return
        available = self.book.idle()
        if not available.any():
            return
        if self._round_end_s is None:
            self.round_number += 1
            self._round_end_s = self._now + self._settings.round_length_s
            self._set_timer(PLAN, self._round_end_s - self._settings.plan_lead_s)
        choice = choose_round(
            jobs,
            self.pairs,
            self.table,
            eligible=eligible,
            free=self._placer.count(available),
            length_s=max(self._round_end_s - self._now, 1e-9),
            lead_s=0.0,
            keep_bonus_s=0.0,
        )
        self._commands += self._assigner.serve(choice, available, end_s=self._round_end_s)
        self._running_rows = None

    # -- small things ---------------------------------------------------------------------------

    def _set_timer(self, timer: str, at_s: float) -> None:
        self._commands.append(do.SetTimer(timer=timer, at_s=max(at_s, self._now)))

    def _record(self, kind: str, subject: str, **data: float | str) -> None:
        self._commands.append(do.RecordEvent(kind=kind, subject=subject, at_s=self._now, data=data))

    def check_invariants(self) -> None:
        """Raise InvariantError if the state contradicts itself. For tests, after every step."""
        self.jobs.check_invariants()
        self.book.check_invariants()
        jobs = self.jobs
        held = {int(lease) for lease in jobs["lease"] if lease != NONE}
        if held != set(self.book.leases):
            raise InvariantError(f"jobs hold leases {held}, in force are {set(self.book.leases)}")
        for lease_id in self.book.leases.keys() - self.book.stopping:
            lease = self.book.leases[lease_id]
            if not self.book.in_service[list(lease.workers)].all():
                raise InvariantError(f"lease {lease_id} holds a lost worker")
        for holders in self.book.on_worker:
            workers = [lease for lease in holders if lease not in self.book.stopping]
            if len(workers) == 2:
                entries = {
                    int(jobs["pair"][jobs.row_of(self.book.leases[lease].job_number)])
                    for lease in workers
                }
                if len(entries) != 1 or NONE in entries:
                    raise InvariantError(f"leases {workers} share a worker but are no pair")
        if self._round_end_s is None and self.book.leases:
            raise InvariantError("leases are in force, but no round runs")
