"""Nodes without machines: the Kubernetes scheduler and the kubelets of a test, in one thread.

Pods are bound if their nodeSelector and free devices allow it, and move through their phases as
a kubelet would report it. What runs in them is a coroutine of the test (``pod_scripts``). All runs
are recorded here, so the evidence shares nothing with the tested code.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from fake_nodes import GPU, FakeNode, Pod, World
from kubelet_link import MERGE, STRATEGIC, KubeletLink
from pod_life import PodLife
from pod_output import OutputServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from control_plane import ControlPlane
    from fake_nodes import Container, Run, Script


class FakeKubelets:
    """Schedules and runs pods on nodes that are not there.

    Args:
        plane: the control plane.
        nodes: which nodes there are.
        scripts: a container's action, by the first word of its command.
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
        named = {node.name: node for node in nodes}
        self.world = World(nodes=named, scripts=scripts, namespace=namespace)
        self.nodes, self.runs, self.volumes = named, self.world.runs, self.world.volumes
        self.broken_images, self.faults = self.world.broken_images, self.world.faults
        self.made: dict[str, set[str]] = defaultdict(set)
        self._plane = plane
        self._loop = asyncio.new_event_loop()
        self._stop, self._ready = asyncio.Event(), threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run_thread, name="kubelets", daemon=True)

    def start(self) -> None:
        """Register the nodes and begin."""
        self._thread.start()
        if not self._ready.wait(60):
            raise RuntimeError(f"the fake kubelets do not start: {self.faults}")

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)

    # -- actions of tests --------------------------------------------------------------------------

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

    def containers(self, job: str) -> list[Container]:
        """Return a job's containers that run now."""
        living = tuple(self.world.living.values())
        return [c for c in living if c.env["LEASEHOLD_JOB_ID"] == job]

    def _call(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(10)

    def _evict(self, name: str, message: str) -> None:
        for pod in self.world.pods.values():
            if pod.name == name and not pod.gone:
                pod.evicted = message
                pod.changed.set()

    def _lose(self, node: FakeNode, crash: bool) -> None:
        node.up = False
        if crash:
            for uid in node.bound:
                pod = self.world.pods.get(uid)
                if pod is not None and pod.container is not None:
                    pod.evicted = "crash"
                    pod.changed.set()
        self._spawn(self._taint(node, lost=True))

    def _find(self, node: FakeNode) -> None:
        node.up = True
        self._spawn(self._taint(node, lost=False))
        for pod in self.world.pods.values():
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
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:  # noqa: BLE001 - reported to the test
            self.faults.append(repr(error))
        finally:
            self._loop.close()

    async def _main(self) -> None:
        self._link = KubeletLink(self._plane, self.faults)
        output = OutputServer(self.world, self._plane.authority.parent)
        async with self._link, output:
            self._life = PodLife(self.world, self._link, self._spawn)
            for node in self.nodes.values():
                await self._register(node, output.port)
            path = f"/api/v1/namespaces/{self.world.namespace}/pods"
            self._spawn(self._link.watch(path, on_list=self._list, on_event=self._see))
            await self._stop.wait()
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self, node: FakeNode, port: int) -> None:
        resources = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        if node.gpus:
            resources[GPU] = str(node.gpus)
        labels = {
            "kubernetes.io/hostname": node.name,
            "nvidia.com/gpu.product": node.product,
            "nvidia.com/gpu.present": "true",
        }
        item = {"apiVersion": "v1", "kind": "Node"}
        await self._link.ask(
            "POST", "/api/v1/nodes", item | {"metadata": {"name": node.name, "labels": labels}}
        )
        status = {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": node.address},
                {"type": "Hostname", "address": node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }  # fmt: skip
        body = {"status": status}
        path = f"/api/v1/nodes/{node.name}"
        await self._link.ask("PATCH", f"{path}/status", body, STRATEGIC)
        # The API server taints new nodes; a controller would take that off.
        await self._link.ask("PATCH", path, {"spec": {"taints": None}}, MERGE)

    async def _taint(self, node: FakeNode, *, lost: bool) -> None:
        """Report a node as the node lifecycle controller does."""
        condition = {
            "type": "Ready",
            "status": "Unknown" if lost else "True",
            "reason": "NodeStatus",
        }
        body = {"status": {"conditions": [condition]}}
        await self._link.ask("PATCH", f"/api/v1/nodes/{node.name}/status", body, STRATEGIC)
        taints = [
            {"key": "node.kubernetes.io/unreachable", "effect": effect}
            for effect in ("NoSchedule", "NoExecute")
        ]
        spec = {"spec": {"taints": taints if lost else None}}
        await self._link.ask("PATCH", f"/api/v1/nodes/{node.name}", spec, MERGE)

    def _list(self, items: list[dict[str, Any]]) -> None:
        present = {item["metadata"]["uid"] for item in items}
        for uid in set(self.world.pods) - present:
            self._see("DELETED", self.world.pods[uid].item)
        for item in items:
            self._see("MODIFIED", item)
        self._ready.set()

    def _see(self, kind: str, item: dict[str, Any]) -> None:
        uid = item["metadata"]["uid"]
        pod = self.world.pods.get(uid)
        if kind == "DELETED":
            if pod is not None:
                pod.gone = True
                pod.changed.set()
                self.world.release(pod)
                del self.world.pods[uid]
            return
        if pod is None:
            pod = self.world.pods[uid] = Pod(item=item)
            self.made[pod.name].add(uid)
            self._spawn(self._life.lead(pod))
        pod.item = item
        grace = item["metadata"].get("deletionGracePeriodSeconds")
        if item["metadata"].get("deletionTimestamp") and (pod.grace is None or grace < pod.grace):
            pod.grace = grace
            at_s = time.monotonic() + grace
            pod.kill_s = at_s if pod.kill_s is None else min(pod.kill_s, at_s)
        pod.changed.set()
