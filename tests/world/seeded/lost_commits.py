"""A database that loses its newest entries: allowed losses, and required messages."""

from __future__ import annotations

import asyncio
import copy
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold_testing.memory_store import MemoryStore
from scheduler.domain.lease import nonce_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evidence import Line

    from scheduler.domain.rows import AttemptRow
    from scheduler.protocol.reports import LeaseReport, NodeReport
    from seeded.jobs import JobProcess
    from seeded.world import World

#: The scheduler's message that the database has lost entries.
LOG = logging.getLogger("leasehold.driver")
SAYS = "the database has lost its newest entries"
#: Seconds within which a lost lease ends after its node has reported it.
ENDS_S = 12.0


def _copy(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore()
    for name, value in vars(store).items():
        if name != "_lock":
            setattr(copied, name, copy.copy(value))
    return copied


def _key(row: AttemptRow) -> tuple[int, str]:
    return row.lease_id, nonce_of(row.job_id, row.attempt, row.start_s)


class LostCommits:
    """Has the database forget, and looks at what follows.

    Args:
        world: the world.

    Attributes:
        happened: whether it has forgotten anything.
        jobs: that the database has lost.
        affected: jobs of which it has lost anything.
        revived: leases with lost ends.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.happened = False
        self.jobs: set[str] = set()
        self.affected: set[str] = set()
        self.revived: set[int] = set()
        #: leases that it has lost: number and nonce.
        self._leases: dict[tuple[int, str], AttemptRow] = {}
        #: those that a node has reported since -> (node, when first).
        self._reported: dict[tuple[int, str], tuple[str, float]] = {}
        #: their processes.
        self._processes: list[JobProcess] = []
        #: hosts with schedulers that have loaded the state since.
        self._loaded: set[str] = set()
        #: the schedulers' messages.
        self._said: list[str] = []
        self._watches: list[asyncio.Future[None]] = []

    def keep(self) -> MemoryStore:
        """Return a copy of the database's present content."""
        return _copy(self._world.database.store)

    def grants(self, kept: MemoryStore) -> int:
        """Return how many leases were granted since a copy was made."""
        return len(self._world.database.store._attempts.keys() - kept._attempts.keys())

    def forget(self, kept: MemoryStore) -> bool:
        """Put an older copy of the database in place; return whether it has the same leader."""
        world, before = self._world, self._world.database.store
        self.happened = True
        self._loaded.clear()
        self.jobs |= before._jobs.keys() - kept._jobs.keys()
        for job_id, row in before._jobs.items():
            if kept._jobs.get(job_id) != row:
                self.affected.add(job_id)
        for lease_id, lease in before._attempts.items():
            known = kept._attempts.get(lease_id)
            if known != lease:
                self.affected.add(lease.job_id)
            if known is not None and known.ended_s is None and lease.ended_s is not None:
                self.revived.add(lease_id)
            if known is None or _key(known) != _key(lease):
                self._leases[_key(lease)] = lease
                self._processes += world.oracle.lose(lease_id)
        world.database.put(kept)
        world.oracle.forget(kept)
        world.shares.forget(kept)
        world.black_holes.forget()
        world.record("forgotten", before.head().sequence - kept.head().sequence)
        leaders = [None if one is None else one.token for one in (before.leader(), kept.leader())]
        return leaders[0] == leaders[1]

    def loading(self, host: str) -> None:
        """Record that a scheduler loads the rest."""
        self._loaded.add(host)

    def has(self, lease_id: int, nonce: str) -> bool:
        """Return whether the database has lost a lease."""
        return (lease_id, nonce) in self._leases

    def began(self, process: JobProcess) -> bool:
        """Take a process that begins under a lease that is lost; return whether it is one."""
        lost = self.has(process.lease_id, process.nonce)
        if lost:
            self._processes.append(process)
        return lost

    @property
    def unnoticed(self) -> bool:
        """Whether a leader lives on, and does not notice the loss before its next commit."""
        services = self._world.services.items()
        return self.happened and any(
            service._driver and host not in self._loaded for host, service in services
        )

    def reported(self, report: NodeReport) -> None:
        """Look at a report that a leader has taken in: it names each job of a lost lease."""
        if self.unnoticed:
            return
        for lease in report.leases:
            if self.has(lease.lease_id, lease.nonce):
                self._reported_lost(report.node, lease)

    def _reported_lost(self, node: str, lease: LeaseReport) -> None:
        key = lease.lease_id, lease.nonce
        if key in self._reported:
            return
        self._reported[key] = node, self._world.loop.now_s
        named = any(f"'{node}'" in text and f"'{lease.job_id}'" in text for text in self._said)
        row = self._world.database.store.attempt(lease.lease_id)
        # Nothing is remembered of an ended lease, so its number does not show that it was reused.
        reused = row is not None and row.ended_s is not None
        if not named and not reused:
            self._world.blame(f"{node} holds {self._leases[key]}, and the log does not say so")
        self._watches.append(asyncio.ensure_future(self._watch_end(key)))

    async def _watch_end(self, key: tuple[int, str]) -> None:
        """Where nothing else goes wrong a lease that is lost ends soon after it is reported."""
        world, began_s = self._world, self._world.loop.now_s
        await asyncio.sleep(ENDS_S)
        quiet = not world.scenario.lose and not world.scenario.late
        if quiet and world.faults.last_s <= began_s:
            for process in self._processes:
                if (process.lease_id, process.nonce) == key and process.code is None:
                    world.blame(f"{self._leases[key]} is lost and still runs")

    def said(self, record: logging.LogRecord) -> bool:
        """Take in a scheduler's log; return whether it is to be printed."""
        text = record.getMessage()
        if SAYS in text:
            self._said.append(text)
            self._world.record("said", text)
        return record.levelno >= logging.getLogger().level

    async def submit_again(self) -> None:
        """Submit jobs again that the list of jobs does not show, as the log asks for."""
        oracle, store = self._world.oracle, self._world.database.store
        for job_id in sorted(self.jobs & oracle.accepted - oracle.refused):
            if store.job(job_id) is None:
                await self._world.submit_once(self._world.orders[job_id])

    def kept(self, lines: list[Line]) -> list[Line]:
        """Return what processes did under leases that the database has kept."""
        return [line for line in lines if line.pid not in self._pids()]

    def renamed(self, lines: list[Line]) -> list[Line]:
        """Return what processes did, with numbers of their own for leases that are lost."""
        lost = self._pids()
        return [replace(line, lease=lost.get(line.pid, line.lease)) for line in lines]

    def _pids(self) -> dict[int, int]:
        numbers = {key: -1 - number for number, key in enumerate(self._leases)}
        return {p.pid: numbers[p.lease_id, p.nonce] for p in self._processes}

    def verdict(self) -> Iterator[str]:
        """Yield faults at the end."""
        for process in self._processes:
            if process.code is None:
                yield f"a process of lost lease {process.lease_id} lives on"
        oracle, stored = self._world.oracle, self._world.database.store._jobs
        for job_id in sorted(oracle.accepted - oracle.refused - stored.keys()):
            yield f"{job_id} was taken in, and is lost" + " again" * (job_id in self.jobs)
