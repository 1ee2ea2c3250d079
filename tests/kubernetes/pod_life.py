"""One pod on a fake node: bound, started, asked to leave, ended, removed, like a kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fake_nodes import GPU, Container, Run, container_status, gpus_of, now_text
from pod_scripts import end_process

from agent.guard import Term, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fake_nodes import FakeNode, Pod, World
    from kubelet_link import KubeletLink

_OWN = "leasehold.dev/"


class PodLife:
    """Leads pods through their phases.

    Args:
        world: the nodes, and the records.
        link: the way to the API server.
        spawn: runs something beside.
    """

    def __init__(
        self, world: World, link: KubeletLink, spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._world, self._link, self._spawn = world, link, spawn
        self._loop = asyncio.get_running_loop()

    async def lead(self, pod: Pod) -> None:
        phase = pod.item.get("status", {}).get("phase")
        if phase in {"Succeeded", "Failed"}:
            return
        node = await self._schedule(pod)
        if node is None:
            return
        await self._reach(node, pod)
        if node.refusals:
            reason, message = node.refusals.popleft()
            await self._link.patch_status(
                pod, {"phase": "Failed", "reason": reason, "message": message}
            )
            self._world.release(pod)
            return
        taken = {d for devices in node.devices.values() for d in devices}
        own = [d for d in range(node.gpus) if d not in taken][: gpus_of(pod.item)]
        node.devices[pod.uid] = tuple(own)
        await self._link.patch_status(pod, self._pending(pod, node, "ContainerCreating"))
        await asyncio.sleep(node.start_s)
        if not await self._pull(pod, node):
            return
        with tempfile.TemporaryDirectory() as folder:
            begun = await self._bring_code(pod, node, Path(folder))
            if begun and pod.kill_s is None and not pod.gone:
                await self._run(pod, node, tuple(own))
        await self._reach(node, pod)
        self._world.release(pod)
        if pod.kill_s is not None and not pod.gone:
            await self._link.remove(pod)
            return
        while not pod.gone and pod.kill_s is None:
            pod.changed.clear()
            await pod.changed.wait()
        if not pod.gone:
            await self._link.remove(pod)

    async def _schedule(self, pod: Pod) -> FakeNode | None:
        """Do the Kubernetes scheduler's work; return the pod's node, or None if it is gone."""
        told = ""
        while not pod.gone:
            spec = pod.item["spec"]
            if spec.get("nodeName"):
                node = self._world.nodes[spec["nodeName"]]
                node.bound[pod.uid] = gpus_of(pod.item)
                return node
            wanted = spec.get("nodeSelector", {}).get("kubernetes.io/hostname")
            node = self._world.nodes.get(wanted)
            if node is not None and node.free >= gpus_of(pod.item):
                return await self._bind(pod, node)
            why = f"0/{len(self._world.nodes)} nodes are available: insufficient {GPU}."
            if why != told:
                told = why
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                await self._link.patch_status(pod, {"conditions": [condition | {"message": why}]})
            self._world.freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._world.freed.wait()
        return None

    async def _bind(self, pod: Pod, node: FakeNode) -> FakeNode | None:
        node.bound[pod.uid] = gpus_of(pod.item)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node.name},
        }
        if await self._link.ask("POST", f"{pod.path}/binding", body) is not None:
            return node
        while not pod.gone:  # an answer that was lost, and it is bound; or the pod is going
            if pod.item["spec"].get("nodeName"):
                return node
            pod.changed.clear()
            await pod.changed.wait()
        return None

    async def _pull(self, pod: Pod, node: FakeNode) -> bool:
        """Return whether there is an image, once there is."""
        image = pod.item["spec"]["containers"][0]["image"]
        while image in self._world.broken_images and pod.kill_s is None and not pod.gone:
            message = f'Back-off pulling image "{image}": not found'
            await self._link.patch_status(
                pod, self._pending(pod, node, "ImagePullBackOff", message)
            )
            pod.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await pod.changed.wait()
        if pod.kill_s is not None or pod.gone:
            self._world.release(pod)
            if not pod.gone:
                await self._link.remove(pod)
            return False
        return True

    async def _bring_code(self, pod: Pod, node: FakeNode, folder: Path) -> bool:
        """Run the container that brings a job's code, the real program; return whether it did."""
        before = pod.item["spec"].get("initContainers") or []
        for spec in (c for c in before if c["name"] == "leasehold-code"):
            pod.code = folder
            env = {"PATH": os.environ["PATH"]} | self._environment(spec, node)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *spec["command"][1:-1],
                str(folder),
                env=env,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            ending = self._loop.create_task(process.communicate())
            try:
                while not ending.done():
                    if pod.kill_s is not None or pod.gone:
                        with contextlib.suppress(ProcessLookupError):
                            process.terminate()
                    await asyncio.wait({ending}, timeout=0.1)
            finally:
                if not ending.done():
                    ending.cancel()
                    await asyncio.wait({ending})
                    await end_process(process)
            if process.returncode:
                _, said = ending.result()
                ended = {"exitCode": process.returncode, "message": said.decode()}
                status = {"name": spec["name"], "image": spec["image"], "imageID": ""}
                status |= {"ready": False, "restartCount": 0, "state": {"terminated": ended}}
                if pod.kill_s is None and not pod.gone:
                    await self._link.patch_status(
                        pod, {"phase": "Failed", "initContainerStatuses": [status]}
                    )
                return False
        return True

    async def _run(self, pod: Pod, node: FakeNode, devices: tuple[int, ...]) -> None:
        labels = pod.item["metadata"].get("labels", {})
        notes = pod.item["metadata"].get("annotations", {})
        lease = json.loads(notes.get(_OWN + "lease-json", "{}"))
        container = self._container(pod, node)
        script = self._world.scripts[container.command[0]]
        run = Run(
            pod=pod.name, uid=pod.uid, job=notes.get(_OWN + "job-id", ""),
            lease=int(labels.get(_OWN + "lease", -1)), token=int(labels.get(_OWN + "token", -1)),
            attempt=int(labels.get(_OWN + "attempt", -1)), rank=int(labels.get(_OWN + "rank", -1)),
            node=node.name, workers=tuple(lease.get("workers", ())), devices=devices,
            begin_s=time.monotonic(),
        )  # fmt: skip
        self._world.runs.append(run)
        pod.container = container
        self._world.living[container.host] = container
        process = self._loop.create_task(script(container))
        guard = self._loop.create_task(self._probe(pod, node))
        started = now_text()
        try:
            await self._while_running(pod, node, process, started)
        finally:
            guard.cancel()
            run.code, run.forced = await self._reap(process, pod)
            run.end_s = time.monotonic()
            container.ended = True
            self._world.living.pop(container.host, None)
            pod.changed.set()
        await asyncio.sleep(node.end_s)
        await self._reach(node, pod)
        await self._link.patch_status(pod, _last_status(pod, run, started))

    async def _while_running(
        self, pod: Pod, node: FakeNode, process: asyncio.Task[int], started: str
    ) -> None:
        """Wait for the container's end: by itself, or because the pod is deleted or evicted."""
        told = False
        while not process.done():
            if node.up and not told:
                told = True
                status = self._pending(pod, node, "") | _running(pod, node, started)
                self._spawn(self._link.patch_status(pod, status))
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

    async def _probe(self, pod: Pod, node: FakeNode) -> None:
        """Ask the pod's guard as the kubelet does, and end the container when it says no."""
        before = pod.item["spec"].get("initContainers") or []
        guards = [c for c in before if c["name"] == "leasehold-guard"]
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

    async def _reap(self, process: asyncio.Task[int], pod: Pod) -> tuple[int, bool]:
        if process.done() and not process.cancelled():
            error = process.exception()
            if error is None:
                return process.result(), False
            assert pod.container is not None
            pod.container.print(f"script: {error!r}")
            self._world.faults.append(f"{pod.name}: {error!r}")
            return 1, False
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
        return 137, True

    def _container(self, pod: Pod, node: FakeNode) -> Container:
        spec = pod.item["spec"]["containers"][0]
        return Container(
            pod=pod.item,
            env=self._environment(spec, node),
            command=list(spec.get("command", [])),
            volumes=self._world.volumes,
            living=self._world.living,
            gangs=self._world.gangs,
            resolve=self._resolve,
            code=pod.code,
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
        """Return whether a cluster's name service would know the pod with this host name."""
        _, _, domain = name.partition(".")
        path = f"/api/v1/namespaces/{self._world.namespace}/services/{domain}"
        service = await self._link.ask("GET", path)
        if service is None or name not in self._world.living:
            return False
        labels = self._world.living[name].pod["metadata"]["labels"]
        return all(labels.get(k) == v for k, v in service["spec"]["selector"].items())

    def _pending(self, pod: Pod, node: FakeNode, reason: str, message: str = "") -> dict[str, Any]:
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text()}
        waiting = {"reason": reason} | ({"message": message} if message else {})
        return {
            "phase": "Pending",
            "hostIP": node.address,
            "hostIPs": [{"ip": node.address}],
            "startTime": pod.item.get("status", {}).get("startTime") or now_text(),
            "conditions": [bound],
            "containerStatuses": [container_status(pod, {"waiting": waiting})],
        }  # fmt: skip

    async def _reach(self, node: FakeNode, pod: Pod) -> None:
        while not node.up:
            pod.changed.clear()
            await pod.changed.wait()


def _running(pod: Pod, node: FakeNode, started: str) -> dict[str, Any]:
    ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
    return {
        "phase": "Running",
        "podIP": node.address,
        "podIPs": [{"ip": node.address}],
        "conditions": ready,
        "containerStatuses": [container_status(pod, {"running": {"startedAt": started}})],
    }


def _last_status(pod: Pod, run: Run, started: str) -> dict[str, Any]:
    """Return the status of a container that has ended."""
    ended = {"exitCode": run.code, "startedAt": started, "finishedAt": now_text()}
    ended["reason"] = "Completed" if run.code == 0 else "Error"
    status: dict[str, Any] = {"phase": "Succeeded" if run.code == 0 else "Failed"}
    if pod.evicted == "crash":
        ended |= {"reason": "ContainerStatusUnknown", "exitCode": 137}
    elif pod.evicted and pod.evicted != "probe":
        status |= {"reason": "Evicted", "message": pod.evicted}
    elif run.code == 137 and not run.forced:
        ended["reason"] = "OOMKilled"
    return status | {"containerStatuses": [container_status(pod, {"terminated": ended})]}
