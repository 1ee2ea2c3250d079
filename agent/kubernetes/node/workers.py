"""The workers of a Kubernetes node: from its labels and resources, and their other holders."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.gpus.inventory import type_name
from agent.kubernetes.names import is_ours
from agent.kubernetes.pods.pods import HOSTNAME, PodWorker
from scheduler.errors import ClusterError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

_PRODUCT: Final = "nvidia.com/gpu.product"
_STRATEGY, _REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"
_COUNT, _MIG = "nvidia.com/gpu.count", "nvidia.com/mig.strategy"
_AMD_LABELS: Final = ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
#: How long the device plugin may offer less than pods of leases hold, as when it restarts.
PLUGIN_AWAY_S: Final = 300.0
#: Ways in which two jobs can hold a worker.
SHARING: Final = ("exclusive", "time-slicing", "mps", "visible")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorker(PodWorker):
    """A worker of a node.

    Attributes:
        index: local index, from 0 without gaps.
        replicas: how often its resource counts it: more than once if jobs share it.
    """

    index: int
    replicas: int = 1


def workers_of(
    node: Mapping[str, Any],
    *,
    names: Mapping[str, str] = MappingProxyType({}),
    sharing: Mapping[str, str] = MappingProxyType({}),
    plain: Sequence[str] = (),
) -> tuple[NodeWorker, ...]:
    """Return the workers of a Node object.

    Args:
        node: the object.
        names: product label -> worker type, to replace the derived one.
        sharing: worker type -> how jobs share it, if the node's labels do not say.
        plain: worker types, one for each worker, of a node without accelerators.

    Raises:
        InputError: a way of sharing is unknown.
    """
    labels = (node.get("metadata") or {}).get("labels") or {}
    workers: list[NodeWorker] = []
    for resource, count in sorted(_accelerators(node).items()):
        worker_type = _type(resource, labels, names)
        mode = sharing.get(worker_type) or _labelled(resource, labels)
        if mode not in SHARING:
            raise InputError(
                f"worker type '{worker_type}' is to be shared by '{mode}'; "
                f"use one of {', '.join(SHARING)}"
            )
        replicas = _replicas(resource, labels) if mode in {"time-slicing", "mps"} else 1
        for number in range(count // replicas):
            workers.append(
                NodeWorker(
                    index=len(workers),
                    worker_type=worker_type,
                    resource=resource,
                    sharing=mode,
                    device=str(number),
                    replicas=replicas,
                )
            )
    for worker_type in plain:
        workers.append(
            NodeWorker(
                index=len(workers),
                worker_type=worker_type,
                resource="",
                sharing=sharing.get(worker_type, "exclusive"),
            )
        )
    return tuple(workers)


def full_name(pod: Mapping[str, Any]) -> str:
    """Return a pod's namespace and name."""
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def placement_obstacle(node: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> str:
    """Return why nothing new may be placed on a node; empty if it may."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "the node is cordoned"
    tolerated = tuple(tolerations)
    for taint in spec.get("taints") or []:
        if taint.get("effect") == "PreferNoSchedule":
            continue
        if not any(_tolerates(toleration, taint) for toleration in tolerated):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"the node has the taint {taint.get('key')}{value}:{taint.get('effect')}"
    return ""


def claimed_accelerators(pod: Mapping[str, Any]) -> Counter[str]:
    """Return how much of each accelerator resource a pod holds; empty once it has ended."""
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return Counter()
    spec = pod.get("spec") or {}
    total = _sum(spec.get("containers") or [])
    for container in spec.get("initContainers") or []:
        own = _sum([container])
        total = total + own if container.get("restartPolicy") == "Always" else total | own
    return total


@dataclass(kw_only=True)
class NodeInventory:
    """The workers of a node, updated from its object and the pods on it.

    A worker stays on the list while the agent lives: a worker that the device plugin no longer
    offers has a problem, and may come back. A worker keeps its type while the label that names it
    is missing: feature discovery takes its labels off when it restarts.

    Attributes:
        instance: of this installation; its own pods are not counted as others.
        tolerations: of the pods that are made here.
        names: see ``workers_of``.
        sharing: see ``workers_of``.
        plain: see ``workers_of``.
        node: the Node object as last read.
        remark: a text for people on the node.
        clock: the time, for tests.
    """

    instance: str
    tolerations: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    sharing: Mapping[str, str] = field(default_factory=dict)
    plain: tuple[str, ...] = ()
    node: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""
    clock: Callable[[], float] = lease_clock_s
    _workers: tuple[NodeWorker, ...] = ()
    _strangers: Mapping[str, Counter[str]] = field(default_factory=dict)
    _held: frozenset[int] = frozenset()
    _bound: frozenset[int] = frozenset()
    #: Vendors of accelerators with a label that names their product, when workers were last read.
    _named: frozenset[str] = frozenset()
    #: Hardware of other types that the node told last, and that is not believed yet.
    _doubted: tuple[tuple[str, str], ...] = ()
    #: resource -> since when the device plugin has offered less of it than pods of leases hold.
    _short_s: dict[str, float] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[NodeWorker, ...]:
        """By local index."""
        return self._workers

    @property
    def hostname(self) -> str:
        """The label that pins pods to the node."""
        metadata = self.node.get("metadata") or {}
        labels = metadata.get("labels") or {}
        return str(labels.get(HOSTNAME) or metadata.get("name") or "")

    def read_node(self, node: Mapping[str, Any]) -> None:
        """Take in the Node object.

        Raises:
            ClusterError: it has no workers, and never had.
        """
        found = workers_of(node, names=self.names, sharing=self.sharing, plain=self.plain)
        if not found and not self._workers:
            name = (node.get("metadata") or {}).get("name")
            raise ClusterError(
                f"node '{name}' offers no accelerator (nvidia.com/gpu, nvidia.com/mig-*, "
                "amd.com/gpu); check its device plugin, or declare workers: --worker cpu:4"
            )
        self.node = node
        named = _named(node)
        if self._workers and (_settling(node) or self._named - named):
            return
        self._named = named
        told, known = _hardware(found), _hardware(self._workers)
        if told[: len(known)] == known[: len(told)]:
            self._doubted = ()
            if len(found) >= len(known):  # else some are gone, and may come back
                self._workers = found
        elif self._believes(told):
            self._workers = found

    def _believes(self, told: list[tuple[str, str]]) -> bool:
        """Return whether the workers are of other types, as the node says.

        That retires the workers that were there, and ends what runs on them. So it must be told
        twice, while nothing runs there.
        """
        before, self._doubted = self._doubted, tuple(told)
        return self._doubted == before and not self._held

    def read_pods(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Take in all pods on the node; those of this installation are skipped."""
        found = {}
        for pod in pods:
            if not is_ours(pod, instance=self.instance) and (own := claimed_accelerators(pod)):
                found[full_name(pod)] = own
        self.read_strangers(found)

    def read_strangers(self, holders: Mapping[str, Counter[str]]) -> None:
        """Take in the resources that other pods on the node hold, by pod name."""
        self._strangers = dict(holders)

    def hold(self, indices: Collection[int], *, bound: Collection[int]) -> None:
        """Note the workers that leases hold, and those under a lease with a pod on the node."""
        self._held, self._bound = frozenset(indices), frozenset(bound)

    def pick(self, indices: Sequence[int]) -> tuple[NodeWorker, ...]:
        """Return the workers of these indices.

        Raises:
            InputError: an index has no worker.
        """
        for index in indices:
            if not 0 <= index < len(self._workers):
                raise InputError(
                    f"there is no worker {index} on this node; it has {len(self._workers)}, "
                    "numbered from 0"
                )
        return tuple(self._workers[index] for index in indices)

    def problems(self) -> dict[int, str]:
        """Return by local index why a worker cannot be used.

        An obstacle to new pods counts for workers that no pod of a lease holds: it does not end
        running pods, but new ones will not come.
        """
        found = self._missing()
        for resource, takers in self._taken().items():
            free = [
                w.index
                for w in reversed(self._workers)
                if w.resource == resource and w.index not in found and w.index not in self._held
            ]
            for index, name in zip(free, takers, strict=False):
                found[index] = f"taken by pod {name}"
        if why := placement_obstacle(self.node, self.tolerations):
            for worker in self._workers:
                if worker.index not in self._bound:
                    found.setdefault(worker.index, why)
        return found

    def _missing(self) -> dict[int, str]:
        """Return the workers that the device plugin does not offer (any more).

        Kubernetes does not report which devices are missing. Idle workers are taken first, before
        those under a pod. A pod keeps its device while the plugin restarts, so a lease ends only if
        the device stays away.
        """
        healthy = Counter(_accelerators(self.node, "allocatable"))
        found: dict[int, str] = {}
        short: set[str] = set()
        for worker in sorted(self._workers, key=lambda worker: worker.index not in self._bound):
            name = worker.resource
            if not name:
                continue
            if healthy[name] < worker.replicas:
                why = f"the node offers no more {name} than that"
                if worker.index not in self._bound:
                    found[worker.index] = why
                else:
                    short.add(name)
                    now_s = self.clock()
                    if now_s - self._short_s.setdefault(name, now_s) >= PLUGIN_AWAY_S:
                        found[worker.index] = f"{why}, for {PLUGIN_AWAY_S:g} s"
            healthy[name] -= worker.replicas
        for name in self._short_s.keys() - short:
            del self._short_s[name]
        return found

    def _taken(self) -> dict[str, list[str]]:
        """Return by resource the other holders of its workers, once for each worker."""
        replicas = {w.resource: w.replicas for w in self._workers if w.resource}
        takers: dict[str, list[str]] = {}
        for name, own in sorted(self._strangers.items()):
            for resource, count in own.items():
                whole = -(-count // replicas.get(resource, 1))
                takers.setdefault(resource, []).extend([name] * whole)
        return takers


def _settling(node: Mapping[str, Any]) -> bool:
    """Return whether a node's labels and resources contradict each other.

    If an operator changes how GPUs are shared, the device plugin and feature discovery report it
    one after the other. In between four GPUs may look like eight, or like two.
    """
    labels = (node.get("metadata") or {}).get("labels") or {}
    gpus = labels.get(_COUNT, "")
    if not gpus.isdecimal() or labels.get(_MIG, "none") not in {"", "none"}:
        return False
    whole = {"nvidia.com/gpu", "nvidia.com/gpu.shared"}
    offered = sum(count for name, count in _accelerators(node).items() if name in whole)
    return offered not in {0, int(gpus) * _replicas("nvidia.com/gpu", labels)}


def _named(node: Mapping[str, Any]) -> frozenset[str]:
    """Return the vendors whose accelerators a node's labels name."""
    labels = (node.get("metadata") or {}).get("labels") or {}
    names = {"nvidia.com": (_PRODUCT,), "amd.com": _AMD_LABELS}
    return frozenset(vendor for vendor, known in names.items() if any(map(labels.get, known)))


def _hardware(workers: Sequence[NodeWorker]) -> list[tuple[str, str]]:
    return [(worker.worker_type, worker.resource) for worker in workers]


def _accelerators(node: Mapping[str, Any], part: str = "capacity") -> dict[str, int]:
    """Return the node's accelerator resources; ``capacity`` includes unhealthy ones."""
    status = node.get("status") or {}
    offered = status.get(part) or status.get("allocatable") or {}
    return {
        name: int(value)
        for name, value in offered.items()
        if _is_accelerator(name) and str(value).isdecimal() and int(value) > 0
    }


def _is_accelerator(resource: str) -> bool:
    return resource == "amd.com/gpu" or re.fullmatch(
        r"nvidia\.com/(gpu|mig-[a-z0-9.+_-]+)(\.shared)?", resource
    ) is not None  # fmt: skip


def _type(resource: str, labels: Mapping[str, str], names: Mapping[str, str]) -> str:
    if resource == "amd.com/gpu":
        product = next((labels[name] for name in _AMD_LABELS if labels.get(name)), "")
        return names.get(product) or type_name(product or "amd-gpu")
    product = labels.get(_PRODUCT, "").removesuffix("-SHARED")
    product = re.sub(r"-MIG-[0-9a-z.+]+(-SHARED)?$", "", product)
    _, _, name = resource.partition("/")
    name = name.removesuffix(".shared")
    whole = names.get(product) or type_name(product or "nvidia-gpu")
    if name == "gpu":
        return whole
    return names.get(f"{product}-{name}") or f"{whole}-{name}"


def _labelled(resource: str, labels: Mapping[str, str]) -> str:
    """Return how the node's GPUs are shared, from its labels."""
    strategy = labels.get(_STRATEGY, "none")
    shared = strategy in {"time-slicing", "mps"} and _replicas(resource, labels) > 1
    return strategy if shared and not resource.startswith("amd.com/") else "exclusive"


def _replicas(resource: str, labels: Mapping[str, str]) -> int:
    _, _, name = resource.partition("/")
    label = labels.get(f"nvidia.com/{name.removesuffix('.shared')}.replicas") or labels.get(
        _REPLICAS, "1"
    )
    return max(int(label), 1) if label.isdecimal() else 1


def _sum(containers: Iterable[Mapping[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in containers:
        for resource, value in ((container.get("resources") or {}).get("limits") or {}).items():
            if _is_accelerator(resource) and str(value).isdecimal():
                total[resource] += int(value)
    return total


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return key in {None, "", taint.get("key")}
    return key == taint.get("key") and toleration.get("value", "") == taint.get("value", "")
