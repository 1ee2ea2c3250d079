"""The fleet: the workers, by number, of a cluster that grows; no number is used twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain.cluster import Cluster, Node
from scheduler.engine.tables.kernels import count_types
from scheduler.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.cluster import WorkerType


class Fleet:
    """Nodes and workers, and the state of each. Arrays are views of growing buffers.

    Letters: K worker types, W workers in all, V nodes; a node's workers are consecutive.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.worker_types: list[WorkerType] = list(cluster.worker_types)
        #: (K,) their names, in order.
        self.type_names: tuple[str, ...] = cluster.type_names
        #: (V,) replaced nodes stay in the list under another name.
        self.nodes: list[Node] = list(cluster.nodes)
        #: node name -> its position, for exactly the nodes.
        self.position_of: dict[str, int] = {node.name: v for v, node in enumerate(self.nodes)}
        #: W.
        self.workers = cluster.workers
        sizes = [len(node.workers) for node in self.nodes]
        self._node_start = Growing(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        self._type_of = Growing(cluster.worker_type_of)
        self._node_of = Growing(cluster.node_of)
        self._in_service = Growing(np.ones(self.workers, dtype=bool))
        self._cordoned = Growing(np.zeros(self.workers, dtype=bool))
        self._retired = Growing(np.zeros(self.workers, dtype=bool))
        #: whether any worker is cordoned: saves each round a look at all workers.
        self.any_cordoned = False
        self._set_aside = Growing(np.zeros(self.workers, dtype=bool))
        #: the same for workers that are set aside.
        self.any_set_aside = False
        #: the fleet as a value; made on access.
        self._cluster: Cluster | None = cluster
        #: the same without retired workers.
        self._present: Cluster | None = None

    @property
    def type_of(self) -> IntArray:
        """(W,) type of each worker."""
        return self._type_of.view

    @property
    def node_of(self) -> IntArray:
        """(W,) position of the node of each worker."""
        return self._node_of.view

    def node_name(self, worker: int) -> str:
        """Return the name of a worker's node."""
        return self.nodes[int(self.node_of[worker])].name

    @property
    def node_start(self) -> IntArray:
        """(V + 1,) first worker of each node, and W."""
        return self._node_start.view

    @property
    def in_service(self) -> BoolArray:
        """(W,) whether the worker is neither lost nor drained nor retired."""
        return self._in_service.view

    @property
    def cordoned(self) -> BoolArray:
        """(W,) whether nothing new may be granted there."""
        return self._cordoned.view

    @property
    def retired(self) -> BoolArray:
        """(W,) whether the worker is gone permanently; then it is not in service."""
        return self._retired.view

    @property
    def set_aside(self) -> BoolArray:
        """(W,) whether the worker is kept for the owner of a reservation."""
        return self._set_aside.view

    @property
    def grantable(self) -> BoolArray:
        """(W,) workers that may be granted to any job; a copy."""
        result = self.in_service.copy()
        if self.any_cordoned:
            result &= ~self.cordoned
        if self.any_set_aside:
            result &= ~self.set_aside
        return result

    @property
    def capacity(self) -> FloatArray:
        """(K,) workers of each type that are not gone permanently."""
        return self.count(~self.retired).astype(float)

    @property
    def cost_usd_per_hour(self) -> FloatArray:
        """(K,) price of one worker of each type."""
        return np.array([kind.cost_usd_per_hour for kind in self.worker_types], dtype=float)

    @property
    def cluster(self) -> Cluster:
        """The fleet as a value; it includes retired workers, since numbers stay."""
        if self._cluster is None:
            self._cluster = Cluster(worker_types=tuple(self.worker_types), nodes=tuple(self.nodes))
        return self._cluster

    @property
    def present(self) -> Cluster:
        """The fleet without retired workers, so with other numbers; it keeps all worker types."""
        if self._present is None and not self.retired.any():
            self._present = self.cluster
        if self._present is None:
            retired, starts = self.retired.tolist(), self.node_start.tolist()
            nodes = (
                Node(
                    name=node.name,
                    workers=tuple(
                        kind for w, kind in enumerate(node.workers, first) if not retired[w]
                    ),
                )
                for node, first in zip(self.nodes, starts[:-1], strict=True)
            )
            self._present = Cluster(
                worker_types=tuple(self.worker_types),
                nodes=tuple(node for node in nodes if node.workers),
            )
        return self._present

    def count(self, workers: BoolArray) -> IntArray:
        """Return (K,) how many of the marked workers are of each type."""
        counts: IntArray = count_types(workers, self.type_of, len(self.worker_types))
        return counts

    def count_on_nodes(self, workers: BoolArray) -> IntArray:
        """Return (V, K) how many of the marked workers of each type are on each node."""
        size = len(self.worker_types)
        cells = self.node_of[workers] * size + self.type_of[workers]
        counts: IntArray = np.bincount(cells, minlength=len(self.nodes) * size)
        return counts.reshape(len(self.nodes), size)

    def workers_of(self, node: str) -> range:
        """Return the numbers of a node's workers; empty if there is no such node."""
        position = self.position_of.get(node)
        if position is None:
            return range(0)
        first, behind = self.node_start[position : position + 2].tolist()
        return range(first, behind)

    def add_types(self, worker_types: tuple[WorkerType, ...]) -> None:
        """Append new types."""
        self.worker_types += worker_types
        self.type_names = tuple(kind.name for kind in self.worker_types)
        self._cluster = self._present = None

    def join(self, node: Node) -> None:
        """Append a node of known types; an old node of the same name is renamed."""
        old = self.position_of.pop(node.name, None)
        if old is not None:
            self._rename(old)
        position = len(self.nodes)
        self.nodes.append(node)
        self.position_of[node.name] = position
        index = {name: k for k, name in enumerate(self.type_names)}
        count = len(node.workers)
        self.workers += count
        self._node_start.extend(np.array([self.workers]))
        self._type_of.extend(np.array([index[name] for name in node.workers], dtype=np.int64))
        self._node_of.extend(np.full(count, position, dtype=np.int64))
        self._in_service.extend(np.ones(count, dtype=bool))
        self._cordoned.extend(np.zeros(count, dtype=bool))
        self._retired.extend(np.zeros(count, dtype=bool))
        self._set_aside.extend(np.zeros(count, dtype=bool))
        self._cluster = self._present = None

    def _rename(self, position: int) -> None:
        old = self.nodes[position]
        name = f"{old.name}~retired-{int(self.node_start[position])}"
        while name in self.position_of:  # an earlier node without workers began there as well
            name += "~"
        self.nodes[position] = Node(name=name, workers=old.workers)
        self.position_of[name] = position

    def retire(self, workers: Sequence[int]) -> None:
        """Note that workers are gone permanently."""
        self.retired[list(workers)] = True
        self._present = None

    def set_cordoned(self, workers: Sequence[int], *, cordoned: bool) -> None:
        """Cordon or uncordon workers."""
        self.cordoned[workers] = cordoned
        self.any_cordoned = bool(self.cordoned.any())

    def set_set_aside(self, workers: Sequence[int]) -> None:
        """Set exactly these workers aside."""
        self.set_aside[:] = False
        self.set_aside[list(workers)] = True
        self.any_set_aside = bool(workers)

    def restore(self, in_service: BoolArray, cordoned: BoolArray, retired: BoolArray) -> None:
        """Restore (W,) the state of each worker."""
        self.in_service[:] = in_service
        self.cordoned[:] = cordoned
        self.any_cordoned = bool(cordoned.any())
        self.retired[:] = retired
        self._present = None

    def check_invariants(self) -> None:
        """Raise InvariantError if numbers or names contradict each other."""
        cluster = Cluster(worker_types=tuple(self.worker_types), nodes=tuple(self.nodes))
        checks = {
            "workers are numbered node by node": np.array_equal(
                self.type_of, cluster.worker_type_of
            )
            and np.array_equal(self.node_of, cluster.node_of)
            and self.workers == cluster.workers,
            "nodes are found by name": self.position_of
            == {node.name: v for v, node in enumerate(self.nodes)},
            "cordons are known": self.any_cordoned == self.cordoned.any(),
            "retired workers are out of service": not (self.retired & self.in_service).any(),
        }
        broken = [name for name, holds in checks.items() if not holds]
        if broken:
            raise InvariantError(f"fleet: {'; '.join(broken)}")


class Growing:
    """A one-dimensional array; the cost of appending does not grow with its length."""

    __slots__ = ("_buffer", "_size")

    def __init__(self, values: NDArray[Any]) -> None:
        self._buffer = np.array(values)
        self._size = len(values)

    @property
    def view(self) -> NDArray[Any]:
        """The array; writes go to it. A view from before ``extend`` is out of date."""
        return self._buffer[: self._size]

    def extend(self, values: NDArray[Any]) -> None:
        """Append values."""
        size = self._size + len(values)
        if size > len(self._buffer):
            room = np.zeros(max(size, 2 * len(self._buffer)), dtype=self._buffer.dtype)
            room[: self._size] = self.view
            self._buffer = room
        self._buffer[self._size : size] = values
        self._size = size
