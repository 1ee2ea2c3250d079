"""One run: trace, cluster and policy in, result out."""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.agnostic import agnostic
from planner.oracle import build_table
from policies.registry import make_policy
from scheduler.domain import commands as do
from scheduler.domain import events as ev
from scheduler.domain.lease import EndReason, RevokeReason
from scheduler.engine.engine import Engine
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError, LeaseholdError, ParameterError, SolveError
from simulator.failures import FailureProcess, read_failures
from simulator.ledger import Ledger
from simulator.overheads import read_overheads
from simulator.remarks import Remarks
from simulator.workers import SimulatedWorkers
from traces.cluster import read_cluster
from traces.reader import read_trace
from traces.scaling import extend_scale_factors
from traces.throughputs import read_throughputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.base import Policy
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.job import Job
    from simulator.failures import FailureModel
    from simulator.overheads import Overhead, Overheads
    from simulator.request import SimulationRequest
    from simulator.result import SimulationResult

_REPORT_EVERY = 256  # steps of the loop between two reports of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        now_s: simulated seconds.
        jobs_done: jobs of the window that have ended.
        jobs: jobs of the window.
    """

    now_s: float
    jobs_done: int
    jobs: int


def simulate(
    request: SimulationRequest, progress: Callable[[Progress], None] | None = None
) -> SimulationResult:
    """Read the inputs of a request and run it.

    Raises:
        InputError: an input is malformed or missing.
        LeaseholdError: the run cannot go on.
    """
    throughputs = read_throughputs(request.throughputs)
    cluster = read_cluster(request.cluster, workers_per_node=request.workers_per_node)
    trace = read_trace(
        request.trace,
        format=request.trace_format,
        throughputs=throughputs,
        seed=request.seed,
        reference_worker_type=request.reference_worker_type,
        limit=request.limit,
    )
    unknown = sorted(set(cluster.type_names) - set(throughputs.worker_types))
    if unknown:
        raise InputError(
            f"worker type '{unknown[0]}' of the cluster is not in the throughput table; it knows "
            f"{', '.join(throughputs.worker_types)}"
        )
    throughputs = extend_scale_factors(throughputs, {job.scale_factor for job in trace.jobs})
    keys = sorted({(job.job_type, job.scale_factor) for job in trace.jobs})
    table = build_table(cluster.type_names, throughputs, keys, space_sharing=request.space_sharing)
    position = {key: u for u, key in enumerate(keys)}
    simulation = Simulation(
        cluster=cluster,
        jobs=trace.jobs,
        profiles=[position[job.job_type, job.scale_factor] for job in trace.jobs],
        table=table,
        believed=agnostic(table) if request.agnostic else table,
        policy=make_policy(request.policy, request.params),
        settings=EngineSettings(
            round_length_s=request.round_length_s,
            plan_lead_s=request.plan_lead_s,
            carry_credit=request.carry_credit,
        ),
        overheads=read_overheads(request.overheads),
        failures=read_failures(request.failures),
        seed=request.seed,
        window=request.window,
        record=request.record,
        label=request.label,
        inputs=_inputs(request),
        progress=progress,
    )
    return simulation.run()


def _inputs(request: SimulationRequest) -> dict[str, str]:
    """Name the inputs that the summary does not show, as text for reports."""
    names = ("trace", "throughputs", "round_length_s", "workers_per_node", "overheads", "failures")
    values = ((name, getattr(request, name)) for name in (*names, "limit"))
    return {name: str(value) for name, value in values if value is not None}


class Simulation:
    """The virtual shell around one engine: a clock that jumps and workers that are simulated."""

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
        label: str = "",
        inputs: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Compose a run.

        Args:
            cluster: the workers.
            jobs: in order of arrival.
            profiles: the row of ``table`` for each job.
            table: the true throughputs.
            policy: who allocates.
            settings: of the round mechanism.
            overheads: what restarts cost.
            failures: how workers fail.
            believed: the throughputs that engine and policy see; the true ones by default.
            seed: of the failures.
            window: positions of the jobs to measure; the run ends when they are done.
            record: keep leases and series.
            label: how the result names the policy.
            inputs: what a report says of the inputs.
            progress: told now and then how far the run is.

        Raises:
            InputError: two jobs have one id, or the window holds no job.
        """
        _check_jobs(jobs, window)
        rng = np.random.default_rng(seed)
        self._cluster = cluster
        self._jobs = [
            job
            if job.restart_s or not (cost := overheads.of(job.job_type).restart_s)
            else replace(job, restart_s=cost)
            for job in jobs
        ]
        self._profiles = list(profiles)
        self._policy = policy
        self._overheads = overheads
        self._failures = FailureProcess(failures, cluster.workers, rng)
        self._workers = SimulatedWorkers(
            cluster,
            table,
            self._failures.speed,
            checkpoint_interval_s=failures.checkpoint_interval_s,
        )
        self._ledger = Ledger(cluster, table, self._jobs, profiles, window=window, record=record)
        self._engine = Engine(cluster, settings, time_dependent=policy.time_dependent)
        self._engine.handle(ev.ConfigurationsChanged(table=believed or table), now=0.0)
        self._seed = seed
        self._remarks = Remarks()
        self._label = label or policy.name
        self._settings = dict(inputs or {})
        self._progress = progress
        self._now = 0.0
        self._next_job = 0
        self._timers: dict[str, float] = {}
        #: (time, lease id, why): ends of leases that have been announced or drawn.
        self._ends: list[tuple[float, int, EndReason]] = []
        #: job id -> (steps done that are safe, steps in all)
        self._steps = {job.job_id: (0.0, job.total_steps) for job in self._jobs}
        #: everything that happened, for tests of parity; filled only on request.
        self.log: list[do.Command] | None = None

    def run(self) -> SimulationResult:
        """Run until every measured job has ended."""
        wall, cpu = time.perf_counter(), time.process_time()
        steps = 0
        while self._ledger.to_go:
            self._step()
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
            open_leases=[execution.lease for execution in self._workers.executions.values()],
            settings=self._settings,
            warnings=self._remarks.sentences(self._policy.name, len(self._ledger.solve_s)),
        )

    def _report(self) -> None:
        if self._progress:
            total = self._ledger.measured
            self._progress(
                Progress(now_s=self._now, jobs_done=total - self._ledger.to_go, jobs=total)
            )

    def _step(self) -> None:
        """Jump to the next moment at which something happens, and let it happen."""
        now = self._next_moment()
        self._ledger.pass_time(now - self._now, self._workers.busy)
        self._now = now
        events = self._due(now)
        while events:
            events = self._perform(self._engine.handle(*events, now=now))
        self._ledger.sample(now, self._workers.busy.tolist(), len(self._workers))

    def _next_moment(self) -> float:
        arrival_s = (
            self._jobs[self._next_job].arrival_s if self._next_job < len(self._jobs) else math.inf
        )
        moment = min(
            arrival_s,
            self._workers.next_finish_s,
            min(self._timers.values(), default=math.inf),
            self._ends[0][0] if self._ends else math.inf,
        )
        if math.isinf(moment) and not self._engine.jobs:
            moment = math.inf
        moment = min(moment, self._failures.next_s)
        if math.isinf(moment):
            waiting = [job.job_id for job in self._engine.jobs.job_of.values()]
            raise LeaseholdError(
                f"nothing more can happen at {self._now:.0f} s, but {len(waiting)} jobs have not "
                f"ended ({', '.join(waiting[:5])}); this is a bug of the engine or of the policy"
            )
        return max(moment, self._now)

    def _due(self, now: float) -> list[ev.Event]:
        """Collect what happens at ``now``; progress first, timers last."""
        events: list[ev.Event] = []
        if len(self._workers):
            events.append(
                ev.ProgressReported(
                    lease_ids=self._workers.lease_ids, steps_done=self._workers.steps_done(now)
                )
            )
            events += [
                self._end(lease_id, EndReason.COMPLETED) for lease_id in self._workers.finished(now)
            ]
        while self._ends and self._ends[0][0] <= now:
            _, lease_id, reason = heapq.heappop(self._ends)
            if lease_id in self._workers.executions:
                events.append(self._end(lease_id, reason))
        while self._failures.next_s <= now:
            worker, lost = self._failures.pop()
            kind = ev.WorkersLost if lost else ev.WorkersReturned
            events.append(kind(workers=(worker,)))
        while self._next_job < len(self._jobs) and self._jobs[self._next_job].arrival_s <= now:
            job = self._jobs[self._next_job]
            events.append(ev.JobSubmitted(job=job, profile=self._profiles[self._next_job]))
            self._next_job += 1
        for timer in [name for name, at_s in self._timers.items() if at_s <= now]:
            del self._timers[timer]
            events.append(ev.TimerFired(timer=timer))
        return events

    def _perform(self, commands: list[do.Command]) -> list[ev.Event]:
        """Carry out commands; returns the events that follow at once."""
        if self.log is not None:
            self.log.extend(commands)
        events: list[ev.Event] = []
        for command in commands:
            match command:
                case do.ComputeAllocation():
                    events.append(self._answer(command))
                case do.GrantLease():
                    self._grant(command)
                case do.RevokeLease():
                    self._revoke(command, events)
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

    def _answer(self, command: do.ComputeAllocation) -> ev.Event:
        begin = time.perf_counter()
        try:
            allocation = self._policy.allocate(command.problem)
        except SolveError as error:
            if not self._ledger.solve_s:
                raise LeaseholdError(
                    f"policy '{self._policy.name}' could not answer its first question: {error}"
                ) from error
            return ev.AllocationFailed(generation=command.generation, reason=str(error))
        except Exception as error:  # a plugin may raise anything; the user must hear whose it was
            raise LeaseholdError(
                f"policy '{self._policy.name}' failed at {self._now:.0f} s with "
                f"{type(error).__name__}: {error}; this is a fault of the policy"
            ) from error
        finally:
            self._ledger.solve_s.append(time.perf_counter() - begin)
        self._ledger.answered(self._now, command.problem, allocation)
        return ev.AllocationComputed(
            generation=command.generation,
            job_number=command.problem.job_number,
            allocation=allocation,
        )

    def _grant(self, command: do.GrantLease) -> None:
        lease = command.lease
        base, total = self._steps[lease.job_id]
        fails_s = self._now + self._failures.draw_job_failure_s()
        self._workers.start(
            lease,
            now=self._now,
            base=base,
            total=total,
            overhead=self._overhead_of(self._engine.jobs.job_of[lease.job_number]),
            fails_s=fails_s,
        )
        if math.isfinite(fails_s):
            heapq.heappush(self._ends, (fails_s, lease.lease_id, EndReason.FAILED))
        self._ledger.lease_granted(lease, self._workers.leases_on(lease.workers[0]))

    def _overhead_of(self, job: Job) -> Overhead:
        """Return what a lease that is granted now costs the job."""
        return self._overheads.of(job.job_type)

    def _revoke(self, command: do.RevokeLease, events: list[ev.Event]) -> None:
        execution = self._workers.executions.get(command.lease_id)
        if execution is None:
            return  # over already: a second of its workers was lost at the same moment
        if command.reason is RevokeReason.WORKER_LOST:
            events.append(self._end(command.lease_id, EndReason.LOST))
            return
        outbid = command.reason is RevokeReason.OUTBID
        self._ledger.outbid += outbid
        reason = EndReason.RELEASED if outbid else EndReason.CANCELLED
        checkpoint_s = execution.overhead.checkpoint_s
        end_s = max(command.by_s, self._now + checkpoint_s)
        end_s = min(end_s, self._now + execution.overhead.notice_s + checkpoint_s)
        if end_s <= self._now:
            events.append(self._end(command.lease_id, reason))
        else:
            done_s = self._workers.stop_progress(command.lease_id, end_s - checkpoint_s)
            end_s = end_s if math.isinf(done_s) else max(end_s, done_s)
            heapq.heappush(self._ends, (end_s, command.lease_id, reason))

    def _end(self, lease_id: int, reason: EndReason) -> ev.LeaseEnded:
        execution = self._workers.executions[lease_id]
        lease = execution.lease
        kept = None
        if reason in {EndReason.LOST, EndReason.FAILED}:
            kept = self._workers.saved(lease_id, self._now)
        done = self._workers.end(lease_id, self._now)
        done = done if kept is None else kept
        total = self._steps[lease.job_id][1]
        self._steps[lease.job_id] = (done, total)
        self._ledger.lease_ended(lease, self._now, str(reason))
        return ev.LeaseEnded(lease_id=lease_id, reason=reason, steps_done=done)


def _check_jobs(jobs: Sequence[Job], window: tuple[int, int] | None) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.job_id in seen:
            raise InputError(f"job '{job.job_id}' is in the trace twice; ids must be unique")
        seen.add(job.job_id)
    if window is not None and window[0] >= len(jobs):
        raise ParameterError(
            f"window is {window[0]}:{window[1]}, but the trace has {len(jobs)} jobs; "
            f"begin it below {len(jobs)}"
        )
