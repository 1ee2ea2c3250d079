"""Clusters: nodes with workers of one or more types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arguments import check_whole
from scheduler.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import FloatArray, IntArray


#: Larger clusters are taken for a slip of the pen.
MOST_WORKERS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerType:
    """A hardware class of accelerators.

    Attributes:
        name: ``v100``, ``a100-80g``, a MIG profile.
        cost_usd_per_hour: price of one worker.
    """

    name: str
    cost_usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an empty name and a price that is no price."""
        if not self.name:
            raise ClusterError("a worker type needs a name")
        if not (math.isfinite(self.cost_usd_per_hour) and self.cost_usd_per_hour >= 0):
            raise ClusterError(
                f"worker type '{self.name}': cost_usd_per_hour is "
                f"{self.cost_usd_per_hour!r}; it must be >= 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine and its workers.

    Attributes:
        name: unique in the cluster.
        workers: worker type name of each worker, in the order of their local index.
    """

    name: str
    workers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Worker types and nodes. Workers are numbered node by node, from 0.

    It may be empty: nodes join later. A cluster read from a file or a spec has at least one worker.

    Letters: K worker types, W workers in all, V nodes.
    """

    worker_types: tuple[WorkerType, ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Refuse duplicate names and workers of unknown types."""
        names = [t.name for t in self.worker_types]
        for kind, values in (("worker type", names), ("node", [n.name for n in self.nodes])):
            twice = (
                sorted({v for v in values if values.count(v) > 1})
                if len(set(values)) < len(values)
                else []
            )
            if twice:
                raise ClusterError(f"{kind} '{twice[0]}' is listed twice; names must be unique")
        known = set(names)
        for node in self.nodes:
            for worker in node.workers:
                if worker not in known:
                    raise ClusterError(
                        f"node '{node.name}' has a worker of type '{worker}', which is not "
                        f"among the worker types: {', '.join(names)}"
                    )

    @cached_property
    def type_names(self) -> tuple[str, ...]:
        """(K,) names, in order."""
        return tuple(t.name for t in self.worker_types)

    @cached_property
    def worker_type_of(self) -> IntArray:
        """(W,) index of the type of each worker."""
        index = {name: k for k, name in enumerate(self.type_names)}
        return np.array([index[w] for n in self.nodes for w in n.workers], dtype=np.int64)

    @cached_property
    def node_of(self) -> IntArray:
        """(W,) index of the node of each worker."""
        return np.array([v for v, n in enumerate(self.nodes) for _ in n.workers], dtype=np.int64)

    @cached_property
    def capacity(self) -> FloatArray:
        """(K,) number of workers of each type."""
        return np.bincount(self.worker_type_of, minlength=len(self.worker_types)).astype(float)

    @cached_property
    def most_on_a_node(self) -> Mapping[str, int]:
        """Worker type -> the most workers of it on one node."""
        kinds = {node.workers for node in self.nodes}
        return {
            name: max((workers.count(name) for workers in kinds), default=0)
            for name in self.type_names
        }

    @cached_property
    def cost_usd_per_hour(self) -> FloatArray:
        """(K,) price of one worker of each type."""
        return np.array([t.cost_usd_per_hour for t in self.worker_types], dtype=float)

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return len(self.worker_type_of)

    @property
    def spec(self) -> str:
        """The cluster as ``type:count`` pairs."""
        return ",".join(
            f"{name}:{int(count)}"
            for name, count in zip(self.type_names, self.capacity, strict=True)
        )


def parse_cluster_spec(
    spec: str,
    *,
    workers_per_node: int = 4,
    prices: dict[str, float] | None = None,
    named: str = "cluster spec",
) -> Cluster:
    """Build a cluster from ``v100:36,p100:36``, every node holding workers of one type.

    Args:
        spec: comma-separated ``type:count``.
        workers_per_node: workers on a node; the last node of a type may hold fewer.
        prices: cost_usd_per_hour by worker type; 0 where missing.
        named: the spec's name for its author, for the message.

    Raises:
        ClusterError: the spec is malformed.
        ParameterError: ``workers_per_node`` is no whole number of at least 1.
    """
    check_whole("workers_per_node", workers_per_node, least=1)
    types: list[WorkerType] = []
    nodes: list[Node] = []
    for part in spec.split(","):
        name, separator, count_text = part.strip().rpartition(":")
        if not separator or not name or not count_text.isdecimal() or int(count_text) < 1:
            raise ClusterError(
                f"{named} '{spec}': '{part.strip()}' is not type:count with a count >= 1; "
                "an example is v100:4,p100:2"
            )
        count = int(count_text)
        if count > MOST_WORKERS:
            raise ClusterError(
                f"{named} '{spec}': {count} workers of type '{name}' are more than "
                f"{MOST_WORKERS}; lower the count"
            )
        types.append(WorkerType(name=name, cost_usd_per_hour=(prices or {}).get(name, 0.0)))
        for first in range(0, count, workers_per_node):
            size = min(workers_per_node, count - first)
            nodes.append(Node(name=f"{name}-{first // workers_per_node}", workers=(name,) * size))
    return Cluster(worker_types=tuple(types), nodes=tuple(nodes))
