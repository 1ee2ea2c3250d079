"""Ways of jobs with a variable batch: their measurements, beside the estimates."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.learning.goodput import BatchLimits, splits_of
from planner.tables import unit_demand
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED, Configuration
from scheduler.domain.sources import ConfigurationSource
from scheduler.domain.throughputs.profiling import NO_PROFILING
from scheduler.domain.throughputs.ways import BATCH_LIMITS, Estimate, Source

if TYPE_CHECKING:
    from planner.estimates import Estimates
    from planner.learning.batches import BatchKnowledge
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.profiling import Profiling
    from scheduler.domain.throughputs.ways import CatalogueKey

#: Relative deviation of a measurement, and the addition for each doubling of the workers; as in
#: other estimates.
_MEASURED: Final = 0.05
_PER_DOUBLING: Final = 0.2
#: Workers of a node, if all workers lie on one node.
_ALL: Final = 1 << 30
_NO_WAY: Final = Estimate(steps_per_s=0.0, relative_deviation=0.0, source=Source.ESTIMATED)


class BatchWays(ConfigurationSource):
    """The estimates, and for jobs with a variable batch the rates from their step times.

    Such a job has two ways for several workers of a type: on one node, and on any. The estimates
    count for worker types on which no job of its type has run, and for counts that are more than
    twice the largest one that has run. It has no way at counts at which no batch fits.

    Args:
        estimates: of all other jobs.
        batches: measurements of jobs with a variable batch.
        profiling: the bonus of inferred figures.
    """

    def __init__(
        self,
        estimates: Estimates,
        batches: BatchKnowledge,
        profiling: Profiling = NO_PROFILING,
    ) -> None:
        self._estimates, self._batches = estimates, batches
        self._profiling = profiling

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job could run alone."""
        if not key.batch:
            return self._estimates.ways(key, cluster)
        size = len(cluster.type_names)
        return tuple(
            Configuration(
                demand=unit_demand(k, size, count),
                throughput=estimate.steps_per_s * self._profiling.factor(estimate),
                doubt=estimate.relative_deviation,
                locality=locality,
            )
            for k, worker_type in enumerate(cluster.type_names)
            if key.allows(worker_type)
            for count in key.scale_factors
            for locality in ((CONSOLIDATED, ANYWHERE) if count > 1 else (ANYWHERE,))
            for estimate in [self.estimate(key, count, worker_type, locality)]
        )

    def estimate(
        self, key: CatalogueKey, count: int, worker_type: str, locality: str = ANYWHERE
    ) -> Estimate:
        """Return the estimate of a job on ``count`` workers of a type."""
        if not key.batch:
            return self._estimates.estimate(key, count, worker_type)
        limits = _limits(key.batch)
        if not splits_of(limits, count):
            return _NO_WAY
        usual = self._estimates.estimate(key, count, worker_type)
        spread = locality == ANYWHERE and count > 1
        rates = self._batches.rates(
            key.job_type,
            worker_type,
            limits,
            self._batches.noise(key.learner),
            (count,),
            workers_per_node=1 if spread else _ALL,
        )
        if usual.steps_per_s == 0.0 or not rates:
            return usual
        runs = self._batches.placements(key.job_type, worker_type)
        measured = (count, spread) in runs
        nearest = min(abs(math.log2(count / workers)) for workers, _ in runs)
        away = 0.0 if measured else max(nearest, 1.0)
        return Estimate(
            steps_per_s=rates[count],
            relative_deviation=math.hypot(_MEASURED, _PER_DOUBLING * away),
            source=Source.MEASURED if measured else Source.ESTIMATED,
            declared=usual.declared,
        )

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the revisions of the estimates and of the measurements of the job and its type."""
        usual = self._estimates.revision(key, cluster)
        if not key.batch:
            return usual
        times = [self._batches.revision(key.job_type, name) for name in cluster.type_names]
        return usual, times, self._batches.noise(key.learner)


@lru_cache(maxsize=1024)
def _limits(batch: tuple[int, ...]) -> BatchLimits:
    return BatchLimits(**dict(zip(BATCH_LIMITS, batch, strict=True)))
