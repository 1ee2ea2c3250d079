"""A whole service on a stage: the daemon's parts and its nodes in one process, under one clock.

Nothing here runs by itself. A test moves the clock, and at each moment nodes report, the driver
takes its turns and nodes act on what follows, until nothing more does. Every run takes the same
course.
"""

from __future__ import annotations

import asyncio
import copy
import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from leasehold_testing.clock import ManualClock
from leasehold_testing.faults import SimulatedCrash
from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.links import FakeAgent, InlineExecutor, ServiceLink
from leasehold_testing.memory_store import MemoryStore
from planner.knowledge import LearnedKnowledge
from policies.answering import PolicyAnswerer
from scheduler.control.state.leases import LiveLease
from scheduler.domain.codec import encode
from scheduler.domain.lease_life import PhaseWatch
from scheduler.domain.throughputs.knowledge import Part
from scheduler.engine.snapshot import dump, encode_state
from scheduler.errors import InvariantError, NotLeadingError
from scheduler.runtime.driver.snapshots import recover_state
from scheduler.runtime.service import LiveService
from scheduler.views.metrics import Metrics
from simulator.world.nodes import SimulatedNode, SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from scheduler.control.control import Control
    from scheduler.control.facts.requests import Submission, Submitted
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.facts import commands as do
    from scheduler.runtime.driver.driver import Driver
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.runtime.solver import Solver
    from scheduler.secret_box import SecretBox
    from scheduler.store.protocol import Store

_T = TypeVar("_T")
#: Passes of the event loop after which everything that needs no turn has happened.
_PASSES = 12


class Stage:
    """A service, its store and its nodes.

    Args:
        folder: for output of jobs.
        settings: of the runtime.
        store: its store; in memory by default.
        solver: answers questions; inline by default.
        world: the truth about jobs; its clock is replaced by the stage's.
        box: keeps the jobs' secret variables; one without a key by default.

    Attributes:
        clock: the time of all parts.
        world: the truth about jobs.
        store: what survives a crash.
        agents: node -> its agent.
        log: every command that was performed, by all services so far.
        check: whether invariants are checked after every turn.
    """

    def __init__(
        self,
        folder: Path,
        settings: RuntimeSettings,
        *,
        store: Store | None = None,
        solver: Solver | None = None,
        world: SimulatedWorld | None = None,
        box: SecretBox | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.world = world or SimulatedWorld(now_s=self.clock.now_s)
        self.world.now_s = self.clock.now_s
        self.store: Store = store or MemoryStore()
        self.solver: Solver = solver or InlineSolver(PolicyAnswerer())
        self.settings = settings
        self._box = box
        self.agents: dict[str, FakeAgent] = {}
        self.links: dict[str, ServiceLink] = {}
        self.log: list[do.Command] = []
        self.check = True
        #: the person that submits the jobs of ``advance``.
        self.actor = "test"
        #: what agents and people could see after the last turn.
        self.published: dict[str, object] = {}
        self._folder = folder
        self._service: LiveService | None = None
        self._control: Control | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        #: what nodes stumbled over; raised at the next opportunity.
        self._failures: list[BaseException] = []
        #: node -> its last report, as far as it has news.
        self._told: dict[str, object] = {}

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Let a service begin, or restart after a crash."""
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        token = self.store.acquire_leadership("stage", now_s=self.clock.now_s(), ttl_s=1e9)
        assert token is not None
        self._service = service = LiveService(
            store=self.store,
            clock=self.clock,
            solver=self.solver,
            knowledge=LearnedKnowledge,
            settings=self.settings,
            metrics=Metrics(),
            state_dir=self._folder,
            holder="stage",
            box=self._box,
        )
        driver = await service.begin(token.token)
        driver.log = self.log
        self._control = driver.control
        self._told.clear()
        for link in self.links.values():
            link.service = service
        self.verify()

    async def crash(self) -> None:
        """Let the service vanish as it is; calls under way get no answer."""
        if self._service is not None:
            self._service.cease()
        self._service = None
        for link in self.links.values():
            link.service = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    @property
    def running(self) -> bool:
        """Whether there is a service."""
        return self._service is not None

    @property
    def service(self) -> LiveService:
        """The service."""
        assert self._service is not None
        return self._service

    @property
    def driver(self) -> Driver:
        """Its driver."""
        return self.service.driver

    @property
    def control(self) -> Control:
        """What decides in it."""
        assert self._control is not None
        return self._control

    @property
    def state(self) -> ControlState:
        """Its state."""
        return self.control.state

    def recovered(self) -> ControlState:
        """Return the state with which a service would begin if this one died now."""
        return recover_state(
            self.store,
            self.store.load(),
            self.settings,
            knowledge=LearnedKnowledge,
            time_dependent=self.solver.time_dependent,
            term=self.state.term,
            now_s=self.clock.now_s(),
        )

    def add_node(self, name: str, *worker_types: str, margin_s: float = 1.0) -> SimulatedNode:
        """Put a node on the stage; it joins when it first reports."""
        node = SimulatedNode(name, worker_types, self.world, margin_s=margin_s)
        link = ServiceLink(self._service, name)
        self.links[name] = link
        self.agents[name] = FakeAgent(node, link)
        return node

    def node(self, name: str) -> SimulatedNode:
        """Return a node."""
        return self.agents[name].node

    def remove_node(self, name: str) -> None:
        """Take a node off the stage without a word."""
        del self.agents[name], self.links[name]
        self._told.pop(name, None)

    # -- what happens -----------------------------------------------------------------------------

    async def do(self, call: Coroutine[object, object, _T]) -> _T:
        """Await a call of the service, and let everything happen that follows."""
        task = asyncio.ensure_future(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self.settle()
        finally:
            if not task.done():
                task.cancel()
        return await task

    async def submit(self, *submissions: Submission) -> tuple[Submitted, ...]:
        """Submit jobs, and let everything happen that follows."""
        return await self.do(self.service.submit(submissions, actor="test"))

    async def advance(
        self,
        to_s: float,
        submissions: Sequence[Submission] = (),
        *,
        orders: Sequence[Coroutine[object, object, object]] = (),
    ) -> None:
        """Move the clock, and let everything happen that is due then, all of it at once."""
        self.clock.advance(max(to_s, self.clock.now_s()))
        for order in orders:
            self._spawn(order)
        if submissions:
            self._spawn(self.service.submit(submissions, actor=self.actor))
        for agent in self.agents.values():
            agent.node.act()
            self._tell(agent)
        await self._pass()
        if self.running and not await self._turn():
            left = [item for item in submissions if self.store.job(item.job_id) is None]
            if left:
                self._spawn(self.service.submit(left, actor=self.actor))
        await self.settle()

    async def run(self, until_s: float, *, tick_s: float = math.inf) -> None:
        """Let time pass, moment by moment.

        Args:
            until_s: where to stop.
            tick_s: longest step; what only housekeeping finds is found then.
        """
        while (moment := min(self.next_s, self.clock.now_s() + tick_s)) <= until_s:
            await self.advance(moment)
        await self.advance(until_s)

    async def run_until(
        self, done: Callable[[], bool], *, at_most_s: float, tick_s: float = 1.0
    ) -> None:
        """Let time pass until something holds.

        Raises:
            InvariantError: it does not hold in time.
        """
        limit_s = self.clock.now_s() + at_most_s
        while not done():
            moment = min(self.next_s, self.clock.now_s() + tick_s)
            if moment > limit_s:
                raise InvariantError(f"what was waited for has not happened by {limit_s} s")
            await self.advance(moment)

    @property
    def next_s(self) -> float:
        """The next moment at which something happens by itself."""
        times = [agent.node.next_s for agent in self.agents.values()]
        if self.running:
            times += self.state.leases.timers.values()
        now_s = self.clock.now_s()
        later = [at_s for at_s in times if at_s > now_s]
        return min(later, default=math.inf)

    async def settle(self) -> None:
        """Let happen what follows without time passing."""
        while True:
            for agent, link in zip(self.agents.values(), self.links.values(), strict=True):
                if not link.cut and self.running:
                    self._spawn(agent.ask())
            await self._pass()
            for agent in self.agents.values():
                agent.node.act()
                if self._told.get(agent.node.name) != _news(agent.node):
                    self._tell(agent)
            await self._pass()
            if not self.running or not self.driver.pending:
                self.verify()
                return
            await self._turn()

    async def _turn(self) -> bool:
        """Let the driver take a turn; returns False if the service died and a new one began."""
        try:
            await self.driver.turn()
        except SimulatedCrash:
            await self.crash()
            await self.start()
            return False
        await self._pass()
        self.verify()
        return True

    def _tell(self, agent: FakeAgent) -> None:
        if self.running and not self.links[agent.node.name].cut:
            self._told[agent.node.name] = _news(agent.node)
            self._spawn(agent.tell())

    def _spawn(self, call: Coroutine[object, object, _T]) -> asyncio.Task[_T]:
        task = asyncio.ensure_future(call)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError | NotLeadingError):
            self._failures.append(error)

    async def _pass(self) -> None:
        for _ in range(_PASSES):
            await asyncio.sleep(0)

    # -- what must hold ---------------------------------------------------------------------------

    def verify(self) -> None:
        """Make sure that the shell's state does not contradict the engine's.

        Raises:
            InvariantError: it does.
        """
        if self._failures:
            raise self._failures[0]
        if self.check and self.running:
            check_state(self.state)
            check_view(self.driver.control)
            self.published = picture(self.driver.view)


def check_state(state: ControlState) -> None:
    """Check the invariants between two turns.

    Raises:
        InvariantError: the engine contradicts itself, or the shell the engine.
    """
    engine = state.engine
    engine.check_invariants()
    leases = state.leases
    book = engine.book
    told: dict[tuple[str, int], list[int]] = {}
    for name in leases.on_node:
        for live, member in leases.held_by(name):
            for local in member.local if member.wanted else ():
                told.setdefault((name, local), []).append(live.lease.lease_id)
    checks = {
        "leases in force are the engine's": {i: live.lease for i, live in leases.by_id.items()}
        == book.leases,
        "revoked leases are the engine's": {i for i, v in leases.by_id.items() if v.revoked}
        == book.stopping,
        "jobs know their leases": leases.of_job
        == {lease.job_id: lease_id for lease_id, lease in book.leases.items()},
        "active jobs are known to the engine, or parked": {
            record.job_id for record in state.jobs.by_id.values() if record.blocked_on is None
        }
        == set(engine.jobs.number_of),
        "parked jobs are those that are": {record.job_id for record in state.jobs.parked()}
        == {record.job_id for record in state.jobs.by_id.values() if record.blocked_on is not None},
    }
    broken = [name for name, holds in checks.items() if not holds]
    for place, ids in told.items():
        if len(ids) > 1 and not _is_pair(state, ids):
            broken.append(f"leases {ids} are wanted on worker {place} and are no pair")
    if broken:
        raise InvariantError(f"live state: {'; '.join(broken)}")


#: The phases of leases when they were last checked.
_PHASES: WeakKeyDictionary[Control, PhaseWatch] = WeakKeyDictionary()


def check_view(control: Control) -> None:
    """Make sure that all that control has decided is published, between two turns.

    Leases must have moved on in their phases since the last check, too.

    Raises:
        AssertionError: the view lags behind.
        InvariantError: a lease went back to an earlier phase.
    """
    state, view = control.state, control.view
    phases = {lease_id: live.phase for lease_id, live in state.leases.by_id.items()}
    _PHASES.setdefault(control, PhaseWatch()).check(phases)
    pairs: list[tuple[Mapping[Any, Any], Mapping[Any, Any]]] = [
        (state.jobs.by_id, view.jobs.by_id),
        (state.leases.by_id, view.leases.by_id),
        (state.nodes.by_name, view.nodes.by_name),
    ]
    for held, seen in pairs:
        lagging = {name: (held.get(name), seen.get(name)) for name in held.keys() | seen.keys()}
        lagging = {name: (h, s) for name, (h, s) in lagging.items() if _plain(h) != _plain(s)}
        assert not lagging, f"decided and published differ: {lagging}"
    assert state.jobs.admitted == view.jobs.admitted
    assert {k: v for k, v in state.leases.on_node.items() if v} == {
        k: v for k, v in view.leases.on_node.items() if v
    }
    assert state.engine.jobs.x.tolist() == view.engine.jobs.x.tolist()
    assert state.engine.jobs.number_of == view.engine.jobs.number_of
    assert state.engine.in_service.tolist() == view.engine.in_service.tolist()


def _plain(value: object) -> object:
    """Return a lease without the fields that a view leaves out; other values unchanged."""
    if not isinstance(value, LiveLease):
        return value
    return replace(value, members=tuple(replace(member, since=0) for member in value.members))


def picture(view: PublishedState) -> dict[str, object]:
    """Return all that a view shows, in a form that stays as it is and can be compared."""
    leases = {}
    for lease_id, live in view.leases.by_id.items():
        leases[lease_id] = copy.copy(live)
        leases[lease_id].members = tuple(copy.copy(member) for member in live.members)
    jobs = view.engine.jobs
    return {
        "leases": leases,
        "jobs": {job_id: copy.copy(record) for job_id, record in view.jobs.by_id.items()},
        "nodes": {name: copy.copy(node) for name, node in view.nodes.by_name.items()},
        "projects": (view.jobs.limits.copy(), view.jobs.active.copy(), view.jobs.admitted.copy()),
        "policy": (view.policy.choice, view.policy.since_s, view.policy.computed_s),
        "engine": (view.engine.now_s, view.engine.round_number, view.engine.in_service.tolist()),
        "shares": (list(jobs.number_of), jobs["status"].tolist(), jobs.x.tolist()),
    }


def canonical(state: ControlState) -> dict[str, Any]:
    """Return everything of a state that must survive a restart, in a form that can be compared."""
    engine = encode_state(dump(state.engine))
    leases, jobs = state.leases, state.jobs
    return {
        "engine": zlib.decompress(engine.partition(b"\n")[2]),
        "leases": {
            lease_id: (live.deadline_s, live.revoked, live.base_steps, live.worker_type, live.nodes)
            for lease_id, live in leases.by_id.items()
        },
        "of_job": leases.of_job,
        "timers": leases.timers,
        "question": None if leases.question is None else encode(leases.question),
        "jobs": {
            record.job_id: (record.to_row(), record.profile) for record in jobs.by_id.values()
        },
        "parked": {record.job_id: record.waits_for for record in jobs.parked()},
        "active": {name: count for name, count in jobs.active.items() if count},
        "admitted": {name: count for name, count in jobs.admitted.items() if count},
        "limits": jobs.limits,
        "catalogue": state.knowledge.dump(Part.PROFILES),
        "nodes": {
            node.name: (node.first, node.types, node.order, node.reason)
            for node in state.nodes.by_name.values()
        },
        "policy": (state.policy.choice, state.policy.newest_number, state.asked),
    }


def _is_pair(state: ControlState, lease_ids: Sequence[int]) -> bool:
    workers = {state.leases.by_id[lease_id].lease.workers for lease_id in lease_ids}
    return len(lease_ids) == 2 and len(workers) == 1


def _news(node: SimulatedNode) -> object:
    report = node.report()
    return (
        report.incarnation,
        report.term,
        report.revision,
        report.workers,
        tuple((lease.lease_id, lease.state) for lease in report.leases),
    )
