"""A node with a real agent, and the test as its scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from agent.settings import AgentSettings
from leasehold_testing.file_link import FileLink
from leasehold_testing.local_agent import local_agent
from scheduler.domain.lease_life import LeasePhase
from scheduler.protocol.desired import Desired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agent.link.port import Link
    from scheduler.protocol.desired import DesiredLease
    from scheduler.protocol.reports import LeaseReport, NodeReport

_QUICK = AgentSettings(
    margin_s=0.2, report_every_s=0.2, progress_every_s=0.2, report_least_s=0.01, tick_s=0.1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link(FileLink):
    """Keeps the newest report of every lease, also of those that are soon forgotten."""

    kept: dict[int, LeaseReport] = field(default_factory=dict)

    async def report(self, report: NodeReport) -> None:
        self.kept.update({lease.lease_id: lease for lease in report.leases})
        await FileLink.report(self, report)


class LeaseNode:
    """An agent with the test as scheduler; its state is in ``folder``.

    Args:
        folder: for the agent's state, and messages.
        workers: of the node, such as ``v100:4``.
        wait_s: longest wait for a report.
    """

    def __init__(self, folder: Path, workers: str = "v100:1", *, wait_s: float = 90.0) -> None:
        self._folder, self._workers, self._wait_s = folder, workers, wait_s
        self._link = _Link(folder=folder)
        self._revision = 0

    def want(self, *leases: DesiredLease) -> None:
        """Ask the agent for these leases, and for no others."""
        self._revision += 1
        self._link.publish(Desired(revision=self._revision, leases=leases))

    async def until(self, number: int, condition: Callable[[LeaseReport], bool]) -> LeaseReport:
        """Return the first report of a lease with which the condition holds."""
        end_s = time.monotonic() + self._wait_s
        while time.monotonic() < end_s:
            found = self._link.kept.get(number)
            if found is not None and condition(found):
                return found
            await asyncio.sleep(0.02)
        pytest.fail(f"did not come to hold; last {self._link.kept.get(number)}; {self.log(number)}")

    async def ended(self, number: int) -> LeaseReport:
        """Return the last report of a lease."""
        return await self.until(number, lambda report: report.state is LeasePhase.ENDED)

    def log(self, number: int) -> str:
        """Return the output of a lease."""
        logs = self._folder / "state" / "logs" / str(number)
        return "\n".join(file.read_text() for file in sorted(logs.glob("*.log")))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the agent."""
        agent = local_agent(
            node="n1",
            link=cast("Link", self._link),
            workers=self._workers,
            state_dir=self._folder / "state",
            settings=_QUICK,
        )
        task = asyncio.create_task(agent.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
