"""The virtual shell around one engine: events in order of time, and simulated workers."""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from policies.asking import ask
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease import Leases
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.engine.engine import Engine
from scheduler.engine.state.state import PLAN
from scheduler.errors import LeaseholdError, PolicyFaultError, SolveError
from simulator.inputs import check_jobs
from simulator.progress import Progress
from simulator.remarks import Remarks
from simulator.tables.ledger import Ledger
from simulator.world.failures import FailureProcess
from simulator.world.overheads import OverheadRows
from simulator.world.workers import SimulatedWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policies.base import Policy
    from scheduler.control.admission import Admission
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.problem import Problem
    from scheduler.engine.settings import EngineSettings
    from simulator.result import SimulationResult
    from simulator.world.beginning import Beginning
    from simulator.world.failures import FailureModel
    from simulator.world.overheads import Overhead, Overheads
    from simulator.world.workers import LearningJobs

_REPORT_EVERY = 256  # steps of the loop between two reports of progress


class Simulation:
    """The virtual shell around one engine: a clock that jumps, and simulated workers."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        jobs: Sequence[Job],
        profiles: Sequence[int],
        table: ConfigurationTable,
        policy: Policy,
        settings: EngineSettings,
        overheads: Overheads,
        failures: FailureModel,
        believed: ConfigurationTable | None = None,
        seed: int = 0,
        window: tuple[int, int] | None = None,
        record: bool = False,
        scale_factors: Sequence[tuple[int, ...]] | None = None,
        label: str = "",
        inputs: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
        beginning: Beginning | None = None,
        learning: LearningJobs | None = None,
    ) -> None:
        """Compose a run.

        Args:
            cluster: the workers.
            jobs: in order of arrival.
            profiles: the row of ``table`` for each job.
            table: the true throughputs.
            policy: the policy.
            settings: of the round mechanism.
            overheads: costs of restarts.
            failures: how workers fail.
            believed: the throughputs that engine and policy see; the true ones by default.
            seed: of the failures.
            window: positions of the jobs to measure; the run ends when they have ended.
            record: keep leases and series.
            scale_factors: worker counts of each job, for the result; None if each has one.
            label: name of the policy in the result.
            inputs: the inputs, as text for reports.
            progress: called now and then with the progress of the run.
            beginning: the start, if it is not an empty cluster at 0; then no job arrives on its
                own, and ``enter`` must be called first.
            learning: gives rates of jobs instead of the table, and the engine's knowledge of them.

        Raises:
            InputError: two jobs have one id, or the window holds no job.
        """
        check_jobs(jobs, window)
        rng = np.random.default_rng(seed)
        self._cluster = cluster
        self._jobs = [_with_restarts(job, overheads.of(job.job_type)) for job in jobs]
        self._profiles = list(profiles)
        self._policy = policy
        #: job id -> its position.
        self._position = {job.job_id: i for i, job in enumerate(self._jobs)}
        #: (N,) the cost of a lease for each job.
        self._costs = OverheadRows(
            (overheads.of(job.job_type) for job in jobs),
            [name for node in cluster.nodes for name in node.workers],
        )
        self._overheads = self._costs.rows
        self._failures = FailureProcess(failures, cluster.workers, rng)
        self._workers = SimulatedWorkers(
            cluster,
            table,
            self._overheads,
            self._failures.speed,
            checkpoint_interval_s=failures.checkpoint_interval_s,
            pace=None if beginning is None else beginning.pace,
            learning=learning,
        )
        self._learning = learning
        #: whether jobs run by plans.
        self._has_plans = any(way.plan for one in table.profiles for way in one.configurations)
        self._refresh_s = math.inf
        self._ledger = Ledger(
            cluster,
            table,
            self._jobs,
            profiles,
            overheads=self._overheads,
            window=window,
            record=record,
            scale_factors=scale_factors,
        )
        if beginning is None:
            self._engine = Engine(
                cluster,
                settings,
                time_dependent=policy.time_dependent,
                usage_half_life_s=policy.half_life_s,
            )
            self._engine.handle(ev.ConfigurationsChanged(table=believed or table), now=0.0)
        else:
            self._engine = beginning.engine
        self._seed = seed
        self._remarks = Remarks()
        self._remarks.window(window, len(self._jobs))
        self._label = label or policy.name
        self._settings = dict(inputs or {})
        self._progress = progress
        self._now = 0.0
        self._next_job = 0
        self._timers: dict[str, float] = {}
        #: (time, lease id, why): ends of leases that have been announced or drawn.
        self._ends: list[tuple[float, int, EndReason]] = []
        #: (N,) steps of each job that are done and safe, and steps in all.
        self._safe_steps: FloatArray = np.zeros(len(self._jobs))
        self._total_steps = np.array([job.total_steps for job in self._jobs])
        #: (N,) most steps that are kept of each job when it has to stop.
        self._most_left: FloatArray = np.array(
            [math.inf if job.checkpoints else 0.0 for job in self._jobs]
        )
        #: (N,) most steps of each job that are reported to the engine.
        self._most_told: FloatArray = np.full(len(self._jobs), np.inf)
        #: all commands, for tests of parity; filled only on request.
        self.log: list[do.Command] | None = None
        #: called with each question to the policy, and the jobs by their numbers.
        self.watch: Callable[[Problem, Mapping[int, Job]], None] | None = None
        #: number of questions to the policy, and of jobs in all of them.
        self.questions = self.jobs_asked = 0
        #: control's admission beside the engine, if there is any.
        self._admission: Admission | None = None
        if beginning is not None:
            self._take_over(beginning)

    @property
    def now_s(self) -> float:
        """The time."""
        return self._now

    @property
    def only_rounds_follow(self) -> bool:
        """Whether only the engine's own rounds are still to come."""
        return math.isinf(self._coming_s()) and self._timers.keys() <= {PLAN}

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen."""
        return math.isinf(self._coming_s()) and not self._timers

    def times(self) -> Iterator[tuple[str, float | None, float | None]]:
        """Yield every job's id, its first start in this run, and when it completed."""
        return self._ledger.times()

    def _take_over(self, beginning: Beginning) -> None:
        """Begin in the present state of another run, or of the service."""
        self._now = beginning.now_s
        self._next_job = len(self._jobs)
        self._timers = dict(beginning.timers)
        self._admission = beginning.admission
        self._safe_steps[:] = beginning.safe_steps
        self._total_steps[:] = beginning.total_steps
        self._most_left[:] = beginning.most_left
        self._most_told[:] = beginning.most_told
        for held in beginning.held:
            leases = Leases.of(held.lease)
            jobs = self._positions(leases.job_ids)
            self._overheads["launch_s"][jobs] = held.launch_s
            self._workers.start(
                leases,
                jobs=jobs,
                now=self._now,
                base=np.array([held.steps_done]),
                total=self._total_steps[jobs],
                fails_s=np.array([math.inf]),
            )
            if held.over is not None:
                over_s, reason = held.over
                heapq.heappush(self._ends, (max(over_s, self._now), held.lease.lease_id, reason))
        self._overheads["launch_s"] = beginning.launch_s
        self._overheads["notice_s"] = beginning.notice_s

    def enter(self, question: do.ComputeAllocation | None = None) -> None:
        """Handle the immediate consequences of the state at the start.

        Args:
            question: the engine's open question, if any.
        """
        events = self._progress_now() if len(self._workers) else []
        if self._admission is not None:
            events += self._admission.begin(self._now)
        if question is not None:
            events.append(self._answer(question))
        self._settle(events, self._now)

    def run(self, *, until_s: float = math.inf) -> SimulationResult:
        """Run until every measured job has ended, but at most until ``until_s``."""
        wall, cpu = time.perf_counter(), time.process_time()
        steps = 0
        while self._ledger.to_go and self._now < until_s:
            self.step(until_s)
            steps += 1
            if self._progress and steps % _REPORT_EVERY == 0:
                self._report()
        self._report()
        return self._ledger.result(
            self._now,
            label=self._label,
            rounds=self._engine.round_number,
            seed=self._seed,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
            settings=self._settings,
            until_s=until_s,
            warnings=self._remarks.sentences(
                self._policy.name, len(self._ledger.solve_s), self._ledger.launching
            ),
        )

    def _report(self) -> None:
        if self._progress:
            total = self._ledger.measured
            self._progress(
                Progress(now_s=self._now, jobs_done=total - self._ledger.to_go, jobs=total)
            )

    def step(self, until_s: float = math.inf) -> None:
        """Jump to the next event, or to an earlier time, and handle the events of that time."""
        now = min(self._next_moment(), until_s)
        self._ledger.pass_time(now - self._now, self._workers.busy)
        self._now = now
        self._settle(self._due(now), now)
        self._ledger.sample(now, self._workers.busy.tolist(), len(self._workers))

    def _settle(self, events: list[ev.Event], now: float) -> None:
        """Handle events and their immediate consequences."""
        while events:
            commands = self._engine.handle_columns(*events, now=now)
            self._ledger.planned(self._engine.certificate)
            if self.log is not None:
                self.log.extend(do.one_by_one(commands))
            told, events = events, self._perform(commands)
            if self._admission is not None:
                events += self._admission.follow(told, commands, now)

    def _coming_s(self) -> float:
        """Return the time of the next event without a timer of the engine; inf for never."""
        return min(
            self._jobs[self._next_job].arrival_s if self._next_job < len(self._jobs) else math.inf,
            self._workers.next_finish_s,
            self._workers.next_turn_s,
            self._refresh_s,
            self._ends[0][0] if self._ends else math.inf,
            math.inf if self._admission is None else self._admission.next_due_s,
            self._failures.next_s,
        )

    def _next_moment(self) -> float:
        moment = min(self._coming_s(), min(self._timers.values(), default=math.inf))
        if math.isinf(moment):
            waiting = [job.job_id for job in self._engine.jobs.job_of.values()]
            raise LeaseholdError(
                f"nothing more can happen at {self._now:.0f} s, but {len(waiting)} jobs have not "
                f"ended ({', '.join(waiting[:5])}); this is a bug of the engine or of the policy"
            )
        return max(moment, self._now)

    def _due(self, now: float) -> list[ev.Event]:
        """Collect the events at ``now``; progress first, timers last."""
        events: list[ev.Event] = []
        if len(self._workers):
            self._workers.turn(now)
            events += self._progress_now()
            events += self._refresh(now)
            events += self._end(self._workers.finished(now), EndReason.COMPLETED)
        else:
            self._refresh_s = math.inf
        over = []
        while self._ends and self._ends[0][0] <= now:
            over.append(heapq.heappop(self._ends))
        for reason, ends in groupby(over, key=lambda end: end[2]):
            events += self._end([lease_id for _, lease_id, _ in ends], reason)
        while self._failures.next_s <= now:
            worker, lost = self._failures.pop()
            kind = ev.WorkersLost if lost else ev.WorkersReturned
            events.append(kind(workers=(worker,)))
        while self._next_job < len(self._jobs) and self._jobs[self._next_job].arrival_s <= now:
            job = self._jobs[self._next_job]
            events.append(ev.JobSubmitted(job=job, profile=self._profiles[self._next_job]))
            self._next_job += 1
        if self._admission is not None:
            events += self._admission.follow((), (), now)
        for timer in [name for name, at_s in self._timers.items() if at_s <= now]:
            del self._timers[timer]
            events.append(ev.TimerFired(timer=timer))
        return events

    def _refresh(self, now: float) -> list[ev.Event]:
        """Update the engine's table of the jobs' rates, if it is time to."""
        if self._learning is None or now < self._refresh_s:
            return []
        every_s = self._learning.refresh_s
        self._refresh_s = (now // every_s + 1.0) * every_s
        steps = self._safe_steps.copy()
        steps[self._workers.jobs] = self._workers.steps_done(now)
        table = self._learning.known(self._workers.held(), steps)
        self._workers.turn(now, everyone=True)
        return [] if table is None else [ev.ConfigurationsChanged(table=table)]

    def _progress_now(self) -> list[ev.Event]:
        done = self._workers.steps_done(self._now)
        told = self._told(self._workers.jobs, done)
        return [ev.ProgressReported(lease_ids=self._workers.lease_ids, steps_done=told)]

    def _perform(self, commands: list[do.Command | do.Batch]) -> list[ev.Event]:
        """Perform commands; return the events that follow at once."""
        events: list[ev.Event] = []
        for command in commands:
            match command:
                case do.ComputeAllocation():
                    events.append(self._answer(command))
                case do.GrantLeases():
                    self._grant(command.leases)
                case do.HandOver():
                    self._ledger.preempted(self._positions(command.job_ids))
                    self._grant(command.leases)
                case do.RevokeLeases():
                    events += self._revoke(command)
                case do.ExtendLeases():
                    self._ledger.extended += len(command.lease_ids)
                case do.SetTimer():
                    self._timers[command.timer] = command.at_s
                case do.RecordEvent():
                    self._ledger.note(command.kind, command.subject, command.at_s)
                    self._remarks.take(command)
        if any(isinstance(event, ev.AllocationComputed | ev.AllocationFailed) for event in events):
            self._timers.pop("grace", None)  # set together with the question, which is answered
        return events

    def _positions(self, job_ids: Iterable[str]) -> IntArray:
        """Return (n,) positions of jobs in the trace."""
        return np.array([self._position[job_id] for job_id in job_ids], dtype=np.int64)

    def _answer(self, command: do.ComputeAllocation) -> ev.Event:
        begin = time.perf_counter()
        self.questions += 1
        if self.watch is not None:
            self.watch(command.problem, self._engine.jobs.job_of)
        self.jobs_asked += len(command.problem.job_number)
        try:
            allocation = ask(self._policy, command.problem)
        except SolveError as error:
            if not self._ledger.solve_s:
                raise SolveError(
                    f"policy '{self._policy.name}' could not answer its first question: {error}"
                ) from error
            return ev.AllocationFailed(generation=command.generation, reason=str(error))
        except PolicyFaultError as error:
            raise PolicyFaultError(f"at {self._now:.0f} s, {error}") from error
        finally:
            self._ledger.solve_s.append(time.perf_counter() - begin)
        self._ledger.answered(self._now, command.problem, allocation)
        return ev.AllocationComputed(
            generation=command.generation,
            job_number=command.problem.job_number,
            allocation=allocation,
        )

    def _plans_of(self, leases: Leases) -> dict[int, str]:
        """Return lease id -> the plan of its configuration."""
        profiles = self._engine.table.profiles
        places = zip(
            leases.ids, leases.profile.tolist(), leases.configuration.tolist(), strict=True
        )
        return {i: profiles[u].configurations[j].plan for i, u, j in places if j >= 0}

    def _grant(self, leases: Leases) -> None:
        jobs = self._positions(leases.job_ids)
        fails_s = self._now + self._failures.draw_job_failures_s(len(leases))
        self._costs.granted(jobs, leases)
        sharing = self._workers.start(
            leases,
            jobs=jobs,
            now=self._now,
            base=self._safe_steps[jobs],
            total=self._total_steps[jobs],
            fails_s=fails_s,
        )
        if self._failures.jobs_fail:
            for lease_id, at_s in zip(leases.ids, fails_s.tolist(), strict=True):
                if math.isfinite(at_s):
                    heapq.heappush(self._ends, (at_s, lease_id, EndReason.FAILED))
        self._ledger.granted(
            leases, jobs, sharing, self._plans_of(leases) if self._has_plans else {}
        )
        if self._learning is not None and math.isinf(self._refresh_s):
            every_s = self._learning.refresh_s
            self._refresh_s = (self._now // every_s + 1.0) * every_s

    def _revoke(self, command: do.RevokeLeases) -> list[ev.Event]:
        """Give notice to leases; return the events of leases that end at once."""
        asked = command.lease_ids.tolist()
        if command.reason is RevokeReason.WORKER_LOST:
            return self._end(asked, EndReason.LOST)
        # Some may have ended already: a second of their workers was lost at the same moment.
        lease_ids = self._workers.running(asked)
        outbid = command.reason is RevokeReason.OUTBID
        self._ledger.outbid += outbid * len(lease_ids)
        why = EndReason.RELEASED if outbid else EndReason.CANCELLED
        jobs = self._workers.jobs_of(lease_ids)
        checkpoint_s = self._overheads["checkpoint_s"][jobs]
        notice_s = self._overheads["notice_s"][jobs]
        end_s = np.maximum(command.by_s, self._now + checkpoint_s)
        end_s = np.minimum(end_s, self._now + notice_s + checkpoint_s)
        if (end_s <= self._now).all():
            return self._end(lease_ids, why)
        events: list[ev.Event] = []
        values = zip(lease_ids, end_s.tolist(), checkpoint_s.tolist(), strict=True)
        for lease_id, leaves_s, writes_s in values:
            if leaves_s <= self._now:
                events += self._end([lease_id], why)
                continue
            done_s = self._workers.stop_progress(lease_id, leaves_s - writes_s)
            over_s = leaves_s if math.isinf(done_s) else max(leaves_s, done_s)
            heapq.heappush(self._ends, (over_s, lease_id, why))
        return events

    def _end(self, lease_ids: Iterable[int], reason: EndReason) -> list[ev.Event]:
        """End leases if they still run; return the events for the engine."""
        lease_ids = self._workers.running(lease_ids)
        if not lease_ids:
            return []
        jobs = self._workers.jobs_of(lease_ids)
        lost = reason in {EndReason.LOST, EndReason.FAILED}
        done = self._workers.end(lease_ids, self._now, lost=lost)
        if reason is not EndReason.COMPLETED:
            done = np.minimum(done, self._most_left[jobs])
        self._safe_steps[jobs] = done
        self._ledger.over(lease_ids, jobs, self._now, str(reason))
        told = self._told(jobs, done)
        if reason is EndReason.RELEASED:
            return [ev.LeasesReleased(lease_ids=np.array(lease_ids), steps_done=told)]
        return [
            ev.LeaseEnded(lease_id=lease_id, reason=reason, steps_done=steps)
            for lease_id, steps in zip(lease_ids, told.tolist(), strict=True)
        ]

    def _told(self, jobs: IntArray, steps: FloatArray) -> FloatArray:
        """Return (n,) the steps of jobs that are reported to the engine."""
        return np.minimum(steps, self._most_told[jobs])


def _with_restarts(job: Job, overhead: Overhead) -> Job:
    """Return a job with the overhead's restart costs, unless it declares its own."""
    if job.restart_s or job.restarts or not (overhead.restart_s or overhead.workers):
        return job
    return replace(job, restart_s=overhead.restart_s, restarts=overhead.restarts)
