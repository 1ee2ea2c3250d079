"""A cluster of two nodes with unlike workers on this machine, and its installed programs."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from control_plane import Api, ApiError, program
from machine import eventually, run
from node import Node
from plane import Plane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: The workers in the nodes' labels and resources.
PRODUCTS = {"node-1": "Tesla-V100-SXM2-16GB", "node-2": "Tesla-K80"}
#: A second kind of worker, which both nodes have: gangs run on it.
BOTH = "Instinct-MI100"
#: A device plugin reports one kind to the kubelet, which hands it out like GPUs. The
#: other is written into the node's status by hand, as docs/how-to/try-on-kind.md does it.
PLUGGED, WRITTEN = "nvidia.com/gpu", "amd.com/gpu"


class Cluster:
    """The machine as a cluster.

    Args:
        folder: of everything that it writes.
        images: archives of the images.

    Attributes:
        shared: folder that pods of both nodes can mount, as from a file server.
    """

    def __init__(self, folder: Path, images: Sequence[Path]) -> None:
        self.folder, self._images = folder, images
        self.nodes = {
            name: Node(name=name, number=number, folder=folder / name)
            for number, name in enumerate(PRODUCTS, start=1)
        }
        self.plane = Plane(folder=folder / "plane", nodes=list(self.nodes))
        self.shared = folder / "shared"
        self.shared.mkdir()

    def start(self) -> None:
        """Start everything; the nodes' images are there when this returns."""
        self.plane.prepare()
        for node in self.nodes.values():
            others = {n.address: n.pods for n in self.nodes.values() if n is not node}
            node.prepare(others, self.plane.client[0])
        loads = [_thread(node.start_containers, *self._images) for node in self.nodes.values()]
        self.plane.start()
        for load in loads:
            load()
        for node in self.nodes.values():
            self.start_kubelet(node.name)
            node.start_proxy(self.plane.kubeconfig("system:kube-proxy"))
        self.await_nodes()
        for name in self.nodes:
            self.offer_workers(name)

    def start_kubelet(self, name: str) -> None:
        """Start the kubelet of a node."""
        self.nodes[name].start_kubelet(self.plane.kubeconfig(f"system:node:{name}"))

    def await_nodes(self, *, limit_s: float = 60.0) -> None:
        """Wait until all nodes are ready."""
        eventually(
            "all nodes are ready", lambda: all(map(self.is_ready, self.nodes)), limit_s=limit_s
        )

    def node(self, name: str) -> dict[str, Any]:
        """Return a Node object."""
        return dict(self.api(lambda api: api.get(f"/api/v1/nodes/{name}")))

    def is_ready(self, name: str) -> bool:
        """Return whether a node is ready, as the API server says."""
        conditions = self.node(name)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def offer_workers(self, name: str) -> None:
        """Have a node offer workers: resources, and labels with products."""
        labels = {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": PRODUCTS[name],
            "amd.com/gpu.product-name": BOTH,
        }
        path = f"/api/v1/nodes/{name}"
        self.api(lambda api: api.patch(path, {"metadata": {"labels": labels}}))
        self.api(lambda api: api.patch(f"{path}/status", {"status": {"capacity": {WRITTEN: "1"}}}))
        self.nodes[name].programs.start(
            "plugin", program("deviceplugin"), PLUGGED, "NVIDIA_VISIBLE_DEVICES", f"GPU-{name}-0"
        )

        def offered() -> bool:
            allocatable = self.node(name)["status"]["allocatable"]
            return all(allocatable.get(resource) == "1" for resource in (PLUGGED, WRITTEN))

        eventually(f"{name} offers its workers", offered, limit_s=30)

    def api(self, ask: Callable[[Api], Any]) -> Any:
        """Ask the API server as its administrator."""
        api = self.plane.api()
        try:
            return ask(api)
        finally:
            api.close()

    def apply(self, *objects: dict[str, Any]) -> None:
        """Bring objects about."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "-f", "-", text=text)

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl as the administrator."""
        kubeconfig = self.plane.kubeconfig("admin")
        return run(program("kubectl"), f"--kubeconfig={kubeconfig}", *words, input=text)

    def helm(self, *words: str | Path) -> str:
        """Run helm as the administrator."""
        home = self.folder / "helm"
        home.mkdir(exist_ok=True)
        places = {f"HELM_{part}_HOME": str(home) for part in ("CACHE", "CONFIG", "DATA")}
        kubeconfig = {"KUBECONFIG": str(self.plane.kubeconfig("admin"))}
        return run(program("helm"), *words, env=os.environ | places | kubeconfig)

    def pods(self, namespace: str, **query: str) -> list[dict[str, Any]]:
        """Return the pods of a namespace."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        return list(self.api(lambda api: api.get(path, **query))["items"])

    def memory_bytes(self) -> dict[str, int]:
        """Return how much memory each program holds."""
        found = dict(self.plane.programs.memory_bytes())
        for node in self.nodes.values():
            own = node.programs.memory_bytes()
            found |= {f"{node.name}/{name}": size for name, size in own.items()}
        return found

    def describe(self) -> str:
        """Return what helps to understand a failure."""
        try:
            parts = [self.kubectl("get", "pods,nodes,events", "-A", "-o", "wide")]
        except (RuntimeError, ApiError) as error:
            parts = [str(error)]
        parts += [f"{node.name}\n{node.describe()}" for node in self.nodes.values()]
        return "\n".join(parts)

    def stop(self) -> None:
        """End everything that this has started."""
        for node in self.nodes.values():
            node.stop()
        self.plane.stop()


def _thread(work: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """Begin some work aside; the returned function waits for it, and fails if it has failed."""
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised by the caller that waits
            failures.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()

    def wait() -> None:
        thread.join()
        if failures:
            raise failures[0]

    return wait
