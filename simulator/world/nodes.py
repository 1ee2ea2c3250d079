"""Simulated nodes: an agent's decisions over jobs that exist only as numbers.

``agent.reconcile`` decides for a node, as on a real one; base, rate and time replace the processes.
A ``SimulatedNode`` does no input and output: its caller carries reports and desired sets. A
thousand of them are cheap, since a node computes only on calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from agent.reconcile import (
    DesiredView,
    Forget,
    HeldLease,
    Kill,
    Notice,
    Refuse,
    Renew,
    Start,
    Terminate,
    accept_desired,
    decide_actions,
    view_of_adopted,
    wake_at,
)
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.desired import LEFT_EARLY
from scheduler.protocol.reports import LeaseReport, NodeReport, WorkerReport
from simulator.world.overheads import Overhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.reconcile import Action
    from scheduler.protocol.desired import Desired, DesiredLease


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """An event that happens to a job once.

    Attributes:
        steps: the number of done steps at which it happens.
        end: how the job ends, ``FAILED``, ``OOM`` or ``LOST``.
        node: on which node; empty for the one that runs rank 0.
        message: that its agent reports.
    """

    steps: float
    end: EndReason = EndReason.FAILED
    node: str = ""
    message: str = "a mishap"


def one_step_per_s(_job: str, _worker_type: str, _workers: int, _partner: str | None) -> float:
    """Return a throughput of 1 step/s, so that steps are seconds."""
    return 1.0


_NO_OVERHEAD = Overhead()
#: Exit code of a program that SIGTERM has ended.
_BY_SIGNAL = -15


def no_overhead(_job: str, _worker_type: str, _workers: int) -> Overhead:
    """Return an overhead of 0: launching and saving take no time."""
    return _NO_OVERHEAD


@dataclass(slots=True, kw_only=True)
class SimulatedWorld:
    """The truth about jobs on all nodes, the nodes' shared state, and violations.

    Attributes:
        now_s: the time, the same on every node.
        rate: (job id, worker type, workers, id of the job that it shares them with or None) ->
            steps/s.
        totals: job id -> steps; for other jobs the number in the lease.
        silent: ids of jobs that report no steps.
        unsaved: ids of jobs that never save anything; they work until they have to stop.
        checkpoint_every: steps after which a job checkpoints on its own.
        leave_s: from a notice to the end of a job that follows it; infinite for programs that only
            know SIGTERM.
        term_s: from SIGTERM to the end.
        overhead: (job id, worker type, workers) -> cost of launching, saving and restoring.
        speed: lease id -> speed of its slowest worker, relative to a healthy one.
        fails_after_s: -> seconds after which a job that starts fails on its own.
        checkpoint_interval_s: seconds after which a job checkpoints on its own.
        whole_steps: whether reports round steps down, as real ones do.
        pairs: whether two jobs may share workers.
        mishaps: job id -> its mishaps that are still to come.
        saved: job id -> steps in its last checkpoint; every node reads and writes them.
        completions: job id -> number of its completions.
        executed: job id -> steps that were done, including lost ones.
        running: job id -> lease -> nodes that run it now.
        overlaps: descriptions of runs that overlapped and must not.
    """

    now_s: Callable[[], float]
    rate: Callable[[str, str, int, str | None], float] = one_step_per_s
    totals: dict[str, float] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    unsaved: set[str] = field(default_factory=set)
    checkpoint_every: float = math.inf
    leave_s: float = 0.0
    term_s: float = 0.0
    overhead: Callable[[str, str, int], Overhead] = no_overhead
    speed: Callable[[int], float] = lambda _lease_id: 1.0
    fails_after_s: Callable[[], float] = lambda: math.inf
    checkpoint_interval_s: float = math.inf
    whole_steps: bool = True
    pairs: bool = False
    mishaps: dict[str, list[Mishap]] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)
    completions: dict[str, int] = field(default_factory=dict)
    executed: dict[str, float] = field(default_factory=dict)
    running: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)

    def begin(self, run: SimulatedRun, node: str) -> None:
        """Record that a job starts on a node."""
        attempts = self.running.setdefault(run.lease.job_id, {})
        if attempts.keys() - {run.lease.lease_id}:
            self.overlaps.append(
                f"at {self.now_s()} s node '{node}' starts lease {run.lease.lease_id} of job "
                f"'{run.lease.job_id}' while others run: {attempts}"
            )
        attempts.setdefault(run.lease.lease_id, set()).add(node)

    def finish(self, run: SimulatedRun, node: str) -> None:
        """Record that a job has ended on a node."""
        attempts = self.running[run.lease.job_id]
        attempts[run.lease.lease_id].discard(node)
        if not attempts[run.lease.lease_id]:
            del attempts[run.lease.lease_id]
        if run.lease.rank == 0:
            job_id = run.lease.job_id
            done = self.executed.get(job_id, 0.0) + run.done - run.first
            self.executed[job_id] = done
            if run.end is EndReason.COMPLETED:
                self.completions[job_id] = self.completions.get(job_id, 0) + 1


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """A lease on a node.

    Attributes:
        lease: as the scheduler sent it.
        total: steps of the job.
        first: its steps when the lease began.
        base: steps done at ``since_s``.
        since_s: time from which on ``rate`` counts.
        rate: steps/s.
        saved: steps in the last checkpoint.
        deadline_s: end of the lease.
        leaves_s: when it will leave because of a notice or signal.
        noticed: whether it has been given notice.
        terminated_s: when SIGTERM was sent.
        unwanted: whether SIGTERM was sent because the lease was not desired any more.
        end: how it ended; None before.
        exit_code: as reported.
        message: as reported.
        delivered_term: term of the report that told the scheduler of the end; None before.
        done: steps at the end.
        start_s: when it began.
        complete_s: from its last step until it counts as complete.
        fails_s: when it fails on its own.
    """

    lease: DesiredLease
    total: float
    first: float
    base: float
    since_s: float
    rate: float = 0.0
    saved: float
    deadline_s: float
    leaves_s: float = math.inf
    noticed: bool = False
    terminated_s: float | None = None
    unwanted: bool = False
    end: EndReason | None = None
    exit_code: int | None = None
    message: str = ""
    delivered_term: int | None = None
    done: float = 0.0
    start_s: float = 0.0
    complete_s: float = 0.0
    fails_s: float = math.inf

    @property
    def finish_s(self) -> float:
        """When it will be complete."""
        return self.reaches_s(self.total) + self.complete_s

    def reaches_s(self, steps: float) -> float:
        """Return when ``steps`` steps will be done."""
        return self.since_s + (steps - self.base) / self.rate if self.rate > 0 else math.inf

    def steps(self, now_s: float) -> float:
        """Return the steps that are done."""
        if self.end is not None:
            return self.done
        if self.reaches_s(self.total) <= now_s:
            return self.total
        return min(self.base + self.rate * max(now_s - self.since_s, 0.0), self.total)

    def held(self) -> HeldLease:
        """Return the state of the lease for the reconciliation."""
        return HeldLease(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            job_id=self.lease.job_id,
            attempt=self.lease.attempt,
            nonce=self.lease.nonce,
            workers=self.lease.workers,
            deadline_s=self.deadline_s,
            notice_s=self.lease.notice_s,
            grace_s=self.lease.grace_s,
            noticed=self.noticed,
            terminated_s=self.terminated_s,
            ended=self.end is not None,
            delivered_term=self.delivered_term,
        )


class SimulatedNode:
    """A node's agent with its jobs.

    Args:
        name: of the node.
        worker_types: (n,) by local index.
        world: the truth about the jobs.
        margin_s: from SIGKILL to a lease's deadline. If it is negative, the node holds a lease
            beyond its deadline, as long as the scheduler may need to extend it at that moment.
    """

    def __init__(
        self,
        name: str,
        worker_types: tuple[str, ...],
        world: SimulatedWorld,
        *,
        margin_s: float = 1.0,
    ) -> None:
        self.name = name
        self.worker_types = worker_types
        self.world = world
        self.margin_s = margin_s
        self.view = DesiredView()
        self.incarnation = world.now_s()
        self.sequence = 0
        self.crashed = False
        self.problems: dict[int, str] = {}
        #: how two jobs can hold a worker; see ``WorkerReport``.
        self.sharing = "visible"
        #: timing of launches, if the node measures it, and its names of the accelerators.
        self.launch: tuple[float | None, float | None, float | None] = (None, None, None)
        self.devices: tuple[str, ...] = ()
        #: lease id -> its run.
        self.runs: dict[int, SimulatedRun] = {}

    # -- interface of the transport ---------------------------------------------------------------

    @property
    def after(self) -> tuple[int, int]:
        """Return the (term, revision) that the node already knows."""
        return self.view.term, self.view.revision if self.view.known else -1

    def accept(self, desired: Desired, *, sent_s: float) -> None:
        """Apply a desired set."""
        self.view = accept_desired(self.view, desired, sent_s=sent_s)
        self.act()

    def act(self) -> bool:
        """Perform all due actions; return whether there were any."""
        busy = False
        while self._end_due() | self._decide():
            busy = True
        return busy

    @property
    def next_s(self) -> float:
        """When the next action is due without news; may be in the past."""
        own = [
            min(run.finish_s, run.leaves_s, run.fails_s, self._mishap_s(run))
            for run in self._alive()
        ]
        held = [run.held() for run in self.runs.values()]
        return min([*own, wake_at(self.view, held, margin_s=self.margin_s)], default=math.inf)

    def report(self) -> NodeReport:
        """Return the node's state; every call has a sequence number of its own."""
        self.sequence += 1
        return NodeReport(
            node=self.name,
            incarnation=self.incarnation,
            sequence=self.sequence,
            term=self.view.term,
            revision=max(self.view.revision, 0) if self.view.known else 0,
            workers=tuple(
                WorkerReport(
                    index=i,
                    worker_type=kind,
                    problem=self.problems.get(i, ""),
                    sharing=self.sharing,
                )
                for i, kind in enumerate(self.worker_types)
            ),
            leases=tuple(sorted(self._lease_reports(), key=lambda report: report.lease_id)),
            crashed=self.crashed,
        )

    def delivered(self, report: NodeReport) -> None:
        """Mark the ends in a report as delivered."""
        for lease in report.leases:
            run = self.runs.get(lease.lease_id)
            if run is not None and lease.state is LeasePhase.ENDED:
                run.delivered_term = report.term
        self.act()

    # -- faults ---------------------------------------------------------------------------------

    def break_worker(self, local: int, problem: str) -> None:
        """Lose a worker: jobs on it die, and keep their checkpoints."""
        self.problems[local] = problem
        for run in self._alive():
            if local in run.lease.workers:
                self._checkpoint(run, self.world.now_s())
                self._end(run, EndReason.LOST, message=problem)

    def mend_worker(self, local: int) -> None:
        """Bring a lost worker back."""
        self.problems.pop(local, None)

    def restart_agent(self, *, crashed: bool = False) -> None:
        """Begin a new incarnation that adopts the jobs, and has no desired set."""
        self._begin_incarnation()
        self.crashed = crashed
        self.view = view_of_adopted(self.view, [run.held() for run in self.runs.values()])

    def reboot(self) -> None:
        """Lose every process; the records of the leases are still on the disk."""
        for run in self._alive():
            self._checkpoint(run, self.world.now_s())
            self._end(run, EndReason.LOST, message="the processes vanished")
        self.restart_agent(crashed=True)

    def wipe(self) -> None:
        """Lose every process and every record, as a new machine of the same name."""
        for run in self._alive():
            self._end(run, EndReason.LOST)
        self.runs.clear()
        self.view = DesiredView()
        self._begin_incarnation()

    def _begin_incarnation(self) -> None:
        self.incarnation = max(self.world.now_s(), math.nextafter(self.incarnation, math.inf))
        self.sequence = 0
        self.view = DesiredView(term=self.view.term, revision=self.view.revision)

    # -- decisions --------------------------------------------------------------------------------

    def _alive(self) -> list[SimulatedRun]:
        return [run for run in self.runs.values() if run.end is None]

    def _decide(self) -> bool:
        held = [run.held() for run in self.runs.values()]
        actions = decide_actions(self.view, held, now_s=self.world.now_s(), margin_s=self.margin_s)
        changed = [self._perform(action) for action in actions]
        return any(changed)

    def _perform(self, action: Action) -> bool:
        match action:
            case Start():
                self._start(action)
            case Refuse():
                run = self._new_run(action.wanted.lease, action.wanted.deadline_s)
                run.end, run.message, run.done = EndReason.RELEASED, action.message, run.first
            case Forget():
                del self.runs[action.lease_id]
            case Renew():
                self.runs[action.lease_id].deadline_s = action.deadline_s
            case Notice():
                run = self.runs[action.lease_id]
                run.noticed = action.on
                world, lease = self.world, run.lease
                until_s = world.leave_s + self._overhead(lease).checkpoint_s
                if lease.job_id in world.unsaved:  # it knows SIGTERM only
                    until_s = lease.notice_s + world.term_s
                leaves_s = world.now_s() + until_s
                run.leaves_s = leaves_s if action.on else math.inf
            case Terminate():
                run = self.runs[action.lease_id]
                run.terminated_s, run.unwanted = self.world.now_s(), action.unwanted
                run.leaves_s = min(run.leaves_s, run.terminated_s + self.world.term_s)
            case Kill():
                run = self.runs[action.lease_id]
                if run.end is not None:
                    return False
                self._end(run, self._told(run), message="it was killed")
        return True

    def _new_run(self, lease: DesiredLease, deadline_s: float) -> SimulatedRun:
        world = self.world
        known = float(lease.steps_done) if world.whole_steps else 0.0
        base = world.saved.get(lease.job_id, known)
        total = world.totals.get(lease.job_id, float(lease.total_steps or math.inf))
        overhead, now_s = self._overhead(lease), world.now_s()
        restore_s = overhead.restore_s if lease.attempt > 1 else 0.0
        run = SimulatedRun(
            lease=lease,
            total=total,
            first=base,
            base=base,
            since_s=now_s + overhead.launch_s + restore_s,
            saved=base,
            deadline_s=deadline_s,
            start_s=now_s,
            complete_s=overhead.complete_s,
            fails_s=now_s + world.fails_after_s() if lease.rank == 0 else math.inf,
        )
        self.runs[lease.lease_id] = run
        return run

    def _overhead(self, lease: DesiredLease) -> Overhead:
        worker_type = self.worker_types[lease.workers[0]]
        return self.world.overhead(lease.job_id, worker_type, lease.world_size)

    def _start(self, action: Start) -> None:
        lease = action.wanted.lease
        others = self._company(lease)
        if others and (not self.world.pairs or len(others) > 1):
            self.world.overlaps.append(
                f"node '{self.name}' runs {others[0].lease} and starts {lease}"
            )
        run = self._new_run(lease, action.wanted.deadline_s)
        self.world.begin(run, self.name)
        self._change_rates(run)

    def _company(self, lease: DesiredLease) -> list[SimulatedRun]:
        own = set(lease.workers)
        return [
            run
            for run in self._alive()
            if run.lease.lease_id != lease.lease_id and not own.isdisjoint(run.lease.workers)
        ]

    def _change_rates(self, run: SimulatedRun) -> None:
        """Compute the throughput of a job, and of the one that shares its workers, again."""
        for one in (run, *self._company(run.lease)):
            if one.end is None:
                partner = next((other.lease.job_id for other in self._company(one.lease)), None)
                kind = self.worker_types[one.lease.workers[0]]
                rate = self.world.rate(one.lease.job_id, kind, one.lease.world_size, partner)
                rate *= self.world.speed(one.lease.lease_id)
                if rate != one.rate:
                    now_s = self.world.now_s()
                    one.base = one.steps(now_s)
                    one.since_s, one.rate = max(one.since_s, now_s), rate

    # -- ends -------------------------------------------------------------------------------------

    def _end_due(self) -> bool:
        now_s = self.world.now_s()
        ended = False
        for run in self._alive():
            mishap = self._mishap(run)
            if mishap is not None and self._mishap_s(run) <= now_s:
                self.world.mishaps[run.lease.job_id].remove(mishap)
                self._checkpoint(run, now_s)
                self._end(run, mishap.end, exit_code=1, message=mishap.message)
            elif run.fails_s <= now_s:
                self._checkpoint(run, now_s)
                self._end(run, EndReason.FAILED, exit_code=1, message="it failed by itself")
            elif run.finish_s <= now_s:
                self._save(run, run.total)
                self._end(run, EndReason.COMPLETED, exit_code=0)
            elif run.leaves_s <= now_s:
                self._save(run, run.steps(now_s))
                heeds = run.lease.job_id not in self.world.unsaved
                self._end(run, self._told(run), exit_code=LEFT_EARLY if heeds else _BY_SIGNAL)
            else:
                self._checkpoint(run, now_s)
                continue
            ended = True
        return ended

    def _told(self, run: SimulatedRun) -> EndReason:
        """Return how the end of a job counts that left because it had to."""
        return EndReason.CANCELLED if run.unwanted else EndReason.RELEASED

    def _mishap(self, run: SimulatedRun) -> Mishap | None:
        for mishap in self.world.mishaps.get(run.lease.job_id, ()):
            if mishap.node == self.name or (not mishap.node and run.lease.rank == 0):
                return mishap
        return None

    def _mishap_s(self, run: SimulatedRun) -> float:
        mishap = self._mishap(run)
        return math.inf if mishap is None else run.reaches_s(max(mishap.steps, run.base))

    def _checkpoint(self, run: SimulatedRun, now_s: float) -> None:
        """Write a job's checkpoints that have become due."""
        every = self.world.checkpoint_every
        if math.isfinite(every):
            self._save(run, run.steps(now_s) // every * every)
        interval_s = self.world.checkpoint_interval_s
        if math.isfinite(interval_s):
            written_s = run.start_s + (now_s - run.start_s) // interval_s * interval_s
            if written_s > run.since_s:
                self._save(run, run.steps(written_s))

    def _save(self, run: SimulatedRun, steps: float) -> None:
        if run.lease.job_id in self.world.unsaved and steps < run.total:
            return
        steps = math.floor(steps) if self.world.whole_steps else steps
        run.saved = max(run.saved, steps)
        if run.lease.rank == 0:
            saved = self.world.saved
            saved[run.lease.job_id] = max(run.saved, saved.get(run.lease.job_id, 0.0))

    def _end(
        self, run: SimulatedRun, end: EndReason, *, exit_code: int | None = None, message: str = ""
    ) -> None:
        run.done = run.steps(self.world.now_s())
        run.end, run.exit_code, run.message = end, exit_code, message
        self.world.finish(run, self.name)
        self._change_rates(run)

    # -- reports ----------------------------------------------------------------------------------

    def _lease_reports(self) -> Iterator[LeaseReport]:
        """Yield held leases and those about to start; other leases are not on this node."""
        now_s = self.world.now_s()
        for run in self.runs.values():
            yield self._lease_report(run, now_s)
        for want in self.view.wanted.values():
            lease = want.lease
            newest = self.view.newest_token.get(lease.job_id, -1)
            if lease.lease_id not in self.runs and lease.token >= newest:
                yield LeaseReport(
                    lease_id=lease.lease_id,
                    token=lease.token,
                    state=LeasePhase.STARTING,
                    steps_done=lease.steps_done,
                    steps_live=lease.steps_done,
                    nonce=lease.nonce,
                    job_id=lease.job_id,
                )

    def _lease_report(self, run: SimulatedRun, now_s: float) -> LeaseReport:
        state = LeasePhase.RUNNING if not run.noticed else LeasePhase.STOPPING
        silent = run.lease.job_id in self.world.silent
        live = 0.0 if silent else max(run.steps(now_s), run.saved)
        image_s, launch_s, ready_s = self.launch
        return LeaseReport(
            lease_id=run.lease.lease_id,
            token=run.lease.token,
            state=state if run.end is None else LeasePhase.ENDED,
            reason=run.end,
            exit_code=run.exit_code,
            steps_done=self._steps(0.0 if silent else run.saved),
            steps_live=self._steps(live),
            started_s=run.since_s,
            message=run.message,
            image_s=image_s,
            launch_s=launch_s,
            ready_s=ready_s,
            devices=self.devices,
            nonce=run.lease.nonce,
            job_id=run.lease.job_id,
        )

    def _steps(self, steps: float) -> int:
        # Exact counts allow comparisons with the simulator; on the wire steps are whole.
        return math.floor(steps) if self.world.whole_steps else cast("int", steps)
