"""A configured service on a stage: one call takes a configuration and returns an observation."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx

from api.app import create_app
from leasehold.config.load import load_config
from leasehold.daemon.secrets.secret_keys import secret_box
from leasehold.daemon.settings import api_settings, runtime_settings
from leasehold_testing.stage import Stage
from scheduler.control.facts.requests import JobAction
from scheduler.errors import AdmissionError
from scheduler.protocol.desired import desired_from_dict, to_dict
from scheduler.store.queries import HistoryQuery
from simulator.world.nodes import SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from leasehold.config.settings import ServerConfig
    from scheduler.protocol.desired import Desired, DesiredLease
    from scheduler.protocol.reports import LeaseReport

#: Rounds of seconds, and requests without tokens.
QUICK = {
    "engine.round_length_s": "20",
    "leases.notice_s": "1",
    "leases.grace_s": "1",
    "leases.margin_s": "1",
    "server.no_auth": "yes",
}
#: The default request of a job.
JOB: Mapping[str, Any] = {
    "command": ["train"],
    "total_steps": 100.0,
    "throughputs": {"v100": 1.0},
    "checkpoint_dir": "/ckpt",
}
ONE_WORKER: Mapping[str, tuple[str, ...]] = {"n0": ("v100",)}


def configured(settings: Mapping[str, str] | None = None) -> ServerConfig:
    """Return a configuration as the file would give it: texts by key, over quick rounds."""
    texts = QUICK | dict(settings or {})
    given = {key: (f"--set {key}", text) for key, text in texts.items()}
    return load_config(environment={}, texts=given).config


class Play(Stage):
    """A stage with the REST interface, and short words for stories."""

    client: httpx.AsyncClient

    async def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Let a request be answered, and everything happen that follows."""
        call = asyncio.ensure_future(self.client.request(method, path, **more))
        while not call.done():
            await asyncio.sleep(0)
            await self.settle()
        return call.result()

    async def job(self, job_name: str, **fields: Any) -> None:
        """Submit a job over REST.

        Raises:
            AdmissionError: it is refused.
        """
        answer = await self.request("POST", "/v1/jobs", json={**JOB, "name": job_name} | fields)
        if not answer.is_success:
            raise AdmissionError(answer.text)

    async def wait(self, seconds: float, *, tick_s: float = 2.0) -> None:
        """Let time pass."""
        await self.run(self.clock.now_s() + seconds, tick_s=tick_s)

    def told(self, *kinds: str) -> list[tuple[float, str, str]]:
        """Return time, kind and subject of the lines of history, of some kinds or of all."""
        rows = self.store.history(HistoryQuery(kinds=kinds, limit=1000))
        return [(row.at_s, row.kind, row.subject) for row in rows]

    def leases(self) -> list[tuple[object, ...]]:
        """Return of every lease so far the job, the workers, its begin, its end and the reason."""
        subjects = dict.fromkeys(subject for _, _, subject in self.told("job_submitted"))
        return [
            (row.job_id, row.workers, row.start_s, row.ended_s, str(row.end_reason))
            for job_id in subjects
            for row in self.store.attempts(job_id)
        ]

    async def desired(self, node: str = "n0") -> Desired:
        """Return the desired set that a node has received."""
        wanted = await self.do(self.service.desired(node, after=(0, -1), wait_s=0.0))
        return desired_from_dict(to_dict(wanted))

    async def launched(self, node: str = "n0") -> tuple[DesiredLease, ...]:
        """Return the leases in a node's desired set."""
        return (await self.desired(node)).leases


class _PlainIds:
    """Gives jobs their names as ids, so that two runs are the same; the second of a name a 2."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, names: Sequence[str]) -> list[str]:
        """Return an id for each job."""
        return [self._next(re.sub(r"\W+", "-", name).strip("-")) for name in names]

    def _next(self, name: str) -> str:
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"


def played(
    story: Callable[[Play], Awaitable[object]],
    config: ServerConfig | None = None,
    *,
    nodes: Mapping[str, tuple[str, ...]] = ONE_WORKER,
    world: SimulatedWorld | None = None,
) -> object:
    """Return the findings of a story on a stage with these nodes; jobs' ids are their names."""

    async def happen(folder: str) -> object:
        chosen = config or configured()
        stage = Play(Path(folder), runtime_settings(chosen), world=world, box=secret_box(chosen))
        stage.check = False
        for name, types in nodes.items():
            stage.add_node(name, *types)
        await stage.start()
        now = stage.clock.now_s
        app = create_app(stage.service, api_settings(chosen), now=now, monotonic=now)
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1234))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as stage.client,
        ):
            await stage.wait(1.0)
            return await story(stage)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("scheduler.runtime.intake.new_job_ids", _PlainIds()),
    ):
        return asyncio.run(happen(folder))


def leases(stage: Play) -> list[tuple[object, ...]]:
    """Return all leases so far; see ``Play.leases``."""
    return stage.leases()


def outcome(
    config: ServerConfig,
    *jobs: Mapping[str, Any],
    nodes: Mapping[str, tuple[str, ...]] = ONE_WORKER,
    for_s: float = 110.0,
    prepare: Callable[[Play], Awaitable[object]] | None = None,
    then: Callable[[Play], Awaitable[object]] | None = None,
    shown: Callable[[Play], object] = leases,
    **world: Any,
) -> object:
    """Run a job, and others that come ten seconds later; return the observation at the end.

    Args:
        config: of the service.
        jobs: the fields of each; the first is ``job``, the others are ``other-0`` and so on.
        nodes: the cluster.
        for_s: time until the observation, after the others have come.
        prepare: called before the first job comes.
        then: called when all jobs have come.
        shown: returns the observation at the end.
        world: fields of ``SimulatedWorld``.
    """

    async def story(stage: Play) -> object:
        if prepare is not None:
            await prepare(stage)
        await stage.job("job", **jobs[0])
        await stage.wait(10)
        for i, one in enumerate(jobs[1:]):
            await stage.job(f"other-{i}", **one)
        if then is not None:
            await then(stage)
        await stage.wait(for_s)
        found = shown(stage)
        return await found if inspect.isawaitable(found) else found

    known = SimulatedWorld(now_s=float, pairs=True, **copy.deepcopy(world))
    return played(story, config, nodes=nodes, world=known)


def reported(
    change: Callable[[LeaseReport, float], LeaseReport],
) -> Callable[[Play], Awaitable[None]]:
    """Return what changes the report of each lease, given the time, before nodes send it."""

    def changed(node: Any) -> Callable[[Any, float], LeaseReport]:
        report = node._lease_report
        return lambda run, now_s: change(report(run, now_s), now_s)

    async def prepare(stage: Play) -> None:
        for agent in stage.agents.values():
            # This one node's method is replaced, which mypy takes for a mistake.
            agent.node._lease_report = changed(agent.node)  # type: ignore[method-assign,assignment]

    return prepare


async def held_back(stage: Play) -> None:
    """Let the first job be held: it has its notice, SIGTERM and SIGKILL."""
    await stage.do(stage.service.act(["job"], JobAction.HOLD, actor="boss"))
