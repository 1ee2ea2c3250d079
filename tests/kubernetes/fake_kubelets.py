"""Nodes without machines: the Kubernetes scheduler and the kubelets of a test, in one thread.

Pods are bound where their nodeSelector and free devices allow it, and move through their phases as
a kubelet would tell it. What runs in them is a coroutine of the test (``pod_scripts``). Everything
that ran is written down here, so the evidence shares nothing with what is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from control_plane import KUBELETS

from agent.guard import Term, ask

if TYPE_CHECKING:
    from control_plane import ControlPlane

GPU = "nvidia.com/gpu"
_STRATEGIC = "application/strategic-merge-patch+json"
_OWN = "leasehold.dev/"


@dataclass(kw_only=True)
class FakeNode:
    """A node.

    Attributes:
        name: of the node.
        address: where its kubelet and the agent on it listen.
        product: what its GPUs are called.
        gpus: how many.
        start_s: from a pod's being bound to its container's start.
        end_s: from a container's end until the API server learns of it.
        refusals: reason and message with which the next pods are refused after they were bound.
        up: whether its kubelet reaches the API server.
    """

    name: str
    address: str
    product: str = "Tesla-V100-SXM2-16GB"
    gpus: int = 2
    start_s: float = 0.05
    end_s: float = 0.0
    refusals: deque[tuple[str, str]] = field(default_factory=deque)
    up: bool = True
    bound: dict[str, int] = field(default_factory=dict)
    devices: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.gpus - sum(self.bound.values())


@dataclass(kw_only=True)
class Run:
    """A container that ran, or runs.

    Attributes:
        pod: name of its pod.
        uid: of its pod.
        job: id of the job.
        lease: id of the lease.
        token: fencing token of the lease.
        attempt: of the job.
        rank: of the member.
        node: where.
        workers: local indices by the agent's word.
        devices: what the device plugin gave.
        begin_s: on the monotonic clock.
        end_s: likewise; None while it runs.
        code: its exit code.
        forced: it was killed.
    """

    pod: str
    uid: str
    job: str
    lease: int
    token: int
    attempt: int
    rank: int
    node: str
    workers: tuple[int, ...]
    devices: tuple[int, ...]
    begin_s: float
    end_s: float | None = None
    code: int | None = None
    forced: bool = False


@dataclass(kw_only=True)
class Container:
    """What a script sees of the container that it is.

    Attributes:
        pod: the pod object.
        env: its variables, as the kubelet resolves them.
        command: likewise.
        told: set at SIGTERM.
        volumes: what outlives pods: by job, ``[step, token]`` of every step that counts.
        living: containers that run now, by host name and domain.
        resolve: waits until a name of a pod resolves.
    """

    pod: dict[str, Any]
    env: dict[str, str]
    command: list[str]
    volumes: dict[str, list[list[int]]]
    living: dict[str, Container]
    resolve: Callable[[str], Awaitable[bool]]
    told: asyncio.Event = field(default_factory=asyncio.Event)
    output: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    steps: int = 0

    def print(self, text: str) -> None:
        self.output.append((_now(), text))

    @property
    def host(self) -> str:
        spec = self.pod["spec"]
        return f"{spec.get('hostname')}.{spec.get('subdomain')}"


Script = Callable[[Container], Coroutine[Any, Any, int]]


@dataclass(kw_only=True)
class _Pod:
    """A pod in this kubelet's hands."""

    item: dict[str, Any]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    kill_s: float | None = None
    grace: int | None = None
    gone: bool = False
    evicted: str = ""
    container: Container | None = None
    life: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.item["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.item["metadata"]["uid"])

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class FakeKubelets:
    """Schedules and runs pods on nodes that are not there.

    Args:
        plane: the control plane.
        nodes: which nodes there are.
        scripts: what a container does, by the first word of its command.
        namespace: of the pods.

    Attributes:
        runs: every container that ran.
        volumes: see ``Container``.
        broken_images: images that cannot be pulled.
        made: how often each pod name was seen with another uid.
    """

    def __init__(
        self,
        plane: ControlPlane,
        nodes: list[FakeNode],
        scripts: dict[str, Script],
        *,
        namespace: str = "leasehold-jobs",
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.runs: list[Run] = []
        self.volumes: dict[str, list[list[int]]] = defaultdict(list)
        self.broken_images: set[str] = set()
        self.made: dict[str, set[str]] = defaultdict(set)
        self.faults: list[str] = []
        self._plane, self._scripts, self._namespace = plane, scripts, namespace
        self._pods: dict[str, _Pod] = {}
        self._living: dict[str, Container] = {}
        self._freed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name="kubelets", daemon=True)
        self._port = 0

    def start(self) -> None:
        """Register the nodes and begin."""
        self._thread.start()
        if not self._ready.wait(60):
            raise RuntimeError(f"the fake kubelets do not start: {self.faults}")

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)

    # -- what a test does to them ------------------------------------------------------------------

    def evict(self, name: str, message: str = "The node was low on resource: memory.") -> None:
        """End a pod as the kubelet does under memory pressure."""
        self._call(lambda: self._evict(name, message))

    def lose(self, node: str, *, crash: bool) -> None:
        """Cut a node off; with ``crash`` everything on it dies, otherwise it goes on unseen."""
        self._call(lambda: self._lose(self.nodes[node], crash))

    def find(self, node: str) -> None:
        """Have a lost node come back."""
        self._call(lambda: self._find(self.nodes[node]))

    def running(self, job: str = "") -> list[Run]:
        """Return what runs now."""
        return [r for r in self.runs if r.end_s is None and job in {"", r.job}]

    def runs_of(self, job: str) -> list[Run]:
        return [r for r in self.runs if r.job == job]

    def _call(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(10)

    def _evict(self, name: str, message: str) -> None:
        for pod in self._pods.values():
            if pod.name == name and not pod.gone:
                pod.evicted = message
                pod.changed.set()

    def _lose(self, node: FakeNode, crash: bool) -> None:
        node.up = False
        if crash:
            for uid in node.bound:
                pod = self._pods.get(uid)
                if pod is not None and pod.container is not None:
                    pod.evicted = "crash"
                    pod.changed.set()
        self._spawn(self._taint(node, lost=True))

    def _find(self, node: FakeNode) -> None:
        node.up = True
        self._spawn(self._taint(node, lost=False))
        for pod in self._pods.values():
            pod.changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(repr(error))

    # -- the thread --------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._tasks: set[asyncio.Task[None]] = set()
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:  # noqa: BLE001 - told to the test
            self.faults.append(repr(error))
        finally:
            self._loop.close()

    async def _main(self) -> None:
        trust = ssl.create_default_context(cafile=self._plane.authority)
        async with aiohttp.ClientSession(
            base_url=self._plane.url,
            headers={"Authorization": f"Bearer {KUBELETS}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        ) as session:
            self._session = session
            runner = await self._serve_logs()
            for node in self.nodes.values():
                await self._register(node)
            watch = self._loop.create_task(self._watch())
            await self._stop.wait()
            for task in (watch, *self._tasks):
                task.cancel()
            await asyncio.gather(watch, *self._tasks, return_exceptions=True)
            await runner.cleanup()
        await asyncio.sleep(0.2)  # for connections to close

    async def _ask(self, method: str, path: str, body: Any = None, kind: str = "") -> Any:
        """Ask until there is an answer; None where the object is not there or another one."""
        headers = {"Content-Type": kind or "application/json"}
        data = None if body is None else json.dumps(body)
        while True:
            try:
                async with self._session.request(
                    method, path, data=data, headers=headers,
                    timeout=aiohttp.ClientTimeout(total=20),
                ) as answer:  # fmt: skip
                    value = await answer.json()
                    if answer.status in {404, 409}:
                        return None
                    if answer.status < 400:
                        return value
                    if answer.status not in {401, 403, 429, 500, 503, 504}:
                        self.faults.append(f"{method} {path}: {value.get('message')}")
                        return None
            except (aiohttp.ClientError, TimeoutError, ValueError):
                pass
            await asyncio.sleep(0.2)

    async def _register(self, node: FakeNode) -> None:
        resources = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        if node.gpus:
            resources[GPU] = str(node.gpus)
        labels = {
            "kubernetes.io/hostname": node.name,
            "nvidia.com/gpu.product": node.product,
            "nvidia.com/gpu.present": "true",
        }
        item = {"apiVersion": "v1", "kind": "Node"}
        await self._ask(
            "POST", "/api/v1/nodes", item | {"metadata": {"name": node.name, "labels": labels}}
        )
        status = {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": node.address},
                {"type": "Hostname", "address": node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }  # fmt: skip
        body = {"status": status}
        path = f"/api/v1/nodes/{node.name}"
        await self._ask("PATCH", f"{path}/status", body, _STRATEGIC)
        # The API server taints new nodes; a controller would take that off.
        await self._ask("PATCH", path, {"spec": {"taints": None}}, "application/merge-patch+json")

    async def _taint(self, node: FakeNode, *, lost: bool) -> None:
        """Tell of a node as the node lifecycle controller does."""
        condition = {
            "type": "Ready",
            "status": "Unknown" if lost else "True",
            "reason": "NodeStatus",
        }
        body = {"status": {"conditions": [condition]}}
        await self._ask("PATCH", f"/api/v1/nodes/{node.name}/status", body, _STRATEGIC)
        taints = [
            {"key": "node.kubernetes.io/unreachable", "effect": effect}
            for effect in ("NoSchedule", "NoExecute")
        ]
        spec = {"spec": {"taints": taints if lost else None}}
        await self._ask("PATCH", f"/api/v1/nodes/{node.name}", spec, "application/merge-patch+json")

    async def _watch(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        while True:
            listed = await self._ask("GET", path)
            if listed is None:
                await asyncio.sleep(0.2)
                continue
            present = {item["metadata"]["uid"] for item in listed["items"]}
            for uid in set(self._pods) - present:
                self._see("DELETED", self._pods[uid].item)
            for item in listed["items"]:
                self._see("MODIFIED", item)
            self._ready.set()
            query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError, KeyError):
                async with self._session.get(path, params=query) as answer:
                    rest = b""
                    async for chunk in answer.content.iter_any():
                        *lines, rest = (rest + chunk).split(b"\n")
                        for line in lines:
                            event = json.loads(line)
                            if event["type"] == "ERROR":
                                raise KeyError("expired")
                            self._see(event["type"], event["object"])
            await asyncio.sleep(0.1)

    def _see(self, kind: str, item: dict[str, Any]) -> None:
        uid = item["metadata"]["uid"]
        pod = self._pods.get(uid)
        if kind == "DELETED":
            if pod is not None:
                pod.gone = True
                pod.changed.set()
                self._release(pod)
                del self._pods[uid]
            return
        if pod is None:
            pod = self._pods[uid] = _Pod(item=item)
            self.made[pod.name].add(uid)
            pod.life = self._loop.create_task(self._life(pod))
            self._tasks.add(pod.life)
            pod.life.add_done_callback(self._ended)
        pod.item = item
        grace = item["metadata"].get("deletionGracePeriodSeconds")
        if item["metadata"].get("deletionTimestamp") and (pod.grace is None or grace < pod.grace):
            pod.grace = grace
            at_s = time.monotonic() + grace
            pod.kill_s = at_s if pod.kill_s is None else min(pod.kill_s, at_s)
        pod.changed.set()

    def _release(self, pod: _Pod) -> None:
        for node in self.nodes.values():
            if node.bound.pop(pod.uid, None) is not None:
                node.devices.pop(pod.uid, None)
                self._freed.set()

    # -- one pod -----------------------------------------------------------------------------------

    async def _life(self, pod: _Pod) -> None:
        phase = pod.item.get("status", {}).get("phase")
        if phase in {"Succeeded", "Failed"}:
            return
        node = await self._schedule(pod)
        if node is None:
            return
        await self._reach(node, pod)
        if node.refusals:
            reason, message = node.refusals.popleft()
            await self._status(pod, {"phase": "Failed", "reason": reason, "message": message})
            self._release(pod)
            return
        taken = {d for devices in node.devices.values() for d in devices}
        own = [d for d in range(node.gpus) if d not in taken][: _gpus(pod.item)]
        node.devices[pod.uid] = tuple(own)
        await self._status(pod, self._pending(pod, node, "ContainerCreating"))
        await asyncio.sleep(node.start_s)
        if not await self._pull(pod, node):
            return
        if pod.kill_s is None and not pod.gone:
            await self._run(pod, node, tuple(own))
        await self._reach(node, pod)
        self._release(pod)
        if pod.kill_s is not None and not pod.gone:
            await self._remove(pod)
            return
        while not pod.gone and pod.kill_s is None:
            pod.changed.clear()
            await pod.changed.wait()
        if not pod.gone:
            await self._remove(pod)

    async def _schedule(self, pod: _Pod) -> FakeNode | None:
        told = ""
        while not pod.gone:
            wanted = pod.item["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
            node = self.nodes.get(wanted) or self.nodes.get(pod.item["spec"].get("nodeName", ""))
            if node is not None and (
                pod.item["spec"].get("nodeName") or node.free >= _gpus(pod.item)
            ):
                node.bound[pod.uid] = _gpus(pod.item)
                if not pod.item["spec"].get("nodeName"):
                    target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
                    body = {"apiVersion": "v1", "kind": "Binding", "target": target}
                    body["metadata"] = {"name": pod.name, "uid": pod.uid}
                    if await self._ask("POST", f"{pod.path}/binding", body) is None:
                        if not pod.gone and pod.uid in self._pods:
                            await asyncio.sleep(0.1)
                            if pod.item["spec"].get("nodeName"):
                                return node
                        self._release(pod)
                        return None
                return node
            why = f"0/{len(self.nodes)} nodes are available: insufficient {GPU}."
            if why != told:
                told = why
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                await self._status(pod, {"conditions": [condition | {"message": why}]})
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._freed.wait()
        return None

    async def _pull(self, pod: _Pod, node: FakeNode) -> bool:
        """Return whether there is an image, once there is."""
        image = pod.item["spec"]["containers"][0]["image"]
        while image in self.broken_images and pod.kill_s is None and not pod.gone:
            message = f'Back-off pulling image "{image}": not found'
            await self._status(pod, self._pending(pod, node, "ImagePullBackOff", message))
            pod.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await pod.changed.wait()
        if pod.kill_s is not None or pod.gone:
            self._release(pod)
            if not pod.gone:
                await self._remove(pod)
            return False
        return True

    async def _run(self, pod: _Pod, node: FakeNode, devices: tuple[int, ...]) -> None:
        labels = pod.item["metadata"].get("labels", {})
        notes = pod.item["metadata"].get("annotations", {})
        lease = json.loads(notes.get(_OWN + "lease-json", "{}"))
        container = self._container(pod, node)
        script = self._scripts[container.command[0]]
        run = Run(
            pod=pod.name, uid=pod.uid, job=notes.get(_OWN + "job-id", ""),
            lease=int(labels.get(_OWN + "lease", -1)), token=int(labels.get(_OWN + "token", -1)),
            attempt=int(labels.get(_OWN + "attempt", -1)), rank=int(labels.get(_OWN + "rank", -1)),
            node=node.name, workers=tuple(lease.get("workers", ())), devices=devices,
            begin_s=time.monotonic(),
        )  # fmt: skip
        self.runs.append(run)
        pod.container = container
        self._living[container.host] = container
        process = self._loop.create_task(script(container))
        guard = self._loop.create_task(self._probe(pod, node))
        started = _now()
        try:
            await self._while_running(pod, node, process, started)
        finally:
            guard.cancel()
            run.code, run.forced = await self._reap(process, pod)
            run.end_s = time.monotonic()
            container.ended = True
            self._living.pop(container.host, None)
            pod.changed.set()
        await asyncio.sleep(node.end_s)
        await self._reach(node, pod)
        ended = {"exitCode": run.code, "startedAt": started, "finishedAt": _now()}
        ended["reason"] = "Completed" if run.code == 0 else "Error"
        status: dict[str, Any] = {"phase": "Succeeded" if run.code == 0 else "Failed"}
        if pod.evicted == "crash":
            ended |= {"reason": "ContainerStatusUnknown", "exitCode": 137}
        elif pod.evicted and pod.evicted != "probe":
            status |= {"reason": "Evicted", "message": pod.evicted}
        elif run.code == 137 and not run.forced:
            ended["reason"] = "OOMKilled"
        status["containerStatuses"] = [_container_status(pod, {"terminated": ended})]
        await self._status(pod, status)

    async def _while_running(
        self, pod: _Pod, node: FakeNode, process: asyncio.Task[int], started: str
    ) -> None:
        """Wait for the container's end: by itself, or because the pod is deleted or evicted."""
        told = False
        while not process.done():
            if node.up and not told:
                state = {"running": {"startedAt": started}}
                status = self._pending(pod, node, "") | {
                    "phase": "Running",
                    "podIP": node.address,
                    "podIPs": [{"ip": node.address}],
                    "containerStatuses": [_container_status(pod, state)],
                }
                status["conditions"].append({"type": "Ready", "status": "True"})
                told = True
                self._spawn(self._status(pod, status))
            if pod.evicted or (pod.gone and node.up):
                return
            wait_s = None
            if pod.kill_s is not None and node.up:
                assert pod.container is not None
                pod.container.told.set()
                wait_s = pod.kill_s - time.monotonic()
                if wait_s <= 0:
                    return
            pod.changed.clear()
            changed = self._loop.create_task(pod.changed.wait())
            await asyncio.wait(
                {process, changed}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            changed.cancel()

    async def _probe(self, pod: _Pod, node: FakeNode) -> None:
        """Ask the pod's guard as the kubelet does, and end the container when it says no."""
        guards = pod.item["spec"].get("initContainers") or []
        if not guards:
            return
        env, container = self._environment(guards[0], node), pod.container
        assert container is not None
        term, failures = Term(float(env["LEASEHOLD_DEADLINE_S"])), 0
        while failures < 3:
            await asyncio.sleep(2.0)
            at = env["LEASEHOLD_ENDPOINT"], env["LEASEHOLD_SECRET"]
            term.deadline_s = await asyncio.to_thread(ask, *at, timeout_s=0.5) or term.deadline_s
            failures = 0 if term.holds() else failures + 1
        container.told.set()
        await asyncio.sleep(1.0)
        pod.evicted = "probe"
        pod.changed.set()

    async def _reap(self, process: asyncio.Task[int], pod: _Pod) -> tuple[int, bool]:
        if process.done() and not process.cancelled():
            error = process.exception()
            if error is None:
                return process.result(), False
            assert pod.container is not None
            pod.container.print(f"script: {error!r}")
            self.faults.append(f"{pod.name}: {error!r}")
            return 1, False
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
        return 137, True

    def _container(self, pod: _Pod, node: FakeNode) -> Container:
        spec = pod.item["spec"]["containers"][0]
        return Container(
            pod=pod.item,
            env=self._environment(spec, node),
            command=list(spec.get("command", [])),
            volumes=self.volumes,
            living=self._living,
            resolve=self._resolve,
        )

    def _environment(self, spec: dict[str, Any], node: FakeNode) -> dict[str, str]:
        env: dict[str, str] = {}
        for variable in spec.get("env", []):
            value = variable.get("value", "")
            if "valueFrom" in variable:
                field_path = variable["valueFrom"]["fieldRef"]["fieldPath"]
                value = {"status.hostIP": node.address, "spec.nodeName": node.name}[field_path]
            env[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), value)
        return env

    async def _resolve(self, name: str) -> bool:
        """Tell whether a cluster's name service would know the pod with this host name."""
        _, _, domain = name.partition(".")
        path = f"/api/v1/namespaces/{self._namespace}/services/{domain}"
        service = await self._ask("GET", path)
        if service is None or name not in self._living:
            return False
        labels = self._living[name].pod["metadata"]["labels"]
        return all(labels.get(k) == v for k, v in service["spec"]["selector"].items())

    def _pending(self, pod: _Pod, node: FakeNode, reason: str, message: str = "") -> dict[str, Any]:
        waiting = {"reason": reason} | ({"message": message} if message else {})
        return {
            "phase": "Pending",
            "hostIP": node.address,
            "hostIPs": [{"ip": node.address}],
            "startTime": pod.item.get("status", {}).get("startTime") or _now(),
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()}],
            "containerStatuses": [_container_status(pod, {"waiting": waiting})],
        }  # fmt: skip

    async def _status(self, pod: _Pod, status: dict[str, Any]) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        if not pod.gone:
            await self._ask("PATCH", f"{pod.path}/status", body, _STRATEGIC)

    async def _remove(self, pod: _Pod) -> None:
        """Confirm to the API server that nothing of a pod is left."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await self._ask("DELETE", pod.path, body | {"preconditions": {"uid": pod.uid}})

    async def _reach(self, node: FakeNode, pod: _Pod) -> None:
        while not node.up:
            pod.changed.clear()
            await pod.changed.wait()

    # -- output ------------------------------------------------------------------------------------

    async def _serve_logs(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        folder = self._plane.authority.parent
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
        from control_plane import free_ports

        (self._port,) = free_ports(1)
        for address in sorted({node.address for node in self.nodes.values()}):
            await web.TCPSite(runner, address, self._port, ssl_context=own).start()
        return runner

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["pod"]
        pod = next((p for p in reversed(self._pods.values()) if p.name == name), None)
        if pod is None or pod.container is None:
            raise web.HTTPNotFound(text=f"no container of {name}")
        answer = web.StreamResponse()
        await answer.prepare(request)
        since = request.query.get("sinceTime", "")
        place = 0
        while True:
            ended = pod.container.ended
            for stamp, text in pod.container.output[place:]:
                place += 1
                if stamp >= since:
                    front = f"{stamp} " if request.query.get("timestamps") == "true" else ""
                    await answer.write(f"{front}{text}\n".encode())
            if ended or request.query.get("follow") != "true":
                return answer
            await asyncio.sleep(0.1)


def _gpus(item: dict[str, Any]) -> int:
    limits = item["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return int(limits.get(GPU, 0))


def _container_status(pod: _Pod, state: dict[str, Any]) -> dict[str, Any]:
    spec = pod.item["spec"]["containers"][0]
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "ready": "running" in state,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
