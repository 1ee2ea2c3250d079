"""The oracle: configurations from a known throughput table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.packing import pays
from planner.tables import TableBuilder, unit_demand
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED, Configuration
from scheduler.domain.sources import ConfigurationSource, SharedWay

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from scheduler.domain.throughputs.ways import CatalogueKey


class Oracle(ConfigurationSource):
    """Throughputs that are known for certain.

    A job has one configuration for each worker type on which it runs, in the cluster's order, and
    for each of its worker counts; two if its workers are slower on several nodes than on one. A job
    without throughputs has no configuration, and admission refuses it.

    Args:
        throughputs: steps/s alone and in pairs.
    """

    def __init__(self, throughputs: ThroughputTable) -> None:
        self._throughputs = throughputs

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job runs alone."""
        size = len(cluster.type_names)
        return tuple(
            Configuration(demand=unit_demand(k, size, count), throughput=steps_per_s, locality=at)
            for k, name in enumerate(cluster.type_names)
            if key.allows(name)
            for count in key.scale_factors
            for at, steps_per_s in self._localities(key.job_type, count, name)
            if steps_per_s > 0.0
        )

    def _localities(
        self, job_type: str, count: int, worker_type: str
    ) -> tuple[tuple[str, float], ...]:
        """Return the localities that differ in speed, with steps/s alone."""
        together = self._throughputs.steps_per_s(job_type, count, worker_type)
        apart = self._throughputs.spread.get((job_type, count), {}).get(worker_type)
        if apart is None or apart >= together:
            return ((ANYWHERE, together),)
        return ((CONSOLIDATED, together), (ANYWHERE, apart))

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the ways in which two jobs of equal worker counts progress more by sharing.

        Jobs with workers that may be slower on several nodes do not share.
        """
        count = one.scale_factors[0]
        first, second = (one.job_type, count), (other.job_type, count)
        if first in self._throughputs.spread or second in self._throughputs.spread:
            return ()
        rates = self._throughputs.shared.get((first, second))
        if not rates:
            return ()
        alone = self._throughputs.steps_per_s
        size = len(cluster.type_names)
        return tuple(
            SharedWay(demand=unit_demand(k, size, count), throughput=rates[name])
            for k, name in enumerate(cluster.type_names)
            if name in rates and name not in exclusive and one.allows(name) and other.allows(name)
            if pays(rates[name], (alone(*first, name), alone(*second, name)))
        )

    def may_share(self, key: CatalogueKey) -> bool:
        """Return True: ``shared`` finds in the table which jobs do not share."""
        del key
        return True

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the worker types; the throughputs do not change."""
        del key
        return cluster.type_names


def build_table(
    cluster: Cluster,
    throughputs: ThroughputTable,
    keys: Sequence[CatalogueKey],
    *,
    space_sharing: bool = False,
) -> ConfigurationTable:
    """Lay out every way in which jobs can run by known throughputs, see ``TableBuilder.table``."""
    return TableBuilder(Oracle(throughputs)).table(cluster, keys, space_sharing=space_sharing)
