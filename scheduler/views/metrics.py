"""The daemon's figures, in Prometheus' format. No metric is labelled with a job's id."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.control.state.nodes import NodeState
    from scheduler.domain.rows import AttemptRow
    from scheduler.views.dues import Dues
    from scheduler.views.gpu_figures import GpuFigures
    from scheduler.views.types import ReservedView

_ENDED = (JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.FAILED, JobStatus.REFUSED)
_ACTIVE = tuple(status for status in JobStatus if status not in _ENDED)

#: Seconds: from a vector operation to a solve that misses its deadline.
_QUICK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
#: Seconds: from a pod with a present image to the pull of a huge one.
_LAUNCH_S = (0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600, 1800)
#: Seconds: from a minute to a month.
_LONG_S = (60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 2592000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The description of a metric.

    Attributes:
        name: as a scraper reads it.
        kind: gauge, counter, histogram or info.
        labels: their names.
        page: what the guide to monitoring says of it.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    page: str


class Metrics:
    """Figures of one daemon, in a registry of their own.

    Every method may be called from any thread.

    Args:
        version: of the program.
        process: whether to report memory, open files and collections of the process too.
        clock: seconds of a stopwatch, for measurements.
    """

    def __init__(
        self,
        *,
        version: str = "",
        process: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        self.registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._figures: list[Figure] = []
        self._info("The running program.", {"version": version})
        self._make_queue()
        self._make_leases()
        self._make_durations()
        self._make_health()

    # -- the metrics -----------------------------------------------------------------------------

    def _make_queue(self) -> None:
        self._jobs = self._gauge("jobs", "Active jobs by status.", "status")
        self._waiting = self._gauge(
            "jobs_waiting",
            "Waiting jobs by reason.",
            "reason",
            page="waiting jobs by [reason](../explanation/live-service.md#why-a-job-waits)",
        )
        self._losing = self._gauge(
            "jobs_keeping_nothing",
            "Active jobs that have lost all their work several times in a row.",
            page="active jobs that lost all their work at least three times in a row when they "
            "were preempted; `leasehold explain JOB` says how much",
        )
        self._workers = self._gauge(
            "workers",
            "Workers by type; known to the scheduler, in service, under a lease.",
            "worker_type",
            "state",
            page="workers `known`, `in_service`, `busy`",
        )
        self._agents = self._gauge("agents_connected", "Agents that have reported recently.")
        self._refused = self._gauge(
            "workers_refused",
            "Workers that nodes report beyond the approved ones.",
            page="workers that nodes report beyond the approved ones; above 0: "
            "workers were added, or a node lies: `leasehold nodes` names it",
        )
        self._reservations = self._gauge(
            "reservation_workers",
            "Workers of reservations: asked for, assigned, set aside, used by the owner.",
            "reservation",
            "state",
            page="workers of each reservation by `state`: `asked` for, "
            "`assigned` (fewer if nodes are out), `set_aside` now, `used` "
            "by its owner's jobs",
        )
        self._doubted = self._gauge(
            "nodes_doubted",
            "Nodes that the scheduler avoids for a while, has quarantined, or finds slow.",
            "state",
            page="nodes that the scheduler keeps out since jobs fail there (`avoided` for a while, "
            "`quarantined` until `leasehold uncordon`), or that are `slow` beside others of their "
            "type",
        )
        self._submitted = self._counter("jobs_submitted", "Jobs taken in.")
        self._ended = self._counter(
            "jobs_ended",
            "Jobs that have ended, by status.",
            "status",
            page="`completed`, `cancelled`, `failed`, `refused`",
        )
        for status in _ACTIVE:
            self._jobs.labels(status.value)
        for status in _ENDED:
            self._ended.labels(status.value)
        for reason in WaitReason:
            self._waiting.labels(reason.value)

    def _make_leases(self) -> None:
        self._starts = self._counter("lease_starts", "Leases granted.")
        self._preemptions = self._counter(
            "preemptions", "Running jobs that were preempted for another job."
        )
        self._ends = self._counter("lease_ends", "Leases that have ended, by reason.", "reason")
        self._used = self._counter(
            "worker_seconds",
            "Worker-seconds of leases that have ended, by project and worker type.",
            "project",
            "worker_type",
            page="worker-seconds of leases that have ended; a lease counts when it ends, "
            "[`leasehold usage`](see-what-was-used.md) counts it as it goes",
        )
        self._launching = self._counter(
            "launching_worker_seconds",
            "Worker-seconds of leases that have ended which launches took.",
            "project",
            "worker_type",
            page="part of `leasehold_worker_seconds_total` that launches took, from the grant to "
            "the first step, of jobs that report steps",
        )
        self._gpu_used = self._counter(
            "gpu_used_seconds",
            "GPU-seconds of computing (utilisation times time) of leases that have ended.",
            "project",
            "worker_type",
            page="GPU-seconds of computing, utilisation times time, of leases "
            "that have ended, if agents measure it",
        )
        self._gpu_measured = self._counter(
            "gpu_measured_seconds",
            "GPU-seconds of leases that have ended for which agents measured the use.",
            "project",
            "worker_type",
            page="GPU-seconds of those leases for which that is known",
        )
        self._gpus = self._gauge(
            "gpus_measured",
            "Workers under leases with measured use, by project.",
            "project",
            page="workers under leases with [measured](see-what-was-used.md#gpus-that-idle) use",
        )
        self._gpu_use = self._gauge(
            "gpu_use_ratio",
            "Share of recent time in which those GPUs computed, by project.",
            "project",
            page="share of recent time in which those GPUs computed",
        )
        self._idle_gpus = self._gauge(
            "gpus_idle",
            "Workers of jobs that have been idle for idle.after_s, by project.",
            "project",
            page="workers of jobs that have been idle for `idle.after_s`; "
            "`leasehold usage --idle` names them",
        )
        self._idle_jobs = self._gauge(
            "jobs_idle", "Jobs that have been idle for idle.after_s, by project.", "project"
        )
        self._budget = self._gauge(
            "budget_used",
            "Part of a project's budget of this month that is used; above 1 its jobs wait.",
            "project",
            page="part of a project's budget of this month that is used; from 1 on "
            "[its jobs wait](limit-projects.md#budgets)",
        )
        self._budgeted: set[str] = set()
        self._deviation = self._gauge(
            "deviation_rounds",
            "How far jobs are from the time that X promises them, in rounds: mean and largest.",
            "statistic",
            page="how far jobs are from the time that the policy promises them, in rounds: `mean` "
            "and `max`",
        )
        self._round_gap = self._gauge(
            "round_gap",
            "Most that another choice could gain in the last planned round, as part of the best "
            "value; whole: with whole workers; fluid: if workers could be divided.",
            "bound",
            page="most that another choice could gain in [the last planned round]"
            "(../explanation/rounds.md#how-good-a-round-is), as part of the best value: with "
            "`whole` workers, or `fluid` if workers could be divided; NaN without a sum",
        )
        self._project_workers = self._gauge(
            "project_workers",
            "Workers of a project's jobs on average over time, by state: due by X, and received.",
            "project",
            "state",
            page="workers on average over time that the policy gives the jobs of each project "
            "(`due`), and that they have had since its answer came in force (`received`); workers "
            "that two jobs share are left out",
        )
        self._round_number = self._gauge("round_number", "Number of the current round.")

    def _make_durations(self) -> None:
        self._round = self._histogram(
            "round_seconds",
            "Wall-clock seconds from when a round can be planned to its dispatch, commit included.",
            _QUICK_S,
        )
        self._round_wait = self._histogram(
            "round_wait_seconds",
            "Part of it without computing: a late start, waits for a processor, and the commit.",
            _QUICK_S,
        )
        self._commit = self._histogram(
            "commit_seconds",
            "Wall-clock seconds of a journal commit.",
            _QUICK_S,
            page="a commit of the journal, waits for the database included",
        )
        self._solve = self._histogram(
            "solve_seconds", "Wall-clock seconds of a policy's answer.", _QUICK_S
        )
        self._solve_failures = self._counter(
            "solve_failures", "Questions that the policy did not answer."
        )
        self._policy_failing = self._gauge(
            "policy_failing",
            "1 while the policy in force gives no answer.",
            page="1 while the policy in force gives no answer: its last question failed, or it "
            "cannot be loaded",
        )
        self._launch = self._histogram(
            "launch_seconds",
            "Seconds of a launch by phase: image alone; until start, readiness, first step.",
            _LAUNCH_S,
            "phase",
            page="launches of pods as nodes time them: `image`, the pull for the most part; "
            "`start`, from its being placed to its start; `ready`, until it was ready. Launches of "
            "all leases: `first_step`, from the grant to the first step, if steps are reported",
        )
        for phase in ("image", "start", "ready", "first_step"):
            self._launch.labels(phase)
        self._jct = self._histogram(
            "jct_seconds", "Seconds from a job's submission to its completion.", _LONG_S
        )

    def _make_health(self) -> None:
        self._leading = self._gauge("leading", "1 while this process schedules.")
        self._ahead = self._gauge(
            "clock_ahead_seconds",
            "By how much the scheduler's time is ahead of the system's clock.",
            page="by how much the scheduler's time is ahead of the system's clock: far from 0 "
            "after that clock was set",
        )
        self._failed_turns = self._counter(
            "turns_failed",
            "Turns that the database refused, or in which the scheduler failed.",
            page="turns that the database refused, or in which the scheduler failed: nothing of "
            "them is stored, and the state was loaded again",
        )
        self._stalls = self._counter(
            "event_loop_stalls",
            "Times the event loop stood still.",
            page="times that the process stood still for over 0.25 s; the log says where",
        )
        self._longest_stall = self._gauge(
            "event_loop_longest_stall_seconds", "Longest time the event loop stood still."
        )
        self._agent_stalls = self._counter(
            "agent_event_loop_stalls",
            "Times that event loops of agents stood still.",
            page="times that an agent stood still for over a second, as agents report; the "
            "scheduler's log names the node, and the agent's log says where in the code",
        )
        self._reused = self._counter(
            "agent_tokens_reused",
            "Times that an agent's token was used after its renewal: it may be stolen.",
        )
        self._longest_s = 0.0
        self._webhooks = self._gauge(
            "webhooks",
            "Webhooks by state.",
            "state",
            page="webhooks that are `ok`, `failing` (they are tried again) or `paused` until "
            "`leasehold webhook resume`; `leasehold webhook list` says why",
        )
        self._messages = self._counter(
            "webhook_messages", "Tries to send a message of a webhook, by outcome.", "outcome"
        )
        for outcome in ("delivered", "failed"):
            self._messages.labels(outcome)
        self._has_use = False

    # -- updates from the daemon -----------------------------------------------------------------

    def set_jobs(self, by_status: Mapping[str, int], waiting_by_reason: Mapping[str, int]) -> None:
        """Set active jobs by status, and the waiting ones by reason; missing ones are 0."""
        for status in _ACTIVE:
            self._jobs.labels(status.value).set(by_status.get(status.value, 0))
        for reason in WaitReason:
            self._waiting.labels(reason.value).set(waiting_by_reason.get(reason.value, 0))

    def set_workers(
        self, known: Mapping[str, int], in_service: Mapping[str, int], busy: Mapping[str, int]
    ) -> None:
        """Set workers by type; a type that is not ``known`` any more disappears."""
        self._workers.clear()
        for worker_type, count in known.items():
            self._workers.labels(worker_type, "known").set(count)
            self._workers.labels(worker_type, "in_service").set(in_service.get(worker_type, 0))
            self._workers.labels(worker_type, "busy").set(busy.get(worker_type, 0))

    def set_agents(self, connected: int) -> None:
        """Set how many agents have reported recently."""
        self._agents.set(connected)

    def set_doubted(self, nodes: Iterable[NodeState]) -> None:
        """Set how many nodes are avoided, quarantined and slow."""
        counts = dict.fromkeys(("avoided", "quarantined", "slow"), 0)
        for node in nodes:
            if node.doubt is not None:
                counts["quarantined" if node.doubt.lasts else "avoided"] += 1
            counts["slow"] += node.slow is not None
        for state, count in counts.items():
            self._doubted.labels(state).set(count)

    def set_use(self, by_project: Mapping[str, GpuFigures]) -> None:
        """Set how busy measured GPUs are; a project without any disappears."""
        gauges = self._gpus, self._gpu_use, self._idle_gpus, self._idle_jobs
        if not (by_project or self._has_use):
            return
        self._has_use = bool(by_project)
        for gauge in gauges:
            gauge.clear()
        for project, found in by_project.items():
            values = found.gpus, found.used / found.gpus, found.idle_gpus, found.idle_jobs
            for gauge, value in zip(gauges, values, strict=True):
                gauge.labels(project).set(value)

    def set_reservations(self, found: Iterable[ReservedView]) -> None:
        """Set how many workers each reservation has; one that is over disappears."""
        self._reservations.clear()
        for one in found:
            name = one.reservation.name
            self._reservations.labels(name, "asked").set(one.reservation.workers)
            self._reservations.labels(name, "assigned").set(one.assigned)
            kept = one.assigned if one.state == "in force" else 0
            self._reservations.labels(name, "set_aside").set(kept)
            self._reservations.labels(name, "used").set(one.used)

    def set_dues(self, found: Mapping[str, Dues]) -> None:
        """Set what each project is due and has received; others disappear."""
        self._project_workers.clear()
        for project, one in found.items():
            self._project_workers.labels(project, "due").set(one.due_workers)
            if one.received_workers is not None:
                self._project_workers.labels(project, "received").set(one.received_workers)

    def set_refused(self, workers: int) -> None:
        """Set how many workers nodes report beyond the approved ones."""
        self._refused.set(workers)

    def set_losing(self, jobs: int) -> None:
        """Set how many jobs have lost all their work several times in a row."""
        self._losing.set(jobs)

    def set_deviation(self, *, mean: float, largest: float) -> None:
        """Set how far jobs are from X, in rounds: |time received - time promised|."""
        self._deviation.labels("mean").set(mean)
        self._deviation.labels("max").set(largest)

    def set_round_gap(self, whole: float, fluid: float) -> None:
        """Set by which part the last round falls short of the best; nan if unknown."""
        self._round_gap.labels("whole").set(whole)
        self._round_gap.labels("fluid").set(fluid)

    def set_round(self, number: int) -> None:
        """Set the number of the current round."""
        self._round_number.set(number)

    def set_leading(self, leading: bool) -> None:
        """Set whether this process schedules."""
        self._leading.set(1 if leading else 0)

    def submitted(self, jobs: int = 1) -> None:
        """Count jobs that were taken in."""
        self._submitted.inc(jobs)

    def job_ended(self, status: JobStatus, *, jct_s: float | None = None) -> None:
        """Count a job that has ended; ``jct_s`` is since its submission, if it completed."""
        self._ended.labels(status.value).inc()
        if jct_s is not None and status is JobStatus.COMPLETED:
            self._jct.observe(jct_s)

    def leases_started(self, leases: int = 1) -> None:
        """Count leases that were granted."""
        self._starts.inc(leases)

    def lease_ended(self, reason: str) -> None:
        """Count a lease that has ended."""
        self._ends.labels(reason).inc()

    def used(self, project: str, worker_type: str, worker_s: float) -> None:
        """Count worker-seconds of a lease that has ended."""
        self._used.labels(project, worker_type).inc(max(worker_s, 0.0))

    def launching(self, project: str, worker_type: str, worker_s: float) -> None:
        """Count worker-seconds that the launch of a lease took which has ended."""
        self._launching.labels(project, worker_type).inc(worker_s)

    def computed(self, project: str, worker_type: str, row: AttemptRow) -> None:
        """Count the computing of the GPUs of a lease that has ended, if it was measured."""
        if row.gpu_measured_us:
            self._gpu_used.labels(project, worker_type).inc(row.gpu_used_us / 1e6)
            self._gpu_measured.labels(project, worker_type).inc(row.gpu_measured_us / 1e6)

    def preempted(self, jobs: int = 1) -> None:
        """Count running jobs that were preempted for another one."""
        self._preemptions.inc(jobs)

    def round_done(self, seconds: float, *, waited_s: float) -> None:
        """Note how long a round took, from when it could be planned to the dispatch of its leases.

        Args:
            seconds: that it took.
            waited_s: the part of it for a late start, for waits for a processor and the commit.
        """
        self._round.observe(seconds)
        self._round_wait.observe(max(waited_s, 0.0))

    def launched(self, phases: Mapping[str, float]) -> None:
        """Note the seconds of the phases of a launch."""
        for phase, seconds in phases.items():
            self._launch.labels(phase).observe(seconds)

    def committed(self, seconds: float) -> None:
        """Note how long a journal commit took, waits for the database included."""
        self._commit.observe(seconds)

    def solved(self, seconds: float) -> None:
        """Note how long the policy took to answer."""
        self._solve.observe(seconds)

    def solve_failed(self) -> None:
        """Count a question that was not answered."""
        self._solve_failures.inc()

    def set_budgets(self, parts: Mapping[str, float]) -> None:
        """Set the part of its budget of this month that each project has used."""
        for name in self._budgeted - parts.keys():
            self._budget.remove(name)
        self._budgeted = set(parts)
        for name, part in parts.items():
            self._budget.labels(name).set(part)

    def set_policy_failing(self, failing: bool) -> None:
        """Set whether the policy in force gives no answer."""
        self._policy_failing.set(1 if failing else 0)

    def set_ahead(self, seconds: float) -> None:
        """Set by how much the scheduler's time is ahead of the system's clock."""
        self._ahead.set(seconds)

    def turn_failed(self) -> None:
        """Count a turn that could not be committed."""
        self._failed_turns.inc()

    def stalled(self, seconds: float) -> None:
        """Note that the event loop stood still."""
        self._stalls.inc()
        self._longest_s = max(self._longest_s, seconds)
        self._longest_stall.set(self._longest_s)

    def agents_stalled(self, times: int) -> None:
        """Note that event loops of agents stood still."""
        self._agent_stalls.inc(times)

    def token_reused(self) -> None:
        """Note that an agent's token was shown after its renewal."""
        self._reused.inc()

    def set_webhooks(self, states: Mapping[str, int]) -> None:
        """Set how many webhooks there are by state."""
        for state, count in states.items():
            self._webhooks.labels(state).set(count)

    def webhook_sent(self, *, delivered: bool) -> None:
        """Count a try to send a message of a webhook."""
        self._messages.labels("delivered" if delivered else "failed").inc()

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def described(self) -> tuple[Figure, ...]:
        """Return the descriptions of our metrics, in the order of the guide."""
        return tuple(self._figures)

    # -- making ----------------------------------------------------------------------------------

    def _info(self, text: str, values: dict[str, str]) -> None:
        self._describe("info", "info", text, tuple(values), "")
        Info("leasehold", text, registry=self.registry).info(values)

    def _gauge(self, name: str, text: str, *labels: str, page: str = "") -> Gauge:
        self._describe("gauge", name, text, labels, page)
        return Gauge(f"leasehold_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str, page: str = "") -> Counter:
        self._describe("counter", f"{name}_total", text, labels, page)
        return Counter(f"leasehold_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str, page: str = ""
    ) -> Histogram:
        self._describe("histogram", name, text, labels, page)
        return Histogram(f"leasehold_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _describe(
        self, kind: str, name: str, text: str, labels: tuple[str, ...], page: str
    ) -> None:
        """Note a metric for the guide, which repeats its help unless it gets a text of its own."""
        said = page or text[0].lower() + text[1:].rstrip(".")
        self._figures.append(Figure(name=f"leasehold_{name}", kind=kind, labels=labels, page=said))
