"""Jobs with a variable batch: their speed depends on their workers and their progress.

A job runs at the batch at which it learns fastest on its workers (``planner.learning.goodput``).
Its gradient noise grows as it learns, so larger batches and more workers become worth more. The
engine gets the rates at every worker count each minute.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from planner.learning.goodput import BatchLimits, ThroughputModel, best_batch
from planner.tables import unit_demand
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED, Configuration
from scheduler.domain.sources import ConfigurationSource
from scheduler.errors import InputError
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from planner.tables import TableBuilder
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.sources import SharedWay
    from scheduler.domain.throughputs.ways import CatalogueKey
    from traces.trace import TraceJob

#: Seconds between updates of the learning jobs' rates in the engine.
REFRESH_S: Final = 60.0
#: Nodes that a gang spans, as step times distinguish them: one, or several.
_ONE, _SEVERAL = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningType:
    """A job type with a variable batch. Its steps are those of the initial batch.

    Attributes:
        limits: bounds of its batch.
        noise: (step, gradient noise scale in samples) from that step on, by ascending steps from 0.
        models: its step times by worker type; it does not run on other types.
    """

    limits: BatchLimits
    noise: tuple[tuple[float, float], ...]
    models: Mapping[str, ThroughputModel]

    def noise_at(self, steps: float) -> tuple[float, float]:
        """Return the noise scale after ``steps``, and the step up to which it holds."""
        after = bisect_right(self.noise, (steps, math.inf))
        until = self.noise[after][0] if after < len(self.noise) else math.inf
        return self.noise[after - 1][1], until

    def rate(self, worker_type: str, *, nodes: int, workers: int, noise: float) -> float:
        """Return steps of the initial batch per second at the best batch; 0 if it cannot run."""
        model = self.models.get(worker_type)
        if model is None:
            return 0.0
        best = best_batch(model, self.limits, noise, nodes=nodes, workers=workers)
        return 0.0 if best is None else best.steps_per_s


class LearningSource(ConfigurationSource):
    """Another source, and jobs with a variable batch, each as a job type of its own.

    Args:
        others: the source for all other jobs.
        types: by the name of the job type in a key.
    """

    def __init__(self, others: ConfigurationSource, types: Mapping[str, LearningType]) -> None:
        self._others = others
        self._types = types
        #: name in a key -> gradient noise scale now.
        self.noise = {name: one.noise_at(0.0)[0] for name, one in types.items()}
        self._rates: dict[tuple[int, str, int, int, float], float] = {}

    def rate(self, name: str, worker_type: str, *, nodes: int, workers: int, noise: float) -> float:
        """Return steps/s of a job at a noise scale; see ``LearningType.rate``."""
        one, spread = self._types[name], min(nodes, _SEVERAL)
        key = id(one), worker_type, spread, workers, noise
        if key not in self._rates:
            self._rates[key] = one.rate(worker_type, nodes=spread, workers=workers, noise=noise)
        return self._rates[key]

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job runs alone, on one node and on several."""
        if key.job_type not in self._types:
            return self._others.ways(key, cluster)
        size = len(cluster.type_names)
        return tuple(
            Configuration(demand=unit_demand(k, size, count), throughput=rate, locality=at)
            for k, name in enumerate(cluster.type_names)
            if key.allows(name)
            for count in key.scale_factors
            for at, rate in self._localities(key.job_type, name, count)
        )

    def _localities(self, name: str, worker_type: str, count: int) -> list[tuple[str, float]]:
        """Return the localities of ``count`` workers, in a fixed order, with steps/s."""
        nodes = ((CONSOLIDATED, _ONE), (ANYWHERE, _SEVERAL)) if count > 1 else ((ANYWHERE, _ONE),)
        noise = self.noise[name]
        return [
            (at, self.rate(name, worker_type, nodes=many, workers=count, noise=noise))
            for at, many in nodes
        ]

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the answer of the other source; learning jobs do not share."""
        if one.job_type in self._types or other.job_type in self._types:
            return ()
        return self._others.shared(one, other, cluster, exclusive)

    def may_share(self, key: CatalogueKey) -> bool:
        """Return the answer of the other source; learning jobs do not share."""
        return key.job_type not in self._types and self._others.may_share(key)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the worker types and the job's noise scale, or the other source's revision."""
        if key.job_type not in self._types:
            return self._others.revision(key, cluster)
        return cluster.type_names, self.noise[key.job_type]


class SimulatedLearning:
    """The learning jobs of a run: their true rates, and the rates that the engine knows.

    Args:
        source: of the true rates.
        builder: of the engine's table; its source is ``source``, or wraps it.
        names: (N,) name of each job in keys of the source; empty for jobs that do not learn.
        types: of the names.
        keys: of the table's profiles.
        cluster: the workers.
        space_sharing: whether other jobs share workers.
    """

    refresh_s = REFRESH_S

    def __init__(
        self,
        source: LearningSource,
        builder: TableBuilder,
        *,
        names: Sequence[str],
        types: Mapping[str, LearningType],
        keys: Sequence[CatalogueKey],
        cluster: Cluster,
        space_sharing: bool,
    ) -> None:
        self._source, self._builder = source, builder
        self._names, self._types, self._keys = names, types, keys
        self._cluster, self._space_sharing = cluster, space_sharing
        self._node_of = cluster.node_of.tolist()
        self._type_of = [name for node in cluster.nodes for name in node.workers]

    def rate(self, job: int, workers: tuple[int, ...], steps: float) -> tuple[float, float] | None:
        """Return steps/s of a job from a step on, and until which; None if it does not learn."""
        name = self._names[job]
        if not name:
            return None
        noise, until = self._types[name].noise_at(steps)
        rate = self._source.rate(
            name,
            self._type_of[workers[0]],
            nodes=len({self._node_of[worker] for worker in workers}),
            workers=len(workers),
            noise=noise,
        )
        return rate, until

    def known(
        self, running: Sequence[tuple[int, tuple[int, ...]]], steps: FloatArray
    ) -> ConfigurationTable | None:
        """Return the table by the jobs' present noise; None if no noise has changed."""
        noise, changed = self._source.noise, False
        for job, _ in running:
            if name := self._names[job]:
                now, _ = self._types[name].noise_at(float(steps[job]))
                changed |= now != noise[name]
                noise[name] = now
        if not changed:
            return None
        return self._builder.table(self._cluster, self._keys, space_sharing=self._space_sharing)


def names_of(jobs: Sequence[TraceJob], types: Mapping[str, LearningType]) -> list[str]:
    """Return (N,) a unique job type name for each job that learns; empty for others."""
    return [f"{job.job_type}\0{job.job_id}" if job.job_type in types else "" for job in jobs]


def read_learning(path: str) -> dict[str, LearningType]:
    """Read the job types with a variable batch from a YAML file.

    It maps a job type to ``batch`` (``initial``, ``most``, ``least_per_worker``,
    ``most_per_worker``: samples), ``noise`` (step -> gradient noise scale in samples from there on)
    and ``seconds`` (worker type -> the parameters of its step times, see ``ThroughputModel``).

    Raises:
        InputError: the file cannot be read, or an entry is missing, unknown or out of its range.
    """
    try:
        document = read_yaml(path)
    except InputError as exc:
        raise InputError(f"batch file {exc}") from exc
    if not isinstance(document, dict) or not document:
        raise InputError(f"batch file '{path}': map job types to 'batch', 'noise' and 'seconds'")
    return {
        str(name): _type(entry, f"batch file '{path}': '{name}'")
        for name, entry in document.items()
    }


def _type(entry: object, what: str) -> LearningType:
    parts = _entries(entry, what, ("batch", "noise", "seconds"))
    batch = _entries(parts["batch"], f"{what}.batch", _names(BatchLimits), ("least_per_worker",))
    for name, value in batch.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{what}.batch.{name} is {value!r}; it must be a whole number")
    try:
        limits = BatchLimits(**batch)
    except InputError as exc:
        raise InputError(f"{what}.batch: {exc}") from exc
    noise = sorted(_numbers(parts["noise"], f"{what}.noise", least=0.0).items())
    if not noise or noise[0][0] != 0.0:
        raise InputError(f"{what}.noise: begin at step 0")
    seconds = parts["seconds"]
    if not isinstance(seconds, dict) or not seconds:
        raise InputError(f"{what}.seconds: map worker types to parameters of step times")
    models = {str(name): _model(one, f"{what}.seconds.{name}") for name, one in seconds.items()}
    return LearningType(limits=limits, noise=tuple(noise), models=models)


def _model(entry: object, what: str) -> ThroughputModel:
    names = _names(ThroughputModel)
    given = _entries(entry, what, names, tuple(name for name in names if name != "beta_c"))
    found = {"alpha_c": 0.0}
    for name, value in given.items():
        least = 1.0 if name == "gamma" else 0.0
        if not _is_number(value) or value < least or (name == "beta_c" and value <= 0.0):
            bound = "> 0" if name == "beta_c" else f">= {least:g}"
            raise InputError(f"{what}.{name} is {value!r}; it must be a number {bound}")
        found[name] = float(value)
    return ThroughputModel(**found)


def _numbers(entry: object, what: str, *, least: float) -> dict[float, float]:
    if not isinstance(entry, dict):
        raise InputError(f"{what} is {entry!r}; map steps to samples")
    for key, value in entry.items():
        if not _is_number(key) or key < 0 or not _is_number(value) or value < least:
            raise InputError(f"{what}: {key!r}: {value!r}; both must be numbers >= 0")
    return {float(key): float(value) for key, value in entry.items()}


def _entries(
    entry: object, what: str, known: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise InputError(f"{what} is {entry!r}; give {', '.join(known)}")
    for name in entry:
        if name not in known:
            raise InputError(f"{what}: '{name}' is not known; give {', '.join(known)}")
    for name in known:
        if name not in entry and name not in optional:
            raise InputError(f"{what}: '{name}' is missing")
    return {str(name): value for name, value in entry.items()}


def _names(kind: type[BatchLimits | ThroughputModel]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
