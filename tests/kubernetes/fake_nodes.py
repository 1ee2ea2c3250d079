"""Nodes, pods and containers of the fake kubelets, and their records."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

GPU = "nvidia.com/gpu"


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
        devices: those that the device plugin gave.
        begin_s: on the monotonic clock.
        end_s: as above; None while it runs.
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
class Gang:
    """The shared knowledge of the members of an attempt's gang.

    Attributes:
        met: processes of each rank that has begun.
        done: processes that have done all steps.
    """

    met: dict[int, int] = field(default_factory=dict)
    done: int = 0


@dataclass(kw_only=True)
class Container:
    """A script's view of its container.

    Attributes:
        pod: the pod object.
        env: its variables, as the kubelet resolves them.
        command: as above.
        told: set at SIGTERM.
        volumes: what outlives pods: by job, ``[step, token]`` of every step that counts.
        living: containers that run now, by host name and domain.
        gangs: by domain.
        resolve: waits until a name of a pod resolves.
        code: its content of /leasehold/code; None if that is not mounted.
    """

    pod: dict[str, Any]
    env: dict[str, str]
    command: list[str]
    volumes: dict[str, list[list[int]]]
    living: dict[str, Container]
    gangs: dict[str, Gang]
    resolve: Callable[[str], Awaitable[bool]]
    code: Path | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    output: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    done: bool = False
    steps: int = 0

    def print(self, text: str) -> None:
        self.output.append((now_text(), text))

    @property
    def host(self) -> str:
        spec = self.pod["spec"]
        return f"{spec.get('hostname')}.{spec.get('subdomain')}"


Script = Callable[[Container], Coroutine[Any, Any, int]]


@dataclass(kw_only=True)
class Pod:
    """A pod in this kubelet's hands."""

    item: dict[str, Any]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    kill_s: float | None = None
    grace: int | None = None
    gone: bool = False
    evicted: str = ""
    container: Container | None = None
    code: Path | None = None

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


@dataclass(kw_only=True)
class World:
    """What all nodes of a test share.

    Attributes:
        nodes: by name.
        scripts: a container's action, by the first word of its command.
        namespace: of the pods.
        runs: every container that ran.
        volumes: see ``Container``.
        broken_images: images that cannot be pulled.
        faults: what went wrong in the fake nodes themselves.
        pods: by uid.
        living: see ``Container``.
        gangs: see ``Container``.
        freed: set when devices come free.
    """

    nodes: dict[str, FakeNode]
    scripts: dict[str, Script]
    namespace: str
    runs: list[Run] = field(default_factory=list)
    volumes: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    broken_images: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    living: dict[str, Container] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=lambda: defaultdict(Gang))
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self, pod: Pod) -> None:
        """Give a pod's devices back."""
        for node in self.nodes.values():
            if node.bound.pop(pod.uid, None) is not None:
                node.devices.pop(pod.uid, None)
                self.freed.set()


def gpus_of(item: dict[str, Any]) -> int:
    limits = item["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return int(limits.get(GPU, 0))


def container_status(pod: Pod, state: dict[str, Any]) -> dict[str, Any]:
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


def now_text() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
