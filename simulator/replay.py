"""A replay of the service with all its decisions, over a trace, in virtual time.

Control is the same as in the daemon, and nodes decide as agents do. Only the clock, the jobs'
progress and the network are simulated: the clock jumps from one event to the next, jobs advance at
the true throughputs of the request, and messages arrive at once.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.knowledge import LearnedKnowledge
from planner.mixed_gangs import MixedGangs
from planner.oracle import Oracle
from planner.tables import TableBuilder
from policies.asking import ask
from policies.registry import make_policy
from scheduler.control.control import Control
from scheduler.control.facts.facts import (
    AllocationAnswered,
    JobActionAsked,
    JobChangeAsked,
    JobsSubmitted,
    ProjectSet,
    ReservationDeleted,
    ReservationMade,
    ThroughputsDeclared,
)
from scheduler.control.facts.requests import Submission
from scheduler.domain.answers import Solved
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.reasons import reasons_in
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease import Leases
from scheduler.domain.lease_life import RevokeReason
from scheduler.domain.throughputs.ways import CatalogueKey, mixed_rate
from scheduler.errors import InputError, PolicyFaultError, SolveError
from scheduler.protocol.desired import MARGIN_S
from simulator.models import PlannedJobs
from simulator.progress import Progress
from simulator.remarks import Remarks
from simulator.shell import Shell
from simulator.tables.ledger import Ledger
from simulator.world.agenda import Agenda
from simulator.world.failures import FailureProcess
from simulator.world.nodes import SimulatedNode, SimulatedWorld
from simulator.world.overheads import OverheadRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from planner.plans.hardware import Hardware
    from policies.base import Policy
    from scheduler.control.control import Decision
    from scheduler.control.facts.facts import Fact
    from scheduler.control.facts.requests import PolicyChoice, ProjectLimits
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.settings import ControlSettings
    from scheduler.control.state.transaction import Answered
    from scheduler.domain.arrays import IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.lease import Lease
    from scheduler.domain.rows import JobRow
    from scheduler.domain.sources import ConfigurationSource
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from simulator.result import SimulationResult
    from simulator.world.failures import FailureModel
    from simulator.world.overheads import Overhead, Overheads
    from traces.trace import Trace, TraceJob

#: The actor that submits the jobs of a trace, and sets the contents of files.
_ACTOR = "replay"
#: Steps between two reports of progress.
_REPORT_EVERY = 256
#: Budgets of a month begin anew within this time; jobs that have not run by then never will.
IDLE_MOST_S: Final = 400 * 86_400.0


class Replay:
    """The service's control, a clock that jumps, and nodes that exist only as numbers."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        trace: Trace,
        throughputs: ThroughputTable,
        policy: Policy,
        settings: ControlSettings,
        overheads: Overheads,
        failures: FailureModel,
        declared: ThroughputTable | None = None,
        projects: Sequence[ProjectLimits] = (),
        orders: Sequence[tuple[float, Fact]] = (),
        sources: Sequence[tuple[str, ConfigurationSource]] = (),
        hardware: Hardware | None = None,
        seed: int = 0,
        window: tuple[int, int] | None = None,
        record: bool = False,
        label: str = "",
        profile: str = "",
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Compose a replay.

        Args:
            cluster: the nodes.
            trace: the jobs, and the conditions under which they may run.
            throughputs: the true ones; they contain all types and scale factors of the jobs.
            policy: the policy that the settings name; an order may replace it.
            settings: of the service.
            overheads: costs of launching, saving and restoring.
            failures: how workers, nodes and jobs fail.
            declared: throughputs that an operator declares at the start.
            projects: limits that an operator sets at the start.
            orders: (time in seconds, fact): later orders of operators. Jobs and nodes that they
                name are in the trace and the cluster. Rows of jobs that have ended are filled in.
            sources: name and source of each plugin; its throughputs under a plan are taken as true.
            hardware: accelerators for which models are planned; by default the bundled ones.
            seed: of the failures.
            window: positions of the jobs to measure; the replay ends when they have ended.
            record: keep leases and series.
            label: name of the policy in the result.
            profile: name of the settings in the result.
            inputs: the inputs, as text for reports.

        Raises:
            InputError: the settings leave jobs no time to stop before a round ends.
        """
        needed_s = settings.notice_s + settings.grace_s + MARGIN_S
        if settings.engine.plan_lead_s < needed_s:
            raise InputError(
                f"plan_lead_s is {settings.engine.plan_lead_s:g}; it must be at least "
                f"{needed_s:g} s: notice_s {settings.notice_s:g} + grace_s {settings.grace_s:g} + "
                f"{MARGIN_S:g} s at the agent"
            )
        self._cluster, self._jobs, self._settings = cluster, trace.jobs, settings
        self._trace, self._policy, self._declared = trace, policy, declared
        self._orders = Agenda(orders)
        self._outages = Agenda(
            [(one.lost_s, (one.node, True)) for one in failures.outages]
            + [(one.back_s, (one.node, False)) for one in failures.outages]
        )
        self._projects, self._overheads = projects, overheads
        self._truth = throughputs
        self._plans = PlannedJobs(Oracle(throughputs), hardware)
        #: lease id -> steps/s under its plan.
        self._planned_rates: dict[int, float] = {}
        self._failures = FailureProcess(failures, cluster.workers, np.random.default_rng(seed))
        self._label, self._seed = label or policy.name, seed
        self._inputs, self._profile = dict(inputs or {}), profile
        self._costs = OverheadRows(
            (overheads.of(job.job_type) for job in trace.jobs),
            [name for node in cluster.nodes for name in node.workers],
        )
        keys = list(dict.fromkeys(CatalogueKey.of(job) for job in trace.jobs))
        jobs = [job.engine_job() for job in trace.jobs]
        self._ledger = Ledger(
            cluster,
            TableBuilder(MixedGangs(self._plans)).table(cluster, keys),
            jobs,
            [keys.index(CatalogueKey.of(job)) for job in trace.jobs],
            overheads=self._costs.rows,
            window=window,
            record=record,
            scale_factors=[job.scale_factors for job in trace.jobs],
        )
        self._remarks = Remarks()
        self._remarks.window(window, len(trace.jobs))
        self._remarks.projects(
            [one.project for one in projects], {job.project for job in trace.jobs}
        )
        self._by_id = {job.job_id: job for job in jobs}
        self._position = {job.job_id: i for i, job in enumerate(trace.jobs)}
        self._world = SimulatedWorld(
            now_s=lambda: self._shell.now_s,
            rate=self._rate,
            totals={job.job_id: job.total_steps for job in jobs},
            overhead=self._overhead,
            speed=self._speed,
            fails_after_s=self._failures.draw_job_failure_s,
            checkpoint_interval_s=failures.checkpoint_interval_s,
            whole_steps=False,
            pairs=True,
            mishaps=failures.mishaps_of_jobs(),
            unsaved={job.job_id for job in trace.jobs if not job.checkpoints},
        )
        self._place = [
            (node.name, local) for node in cluster.nodes for local in range(len(node.workers))
        ]
        #: lease id -> lease, for leases in force.
        self._leases: dict[int, Lease] = {}
        #: worker -> leases on it. Nodes join in the cluster's order, so workers have its numbers.
        self._on_worker: dict[int, list[int]] = {}
        #: job id -> its row, as a store would keep it.
        self._rows: dict[str, JobRow] = {}
        self._next_job = 0
        #: when a lease was last in force, or a job, an order or a node came or went.
        self._last_moved_s = 0.0
        #: all decisions, in order, for tests of parity; filled only on request.
        self.log: list[Decision] | None = None
        #: (name, parameters) -> policy, for policies that were in force; some keep their answers.
        self._policies = {_key(settings.policy): policy}
        self.control = Control.new(
            settings,
            knowledge=LearnedKnowledge(sources=sources, hardware=hardware),
            time_dependent=policy.time_dependent,
        )
        self._shell = Shell(self.control, answer=self._answer, on_decision=self._note)
        for node in cluster.nodes:
            self._shell.add(SimulatedNode(node.name, node.workers, self._world, margin_s=MARGIN_S))

    def run(
        self, progress: Callable[[Progress], None] | None = None, *, until_s: float = math.inf
    ) -> SimulationResult:
        """Replay until every measured job has ended, or nothing more can happen.

        Args:
            progress: called now and then with the progress of the replay.
            until_s: latest end of the replay.
        """
        wall, cpu = time.perf_counter(), time.process_time()
        self.begin()
        steps, end_s = 0, math.inf
        while self.to_go and self.now_s < until_s:
            if self._is_stuck(until_s):
                until_s = end_s = max(self._last_moved_s, *(job.arrival_s for job in self._jobs))
                self._remarks.stuck(self._waiting())
                break
            self.step(until_s)
            steps += 1
            if progress and steps % _REPORT_EVERY == 0:
                progress(self._progress())
        if progress:
            progress(self._progress())
        return self._ledger.result(
            min(self.now_s, end_s),
            label=self._label,
            rounds=self.control.view.engine.round_number,
            seed=self._seed,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
            settings=self._inputs,
            profile=self._profile,
            until_s=until_s,
            warnings=self._remarks.sentences(
                self._policy.name, len(self._ledger.solve_s), self._ledger.launching
            ),
        )

    def _progress(self) -> Progress:
        total = self._ledger.measured
        return Progress(now_s=self.now_s, jobs_done=total - self._ledger.to_go, jobs=total)

    def begin(self) -> None:
        """Let the nodes join and an operator set the opening facts; call it before any step."""
        self._shell.happen(self._opening(), self._shell.nodes)

    @property
    def now_s(self) -> float:
        """The time."""
        return self._shell.now_s

    @property
    def to_go(self) -> int:
        """Measured jobs that have not ended."""
        return self._ledger.to_go

    def times(self) -> Iterator[tuple[str, float | None, float | None]]:
        """Yield every job's id, first start and completion; None for times that do not exist."""
        return self._ledger.times()

    # -- facts ----------------------------------------------------------------------------------

    def _opening(self) -> list[Fact]:
        """Return the facts that an operator sets before the first job comes."""
        facts: list[Fact] = [ProjectSet(limits=limits, actor=_ACTOR) for limits in self._projects]
        if self._declared is not None:
            facts.append(
                ThroughputsDeclared(
                    figures=tuple(self._declared.alone()),
                    pairs=tuple(self._declared.sharing()),
                    actor=_ACTOR,
                )
            )
        if nowhere := self._zeros():
            facts.append(ThroughputsDeclared(figures=nowhere, actor=_ACTOR))
        return facts

    def _zeros(self) -> tuple[tuple[str, int, str, float], ...]:
        """Return throughputs of 0 for cells in which jobs do not run, if their specs cannot say so.

        These are worker types at one of their counts, if they run there at another count.
        """
        keys = dict.fromkeys(CatalogueKey.of(job) for job in self._jobs if not job.model)
        cells = dict.fromkeys(
            (key.job_type, count, name)
            for key in keys
            for name in self._able(key) or self._cluster.type_names
            for count in key.scale_factors
        )
        return tuple((*cell, 0.0) for cell in cells if self._truth.steps_per_s(*cell) <= 0.0)

    def _able(self, key: CatalogueKey) -> tuple[str, ...]:
        """Return the worker types on which jobs run, at any of their counts."""
        return tuple(
            name
            for name in sorted(self._cluster.type_names)
            if key.allows(name)
            if key.model
            or any(self._truth.steps_per_s(key.job_type, n, name) > 0.0 for n in key.scale_factors)
        )

    def _arrivals(self) -> list[Fact]:
        """Return the jobs that arrive now, in one submission."""
        items = []
        while (
            self._next_job < len(self._jobs) and self._jobs[self._next_job].arrival_s <= self.now_s
        ):
            job = self._jobs[self._next_job]
            items.append(Submission(spec=self._submitted(job), owner=_ACTOR, job_id=job.job_id))
            self._next_job += 1
        if not items:
            return []
        ids = tuple(item.job_id for item in items)
        named = (other for item in items for other in item.spec.depends_on)
        rows = {other: self._rows[other] for other in named if other in self._rows}
        return [
            JobsSubmitted(
                submissions=tuple(items), job_ids=ids, digests=ids, rows=rows, actor=_ACTOR
            )
        ]

    def _submitted(self, job: TraceJob) -> JobSpec:
        """Return the specification that a job is submitted with: its id is its name.

        Its user knows on which worker types it cannot run at all, but no throughputs.
        """
        able = self._able(CatalogueKey.of(job))
        allowed = () if len(able) == len(self._cluster.type_names) else able or job.worker_types
        return replace(job, name=job.name or job.job_id, worker_types=allowed)

    # -- time -----------------------------------------------------------------------------------

    def step(self, until_s: float = math.inf) -> None:
        """Jump to the next event, or to an earlier time, and handle the events of that time."""
        moment = min(self._next_moment(), until_s)
        self._ledger.pass_time(moment - self.now_s, self._busy())
        self._shell.now_s = moment
        facts = [*self._arrivals(), *self._ordered()]
        failed, gone = self._fail(), self._lose_nodes()
        if facts or gone:
            self._last_moved_s = self.now_s
        self._shell.happen(facts, [*failed, *gone])
        self._ledger.planned(self.control.view.engine.certificate)
        self._ledger.sample(moment, self._busy().tolist(), len(self._leases))

    def _busy(self) -> IntArray:
        """Return (K,) workers under leases, by the cluster's types; the engine orders its own."""
        engine = self.control.view.engine
        counts = dict(
            zip(engine.cluster.type_names, engine.count(engine.held).tolist(), strict=True)
        )
        return np.array([counts.get(name, 0) for name in self._cluster.type_names], dtype=np.int64)

    def _next_moment(self) -> float:
        arrival_s = (
            self._jobs[self._next_job].arrival_s if self._next_job < len(self._jobs) else math.inf
        )
        moment = min(
            arrival_s,
            self._shell.next_s,
            self._failures.next_s,
            self._outages.next_s,
            self._orders.next_s,
        )
        return max(moment, self.now_s)

    def _is_stuck(self, until_s: float) -> bool:
        """Return whether no job will run any more, though jobs are left.

        Nothing is due at all, or only what comes again and again: months of budgets, failures.
        """
        if math.isinf(min(self._next_moment(), until_s)):
            return True
        due = self._next_job < len(self._jobs) or math.isfinite(self._orders.next_s)
        if due or self._leases or math.isfinite(self._outages.next_s):
            return False
        return self.now_s - self._last_moved_s > IDLE_MOST_S

    def _waiting(self) -> dict[str, str]:
        """Return job id -> the first reason why it waits."""
        jobs, found = self.control.view.engine.jobs, {}
        for job_id, record in self.control.view.jobs.by_id.items():
            number = jobs.number_of.get(job_id)
            bits = 0 if number is None else int(jobs["wait_reasons"][jobs.row_of(number)])
            if record.status is JobStatus.HELD:
                found[job_id] = f"held: {record.reason}".removesuffix(": ")
            else:
                found[job_id] = record.reason or next(map(str, reasons_in(bits)), "unknown")
        return found

    def _fail(self) -> dict[str, None]:
        """Break and mend the workers that are due; return their nodes."""
        with_news: dict[str, None] = {}
        while self._failures.next_s <= self.now_s:
            worker, lost = self._failures.pop()
            name, local = self._place[worker]
            if lost:
                self._shell.nodes[name].break_worker(local, "the worker is lost")
            else:
                self._shell.nodes[name].mend_worker(local)
            with_news[name] = None
        return with_news

    def _lose_nodes(self) -> list[str]:
        """Lose nodes at the start of their outages, and bring them back at the end."""
        found = self._outages.take(self.now_s)
        for name, lost in found:
            if lost:
                self._shell.lose(name)
            else:
                self._shell.bring_back(name)
        return [name for name, _ in found]

    def _ordered(self) -> list[Fact]:
        """Return the orders that are due now."""
        return [self._with_rows(fact) for fact in self._orders.take(self.now_s)]

    def _with_rows(self, fact: Fact) -> Fact:
        """Return an order with the stored rows of its jobs."""
        if isinstance(fact, ReservationMade):
            return replace(fact, row=self._rows.get(fact.reservation.job))
        if not isinstance(fact, JobActionAsked | JobChangeAsked):
            return fact
        return replace(fact, rows={i: self._rows[i] for i in fact.job_ids if i in self._rows})

    # -- records --------------------------------------------------------------------------------

    def _note(self, decision: Decision) -> None:
        if self.log is not None:
            self.log.append(decision)
        for answered in decision.answers:
            self._note_answer(answered, decision.now_s)
        for event in decision.events:
            if isinstance(event, ev.LeaseEnded) and event.lease_id in self._leases:
                self._note_end(event)
        self._note_commands(decision.commands)
        self._rows.update((row.job_id, row) for row in decision.rows.jobs)
        for state in decision.rows.states:
            self._rows[state.job_id] = replace(self._rows[state.job_id], status=state.status)
        for row in decision.rows.history:
            if row.subject_kind == "job":
                self._ledger.note(row.kind, row.subject, row.at_s)

    def _note_answer(self, answered: Answered, now_s: float) -> None:
        fact = answered.fact
        if answered.error is not None:
            if not isinstance(fact, ReservationMade | ReservationDeleted):
                raise answered.error  # an operator's figures or limits that cannot be used
            self._remarks.refused_order(now_s, str(answered.error))
        if isinstance(fact, JobsSubmitted):
            self._note_refused(fact, answered.result)
        elif isinstance(fact, JobActionAsked | JobChangeAsked):
            assert isinstance(answered.result, tuple)
            self._remarks.acted(now_s, answered.result)

    def _note_commands(self, commands: Sequence[do.Command]) -> None:
        ledger = self._ledger
        for command in commands:
            match command:
                case do.GrantLease(lease=lease):
                    self._note_grant(lease)
                case do.ExtendLeases():
                    ledger.extended += len(command.lease_ids)
                case do.RevokeLease(reason=RevokeReason.OUTBID):
                    ledger.outbid += 1
                case do.RecordEvent():
                    self._remarks.take(command)

    def _note_grant(self, lease: Lease) -> None:
        self._leases[lease.lease_id] = lease
        for worker in lease.workers:
            self._on_worker.setdefault(worker, []).append(lease.lease_id)
        there = self._on_worker[lease.workers[0]]
        position = np.array([self._position[lease.job_id]])
        live = self.control.view.leases.by_id.get(lease.lease_id)
        sharing = there if len(there) > 1 else ()
        plans = {lease.lease_id: live.plan} if live is not None and live.plan else {}
        self._costs.granted(position, Leases.of(lease))
        self._ledger.granted(Leases.of(lease), position, sharing, plans)

    def _note_end(self, event: ev.LeaseEnded) -> None:
        lease = self._leases.pop(event.lease_id)
        self._last_moved_s = self.now_s
        for worker in lease.workers:
            self._on_worker[worker].remove(event.lease_id)
        position = np.array([self._position[lease.job_id]])
        self._ledger.over([event.lease_id], position, self.now_s, str(event.reason))

    def _note_refused(self, fact: JobsSubmitted, results: object) -> None:
        assert isinstance(results, tuple)
        for item, result in zip(fact.submissions, results, strict=True):
            if not result.created:
                self._ledger.note("job_refused", item.job_id, self.now_s)
                self._remarks.refused(item.job_id, result.refusal)

    def _policy_of(self, choice: PolicyChoice) -> Policy:
        if (key := _key(choice)) not in self._policies:
            self._policies[key] = make_policy(choice.name, choice.parameters)
        return self._policies[key]

    def _answer(self, question: do.ComputeAllocation) -> AllocationAnswered:
        begin, failure, solved = time.perf_counter(), "", None
        choice = self.control.view.policy.choice
        policy = self._policy_of(choice)
        try:
            allocation = ask(policy, question.problem)
        except SolveError as error:
            failure = str(error)
        except PolicyFaultError as error:
            raise PolicyFaultError(f"at {self.now_s:.0f} s, {error}") from error
        else:
            took_s = time.perf_counter() - begin
            solved = Solved(allocation=allocation, solve_s=took_s)
            self._ledger.answered(self.now_s, question.problem, allocation)
        self._ledger.solve_s.append(time.perf_counter() - begin)
        return AllocationAnswered(policy=choice, question=question, answer=solved, failure=failure)

    # -- the truth about jobs -------------------------------------------------------------------

    def _rate(self, job_id: str, worker_type: str, workers: int, partner: str | None) -> float:
        leases = self.control.view.leases
        live = leases.by_id.get(leases.of_job.get(job_id, -1))
        if live is not None and live.plan:
            lease_id = live.lease.lease_id
            if lease_id not in self._planned_rates:
                self._planned_rates[lease_id] = self._planned_rate(live)
            return self._planned_rates[lease_id]
        key = self._by_id[job_id].job_type, workers
        if live is not None and live.gang:
            row = self._truth.isolated.get(key, {})
            return mixed_rate(live.kinds, {name: row.get(name, 0.0) for name in live.kinds})
        alone = self._truth.isolated.get(key, {}).get(worker_type, 0.0)
        if partner is None:
            return alone
        other = self._by_id[partner].job_type, workers
        shared = self._truth.shared.get((key, other), {}).get(worker_type)
        return 0.5 * alone if shared is None else shared[0]

    def _planned_rate(self, live: LiveLease) -> float:
        """Return steps/s under a plan: those of its source, independent of the policies' table.

        Predictions are true for a job that gives its model.
        """
        view, lease = self.control.view, live.lease
        key, cluster = view.knowledge.key(lease.profile), view.engine.present
        held = {live.worker_type: len(lease.workers)}
        if key.model:
            demand = tuple(held.get(name, 0) for name in cluster.type_names)
            for way in self._plans.ways(key, cluster):
                if (way.demand, way.plan) == (demand, live.plan):
                    return way.throughput
        ways = view.knowledge.ways(key, cluster)
        rates = (
            way.estimate.steps_per_s for way in ways if (way.workers, way.plan) == (held, live.plan)
        )
        usual = view.knowledge.estimate(key.job_type, len(lease.workers), live.worker_type)
        return next(rates, usual.steps_per_s)  # the plan may have been given up by now

    def _overhead(self, job_id: str, worker_type: str, workers: int) -> Overhead:
        overhead = self._overheads.of(self._by_id[job_id].job_type)
        return overhead.there(worker_type, workers)

    def _speed(self, lease_id: int) -> float:
        lease = self._leases.get(lease_id)
        return 1.0 if lease is None else float(self._failures.speed[list(lease.workers)].min())


def _key(choice: PolicyChoice) -> tuple[str, frozenset[tuple[str, str]]]:
    return choice.name, frozenset(choice.parameters.items())
