"""A service on a stage in one call: what a story finds there."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold_testing.stage import Stage
from scheduler.control.requests import Submission
from scheduler.domain.spec import JobSpec
from scheduler.store.queries import HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from scheduler.runtime.settings import RuntimeSettings
    from simulator.nodes import SimulatedWorld

ONE_WORKER: Mapping[str, tuple[str, ...]] = {"n0": ("v100",)}


class Play(Stage):
    """A stage on which jobs are submitted by a few words."""

    async def job(self, name: str, *, owner: str = "me", held: bool = False, **spec: Any) -> str:
        """Submit a job of 100 steps under its own name; return its id, or why it is refused."""
        usual: dict[str, Any] = {
            "command": ("train",),
            "total_steps": 100.0,
            "throughputs": {"v100": 1.0},
        }
        (done,) = await self.submit(
            Submission(spec=JobSpec(name=name, **usual | spec), owner=owner, job_id=name, held=held)
        )
        return done.job_id or done.refusal

    async def wait(self, seconds: float, *, tick_s: float = 1.0) -> None:
        """Let time pass."""
        await self.run(self.clock.now_s() + seconds, tick_s=tick_s)

    def told(self, *kinds: str) -> list[tuple[float, str, str]]:
        """Return time, kind and subject of the lines of history, of some kinds or of all."""
        rows = self.store.history(HistoryQuery(kinds=kinds, limit=1000))
        return [(row.at_s, row.kind, row.subject) for row in rows]

    def leases(self) -> list[tuple[object, ...]]:
        """Return of every lease so far the job, the workers, its begin and how it ended."""
        jobs = sorted(self.state.jobs.by_id) if self.running else []
        names = dict.fromkeys([*jobs, *(subject for _, _, subject in self.told())])
        return [
            (row.job_id, row.workers, row.start_s, row.ended_s, str(row.end_reason))
            for name in names
            for row in self.store.attempts(name)
        ]


def played(
    story: Callable[[Play], Awaitable[object]],
    settings: RuntimeSettings,
    *,
    nodes: Mapping[str, tuple[str, ...]] = ONE_WORKER,
    world: SimulatedWorld | None = None,
) -> object:
    """Return what a story finds on a stage with these nodes; the clock is the stage's own."""

    async def happen(folder: str) -> object:
        stage = Play(Path(folder), settings, world=world)
        for name, types in nodes.items():
            stage.add_node(name, *types)
        await stage.start()
        await stage.wait(1.0)
        return await story(stage)

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(happen(folder))
