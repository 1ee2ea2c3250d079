"""An agent of a configuration as ``leasehold agent`` composes it, in time that jumps."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx

from leasehold.config.load import load_agent_config
from leasehold.daemon.agent import run_agent
from leasehold.daemon.agent_options import options_of
from leasehold_testing.hurried import hurried
from scheduler.protocol.desired import Desired, DesiredLease, to_dict
from scheduler.protocol.reports import LeaseReport, NodeReport, report_from_dict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_spec = importlib.util.spec_from_file_location(
    "fake_api_of_agents", Path(__file__).parents[2] / "live/kubernetes_pods/fake_api.py"
)
assert _spec is not None
assert _spec.loader is not None
fake_api: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_api)

#: Settings of an agent of local processes, and of one of pods. ``{folder}`` is an empty folder.
ALONE: Mapping[str, Any] = {
    "node": "n1",
    "address": "127.0.0.1",
    "state_dir": "{folder}/state",
    "workers": ["v100:2"],
    "isolation": "off",
}
PODS: Mapping[str, Any] = {
    "node": "n1",
    "address": "127.0.0.1",
    "state_dir": "{folder}/state",
    "backend": "kubernetes",
    "kubernetes.kubeconfig": "{folder}/first.kubeconfig",
    "kubernetes.jobs_port": 0,
}
#: Longest time of a story, which takes a small part of that.
MOST_S = 3000.0
#: The pod of ``lease``.
POD = "job1-1-0"


def lease(**more: Any) -> DesiredLease:
    """Return a lease of one worker."""
    known: dict[str, Any] = {
        "lease_id": 1,
        "attempt": 1,
        "token": 1,
        "job_id": "job1",
        "command": ("python", "train.py"),
        "image": "team/train:1",
        "workers": (0,),
        "remaining_s": 600.0,
        "grace_s": 1.0,
        "working_dir": "",
    }
    return DesiredLease(**(known | more))


def node(gpus: int) -> dict[str, Any]:
    """Return a Node object."""
    product = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}
    counts = {"nvidia.com/gpu": str(gpus), "cpu": "8"}
    return {
        "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"} | product},
        "spec": {},
        "status": {"capacity": counts, "allocatable": dict(counts)},
    }


class Scheduler(httpx.AsyncBaseTransport):
    """Answers the agent in this process, and keeps its requests.

    Attributes:
        requests: with the time of each.
        reports: as above.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[float, httpx.Request]] = []
        self.reports: list[tuple[float, NodeReport]] = []
        self._leases: tuple[DesiredLease, ...] = ()
        self._revision, self._news = 1, asyncio.Event()

    def want(self, *leases: DesiredLease) -> None:
        """Let these be the leases of the node."""
        self._leases, self._revision = leases, self._revision + 1
        self._news.set()

    def of_lease(self) -> LeaseReport | None:
        """Return the last report of a lease."""
        found = [one for _, report in self.reports for one in report.leases]
        return found[-1] if found else None

    def asked(self, path: str) -> list[tuple[float, httpx.Request]]:
        """Return the requests whose paths contain a text."""
        return [(at_s, one) for at_s, one in self.requests if path in one.url.path]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        now_s = asyncio.get_running_loop().time()
        content = await request.aread()
        self.requests.append((now_s, request))
        path, query = request.url.path, request.url.params
        if path.endswith("/report"):
            self.reports.append((now_s, report_from_dict(json.loads(content))))
            return httpx.Response(204, request=request)
        if path.endswith("/desired"):
            if int(query["revision"]) == self._revision:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(float(query["wait_s"])):
                        await self._news.wait()
            held_s = asyncio.get_running_loop().time() - now_s
            told = Desired(term=1, revision=self._revision, held_s=held_s, leases=self._leases)
            return httpx.Response(200, json=to_dict(told), request=request)
        if path.endswith("/enrol"):
            return httpx.Response(200, json={"token": "lh_enrolled"}, request=request)
        if "/logs/" in path:
            end = int(query["offset"]) + len(content)
            return httpx.Response(200, json={"next_offset": end}, request=request)
        return httpx.Response(404, json={"detail": "there is no such route"}, request=request)


class AgentStage:
    """The parts that a story of an agent can use.

    Attributes:
        scheduler: that the agent serves.
        apis: API servers of clusters.
        stop: stops the agent.
        folder: of files.
        task: in which the agent runs.
    """

    task: asyncio.Task[None]

    def __init__(self, scheduler: Scheduler, apis: Sequence[Any], folder: Path) -> None:
        self.scheduler, self.apis, self.folder = scheduler, apis, folder
        self.stop = asyncio.Event()

    @property
    def now_s(self) -> float:
        """The time."""
        return asyncio.get_running_loop().time()

    @property
    def api(self) -> Any:
        """The first API server."""
        return self.apis[0]

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds, and return its value.

        Raises:
            AssertionError: it does not hold in time.
        """
        end_s = self.now_s + MOST_S
        while not (found := condition()):
            assert self.now_s < end_s, "the condition did not come to hold in time"
            await asyncio.sleep(0.1)
        return found

    async def report(self) -> NodeReport:
        """Return the first report."""
        await self.until(lambda: self.scheduler.reports)
        return self.scheduler.reports[0][1]

    async def pod(self, **more: Any) -> dict[str, Any]:
        """Let a lease be wanted, and return its pod.

        Raises:
            AssertionError: the lease ends without one; says why.
        """
        self.scheduler.want(lease(**more))
        await self.until(lambda: POD in self.api.pods or self.ended())
        assert POD in self.api.pods, self.ended()
        found: dict[str, Any] = self.api.pods[POD]
        return found

    def ended(self) -> LeaseReport | None:
        """Return the report of the lease's end."""
        found = self.scheduler.of_lease()
        return found if found is not None and found.reason is not None else None


def played_agent(
    story: Callable[[AgentStage], Awaitable[Any]],
    settings: Mapping[str, Any],
    *,
    clusters: Sequence[int] = (),
    prepare: Callable[[Any], object] = lambda _: None,
    furnish: Callable[[Path], object] = lambda _: None,
    transport: bool = True,
) -> Any:
    """Return the findings of a story of an agent.

    Args:
        story: an asynchronous function of the stage; the agent has been started.
        settings: by key, as in a file; ``{folder}`` stands for an empty folder.
        clusters: of how many GPUs a node is, for each cluster that there is.
        prepare: called with the API server of the first, before the agent is started.
        furnish: called with the folder, before that.
        transport: whether the scheduler of the stage answers all requests.
    """
    with tempfile.TemporaryDirectory(prefix="lh-") as folder:
        furnish(Path(folder))
        file = agent_file(Path(folder), settings)
        config = load_agent_config(path=str(file), environment={}).config

        async def main() -> Any:
            async with contextlib.AsyncExitStack() as stack:
                apis = [fake_api.FakeApi(node(gpus)) for gpus in clusters]
                urls = [(await stack.enter_async_context(fake_api.Running(a))).url for a in apis]
                _write_kubeconfigs(Path(folder), urls)
                for api in apis:
                    api.hold_deleted = False
                for api in apis[:1]:
                    prepare(api)
                scheduler = Scheduler()
                if transport:
                    stack.enter_context(_answered_by(scheduler))
                stage = AgentStage(scheduler, apis, Path(folder))
                told = options_of(config, {"NODE_NAME": "n1", "HOST_IP": "10.0.0.1"})
                stage.task = asyncio.create_task(run_agent(told, stop=stage.stop))
                return await _told(story, stage)

        return hurried(main())


def agent_file(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write a configuration file of an agent; ``{folder}`` in it is the file's."""
    file = folder / "agent.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    file.write_text("\n".join(lines).replace("{folder}", str(folder)))
    return file


async def _told(story: Callable[[AgentStage], Awaitable[Any]], stage: AgentStage) -> Any:
    """Run a story, and stop the agent; raise if the agent ends before."""
    telling = asyncio.ensure_future(story(stage))
    await asyncio.wait({telling, stage.task}, return_when=asyncio.FIRST_COMPLETED)
    if not telling.done() and not stage.stop.is_set():
        telling.cancel()
        await stage.task
    try:
        return await telling
    finally:
        stage.stop.set()
        await stage.task


def _answered_by(scheduler: Scheduler) -> Any:
    """Let all clients of HTTP in this process reach a scheduler."""
    plain = httpx.AsyncClient

    def client(**options: Any) -> httpx.AsyncClient:
        return plain(**options | {"transport": scheduler})

    return mock.patch("agent.link.http_link.httpx.AsyncClient", client)


def _write_kubeconfigs(folder: Path, urls: Sequence[str]) -> None:
    """Write a file for each cluster, in which all are contexts and that one is the current."""
    names = ("first", "second")[: len(urls)]
    for name in names:
        known = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {"name": one, "cluster": {"server": url}}
                for one, url in zip(names, urls, strict=True)
            ],
            "users": [{"name": "agent", "user": {"token": "secret"}}],
            "contexts": [
                {"name": one, "context": {"cluster": one, "user": "agent"}} for one in names
            ],
        }
        (folder / f"{name}.kubeconfig").write_text(json.dumps(known))


def gap_s(times: Sequence[float]) -> int:
    """Return the usual time between two moments, in whole seconds."""
    gaps = sorted(b - a for a, b in itertools.pairwise(times))
    return round(gaps[len(gaps) // 2])
