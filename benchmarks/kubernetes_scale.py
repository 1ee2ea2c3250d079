"""Agents on a Kubernetes cluster of fake nodes: time until a round's pods are there, and its cost.

A real kube-apiserver with etcd on this machine, 500 nodes of 8 GPUs, 2,000 pods of one GPU, and the
agents' backend of every node, all in one process of clients. Then a round ends half of the pods and
starts as many new ones on the same workers. A round counts from the moment at which all agents know
of it to the moment at which the last new pod has been made. Fake kubelets, a process of their own,
bind pods and confirm their ends; they and the API server share the machine with the agents.

Usage: python benchmarks/kubernetes_scale.py [--nodes 500] [--pods 2000] [--json]
Needs Go for the first build of the API server; see tests/tools/build.sh.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from agent.clock import lease_clock_s
from agent.endpoint.endpoint import Endpoint
from agent.kubernetes.backend import KubernetesBackend
from agent.kubernetes.client import KubernetesClient, connect_client
from agent.kubernetes.names import LEASE
from agent.kubernetes.node.workers import NodeInventory
from agent.kubernetes.pods.pods import PodSettings
from agent.reconcile import Forget, Start, Terminate, WantedLease
from scheduler.domain.lease_life import LeasePhase
from scheduler.protocol.desired import DesiredLease

# The control plane and the fake nodes are those of the tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "kubernetes"))
control_plane, fake_kubelets, fake_nodes, installation, pod_scripts = map(
    importlib.import_module,
    ("control_plane", "fake_kubelets", "fake_nodes", "installation", "pod_scripts"),
)
JOBS = installation.JOBS
GPUS = 8
#: Requests by method and resource.
ASKED: Counter[str] = Counter()
#: When the API server had made a lease's pod, by lease.
CREATED_S: dict[int, float] = {}
LIMIT_S = 900.0


class Node:
    """The backend of one node's agent, as its loop would drive it."""

    def __init__(self, name: str, client: KubernetesClient, folder: Path) -> None:
        self.name, self.client = name, client
        folder.mkdir()
        settings = PodSettings(namespace=JOBS, endpoint_port=0)
        self.inventory = NodeInventory(instance=settings.instance)
        self.endpoint = Endpoint(folder / "jobs.sock")
        self.backend = KubernetesBackend(
            node=name,
            client=client,
            inventory=self.inventory,
            endpoint=self.endpoint,
            on_change=self._advance,
            state_dir=folder,
            settings=settings,
        )
        self.wanted: dict[int, WantedLease] = {}
        self.running_s: dict[int, float] = {}

    def want(self, leases: list[DesiredLease]) -> None:
        """Take in a desired set, as a plan's news bring it."""
        until_s = lease_clock_s() + 3600
        self.wanted = {x.lease_id: WantedLease(lease=x, deadline_s=until_s) for x in leases}
        for held in self.backend.held():
            if held.lease_id not in self.wanted and held.terminated_s is None and not held.ended:
                self.backend.perform(Terminate(lease_id=held.lease_id, unwanted=True))
        self._advance()

    def _advance(self) -> None:
        """Start wanted leases if their workers are free; forget leases that have ended."""
        now_s = time.monotonic()
        held = self.backend.held()
        for lease in held:
            if lease.ended and lease.lease_id not in self.wanted:
                self.backend.perform(Forget(lease_id=lease.lease_id))
        present = {lease.lease_id for lease in held}
        busy = {w for lease in held if not lease.ended for w in lease.workers}
        for lease_id, want in self.wanted.items():
            if lease_id not in present and busy.isdisjoint(want.lease.workers):
                self.backend.perform(Start(wanted=want))
        for lease_id, state in self.backend.states().items():
            if state is LeasePhase.RUNNING:
                self.running_s.setdefault(lease_id, now_s)


def lease_of(number: int, worker: int) -> DesiredLease:
    return DesiredLease(
        lease_id=number,
        attempt=1,
        token=number,
        job_id=f"job-{number}",
        command=("idle",),
        workers=(worker,),
        remaining_s=3600,
        image="registry.example/train:1",
        grace_s=5.0,
    )


async def settle(nodes: list[Node], count: int) -> float:
    """Wait until so many leases run; return the moment of the last one."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        times = [n.running_s.get(i) for n in nodes for i in n.wanted]
        if len(times) == count and None not in times:
            return max(time_s for time_s in times if time_s is not None)
        await asyncio.sleep(0.1)
    missing = sum(time_s is None for time_s in times)
    raise SystemExit(f"{missing} of {count} leases are not there after {LIMIT_S:g} s")


def counted(client: KubernetesClient) -> KubernetesClient:
    """Make a client count its requests."""
    attempt = client._try  # noqa: SLF001 - it is measured

    async def count(method: str, path: str, query: Any, body: Any, **more: Any) -> Any:
        what = path.rpartition("/")[2] if path.endswith(("/log", "pods", "services")) else ""
        what = what or ("nodes" if "/nodes/" in path else "pod")
        ASKED[f"{'watch' if 'watch' in query else method} {what}"] += 1
        answer = await attempt(method, path, query, body, **more)
        if method == "POST" and body["kind"] == "Pod":
            CREATED_S[int(body["metadata"]["labels"][LEASE])] = time.monotonic()
        return answer

    client._try = count  # type: ignore[method-assign]  # noqa: SLF001 - it is measured
    return client


def memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


async def measure(plane: Any, names: list[str], pods: int, folder: Path) -> dict[str, Any]:
    account = f"{installation.RELEASE}-leasehold-agent"
    token = plane.account_token(installation.NAMESPACE, account)
    path = plane.kubeconfig("agents", token)
    await (await connect_client(kubeconfig=path)).close()  # so that the imports are not counted
    before = memory_bytes()
    clients = [counted(await connect_client(kubeconfig=path)) for _ in names]
    nodes = [Node(name, client, folder / name) for name, client in zip(names, clients, strict=True)]
    gate = asyncio.Semaphore(32)

    async def begin(node: Node) -> None:
        async with gate:
            await node.backend.open()

    began_s = time.monotonic()
    await asyncio.gather(*map(begin, nodes))
    opened_s = time.monotonic() - began_s
    serving = [asyncio.create_task(node.backend.run()) for node in nodes]
    await asyncio.sleep(5.0)  # watches begin
    numbers = itertools.count(1)
    share = [pods // len(nodes) + (n < pods % len(nodes)) for n in range(len(nodes))]
    sets = [[lease_of(next(numbers), w) for w in range(k)] for k in share]

    async def turn(what: str) -> dict[str, float]:
        asked = ASKED.copy()
        spent = time.process_time(), plane.cpu_s("kube-apiserver")
        from_s = time.monotonic()
        known = {i for node in nodes for i in node.running_s}
        for node, leases in zip(nodes, sets, strict=True):
            node.want(leases)
            await asyncio.sleep(0)
        ran_s = await settle(nodes, pods) - from_s
        made_s = max(CREATED_S[i] for node in nodes for i in node.wanted) - from_s
        await asyncio.sleep(8.0)  # the last output is read, and old pods go
        new = sum(i not in known for node in nodes for i in node.wanted)
        calls = ASKED - asked
        found = {"leases": new, "all_created_s": made_s, "all_running_s": ran_s}
        found["client_cpu_s"] = time.process_time() - spent[0]
        found["api_server_cpu_s"] = plane.cpu_s("kube-apiserver") - spent[1]
        # Looking at the node, and watches, come with time and not with leases.
        timely = sum(n for what, n in calls.items() if "nodes" in what or "watch" in what)
        found["requests_per_lease"] = (calls.total() - timely) / new
        found |= {what: n / new for what, n in sorted(calls.items())}
        print(f"{what}: {found}", file=sys.stderr, flush=True)
        return {key: round(value, 2) for key, value in found.items()}

    result: dict[str, Any] = {"nodes": len(nodes), "pods": pods, "begin_s": round(opened_s, 1)}
    result["fill"] = await turn("fill")
    sets = [
        [lease_of(next(numbers), x.workers[0]) if n % 2 == 0 else x for n, x in enumerate(leases)]
        for leases in sets
    ]
    result["round"] = await turn("round")
    result["client_mb"] = round((memory_bytes() - before) / 1e6)
    result["client_mb_per_node"] = round(result["client_mb"] / len(nodes), 2)
    result["peak_process_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    result["api_server_mb"] = round(plane.memory_bytes("kube-apiserver") / 1e6)
    result["etcd_mb"] = round(plane.memory_bytes("etcd") / 1e6)
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    for client in clients:
        await client.close()
    return result


def serve_nodes(plane: Any, names: list[str], ready: Any, over: Any) -> None:
    """Be the kubelets of all nodes, in a process of its own."""
    nodes = [fake_nodes.FakeNode(name=name, address="127.0.20.1", gpus=GPUS) for name in names]
    kubelets = fake_kubelets.FakeKubelets(plane, nodes, {"idle": pod_scripts.idle})
    kubelets.start()
    ready.set()
    over.wait()
    kubelets.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # three connections per node
    names = [f"node-{n:04d}" for n in range(given.nodes)]
    plane = control_plane.ControlPlane()
    fork = multiprocessing.get_context("fork")
    ready, over = fork.Event(), fork.Event()
    kubelets = fork.Process(target=serve_nodes, args=(plane, names, ready, over))
    try:
        plane.start()
        installation.install_chart(plane, "rbac: {foreignPods: true}\n")
        kubelets.start()
        if not ready.wait(120):
            raise SystemExit("the fake kubelets do not start")
        with tempfile.TemporaryDirectory(prefix="lh-scale-") as folder:
            result = asyncio.run(measure(plane, names, given.pods, Path(folder)))
    finally:
        over.set()
        kubelets.join(30)
        plane.stop()
    if given.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
