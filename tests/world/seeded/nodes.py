"""Nodes: a disk, supervisors that outlive the agent, and the backend of the agent's loop."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.backend import Backend
from agent.endpoint.endpoint import Endpoint
from agent.lease_record import LeaseRecord, tenant_of
from agent.process.endings import classify_ending
from agent.reconcile import Forget, Kill, Notice, Refuse, Renew, Start, Terminate
from scheduler.domain.lease_life import EndReason
from scheduler.protocol.reports import LeaseReport
from seeded.disks import Disk, LeaseOnDisk
from seeded.jobs import JobProcess
from seeded.machines import Machine

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from agent.reconcile import Action, HeldLease, WantedLease
    from scheduler.protocol.desired import DesiredImage
    from seeded.jobs import Model
    from seeded.virtual_time import Process, VirtualLoop


#: How often a launch meets with trouble, and what kinds there are, in Kubernetes' words.
TROUBLE = 0.1
#: Seconds within which a job fails on a node on which each job fails.
SWALLOW_S = 0.2
#: How long a process takes to end by SIGTERM while it launches.
END_S = 0.05
TROUBLES = ("ErrImagePull", "CreateContainerConfigError", "FailedMount")


class NoEndpoint(Endpoint):
    """An endpoint without sockets: jobs' processes are looked at instead."""

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class SimulatedWorker:
    """One worker as it is reported."""

    index: int
    worker_type: str
    sharing: str = "exclusive"


class Supervisor:
    """Holds the deadline of one lease on its machine, whether the agent lives or not.

    Args:
        node: where.
        entry: the lease's folder.
    """

    def __init__(self, node: SimulatedNode, entry: LeaseOnDisk) -> None:
        self._node, self.entry = node, entry
        self.alive = True
        self.processes: list[JobProcess] = []
        self._terminated = self._expired = self._killed = False
        self._alarm = 0
        launch_s, self._fails = node.chance.uniform(0.02, 0.6) + node.launch_s, False
        if node.chance.random() < TROUBLE:
            entry.trouble = node.chance.choice(TROUBLES)
            launch_s, self._fails = launch_s + 2.0, node.chance.random() < 0.5
        entry.launch_s = launch_s
        node.loop.outside(launch_s, self._begin)
        self.obey()

    def _begin(self) -> None:
        if not self.alive:
            return
        if self._terminated or self._fails:
            self._over(0)
            return
        entry, node = self.entry, self._node
        entry.ran = True
        for position in range(len(entry.lease.local_ranks)):
            process = JobProcess(
                node.loop,
                node.chance,
                node.models[entry.lease.job_id],
                entry.lease,
                position,
                node=node.name,
                pid=node.next_pid(),
                speed=node.speed_of(entry.lease.workers[position]),
                record=node.record,
                ended=self._look,
            )
            self.processes.append(process)
            node.began(process)
            if node.swallows:
                node.loop.outside(node.chance.uniform(0.01, SWALLOW_S), process.fail)
        self._give_notice()
        node.changed()

    def obey(self) -> None:
        """Read the orders, and wait for their deadline."""
        if not self.alive:
            return
        entry, margin_s = self.entry, self._node.margin_s
        if entry.terminated_s is not None:
            self._terminate()
        if entry.kill:
            self._kill()
        self._give_notice()
        term_at = entry.deadline_s - margin_s - entry.lease.grace_s
        self._alarm += 1
        self._wait(term_at, self._expire)
        self._wait(entry.deadline_s - margin_s, self._kill)

    def _wait(self, at_s: float, act: Callable[[], None]) -> None:
        node, alarm = self._node, self._alarm
        left_s = node.machine.true_of_steady(at_s) - node.loop.now_s

        def ring() -> None:
            if self.alive and alarm == self._alarm:
                act()

        node.loop.outside(max(left_s, 0.0), ring)

    def _give_notice(self) -> None:
        for process in self.processes:
            process.notice(self.entry.noticed_s is not None)

    def _expire(self) -> None:
        self._expired = True
        self._terminate()

    def _terminate(self) -> None:
        if not self._terminated:
            self._terminated = True
            for process in self.processes:
                process.terminate()
            if self._node.launch_s:  # SIGTERM ends a process before its first step
                self._node.loop.outside(END_S, self._end_launch)
            left_s = self.entry.lease.grace_s
            self._node.loop.outside(left_s, lambda: self.alive and self._kill())

    def _end_launch(self) -> None:
        if not self.entry.ran:
            self._begin()

    def _kill(self) -> None:
        self._terminated = True
        if any(process.code is None for process in self.processes):
            self._killed = True
            for process in self.processes:
                process.kill()

    def _look(self) -> None:
        """Note that a process has ended; one that fails takes the others down."""
        if not self.alive:
            return
        self._sample()
        codes = [process.code for process in self.processes]
        if any(code not in {None, 0} for code in codes) and None in codes:
            for process in self.processes:
                if process.code is None:
                    process.kill()
        if None not in codes:
            self._over(next((code for code in codes if code), 0))

    def _sample(self) -> None:
        for process in self.processes:
            if process.rank == 0:
                self.entry.live = max(self.entry.live, process.live)
                self.entry.done = max(self.entry.done, process.done)

    def sample(self) -> None:
        """Write down how far the job is."""
        self._sample()

    def _over(self, code: int) -> None:
        entry = self.entry
        self.alive = False
        entry.ending = {
            "code": code,
            "error": "",
            "trouble": self.entry.trouble if self._fails and not self._terminated else "",
            "terminated": self._terminated and entry.terminated_s is not None,
            "expired": self._expired,
            "killed": self._killed,
            "oom_kills": 0,
            "memory_error": any(process.oom for process in self.processes),
        }
        self._node.supervisors.pop(entry.lease.lease_id, None)
        self._node.changed()

    def vanish(self) -> None:
        """End with all processes, without a word."""
        self.alive = False
        for process in self.processes:
            process.vanish()


class SimulatedNode:
    """A machine that runs an agent and jobs.

    Args:
        loop: the time.
        machine: its clocks.
        chance: decides its actions.
        worker_types: (n,) by local index.
        speeds: worker type -> steps per step of the slowest one.
        models: job id -> the truth about it.
        margin_s: from SIGKILL to a lease's deadline.
        record: called with each event.
        began: called with each process of a job.
        believed: called with node, lease and the true time until which the agent takes it to hold.
        pids: counts processes.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        machine: Machine,
        chance: random.Random,
        worker_types: tuple[str, ...],
        *,
        speeds: Mapping[str, float],
        models: Mapping[str, Model],
        margin_s: float,
        record: Callable[..., None],
        began: Callable[[JobProcess], None],
        believed: Callable[[str, int, float], None],
        next_pid: Callable[[], int],
    ) -> None:
        self.loop, self.machine, self.chance = loop, machine, chance
        self.name = self.hardware = machine.name
        self._types, self._speeds = worker_types, speeds
        self.models, self.margin_s, self.record, self.began = models, margin_s, record, began
        self.believed, self.next_pid = believed, next_pid
        self.disk = Disk()
        self.boot = 1
        self.full = False
        #: time of each launch, beside the moment that every launch takes.
        self.launch_s = 0.0
        #: whether each job fails at once that starts here.
        self.swallows = False
        self.broken: dict[int, str] = {}
        self.supervisors: dict[int, Supervisor] = {}
        self.agent: Process | None = None
        self.lock: Process | None = None
        self.on_change: Callable[[], None] = lambda: None
        #: reads the leases that the agent has accepted, at each question for leases.
        self.look: Callable[[], None] = lambda: None

    @property
    def place(self) -> str:
        """Machine, boot and folder of its agent."""
        return f"{self.hardware}/boot-{self.boot}/disk-{self.disk.serial}"

    @property
    def workers(self) -> tuple[SimulatedWorker, ...]:
        """By local index."""
        return tuple(SimulatedWorker(i, kind) for i, kind in enumerate(self._types))

    def problems(self) -> dict[int, str]:
        """Return by local index why a worker cannot be used."""
        return dict(self.broken)

    def speed_of(self, worker: int) -> float:
        """Return the speed of a worker."""
        return self._speeds[self._types[worker]]

    def changed(self) -> None:
        """Wake the agent, as the end of a supervisor does."""
        if self.agent is not None and self.agent.alive:
            self.agent.call(self.on_change)

    # -- what happens to it ---------------------------------------------------------------------

    def crash(self) -> None:
        """Lose every process at once, the agent's too; the disk stays."""
        if self.agent is not None:
            self.agent.kill()
        for supervisor in tuple(self.supervisors.values()):
            supervisor.vanish()
        self.supervisors.clear()
        self.boot += 1

    def wipe(self) -> None:
        """Crash, and lose the disk too."""
        self.crash()
        self.disk = Disk(serial=self.disk.serial + 1)

    def clone(self) -> SimulatedNode:
        """Return another machine with a copy of the disk; no processes run there."""
        other, machine = copy.copy(self), self.machine
        other.machine = Machine(
            self.loop,
            machine.name,
            rate=machine.rate,
            offset_s=machine.offset_s,
            booted_s=machine.booted_s + 1e6,
        )
        other.hardware = f"{self.name}-clone-{self.next_pid()}"
        leases = {lease_id: replace(entry) for lease_id, entry in self.disk.leases.items()}
        other.disk = replace(self.disk, files=copy.deepcopy(self.disk.files), leases=leases)
        other.supervisors, other.agent, other.lock, other.broken = {}, None, None, {}
        other.on_change = other.look = lambda: None
        return other

    def break_worker(self, local: int) -> None:
        """Lose a worker; what runs on it fails at its next call."""
        self.broken[local] = "the accelerator does not answer"
        for supervisor in tuple(self.supervisors.values()):
            if local in supervisor.entry.lease.workers:
                for process in supervisor.processes:
                    process.vanish()


@dataclass(kw_only=True)
class Record(LeaseRecord):
    """A lease as the agent knows it; ``entry`` is its folder."""

    entry: LeaseOnDisk
    trouble: str = ""

    def runs(self) -> bool:
        """Return whether its processes have been seen."""
        return self.entry.ran

    def report(self) -> LeaseReport:
        """Return the report for the scheduler."""
        return LeaseReport(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            state=self.state(),
            reason=self.end,
            exit_code=self.exit_code,
            steps_done=self.tenant.steps_done,
            steps_live=max(self.tenant.steps_live, self.tenant.steps_done),
            message=self.message or self.entry.trouble,
            reason_code=self.trouble or ("" if self.entry.ran else self.entry.trouble),
            launch_s=self.entry.launch_s if self.entry.ran else None,
            image_s=0.01 if self.entry.ran else None,
            devices=("gpu",) if self.entry.ran else (),
            nonce=self.lease.nonce,
            job_id=self.lease.job_id,
        )


class SimulatedBackend(Backend):
    """The contract of ``agent.backend.Backend`` over a simulated node.

    Args:
        node: the node.
        endpoint: where jobs would report.
        on_change: called when a lease's processes have ended.
        logs_dir: an empty folder.
    """

    def __init__(
        self,
        node: SimulatedNode,
        endpoint: Endpoint,
        on_change: Callable[[], None],
        logs_dir: Path,
    ) -> None:
        self._node, self._endpoint, self._logs_dir = node, endpoint, logs_dir
        node.look = lambda: None
        self._records: dict[int, Record] = {}
        node.on_change = on_change

    @property
    def logs_dir(self) -> Path:
        """A folder without output."""
        return self._logs_dir

    def place(self) -> str:
        """Return the places of the processes."""
        return self._node.place

    async def open(self) -> tuple[HeldLease, ...]:
        """Take over what an earlier agent left behind."""
        for entry in self._node.disk.leases.values():
            self._remember(entry)
        return self.held()

    async def run(self) -> None:
        """Do nothing."""
        await asyncio.Event().wait()

    def _remember(self, entry: LeaseOnDisk) -> Record:
        record = Record(
            lease=entry.lease,
            tenant=tenant_of(entry.lease, "secret", leave_by_s=entry.noticed_s),
            boot=str(entry.boot),
            deadline_s=entry.deadline_s,
            terminated_s=entry.terminated_s,
            unwanted=entry.unwanted,
            entry=entry,
        )
        if entry.refused is not None:
            record.end, record.message = entry.refused
        self._records[entry.lease.lease_id] = record
        self._endpoint.admit(record.tenant)
        return record

    def held(self) -> tuple[HeldLease, ...]:
        """Return every lease on this node."""
        self._node.look()
        for record in self._records.values():
            if record.end is None:
                self._look(record)
        return tuple(record.held() for _, record in sorted(self._records.items()))

    def _look(self, record: Record) -> None:
        entry, lease_id = record.entry, record.lease.lease_id
        supervisor = self._node.supervisors.get(lease_id)
        if supervisor is not None:
            supervisor.sample()
        record.advance(entry.live, entry.done)
        if supervisor is not None:
            return
        ending = entry.ending
        if ending is not None:
            code = ending["code"]
            record.exit_code = code if isinstance(code, int) and entry.ran else None
            if ending["trouble"]:
                record.end, record.message = EndReason.LOST, "it could not be started"
                record.trouble = str(ending["trouble"])
                return
        elif entry.ran:
            record.trouble = "Evicted"
        record.end, record.message = classify_ending(
            ending,
            noticed=record.tenant.leave_by_s is not None,
            unwanted=record.unwanted,
            steps_done=record.tenant.steps_done,
            total_steps=record.lease.total_steps,
        )

    def reports(self) -> tuple[LeaseReport, ...]:
        """Return every lease for the scheduler."""
        return tuple(record.safe_report() for _, record in sorted(self._records.items()))

    def states(self) -> dict[int, Any]:
        """Return where each lease's processes are."""
        return {lease_id: record.state() for lease_id, record in self._records.items()}

    def running(self) -> set[int]:
        """Return the leases that may still write output."""
        return {lease_id for lease_id, record in self._records.items() if record.end is None}

    def mark_delivered(self, lease_ids: Collection[int], *, term: int) -> None:
        """Note that a report of a term has told the scheduler how these leases ended."""
        for lease_id in lease_ids:
            if lease_id in self._records:
                self._records[lease_id].delivered_term = term

    def prepare(self, images: tuple[DesiredImage, ...]) -> None:
        """Do nothing."""

    def problems(self, inventory: Mapping[int, str]) -> dict[int, str]:
        """Return the result of the inventory."""
        return dict(inventory)

    def remarks(self) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def perform(self, action: Action) -> None:
        """Perform the actions of the reconciliation."""
        self._node.record("action", self._node.name, repr(action))
        node = self._node
        if isinstance(action, Renew):
            until_s = node.machine.true_of_steady(action.deadline_s)
            node.believed(node.name, action.lease_id, until_s)
        if isinstance(action, Start):
            until_s = node.machine.true_of_steady(action.wanted.deadline_s)
            node.believed(node.name, action.wanted.lease.lease_id, until_s)
            self._start(action.wanted)
        elif isinstance(action, Refuse):
            entry = self._write(action.wanted)
            entry.refused = EndReason.RELEASED, action.message
            self._remember(entry)
            self._node.changed()
        elif isinstance(action, Forget):
            del self._records[action.lease_id]
            self._endpoint.dismiss(action.lease_id)
            del self._node.disk.leases[action.lease_id]
        else:
            self._order(self._records[action.lease_id], action)

    def _write(self, wanted: WantedLease) -> LeaseOnDisk:
        entry = LeaseOnDisk(lease=wanted.lease, boot=self._node.boot, deadline_s=wanted.deadline_s)
        self._node.disk.leases[wanted.lease.lease_id] = entry
        return entry

    def _start(self, wanted: WantedLease) -> None:
        entry = self._write(wanted)
        self._node.supervisors[wanted.lease.lease_id] = Supervisor(self._node, entry)
        self._remember(entry)

    def _order(self, record: Record, action: Renew | Notice | Terminate | Kill) -> None:
        if record.end is not None:
            return
        entry, now_s = record.entry, self._node.machine.steady_s()
        if isinstance(action, Renew):
            entry.deadline_s = record.deadline_s = action.deadline_s
        elif isinstance(action, Notice):
            self._tell(record, action.by_s if action.on else None)
        elif isinstance(action, Terminate):
            entry.terminated_s = record.terminated_s = now_s
            entry.unwanted = record.unwanted = action.unwanted
            self._tell(record, now_s)
        else:
            entry.kill = True
        supervisor = self._node.supervisors.get(record.lease.lease_id)
        if supervisor is not None:
            supervisor.obey()

    def _tell(self, record: Record, leave_by_s: float | None) -> None:
        record.entry.noticed_s = leave_by_s
        self._endpoint.notify(record.lease.lease_id, leave_by_s)
