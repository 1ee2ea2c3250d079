"""The agent's loop: ask what is wanted, reconcile, report what is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from agent.clock import lease_clock_s
from agent.desired import LeaseState, NodeReport, WorkerReport
from agent.endpoint import Endpoint
from agent.lease_files import LeaseFolder
from agent.process import ProcessBackend
from agent.reconcile import View, accept, decide, remember, wake_at
from scheduler.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from agent.desired import Desired
    from agent.inventory import Inventory

_log = logging.getLogger("leasehold.agent")


class Link(Protocol):
    """The way to the scheduler.

    Both calls raise OSError (ConnectionError, TimeoutError) where the scheduler cannot be reached,
    and InputError where its answer makes no sense; the agent waits and asks again.
    """

    async def desired(self, *, after: tuple[int, int]) -> Desired:
        """Return the desired set, at once if it is newer than ``after`` = (term, revision).

        Otherwise wait for news, and return the same set again after some seconds without any.
        """
        ...

    async def report(self, report: NodeReport) -> None:
        """Deliver a report; return when the scheduler has stored it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Times of the loop.

    Attributes:
        margin_s: from SIGKILL to a lease's deadline.
        report_every_s: between reports without news.
        report_least_s: between reports with news.
        tick_s: longest time between two looks at the processes.
        health_every_s: between two looks at the workers.
        retry_least_s: first wait after the scheduler could not be reached; doubles.
        retry_most_s: longest such wait.
    """

    margin_s: float = 1.0
    report_every_s: float = 2.0
    report_least_s: float = 0.1
    tick_s: float = 1.0
    health_every_s: float = 30.0
    retry_least_s: float = 0.2
    retry_most_s: float = 5.0


class Agent:
    """One node's agent. Cancelling ``run`` leaves the jobs running for the next agent.

    Args:
        node: the node's name.
        link: the way to the scheduler.
        inventory: the node's workers.
        state_dir: private folder, kept over restarts.
        settings: times of the loop.
    """

    def __init__(
        self,
        *,
        node: str,
        link: Link,
        inventory: Inventory,
        state_dir: Path,
        settings: AgentSettings | None = None,
    ) -> None:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._node = node
        self._link = link
        self._inventory = inventory
        self._settings = settings or AgentSettings()
        self._news = asyncio.Event()
        self._to_report = asyncio.Event()
        self._memory = LeaseFolder(state_dir)
        self._endpoint = Endpoint(state_dir / "jobs.sock")
        self._backend = ProcessBackend(
            state_dir=state_dir,
            inventory=inventory,
            endpoint=self._endpoint,
            on_change=self._news.set,
            margin_s=self._settings.margin_s,
        )
        self._view = View()
        self._incarnation = time.time()
        self._sequence = 0
        self._problems: dict[int, str] = {}

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            InputError: another agent is using the state folder.
        """
        lock = self._memory.open_lock()
        if lock is None:
            raise InputError(
                f"another agent is using {self._memory.path}; stop it or choose another folder"
            )
        try:
            self._recall()
            self._view = remember(self._view, self._backend.adopt())
            await self._endpoint.open()
            async with asyncio.TaskGroup() as tasks:
                for work in (self._ask, self._act, self._tell, self._check):
                    tasks.create_task(work())
        finally:
            await self._endpoint.close()
            os.close(lock)

    async def _ask(self) -> None:
        failures = 0
        while True:
            sent_s = lease_clock_s()
            try:
                desired = await self._link.desired(after=(self._view.term, self._view.revision))
            except (OSError, InputError) as error:
                failures += 1
                await self._wait_after(failures, error)
                continue
            failures = 0
            view = accept(self._view, desired, sent_s=sent_s)
            if (view.term, view.revision) != (self._view.term, self._view.revision):
                self._memory.write("agent.json", {"term": view.term, "revision": view.revision})
            self._view = view
            self._news.set()

    async def _act(self) -> None:
        margin_s, tick_s = self._settings.margin_s, self._settings.tick_s
        reported: set[int] = set()
        while True:
            self._news.clear()
            held = self._backend.held()
            for action in decide(self._view, held, now_s=lease_clock_s(), margin_s=margin_s):
                self._backend.perform(action)
                self._to_report.set()
            ended = {lease.lease_id for lease in held if lease.ended}
            if ended - reported:
                self._to_report.set()
            reported = ended
            held = self._backend.held()
            wait_s = wake_at(self._view, held, margin_s=margin_s) - lease_clock_s()
            await _wait(self._news, min(max(wait_s, 0.02), tick_s))

    async def _tell(self) -> None:
        failures = 0
        while True:
            await _wait(self._to_report, self._settings.report_every_s)
            self._to_report.clear()
            report = self._report()
            try:
                await self._link.report(report)
            except (OSError, InputError) as error:
                failures += 1
                self._to_report.set()
                await self._wait_after(failures, error)
                continue
            failures = 0
            ended = {r.lease_id for r in report.leases if r.state is LeaseState.ENDED}
            self._backend.mark_delivered(ended)
            if ended:
                self._news.set()
            await asyncio.sleep(self._settings.report_least_s)

    async def _check(self) -> None:
        while True:
            problems = await asyncio.to_thread(self._inventory.problems)
            if problems != self._problems:
                self._problems = problems
                self._to_report.set()
            await asyncio.sleep(self._settings.health_every_s)

    async def _wait_after(self, failures: int, error: Exception) -> None:
        """Wait longer after each failure, and not in step with other agents."""
        settings = self._settings
        most_s = min(settings.retry_least_s * 2 ** min(failures - 1, 16), settings.retry_most_s)
        wait_s = most_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        _log.warning("the scheduler cannot be reached (%s); asking again in %.1f s", error, wait_s)
        await asyncio.sleep(wait_s)

    def _report(self) -> NodeReport:
        self._sequence += 1
        return NodeReport(
            node=self._node,
            incarnation=self._incarnation,
            sequence=self._sequence,
            term=self._view.term,
            revision=max(self._view.revision, 0),
            workers=tuple(
                WorkerReport(
                    index=worker.index,
                    worker_type=worker.worker_type,
                    problem=self._problems.get(worker.index, ""),
                )
                for worker in self._inventory.workers
            ),
            leases=self._backend.reports(),
        )

    def _recall(self) -> None:
        data = self._memory.read("agent.json")
        if data is not None:
            self._view = replace(self._view, term=data["term"], revision=data["revision"])


async def _wait(event: asyncio.Event, most_s: float) -> None:
    """Wait for an event, not too long.

    Not ``wait_for``: before Python 3.12 it can swallow a cancellation that meets the event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()
