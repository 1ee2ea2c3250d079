"""A shell around the engine for tests: a virtual clock, obedient workers, and faults on demand."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from leasehold_testing.answers import equal_shares
from scheduler.domain.codec import encode
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.domain.rows import AttemptRow, JobRow
from scheduler.engine.adoption import adopt
from scheduler.engine.engine import Engine
from scheduler.engine.settings import EngineSettings
from scheduler.engine.snapshot import decode_state, dump, encode_state, restore
from scheduler.engine.state.state import RETRY
from scheduler.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.domain.allocation import Allocation
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.lease import Lease
    from scheduler.domain.problem import Problem

#: What waits for its time: an event, or the end of a lease.
_Due: TypeAlias = "ev.Event | tuple[int, EndReason]"


@dataclass(slots=True, kw_only=True)
class Execution:
    """A lease that runs.

    Attributes:
        lease: as granted.
        deadline_s: as last extended.
        safe: the job's steps at the lease's begin; a loss falls back to them.
        done: its steps by the shell's clock.
        stopping: whether its end is under way.
    """

    lease: Lease
    deadline_s: float
    safe: float
    done: float
    stopping: bool = False


class VirtualShell:
    """Performs the engine's commands against a clock that jumps.

    Jobs progress at the throughputs of the engine's table. After every call the engine's
    invariants are checked, and a command that no worker could obey raises ``InvariantError``.

    Attributes:
        engine: the engine under test.
        twin: after ``restart`` the engine that was not disturbed; both must say the same.
        now: seconds.
        log: (time, event or command) of everything that passed, in order.
        executions: lease id -> what runs.
        steps: job id -> steps done that are safe.
        ended: job id -> how it ended (``"job_completed"``, ...).
        questions: questions that have not been answered.
        timers: name -> when the engine wants to be woken.
        answer_delay_s: how long answers take; None leaves them to the test (``answer``, ``fail``).
        release_delay_s: how long after its time a revoked lease is over; the test may change it.
        repeat_reports: whether every end of a lease is reported twice.
        timer_delay_s: how late timers fire.
        enforce_deadlines: whether workers stop a job if its lease was not extended in time.
        fold_ends: whether the engine gets releases as columns; its twin gets them one by one.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: ConfigurationTable,
        *,
        settings: EngineSettings | None = None,
        allocate: Callable[[Problem], Allocation] = equal_shares,
        time_dependent: bool = False,
        answer_delay_s: float | None = 0.0,
        release_delay_s: float = 0.0,
        timer_delay_s: float = 0.0,
        repeat_reports: bool = False,
        enforce_deadlines: bool = False,
        fold_ends: bool = False,
    ) -> None:
        settings = settings or EngineSettings()
        self.engine = Engine(cluster, settings, time_dependent=time_dependent)
        self.twin: Engine | None = None
        if fold_ends:
            self.twin = Engine(cluster, settings, time_dependent=time_dependent)
        self.fold_ends = fold_ends
        self._allocate = allocate
        self.answer_delay_s = answer_delay_s
        self.release_delay_s = release_delay_s
        self.timer_delay_s = timer_delay_s
        self.repeat_reports = repeat_reports
        self.enforce_deadlines = enforce_deadlines
        self.now = 0.0
        self.log: list[tuple[float, ev.Event | do.Command]] = []
        self.executions: dict[int, Execution] = {}
        self.steps: dict[str, float] = {}
        self.ended: dict[str, str] = {}
        self.questions: list[do.ComputeAllocation] = []
        self.timers: dict[str, float] = {}
        self._lost: set[int] = set()
        self._retired: set[int] = set()
        #: workers that were drained or cordoned.
        self._closed: set[int] = set()
        self._totals: dict[str, float] = {}
        #: ids of jobs that save nothing before they are complete.
        self._unsaved: set[str] = set()
        self._queue: list[tuple[float, int, _Due]] = []
        self._sequence = 0
        #: the last snapshot, and (time, events of the engine) of each call since.
        self._snapshot = dump(self.engine)
        #: why leases were last revoked, and those that were at the snapshot.
        self._why: dict[int, RevokeReason] = {}
        self._revoked: dict[int, RevokeReason] = {}
        self._tail: list[tuple[float, list[ev.Event]]] = []
        #: lease id -> its record.
        self._attempts: dict[int, AttemptRow] = {}
        self.tell(ev.ConfigurationsChanged(table=table))

    # -- what tests do ------------------------------------------------------------------------

    def submit(self, job: Job, profile: int = 0) -> None:
        """Submit a job now."""
        self.tell(ev.JobSubmitted(job=job, profile=profile))

    def tell(self, *events: ev.Event) -> None:
        """Let events happen now."""
        self._deliver([*self._progress(), *events])

    def at(self, at_s: float, event: ev.Event) -> None:
        """Let an event happen later."""
        self._push(at_s, event)

    def answer(self, position: int = 0) -> None:
        """Answer one of the open questions, by default the oldest."""
        self.tell(self._computed(self.questions.pop(position)))

    def fail(self, position: int = 0) -> None:
        """Let one of the open questions have no answer."""
        question = self.questions.pop(position)
        self.tell(ev.AllocationFailed(generation=question.generation, reason="no solver"))

    def restart(self) -> None:
        """Go on with an engine that is restored from a stored snapshot, beside the one so far."""
        stored = decode_state(encode_state(dump(self.engine)))
        self.twin = self.engine
        self.engine = restore(stored, self.engine.settings)
        self.engine.check_invariants()
        self._take_snapshot()

    def _take_snapshot(self) -> None:
        self._snapshot, self._tail = dump(self.engine), []
        self._revoked = {i: self._why[i] for i in sorted(self.engine.book.stopping)}

    def upgrade(self) -> None:
        """Go on with an engine that takes over what this one has decided, as it is on record."""
        jobs, settings = self._job_rows(), self.engine.settings
        attempts: dict[str, list[AttemptRow]] = {job_id: [] for job_id in jobs}
        for lease_id, row in self._attempts.items():
            if row.job_id in attempts:
                run = self.executions.get(lease_id)
                deadline_s = row.deadline_s if run is None else run.deadline_s
                attempts[row.job_id].append(replace(row, deadline_s=deadline_s))
        self.engine, commands = adopt(
            restore(self._snapshot, settings),
            self._tail,
            revoked=self._revoked,
            jobs=jobs,
            attempts=attempts,
        )
        self.engine.check_invariants()
        self.twin = None
        if not self._revoked.keys() & self.executions.keys() <= self.engine.book.stopping:
            raise InvariantError(f"of the leases {self._revoked} some are no longer revoked")
        held = {c.lease.lease_id: c.lease for c in commands if isinstance(c, do.GrantLease)}
        before = {lease_id: run.lease for lease_id, run in self.executions.items()}
        if {i: _right(lease) for i, lease in held.items()} != {
            i: _right(lease) for i, lease in before.items()
        }:
            raise InvariantError(f"{before} are in force, and {held} are taken over")
        for lease_id, run in self.executions.items():
            run.lease, run.stopping = (
                held[lease_id],
                False,
            )  # a job with notice leaves all the same
        self.questions.clear()
        answers = (ev.AllocationComputed, ev.AllocationFailed)
        self._queue = [due for due in self._queue if not isinstance(due[2], answers)]
        heapq.heapify(self._queue)
        self.timers.clear()
        self._why |= {c.lease_id: c.reason for c in commands if isinstance(c, do.RevokeLease)}
        self._take_snapshot()
        events = [event for command in commands for event in self._told_again(command)]
        self._deliver([*self._progress(), *events, ev.TimerFired(timer=RETRY)])

    def _told_again(self, command: do.Command) -> list[ev.Event]:
        return [] if isinstance(command, do.GrantLease) else self._perform(command)

    def _job_rows(self) -> dict[str, JobRow]:
        jobs, rows = self.engine.jobs, {}
        cancelled = {i for i, wish in self.engine.state.after_end.items() if wish == "cancel"}
        for job_id, number in jobs.number_of.items():
            job, record = jobs.job_of[number], jobs.record(jobs.row_of(number))
            status = [JobStatus.WAITING, JobStatus.RUNNING, JobStatus.HELD][record["status"]]
            rows[job_id] = JobRow(
                job_id=job_id,
                number=number + 1,
                name=job_id,
                project="",
                owner="",
                job_type=job.job_type,
                status=JobStatus.RUNNING if record["lease"] in cancelled else status,
                weight=float(record["weight"]),
                total_steps=job.total_steps,
                steps_done=float(record["steps_safe"]),
                attempts=int(record["attempts"]),
                failures=int(record["failures"]),
                submitted_s=job.arrival_s,
                deadline_s=None if record["deadline_s"] == math.inf else record["deadline_s"],
                updated_s=self.now,
            )
        return rows

    def end(self, lease_id: int, reason: EndReason) -> None:
        """Let a running lease end now, for a reason of its own."""
        self.tell(*self._end(lease_id, reason))

    def run(self, *, until_s: float) -> None:
        """Let time pass."""
        while (moment := self._next_moment()) <= until_s:
            self._move(moment)
            self._deliver(self._due())
        self._move(until_s)

    def run_until_idle(self, *, at_most_s: float) -> None:
        """Let time pass until no active job is left.

        Raises:
            InvariantError: jobs are left after ``at_most_s`` more seconds.
        """
        limit_s = self.now + at_most_s
        while len(self.engine.jobs):
            moment = self._next_moment()
            if moment > limit_s:
                left = sorted(self.engine.jobs.number_of)
                raise InvariantError(f"jobs {left} have not ended within {at_most_s} s")
            self._move(moment)
            self._deliver(self._due())

    def running(self) -> dict[str, tuple[int, ...]]:
        """Return the workers of each job that runs."""
        return {run.lease.job_id: run.lease.workers for run in self.executions.values()}

    def history(self, kind: type) -> list[tuple[float, ev.Event | do.Command]]:
        """Return the entries of the log that are of one type."""
        return [entry for entry in self.log if isinstance(entry[1], kind)]

    # -- time ---------------------------------------------------------------------------------

    def _next_moment(self) -> float:
        finish_s = [
            self.now + (self._totals[run.lease.job_id] - run.done) / rate
            for run in self.executions.values()
            if not run.stopping and (rate := self._rate(run.lease)) > 0
        ]
        queued = [self._queue[0][0]] if self._queue else []
        timers = [at_s + self.timer_delay_s for at_s in self.timers.values()]
        deadlines = [run.deadline_s for run in self._overdue(math.inf)]
        return max(self.now, min([*finish_s, *queued, *timers, *deadlines], default=math.inf))

    def _move(self, to_s: float) -> None:
        elapsed = to_s - self.now
        for run in self.executions.values():
            total = self._totals[run.lease.job_id]
            run.done = min(total, run.done + elapsed * self._rate(run.lease))
            if total - run.done <= 1e-9 * total:
                run.done = total
        self.now = to_s

    def _due(self) -> list[ev.Event]:
        events = self._progress()
        for lease_id, run in list(self.executions.items()):
            if run.done >= self._totals[run.lease.job_id]:
                events += self._end(lease_id, EndReason.COMPLETED)
        while self._queue and self._queue[0][0] <= self.now:
            due = heapq.heappop(self._queue)[2]
            events += self._end(*due) if isinstance(due, tuple) else [due]
        for timer, at_s in sorted(self.timers.items()):
            if at_s + self.timer_delay_s <= self.now:
                del self.timers[timer]
                events.append(ev.TimerFired(timer=timer))
        if not any(isinstance(event, ev.TimerFired) for event in events):
            for run in self._overdue(self.now):
                events += self._end(run.lease.lease_id, EndReason.RELEASED)
        return events

    def _overdue(self, at_s: float) -> list[Execution]:
        if not self.enforce_deadlines:
            return []
        return [r for r in self.executions.values() if not r.stopping and r.deadline_s <= at_s]

    def _push(self, at_s: float, due: _Due) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (at_s, self._sequence, due))

    # -- events out, commands in --------------------------------------------------------------

    def _deliver(self, events: list[ev.Event]) -> None:
        while events:
            for event in events:
                self._notice(event)
                self.log.append((self.now, event))
            told = folded(events) if self.fold_ends else events
            self._tail.append((self.now, told))
            commands = self.engine.handle(*told, now=self.now)
            self._keep(events, commands)
            self.engine.check_invariants()
            self._compare(events, commands)
            events = []
            for command in commands:
                self.log.append((self.now, command))
                events += self._perform(command)

    def _keep(self, events: list[ev.Event], commands: list[do.Command]) -> None:
        """Keep on record what leases there are."""
        for event in events:
            if isinstance(event, ev.LeaseEnded):
                row = self._attempts[event.lease_id]
                self._attempts[event.lease_id] = replace(
                    row, ended_s=self.now, end_reason=event.reason
                )
        for command in commands:
            if isinstance(command, do.RevokeLease):
                self._why[command.lease_id] = command.reason
            if isinstance(command, do.GrantLease):
                names = ("lease_id", "job_id", "attempt", "token", "workers", "start_s")
                values = {name: getattr(command.lease, name) for name in names}
                self._attempts[command.lease.lease_id] = AttemptRow(
                    **values, nodes=(), deadline_s=command.lease.deadline_s
                )

    def _compare(self, events: list[ev.Event], commands: list[do.Command]) -> None:
        if self.twin is None:
            return
        undisturbed = self.twin.handle(*events, now=self.now)
        if [encode(c) for c in commands] != [encode(c) for c in undisturbed]:
            raise InvariantError(
                f"at {self.now} s one engine says {commands}, its twin {undisturbed}"
            )

    def _notice(self, event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                if event.job.job_id not in self.engine.jobs.number_of:
                    self._totals[event.job.job_id] = event.job.total_steps
                    self.steps[event.job.job_id] = event.job.steps_before
                    if not event.job.checkpoints:
                        self._unsaved.add(event.job.job_id)
            case ev.WorkersLost():
                self._lost |= set(event.workers)
            case ev.WorkersRetired():
                self._lost |= set(event.workers)
                self._retired |= set(event.workers)
            case ev.WorkersDrained() | ev.WorkersCordoned():
                self._closed |= set(event.workers)
            case ev.WorkersReturned():
                self._lost -= set(event.workers) - self._retired
                self._closed -= set(event.workers)

    def _perform(self, command: do.Command) -> list[ev.Event]:
        match command:
            case do.ComputeAllocation():
                return self._ask(command)
            case do.GrantLease():
                self._grant(command.lease)
            case do.ExtendLeases():
                self._extend(command)
            case do.RevokeLease():
                return self._revoke(command)
            case do.SetTimer():
                self.timers[command.timer] = command.at_s
            case do.RecordEvent():
                if command.kind in {"job_completed", "job_cancelled", "job_failed", "job_refused"}:
                    self.ended[command.subject] = command.kind
        return []

    def _ask(self, question: do.ComputeAllocation) -> list[ev.Event]:
        if self.answer_delay_s is None:
            self.questions.append(question)
        elif self.answer_delay_s > 0:
            self._push(self.now + self.answer_delay_s, self._computed(question))
        else:
            return [self._computed(question)]
        return []

    def _computed(self, question: do.ComputeAllocation) -> ev.AllocationComputed:
        return ev.AllocationComputed(
            generation=question.generation,
            job_number=question.problem.job_number,
            allocation=self._allocate(question.problem),
        )

    def _grant(self, lease: Lease) -> None:
        for other in self.executions.values():
            if other.lease.job_id == lease.job_id:
                raise InvariantError(f"job '{lease.job_id}' is granted a second lease")
            shared = set(other.lease.workers) & set(lease.workers)
            if shared and (other.lease.workers != lease.workers or lease.configuration >= 0):
                raise InvariantError(f"leases {other.lease} and {lease} overlap")
        if self._lost & set(lease.workers):
            raise InvariantError(f"{lease} is on a lost worker")
        if self._closed & set(lease.workers):
            raise InvariantError(f"{lease} is on a worker that was drained or cordoned")
        if lease.deadline_s <= self.now:
            raise InvariantError(f"{lease} is over before it begins, at {self.now} s")
        done = self.steps[lease.job_id]
        self.executions[lease.lease_id] = Execution(
            lease=lease, deadline_s=lease.deadline_s, safe=done, done=done
        )

    def _extend(self, command: do.ExtendLeases) -> None:
        for lease_id in command.lease_ids.tolist():
            run = self.executions[lease_id]
            if run.stopping or command.deadline_s < run.deadline_s:
                raise InvariantError(f"{run} cannot be extended to {command.deadline_s} s")
            run.deadline_s = command.deadline_s

    def _revoke(self, command: do.RevokeLease) -> list[ev.Event]:
        run = self.executions.get(command.lease_id)
        if run is None:
            return []
        if command.by_s > max(run.deadline_s, self.now):
            raise InvariantError(f"{run} has notice only by {command.by_s} s")
        run.stopping = True
        lost = command.reason is RevokeReason.WORKER_LOST
        reason = EndReason.LOST if lost else EndReason.RELEASED
        end_s = max(command.by_s, self.now) + self.release_delay_s
        if end_s <= self.now:
            return self._end(command.lease_id, reason)
        self._push(end_s, (command.lease_id, reason))
        return []

    def _end(self, lease_id: int, reason: EndReason) -> list[ev.Event]:
        run = self.executions.pop(lease_id, None)
        if run is None:
            return []
        lost = reason in {EndReason.LOST, EndReason.FAILED} or bool(
            self._lost & set(run.lease.workers)
        )
        if lost and reason is EndReason.RELEASED:
            reason = EndReason.LOST
        lost |= run.lease.job_id in self._unsaved
        done = run.safe if lost and reason is not EndReason.COMPLETED else run.done
        self.steps[run.lease.job_id] = done
        event = ev.LeaseEnded(lease_id=lease_id, reason=reason, steps_done=done)
        return [event, event] if self.repeat_reports else [event]

    def _progress(self) -> list[ev.Event]:
        if not self.executions:
            return []
        runs = sorted(self.executions.items())
        return [
            ev.ProgressReported(
                lease_ids=np.array([lease_id for lease_id, _ in runs], dtype=np.int64),
                steps_done=np.array([run.done for _, run in runs]),
            )
        ]

    def _rate(self, lease: Lease) -> float:
        """Return steps/s by the table; a pair's from the row of its two profiles."""
        if self._lost & set(lease.workers):
            return 0.0
        table = self.engine.table
        kinds = self.engine.fleet.type_of[list(lease.workers)]
        demand = np.bincount(kinds, minlength=len(table.worker_types))
        same = (table.demand[lease.profile] == demand).all(axis=1)
        alone = float(table.throughput[lease.profile][same].max(initial=0.0))
        for other in self.executions.values():
            if other.lease.workers == lease.workers and other.lease is not lease:
                profiles = sorted((lease.profile, other.lease.profile))
                rows = (table.pair_profiles == profiles).all(axis=1)
                rows &= (table.pair_demand == demand).all(axis=1)
                member = 0 if lease.profile == profiles[0] else 1
                return float(table.pair_throughput[rows, member].max(initial=0.0))
        return alone


def _right(lease: Lease) -> tuple[object, ...]:
    """Return a worker's state of a lease."""
    return lease.job_id, lease.attempt, lease.token, lease.workers, lease.start_s


def folded(events: Iterable[ev.Event]) -> list[ev.Event]:
    """Return events with each run of releases that only say how many steps are safe as columns."""
    result: list[ev.Event] = []
    run: dict[int, float] = {}

    def close() -> None:
        if run:
            result.append(
                ev.LeasesReleased(
                    lease_ids=np.array(list(run), dtype=np.int64),
                    steps_done=np.array(list(run.values())),
                )
            )
            run.clear()

    for event in events:
        if not isinstance(event, ev.LeaseEnded) or event != ev.LeaseEnded(
            lease_id=event.lease_id, reason=EndReason.RELEASED, steps_done=event.steps_done
        ):
            close()
            result.append(event)
            continue
        if event.lease_id in run:
            close()
        run[event.lease_id] = event.steps_done
    close()
    return result
