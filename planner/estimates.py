"""Estimates as a source of configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.planned import Planned
from planner.tables import unit_demand
from scheduler.domain.configuration import ANYWHERE, Configuration
from scheduler.domain.sources import ConfigurationSource
from scheduler.domain.throughputs.profiling import NO_PROFILING
from scheduler.domain.throughputs.ways import Estimate, Source

if TYPE_CHECKING:
    from planner.estimation.estimator import Estimator
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.profiling import Profiling
    from scheduler.domain.throughputs.ways import CatalogueKey

#: The throughput of a job that counts its steps in seconds.
_SECONDS: Final = Estimate(steps_per_s=1.0, relative_deviation=0.0, source=Source.DECLARED)
#: Placeholder for a figure that would have to be inferred.
_SOME: Final = Estimate(steps_per_s=1.0, relative_deviation=1.0, source=Source.ASSUMED)


class Estimates(ConfigurationSource):
    """The best known figures.

    A job has a configuration for each worker type that it allows, in the cluster's order, and for
    each of its worker counts. If it is known not to run in one, the throughput is 0.

    Args:
        estimator: throughputs of jobs.
        profiling: the bonus of inferred figures. Leave it out to predict times.
        rough: infer nothing; one step/s stands for figures neither measured nor declared.
        planned: the plans of jobs that give their model.
    """

    def __init__(
        self,
        estimator: Estimator,
        profiling: Profiling = NO_PROFILING,
        *,
        rough: bool = False,
        planned: Planned | None = None,
    ) -> None:
        self._estimator = estimator
        self._planned = planned or Planned(estimator)
        self._profiling = profiling
        self._rough = rough

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job could run alone."""
        size = len(cluster.type_names)
        self._planned.serve(cluster)
        return tuple(
            Configuration(
                demand=unit_demand(k, size, count),
                throughput=estimate.steps_per_s * self._profiling.factor(estimate),
                doubt=estimate.relative_deviation,
                locality=self._locality(key, count, worker_type),
                plan=self._plan(key, count, worker_type),
            )
            for k, worker_type in enumerate(cluster.type_names)
            if key.allows(worker_type)
            for count in key.scale_factors
            for estimate in [self.estimate(key, count, worker_type)]
        )

    def estimate(self, key: CatalogueKey, count: int, worker_type: str) -> Estimate:
        """Return the estimate of a job on ``count`` workers of a type."""
        if key.timed:
            return _SECONDS
        if key.model:
            return self._planned.estimate(key.job_type, key.model, count, worker_type)
        if self._rough:
            return self._estimator.own(key.job_type, count, worker_type) or _SOME
        return self._estimator.estimate(key.job_type, count, worker_type)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the worker types, and the revision of each way's figure."""
        if key.timed:
            return cluster.type_names
        if key.model:
            self._planned.serve(cluster)
            return [
                (name, self._planned.revision(key.job_type, name)) for name in cluster.type_names
            ]
        return cluster.type_names, [
            self._estimator.revision(key.job_type, count, worker_type)
            for worker_type in cluster.type_names
            if key.allows(worker_type)
            for count in key.scale_factors
        ]

    def _locality(self, key: CatalogueKey, count: int, worker_type: str) -> str:
        return self._planned.locality(worker_type, count) if key.model else ANYWHERE

    def _plan(self, key: CatalogueKey, count: int, worker_type: str) -> str:
        if not key.model:
            return ""
        return self._planned.plan(key.job_type, key.model, worker_type, count).plan
