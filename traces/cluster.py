"""Clusters from a spec or a YAML file, and prices. Reference: docs/reference/traces.md."""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.domain.cluster import Cluster, Node, WorkerType, parse_cluster_spec
from scheduler.errors import ClusterError, TraceError
from traces.bundle import bundled, resolve
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PRICE = "cost_usd_per_hour"


def read_cluster(
    path_or_spec: str | os.PathLike[str],
    *,
    workers_per_node: int = 4,
    prices: Mapping[str, float] | None = None,
) -> Cluster:
    """Read a cluster.

    Args:
        path_or_spec: ``v100:36,p100:36``, or the path of a YAML file (``bundled:cluster`` is one).
        workers_per_node: workers on a node, for a spec.
        prices: cost_usd_per_hour by worker type, for a spec; None for the bundled list prices,
            which are illustrative. A worker type without a price costs 0.

    Returns:
        The cluster; worker types in the order of the spec or the file.

    Raises:
        ClusterError: the spec or the file is malformed; the message lists all faults of a file.
    """
    text = resolve(path_or_spec, usual="cluster")
    if Path(text).suffix.lower() in (".yaml", ".yml") or Path(text).is_file():
        return _read_file(text)
    known = read_prices() if prices is None else prices
    return parse_cluster_spec(text, workers_per_node=workers_per_node, prices=dict(known))


def read_prices(path: str | os.PathLike[str] | None = None) -> dict[str, float]:
    """Read prices: a YAML mapping ``cost_usd_per_hour`` from worker type to price per worker.

    Args:
        path: the file, or None for the bundled list prices (illustrative; the file has its source).

    Raises:
        ClusterError: the file is malformed.
    """
    name = os.fspath(bundled("prices") if path is None else path)
    document = _load(name)
    checker = _Checker(name)
    fields = checker.mapping(document, "the file", required=(_PRICE,), optional=("source",))
    prices = checker.mapping(fields.get(_PRICE), _PRICE)
    read = {str(k): checker.price(v, f"{_PRICE}.{k}") for k, v in prices.items()}
    checker.finish()
    return read


def _load(name: str) -> Any:
    try:
        return read_yaml(name)
    except TraceError as error:
        raise ClusterError(str(error)) from error


def _read_file(name: str) -> Cluster:
    checker = _Checker(name)
    fields = checker.mapping(_load(name), "the file", required=("worker_types", "nodes"))
    types = _worker_types(fields.get("worker_types", {}), checker)
    nodes = _nodes(fields.get("nodes", []), frozenset(t.name for t in types), checker)
    checker.finish()
    if not any(node.workers for node in nodes):
        raise ClusterError(f"{name}: the cluster has no workers; give at least one")
    try:
        return Cluster(worker_types=tuple(types), nodes=tuple(nodes))
    except ClusterError as error:
        raise ClusterError(f"{name}: {error}") from error


def _worker_types(value: Any, checker: _Checker) -> list[WorkerType]:
    types = []
    for name, entry in checker.mapping(value, "worker_types").items():
        place = f"worker_types.{name}"
        fields = checker.mapping(entry or {}, place, optional=(_PRICE,))
        price = checker.price(fields.get(_PRICE, 0.0), f"{place}.{_PRICE}")
        types.append(WorkerType(name=str(name), cost_usd_per_hour=price))
    return types


def _nodes(value: Any, known: frozenset[str], checker: _Checker) -> list[Node]:
    if not isinstance(value, list):
        checker.fault("nodes", value, "must be a list of nodes")
        return []
    nodes: list[Node] = []
    for i, entry in enumerate(value):
        place = f"nodes[{i}]"
        fields = checker.mapping(entry, place, required=("name", "workers"), optional=("count",))
        workers = _workers(fields.get("workers", {}), f"{place}.workers", known, checker)
        count = checker.count(fields.get("count", 1), f"{place}.count")
        name = str(fields.get("name", ""))
        names = [name] if "count" not in fields else [f"{name}-{n}" for n in range(count)]
        nodes += [Node(name=n, workers=workers) for n in names]
    return nodes


def _workers(value: Any, place: str, known: frozenset[str], checker: _Checker) -> tuple[str, ...]:
    workers: list[str] = []
    for name, count in checker.mapping(value, place).items():
        if name not in known:
            hint = _near(name, known)
            checker.fault(place, name, f"is not among worker_types{hint}; add it there")
        workers += [str(name)] * checker.count(count, f"{place}.{name}")
    return tuple(workers)


class _Checker:
    """Collects the faults of a file, so that a user sees all of them at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._faults: list[str] = []

    def fault(self, place: str, value: object, rule: str) -> None:
        self._faults.append(f"{place} has the value {value!r}: it {rule}")

    def finish(self) -> None:
        if self._faults:
            raise ClusterError("\n".join(f"{self._path}: {fault}" for fault in self._faults))

    def mapping(
        self,
        value: Any,
        place: str,
        *,
        required: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
    ) -> dict[Any, Any]:
        """Return the mapping; if no key is required or optional, any key is allowed."""
        if not isinstance(value, dict):
            self.fault(place, value, "must be a mapping")
            return {}
        for key in required:
            if key not in value:
                self._faults.append(f"{place}: the key '{key}' is missing; add it")
        known = (*required, *optional)
        for key in value if known else ():
            if key not in known:
                hint = _near(key, known)
                shown = ", ".join(known)
                self._faults.append(f"{place}: unknown key {key!r}{hint}; known are {shown}")
        return value

    def price(self, value: Any, place: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(place, value, "must be a number")
        elif not (math.isfinite(value) and value >= 0):
            self.fault(place, value, "must be >= 0")
        else:
            return float(value)
        return 0.0

    def count(self, value: Any, place: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.fault(place, value, "must be a whole number >= 1")
            return 1
        return value


def _near(name: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
