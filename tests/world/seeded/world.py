"""A world: schedulers, agents, jobs, network and database under one clock, all from a seed."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import random
import shutil
import signal
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.link.http_link import HttpLink, LinkSettings
from agent.logs.log_upload import UploadSettings
from agent.loop import Agent
from agent.machine import Machine as AgentMachine
from agent.settings import AgentSettings
from leasehold_testing.wait_reasons import checked_wait_reasons
from planner.knowledge import LearnedKnowledge
from scheduler.clock import CATCH_UP, WallClock
from scheduler.control.facts.requests import ProjectLimits, Submission
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.quota import IdleQuota
from scheduler.domain.throughputs.profiling import Profiling
from scheduler.engine.settings import EngineSettings
from scheduler.errors import (
    NotLeadingError,
    OutcomeUnknownError,
    SequenceError,
    StoreError,
    StoreUnavailableError,
)
from scheduler.operator_settings import LearningSettings
from scheduler.runtime.driver import driver as driver_module
from scheduler.runtime.settings import RuntimeSettings
from scheduler.views.metrics import Metrics
from seeded.black_holes import BlackHoles
from seeded.disks import DiskMemory
from seeded.faults import Faults
from seeded.front import Front
from seeded.jobs import Model
from seeded.launches import Launches
from seeded.lost_commits import LOG, LostCommits
from seeded.machines import EPOCH_S, Database, Machine, Network, Transport
from seeded.nodes import NoEndpoint, SimulatedBackend, SimulatedNode
from seeded.oracle import Oracle
from seeded.scenario import SPEEDS, STORM_S, draw
from seeded.shares import Shares
from seeded.verdict import Verdict
from seeded.virtual_time import Process, SpinningError, StalledError, VirtualLoop
from seeded.watched import WatchedLink, WatchedService, WorldSolver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.runtime.service import LiveService
    from seeded.scenario import Order, Scenario

#: From SIGKILL to a lease's deadline on nodes, and from there until the scheduler gives it away.
MARGIN_S = 1.0
#: Within what all work is to be done once everything is mended, on top of itself.
DRAIN_S = 150.0
#: Launches of a job for which there is time besides.
LAUNCHES = 8
#: How long nodes may hold ended leases: a poll without an answer lasts 6 s, its retry waits.
#: A node that has rebooted is taken again once it has been silent for the timeout.
SETTLE_S = 20.0
#: A process that is asked to end does so within.
STOP_S = 10.0
#: Processor time of a world; a usual one takes a second, and some more while kernels are compiled.
MOST_CPU_S = 50.0
#: What agents wait for, as short as the rounds are.
AGENT = AgentSettings(
    margin_s=MARGIN_S,
    report_every_s=3.0,
    progress_every_s=1.5,
    retry_most_s=2.0,
    health_every_s=3.0,
    disk_every_s=5.0,
)
LINK = LinkSettings(wait_s=4.0, slack_s=2.0, connect_s=1.0, reply_s=3.0)
_SLICE_S = driver_module.FACTS_SLICE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a world.

    Attributes:
        seed: its own.
        digest: of everything that happened.
        problems: faults.
        counts: of what happened, by name.
        until_s: its virtual time at the end.
    """

    seed: int
    digest: str
    problems: tuple[str, ...]
    counts: dict[str, int] = field(default_factory=dict)
    until_s: float = 0.0


def _spin(*_: object) -> None:
    raise SpinningError(f"it takes over {MOST_CPU_S} s of processor time: something spins")


class World:
    """A world.

    Args:
        seed: decides everything.
        trace: whether to print what happens.
    """

    def __init__(self, seed: int, *, scenario: Scenario | None = None, trace: bool = False) -> None:
        self.seed = seed
        self.scenario = scenario or draw(seed)
        self.trace = trace
        self._digest = hashlib.sha256()
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="leasehold-world-"))
        slow = self.chance("slow")
        mean_s = self.scenario.slow_s
        self.loop = VirtualLoop(lambda: slow.expovariate(2.0 / mean_s))
        self.processes: list[Process] = []
        self.network = Network(
            self.loop,
            self.chance("network"),
            lose=self.scenario.lose,
            late=self.scenario.late,
            repeat=self.scenario.repeat,
            record=self.record,
        )
        self.shares = Shares(self)
        self.launches = Launches(self)
        self.lost = LostCommits(self)
        self.black_holes = BlackHoles(self)
        self.oracle = Oracle(self)
        self.verdict = Verdict(self)
        self.database = Database(
            self.record,
            self.oracle.committed,
            self.oracle.loading,
            lambda: EPOCH_S + self.loop.now_s,
        )
        self.models: dict[str, Model] = {}
        self.orders: dict[str, Order] = {}
        self.settings = self._settings()
        self.hosts = [f"s{number}" for number in range(self.scenario.schedulers)]
        self.machines = {host: self.machine_of(host) for host in self.hosts}
        self.schedulers: dict[str, Process] = {}
        self.services: dict[str, WatchedService] = {}
        self.agents: dict[str, Agent] = {}
        self.tasks: dict[Process, asyncio.Future[object]] = {}
        pids = itertools.count(1)
        self.nodes = [
            SimulatedNode(
                self.loop,
                self.machine_of(f"n{number}"),
                self.chance(f"n{number}"),
                types,
                speeds=SPEEDS,
                models=self.models,
                margin_s=MARGIN_S,
                record=self.record,
                began=self.oracle.began,
                believed=self.oracle.believed,
                next_pid=lambda: next(pids),
            )
            for number, types in enumerate(self.scenario.nodes)
        ]
        for node in self.nodes:
            node.launch_s = self.scenario.launch_s
        self.faults = Faults(self)
        self.mended = self.calm = self.limited = self.lifted = False
        #: by how much the leaders' clocks may be wrong besides: a person has set them.
        self.clock_slack_s = sum(
            0.3 if fault.kind == "jump_clock" else CATCH_UP * (fault.for_s + 1.0)
            for fault in self.scenario.faults
            if fault.kind in {"jump_clock", "jump_hours"}
        )

    def chance(self, name: str) -> random.Random:
        """Return what decides about one part of the world."""
        return random.Random(f"{self.seed}/{name}")

    def machine_of(self, name: str) -> Machine:
        """Return a machine with clocks of its own."""
        chance, scenario = self.chance(f"clock of {name}"), self.scenario
        return Machine(
            self.loop,
            name,
            rate=1.0 + chance.uniform(-scenario.drift, scenario.drift),
            offset_s=chance.uniform(-scenario.skew_s, scenario.skew_s),
            booted_s=chance.uniform(100.0, 1e6),
        )

    def _settings(self) -> RuntimeSettings:
        return RuntimeSettings(
            engine=EngineSettings(
                round_length_s=self.scenario.round_s,
                plan_lead_s=3.0,
                retry_backoff_s=1.0,
                solve_grace_s=0.3,
                avoid_node_s=5.0,
                hold_after_deaths=0,
                refuse_what_cannot_fit=False,
            ),
            policy=self.scenario.choice(self.scenario.policy),
            notice_s=0.5,
            grace_s=0.5,
            margin_s=MARGIN_S,
            node_timeout_s=8.0,
            start_timeout_s=30.0,
            tick_s=0.5,
            learning=LearningSettings(least_s=2.0),
            profiling=Profiling(),
            snapshot_entries=15,
            refuse_unfit=False,
        )

    def record(self, kind: str, *what: object) -> None:
        """Take something that happened into the record."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        line = f"{self.loop.now_s!r} {kind} {what!r}"
        self._digest.update(line.encode())
        if self.trace:
            print(line[:600])

    def blame(self, problem: str) -> None:
        """Record a fault."""
        text = f"at {self.loop.now_s:.3f} s: {problem}"
        if text not in self.problems:
            self.problems.append(text)
            self.record("problem", problem)

    # -- life -------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Let the world happen."""
        driver_module.FACTS_SLICE_S = -1.0 if self.scenario.slices else _SLICE_S
        before = signal.signal(signal.SIGVTALRM, _spin)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
        level = LOG.level
        LOG.setLevel(logging.WARNING)
        LOG.addFilter(self.lost.said)
        try:
            with checked_wait_reasons(self.blame):
                self.loop.run_until_complete(self._live())
        except (StalledError, SpinningError) as error:
            self.blame(str(error))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)
            driver_module.FACTS_SLICE_S = _SLICE_S
            LOG.removeFilter(self.lost.said)
            LOG.setLevel(level)
            self.problems += self.loop.failures
            until_s = self.loop.now_s
            self.loop.dispose(self.processes)
            shutil.rmtree(self.folder, ignore_errors=True)
        return Outcome(
            seed=self.seed,
            digest=self._digest.hexdigest(),
            problems=tuple(self.problems),
            counts=dict(sorted(self.counts.items())),
            until_s=until_s,
        )

    async def _live(self) -> None:
        for host in self.hosts:
            self.start_scheduler(host)
        for node in self.nodes:
            self.start_agent(node)
        limits = asyncio.ensure_future(self._limit())
        users = [asyncio.ensure_future(self._submit(order)) for order in self.scenario.orders]
        users += [asyncio.ensure_future(self.shares.book(each)) for each in self.scenario.bookings]
        storm = asyncio.ensure_future(self.faults.inflict(self.scenario.faults))
        await asyncio.sleep(STORM_S)
        await self.faults.mend()
        await asyncio.gather(storm, limits, *users)
        await self._lift_budgets()
        await self.lost.submit_again()
        await self.faults.release()
        self.mended = True
        work_s = sum(
            2.0 * order.model["steps"] * (order.model["step_s"] + order.model["save_s"])
            + order.model["steps"] // 7 * order.model["long_s"]
            + LAUNCHES * self.scenario.launch_s
            for order in self.scenario.orders
        )
        last_s = max((each.until_s for each in self.scenario.bookings), default=0.0)
        until_s = max(self.loop.now_s, last_s) + DRAIN_S + work_s
        while self.loop.now_s < until_s and not self.verdict.all_ended() and not self.problems:
            await asyncio.sleep(0.5)
        until_s = self.loop.now_s + SETTLE_S
        while self.loop.now_s < until_s and not self.verdict.all_settled():
            await asyncio.sleep(0.5)
        await asyncio.sleep(5.0)
        if not self.problems:
            self.verdict.judge()
        if not self.problems:
            await self._end()

    async def _end(self) -> None:
        """Stop everything as an operator does, and check the state for the next start."""
        self.calm = True
        for node in self.nodes:
            assert node.agent is not None
            await self.stop(node.agent)
        for host in self.hosts:
            await self.stop(self.schedulers[host])
        await asyncio.sleep(1.0)
        self.verdict.judge_store()

    # -- schedulers -------------------------------------------------------------------------------

    def start_scheduler(self, host: str, holder: str = "") -> None:
        """Start a scheduler on its machine, with the name of another one if there is a holder."""
        process = self._process(host)
        self.schedulers[host] = process
        process.spawn(self._schedule(host, process, holder or host))

    def end_scheduler(self, host: str) -> None:
        """End a scheduler finally."""
        self.schedulers.pop(host).kill()
        self.services.pop(host, None)
        self.network.servers.pop(host, None)

    def _process(self, name: str) -> Process:
        process = Process(self.loop, name)
        self.processes.append(process)
        return process

    async def _schedule(self, host: str, process: Process, holder: str) -> None:
        machine = self.machines[host]
        solver = WorldSolver(self.chance(f"solver {len(self.processes)}"), self.scenario.solve_s)
        solver.fails = lambda: 0.0 if self.mended else self.scenario.fails
        solver.asked = partial(self.oracle.asked, host)
        solver.done = partial(self.oracle.answered, host)
        service = WatchedService(
            store=self.database.line(host),  # type: ignore[arg-type]
            clock=WallClock(wall=machine.wall_s, steady=machine.steady_s),
            solver=solver,
            knowledge=LearnedKnowledge,
            settings=self.settings,
            metrics=Metrics(process=False, clock=self.loop.time),
            state_dir=self.folder / host,
            holder=holder,
            address=f"http://{host}:8642",
            ttl_s=3.0,
        )
        service.host, service.terms = host, set()
        service.watch, service.failed = self.oracle.turned, self.blame
        self.services[host] = service
        self.network.servers[host] = (
            process,
            Front(service, told=self.oracle.told, reported=self.oracle.reported),
        )
        await self._until_it_ends(process, service.run(), stop=service.stop)

    async def _until_it_ends(
        self,
        process: Process,
        work: Awaitable[object],
        *,
        stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        task = asyncio.ensure_future(work)
        self.tasks[process] = task
        try:
            await asyncio.wait({task})
            if task.cancelled():
                if stop is not None:
                    await stop()
            else:
                task.result()
                self.blame(f"{process.name} ended by itself")
        except SequenceError as error:
            if not self.lost.happened:
                self.blame(f"{process.name} ended by itself: {error!r}")
        except Exception as error:
            if not process.alive:
                return  # the world is over
            self.blame(f"{process.name} ended by itself: {error!r}")
            logging.getLogger("world").debug("it ended", exc_info=error)
        process.kill()

    async def stop(self, process: Process) -> None:
        """Ask a process to end, as SIGTERM does, and wait until it has; SIGKILL follows."""
        process.call(lambda: process in self.tasks and self.tasks[process].cancel())
        until_s = self.loop.now_s + STOP_S
        while process.alive and not process.frozen and self.loop.now_s < until_s:
            await asyncio.sleep(0.1)
        if process.alive and not process.frozen and self.calm:
            self.blame(f"{process.name} has not stopped within {STOP_S} s")
        process.kill()

    # -- agents -----------------------------------------------------------------------------------

    def start_agent(self, node: SimulatedNode) -> None:
        """Start the agent of a node."""
        process = self._process(node.name)
        node.agent = process
        process.spawn(self._work(node, process))

    async def _work(self, node: SimulatedNode, process: Process) -> None:
        folder = self.folder / node.name
        (folder / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
        memory = DiskMemory(node, folder)
        link = HttpLink(
            servers=[f"http://{host}:8642" for host in self.hosts],
            node=node.name,
            address=f"10.0.0.{1 + int(node.name[1:])}",
            version="1",
            settings=LINK,
            transport=Transport(self.network, node.name),
        )
        watched = WatchedLink(link, node.machine)
        agent = Agent(
            node=node.name,
            link=watched,
            inventory=node,
            state_dir=folder,
            settings=AGENT,
            upload=UploadSettings(every_s=60.0),
            make_backend=lambda endpoint, on_change: SimulatedBackend(
                node, endpoint, on_change, folder / "logs"
            ),
            machine=AgentMachine(
                lease_clock_s=node.machine.steady_s,
                wall_s=node.machine.wall_s,
                chance=self.chance(f"agent {len(self.processes)}"),
                memory=lambda _path: memory,
                close_lock=memory.close_lock,
                endpoint=NoEndpoint,
                disk_problem=lambda *_args, **_named: "the disk is full" if node.full else "",
            ),
        )
        if node in self.nodes:
            self.agents[node.name] = agent
        node.look = lambda: self.oracle.accepted_set(node, agent._view, watched)
        await self._until_it_ends(process, agent.run())

    # -- users ------------------------------------------------------------------------------------

    async def ask(self, what: Callable[[LiveService], Awaitable[Any]]) -> Any:
        """Ask one scheduler after the other until one answers; returns the answer or the error."""
        for host in itertools.cycle(self.hosts):
            try:
                async with asyncio.timeout(6.0):
                    answer = await self.network.ask("user", host, what)
            except (TimeoutError, ConnectionResetError):
                answer = NotLeadingError()
            refused = type(answer) is StoreError  # by the database: nothing was done
            if not refused and not isinstance(
                answer, NotLeadingError | StoreUnavailableError | OutcomeUnknownError
            ):
                return answer
            await asyncio.sleep(0.3)
        raise AssertionError

    async def _limit(self) -> None:
        """Set quotas and budgets; jobs are submitted when they are set."""
        for project in sorted({*self.scenario.quotas, *self.scenario.budgets}):
            limits = self.limits_of(project)
            await self.ask(lambda s, limits=limits: s.set_project(limits, actor="user"))
        self.limited = True

    def limits_of(self, project: str, more: int = 0) -> ProjectLimits:
        """Return a project's limits, and so many workers more."""
        quota = self.scenario.quotas.get(project)
        budget_s = None if self.lifted else self.scenario.budgets.get(project)
        return ProjectLimits(
            project=project,
            max_workers=None if quota is None else quota + more,
            idle_quota=IdleQuota(self.scenario.idle.get(project, "keep")),
            budget_gpu_hours=None if budget_s is None else budget_s / 3600.0,
        )

    async def _lift_budgets(self) -> None:
        """Let projects with spent budgets go on."""
        self.lifted = True
        for project in sorted(self.scenario.budgets):
            limits = self.limits_of(project)
            await self.ask(lambda s, limits=limits: s.set_project(limits, actor="user"))

    async def _submit(self, order: Order) -> None:
        await asyncio.sleep(order.at_s)
        while not self.limited or not self.oracle.accepted.issuperset(order.after):
            await asyncio.sleep(0.5)
        model = Model(name=order.name, **order.model)
        model.mishaps = list(model.mishaps)
        self.models[order.name] = model
        self.orders[order.name] = order
        for _ in range(1 + order.again):
            await self.submit_once(order)
        while order.name not in self.oracle.accepted and not self.problems:
            await asyncio.sleep(1.0)
            await self.submit_once(order)

    async def submit_once(self, order: Order) -> None:
        """Submit a job."""
        submission = Submission(
            spec=self._spec(order), client_id=order.name, owner="user", job_id=order.name,
            held=order.held,
        )  # fmt: skip
        answer = await self.ask(lambda s: s.submit([submission], actor="user"))
        self.oracle.submitted(order, answer)

    def _spec(self, order: Order) -> JobSpec:
        step_s = order.model["step_s"]
        counted = order.model["counted"]
        return JobSpec(
            name=order.name,
            project=self.scenario.project_of(order.name),
            command=("train",),
            scale_factors=(order.gang,),
            worker_types=order.types,
            total_steps=float(order.model["steps"]) if counted else None,
            duration_s=None if counted else order.model["steps"] * step_s,
            job_type=f"type-{order.gang}-{step_s}",
            throughputs={name: round(speed / step_s, 3) for name, speed in SPEEDS.items()},
            checkpoint_dir="/checkpoints",
            notice_s=0.5,
            grace_s=0.5,
            max_failures=order.max_failures,
            max_run_time_s=order.limit_s,
            preemptible=not order.firm,
            depends_on=order.after,
        )
