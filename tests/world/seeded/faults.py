"""What goes wrong in a world, and how it is put right."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.requests import JobAction, NodeAction
from scheduler.domain.jobs.job import JobStatus
from seeded.scenario import FADING, POLICIES, STORM_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seeded.nodes import SimulatedNode
    from seeded.scenario import Fault
    from seeded.virtual_time import Process
    from seeded.world import World

#: Faults of a commit.
SPOILT = (
    "lost before",
    "lost after",
    "death before",
    "death after",
    "freeze before",
    "freeze after",
)
#: By how much a token of the leadership may be ahead of the time of another scheduler.
TOKEN_S = 3.5
HOUR_S = 3600.0
#: Within what an order that has arrived is on record.
TAKEN_S = 3.0


class Faults:
    """Inflicts faults on a world, and mends them.

    Args:
        world: the world.

    Attributes:
        last_s: when something was last hurt or mended.
        cancelled: jobs that a user has cancelled.
        of_copies: leases on the disks of copies of nodes, on other machines.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.last_s = 0.0
        self.cancelled: set[str] = set()
        self.requeued: set[str] = set()
        self.of_copies: set[int] = set()

    async def inflict(self, faults: Sequence[Fault]) -> None:
        """Let all of them happen, each at its time."""
        tasks = [asyncio.ensure_future(self._at(fault)) for fault in faults]
        if tasks:
            await asyncio.gather(*tasks)

    async def _at(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        self._world.record("fault", fault.kind, fault.target, fault.for_s)
        self.last_s = self._world.loop.now_s
        await getattr(self, f"_{fault.kind}")(fault)
        self.last_s = self._world.loop.now_s

    @property
    def _storms(self) -> bool:
        return self._world.loop.now_s < STORM_S

    def _host(self, fault: Fault) -> str:
        return self._world.hosts[fault.target % len(self._world.hosts)]

    def _node(self, fault: Fault) -> SimulatedNode:
        return self._world.nodes[fault.target % len(self._world.nodes)]

    def _job(self, fault: Fault) -> str | None:
        names = sorted(self._world.oracle.accepted)
        return names[fault.target % len(names)] if names else None

    def _running(self, *nodes: SimulatedNode) -> list[str]:
        """Return the jobs that run on some nodes; without any, on all."""
        held = {
            supervisor.entry.lease.job_id
            for node in nodes or self._world.nodes
            for supervisor in node.supervisors.values()
        }
        return sorted(held & self._world.oracle.accepted)

    # -- schedulers and their database ------------------------------------------------------------

    async def _kill_scheduler(self, fault: Fault) -> None:
        host = self._host(fault)
        self._world.schedulers[host].kill()
        await self._restart_scheduler(host, fault.for_s)

    async def _kill_scheduler_soon(self, fault: Fault) -> None:
        """Kill it between any two of its steps."""
        host = self._host(fault)
        process = self._world.schedulers[host]
        process.dies_in = fault.how * fault.how // 1000
        while self._storms and process.alive and process is self._world.schedulers[host]:
            await asyncio.sleep(0.2)
        await self._restart_scheduler(host, fault.for_s)

    async def _restart_scheduler(self, host: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not self._world.schedulers[host].alive:
            self._world.start_scheduler(host)

    async def _freeze_scheduler(self, fault: Fault) -> None:
        await self._freeze(self._world.schedulers[self._host(fault)], fault.for_s)

    async def _freeze(self, process: Process, for_s: float) -> None:
        process.freeze()
        await asyncio.sleep(for_s)
        process.thaw()

    async def _lose_database(self, fault: Fault) -> None:
        hosts = self._world.hosts if fault.how % 2 else [self._host(fault)]
        self._world.database.away.update(hosts)
        await asyncio.sleep(fault.for_s)
        self._world.database.away.difference_update(hosts)

    async def _spoil_commits(self, fault: Fault) -> None:
        host = self._host(fault)
        what = SPOILT[fault.how % len(SPOILT)]
        planned = self._world.database.planned.setdefault(host, [])
        planned += [what] * (1 + fault.how // 300)
        while self._storms and planned:
            await self._restart_scheduler(host, 0.3)
        await self._restart_scheduler(host, 0.3)

    async def _forget_commits(self, fault: Fault) -> None:
        """Make the database lose its latest entries; schedulers die by that, or notice."""
        world, chance = self._world, self._world.chance("forget")
        kept, until_s = world.lost.keep(), world.loop.now_s + chance.choice([1.0, 10.0, 10.0])
        while world.loop.now_s < until_s and world.lost.grants(kept) < 1 + fault.how % 3:
            await asyncio.sleep(0.1)
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        same_leader = world.lost.forget(kept)
        self.last_s = world.loop.now_s
        for host in world.hosts:
            if fault.how % 4 or not same_leader:
                world.schedulers[host].kill()
        # A token of the leadership that is lost is given out again if another one leads sooner.
        await asyncio.sleep(chance.uniform(1.5, 3.0) + (0.0 if same_leader else TOKEN_S))
        for host in world.hosts:
            await self._restart_scheduler(host, 0.0)
        await asyncio.sleep(3.0)
        await world.lost.submit_again()

    async def _refuse_commits(self, fault: Fault) -> None:
        """Have the database refuse writes in a row, fewer than end a scheduler."""
        host = self._host(fault)
        planned = self._world.database.planned.setdefault(host, [])
        planned += ["refused"] * (1 + fault.how % 5)
        while self._storms and planned:
            await self._restart_scheduler(host, 0.3)

    async def _name_twice(self, fault: Fault) -> None:
        """Start a second scheduler with the name of one that runs, for a while."""
        world, host = self._world, self._host(fault)
        twin = f"{host}-twin"
        world.machines[twin] = world.machine_of(twin)
        world.start_scheduler(twin, holder=host)
        await asyncio.sleep(fault.for_s)
        world.end_scheduler(twin)

    async def _stop_scheduler(self, fault: Fault) -> None:
        host = self._host(fault)
        await self._world.stop(self._world.schedulers[host])
        await self._restart_scheduler(host, fault.for_s)

    # -- agents and nodes -------------------------------------------------------------------------

    async def _kill_agent(self, fault: Fault) -> None:
        node = self._node(fault)
        _agent(node).kill()
        await self._restart_agent(node, fault.for_s)

    async def _kill_agent_soon(self, fault: Fault) -> None:
        node = self._node(fault)
        process = _agent(node)
        process.dies_in = fault.how // 3
        while self._storms and process.alive and process is node.agent:
            await asyncio.sleep(0.2)
        await self._restart_agent(node, fault.for_s)

    async def _stop_agent(self, fault: Fault) -> None:
        node = self._node(fault)
        await self._world.stop(_agent(node))
        await self._restart_agent(node, fault.for_s)

    async def _leave_node(self, fault: Fault) -> None:
        """Have the agent stop its jobs before it ends."""
        node, process = self._node(fault), _agent(self._node(fault))
        agent = self._world.agents.get(node.name)
        if agent is not None:
            leaving = process.spawn(agent.stop_jobs(most_s=20.0))
            until_s = self._world.loop.now_s + 25.0
            while not leaving.done() and process.alive and self._world.loop.now_s < until_s:
                await asyncio.sleep(0.1)
            if process.alive and leaving.done() and leaving.exception() is not None:
                self._world.blame(f"{node.name} cannot leave: {leaving.exception()!r}")
        await self._world.stop(process)
        await self._restart_agent(node, fault.for_s)

    async def _restart_agent(self, node: SimulatedNode, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not _agent(node).alive:
            self._world.start_agent(node)

    async def _freeze_agent(self, fault: Fault) -> None:
        await self._freeze(_agent(self._node(fault)), fault.for_s)

    async def _crash_node(self, fault: Fault) -> None:
        node = self._node(fault)
        node.crash()
        await self._restart_agent(node, fault.for_s)

    async def _wipe_node(self, fault: Fault) -> None:
        node = self._node(fault)
        node.wipe()
        await self._restart_agent(node, fault.for_s)

    async def _clone_node(self, fault: Fault) -> None:
        """Start the agent of a copy of a node's disk, on another machine, for a while."""
        node, world = self._node(fault), self._world
        clone = node.clone()
        world.start_agent(clone)
        await asyncio.sleep(fault.for_s)
        self.of_copies |= clone.disk.leases.keys()
        clone.crash()

    async def _cut_node(self, fault: Fault) -> None:
        node = self._node(fault)
        hosts = self._world.hosts if fault.how % 2 else [self._world.hosts[0]]
        cuts = {frozenset((node.name, host)) for host in hosts}
        self._world.network.cut |= cuts
        await asyncio.sleep(fault.for_s)
        self._world.network.cut -= cuts

    async def _cut_and_order(self, fault: Fault) -> None:
        """Order something of a node in the moment in which it is cut off."""
        node, world = self._node(fault), self._world
        running = self._running(node)
        order = {"reason": "", "actor": "user"}
        cut = asyncio.ensure_future(self._cut_node(replace(fault, how=1)))
        if fault.how % 3 == 0 or not running:
            await world.ask(lambda s: s.node_action(node.name, NodeAction.DRAIN, **order))
        elif fault.how % 3 == 1:
            await self._act(running[0], JobAction.HOLD)
        else:
            await self._requeue_job(running[0])
        await cut
        await world.ask(lambda s: s.node_action(node.name, NodeAction.UNCORDON, **order))
        if running:
            await self._act(running[0], JobAction.RELEASE)

    async def _break_worker(self, fault: Fault) -> None:
        node = self._node(fault)
        local = fault.how % len(node.workers)
        node.break_worker(local)
        await asyncio.sleep(fault.for_s)
        node.broken.pop(local, None)

    async def _swallow_jobs(self, fault: Fault) -> None:
        """Let each job fail at once that starts on a node."""
        node = self._node(fault)
        node.swallows = True
        await asyncio.sleep(fault.for_s)
        node.swallows = False

    async def _fill_disk(self, fault: Fault) -> None:
        node = self._node(fault)
        node.full = True
        await asyncio.sleep(fault.for_s)
        node.full = False

    async def _jump_clock(self, fault: Fault) -> None:
        """Set a scheduler's wall clock, as a person might by hand."""
        machine = self._world.machines[self._host(fault)]
        machine.offset_s += -0.3 if fault.how % 2 else 0.3

    async def _jump_hours(self, fault: Fault) -> None:
        """Set a machine's wall clock by hours, restart its program, and set the clock right."""
        world, of_node = self._world, fault.how % 2
        machine = self._node(fault).machine if of_node else world.machines[self._host(fault)]
        jump_s = world.chance("jump").choice([-1, 1]) * HOUR_S * (1 + fault.how % 12)
        machine.offset_s += jump_s
        await asyncio.sleep(fault.for_s / 2)
        if fault.how % 3 and of_node:
            _agent(self._node(fault)).kill()
            await self._restart_agent(self._node(fault), 0.5)
        elif fault.how % 3:
            world.schedulers[self._host(fault)].kill()
            await self._restart_scheduler(self._host(fault), 0.5)
        await asyncio.sleep(fault.for_s / 2)
        machine.offset_s -= jump_s

    # -- people -----------------------------------------------------------------------------------

    async def _act(self, job_id: str, action: JobAction) -> Any:
        return await self._world.ask(lambda s: s.act([job_id], action, actor="user"))

    async def _cancel(self, fault: Fault) -> None:
        running = self._running()
        often = running and fault.how % 4
        job_id = running[fault.target % len(running)] if often else self._job(fault)
        if job_id is not None:
            self.cancelled.add(job_id)
            self._world.oracle.cancelled(job_id, await self._act(job_id, JobAction.CANCEL))

    async def _hold(self, fault: Fault) -> None:
        job_id = self._job(fault)
        if job_id is not None:
            await self._act(job_id, JobAction.HOLD)
            await asyncio.sleep(fault.for_s)
            await self._act(job_id, JobAction.RELEASE)

    async def _requeue(self, fault: Fault) -> None:
        job_id = self._job(fault)
        if job_id is not None:
            await self._requeue_job(job_id)

    async def _requeue_job(self, job_id: str) -> None:
        row = self._world.database.store.job(job_id)
        if row is not None and row.finished_s is None:  # it would rightly complete twice
            self.requeued.add(job_id)
            await self._act(job_id, JobAction.REQUEUE)

    async def _order_node(self, fault: Fault, action: NodeAction) -> None:
        name = self._node(fault).name
        order = {"reason": "", "actor": "user"}
        await self._world.ask(lambda s: s.node_action(name, action, **order))
        await asyncio.sleep(fault.for_s)
        await self._world.ask(lambda s: s.node_action(name, NodeAction.UNCORDON, **order))

    async def _drain_node(self, fault: Fault) -> None:
        await self._order_node(fault, NodeAction.DRAIN)

    async def _cordon_node(self, fault: Fault) -> None:
        await self._order_node(fault, NodeAction.CORDON)

    async def _set_policy(self, fault: Fault) -> None:
        scenario = self._world.scenario
        names = FADING if scenario.half_life_s else POLICIES
        choice = scenario.choice(names[fault.how % len(names)])
        await self._world.ask(lambda s: s.set_policy(choice, actor="user"))

    async def _limit_project(self, fault: Fault) -> None:
        widest = max(order.gang for order in self._world.scenario.orders)
        limits = self._world.limits_of
        chosen = [replace(limits("p"), max_workers=most) for most in (widest + fault.how % 2, None)]
        if quotas := sorted(self._world.scenario.quotas):
            project = quotas[fault.target % len(quotas)]
            chosen = [limits(project, more) for more in (1, 0)]
        for one in chosen:
            await self._world.ask(lambda s, one=one: s.set_project(one, actor="user"))
            await asyncio.sleep(fault.for_s)

    async def _repeat_report(self, fault: Fault) -> None:
        """Deliver a report a second time, long after the first."""
        report = self._world.oracle.last_report.get(self._node(fault).name)
        if report is not None:
            await asyncio.sleep(fault.for_s)
            report = replace(report)
            await self._world.ask(lambda s: s.report(report, address="", version=""))

    # -- the end ----------------------------------------------------------------------------------

    async def mend(self) -> None:
        """Put everything right."""
        world = self._world
        world.network.lose = world.network.late = world.network.repeat = 0.0
        world.network.cut.clear()
        world.database.away.clear()
        world.database.planned.clear()
        for host in world.hosts:
            world.schedulers[host].thaw()
            world.schedulers[host].dies_in = None
            if not world.schedulers[host].alive:
                world.start_scheduler(host)
        for node in world.nodes:
            node.full = node.swallows = False
            node.broken.clear()
            _agent(node).thaw()
            _agent(node).dies_in = None
            if not _agent(node).alive:
                world.start_agent(node)
        self.last_s = world.loop.now_s

    async def release(self) -> None:
        """Release every job that is held, once no late order can arrive; resume nodes, too."""
        landed_s = self._world.network.landed_s
        if landed_s:
            await asyncio.sleep(max(landed_s - self._world.loop.now_s, 0.0) + TAKEN_S)
        if landed_s or self._world.lost.happened:
            await self._release_nodes()
        for job_id in sorted(self._world.oracle.accepted):
            row = self._world.database.store.job(job_id)
            if row is None or row.status is JobStatus.HELD:
                await self._act(job_id, JobAction.RELEASE)
        self.last_s = self._world.loop.now_s

    async def _release_nodes(self) -> None:
        """Take back orders for nodes: an order may have come after its end."""
        order = {"reason": "", "actor": "user"}
        for row in self._world.database.store.settings("node/"):
            name = row.key.removeprefix("node/")
            await self._world.ask(
                lambda s, name=name: s.node_action(name, NodeAction.UNCORDON, **order)
            )


def _agent(node: SimulatedNode) -> Process:
    assert node.agent is not None
    return node.agent
