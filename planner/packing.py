"""Space sharing: two jobs on the same workers.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads" (OSDI 2020), section 3.1: a policy may allot time to pairs of jobs as it does to jobs.

Two jobs pair on a worker type if they hold equally many workers, both make progress, and sharing
beats taking turns: the sum of their throughputs, each divided by its throughput alone there,
exceeds 1. Dropping the other pairs loses nothing: the time of such a pair can be split between its
members alone so that neither is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.tables import unit_demand
from scheduler.domain.sources import ConfigurationSource, SharedWay

if TYPE_CHECKING:
    from collections.abc import Collection

    from planner.sharing import SharingCosts
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import Configuration
    from scheduler.domain.throughputs.ways import CatalogueKey


class Pairs(ConfigurationSource):
    """Configurations of jobs alone, and of pairs with a known cost of sharing.

    Args:
        alone: throughputs of jobs alone.
        costs: costs of sharing.
    """

    def __init__(self, alone: ConfigurationSource, costs: SharingCosts) -> None:
        self._alone = alone
        self._costs = costs
        #: key -> revision, speeds.
        self._speeds_of: dict[CatalogueKey, tuple[object, dict[str, float]]] = {}

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job could run alone."""
        return self._alone.ways(key, cluster)

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the ways in which sharing pays, by known costs and the throughputs alone."""
        count = one.scale_factors[0]
        costs = self._costs.of((one.job_type, count), (other.job_type, count))
        if not costs:
            return self._alone.shared(one, other, cluster, exclusive)
        first, second = self._speeds(one, cluster), self._speeds(other, cluster)
        found = []
        for k, name in enumerate(cluster.type_names):
            if name in costs and name in first and name in second and name not in exclusive:
                alone = first[name], second[name]
                together = costs[name][0] * alone[0], costs[name][1] * alone[1]
                if pays(together, alone):
                    demand = unit_demand(k, len(cluster.type_names), count)
                    found.append(SharedWay(demand=demand, throughput=together))
        return tuple(found)

    def may_share(self, key: CatalogueKey) -> bool:
        """Return whether a cost of sharing is known for the job with any other one."""
        known = self._costs.knows((key.job_type, key.scale_factors[0]))
        return known or self._alone.may_share(key)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return a value that changes with every throughput alone or cost of sharing."""
        return self._costs.declared, self._alone.revision(key, cluster)

    def _speeds(self, key: CatalogueKey, cluster: Cluster) -> dict[str, float]:
        """Return worker type -> steps/s of a job with one worker count, the first figure of each.

        Cached, since each job is paired with every possible partner.
        """
        revision = self.revision(key, cluster)
        known = self._speeds_of.get(key)
        if known is None or known[0] != revision:
            found: dict[str, float] = {}
            for way in self.ways(key, cluster):
                k = next(k for k, count in enumerate(way.demand) if count)
                found.setdefault(cluster.type_names[k], way.throughput)
            known = self._speeds_of[key] = revision, found
        return known[1]


def pays(together: tuple[float, float], alone: tuple[float, float]) -> bool:
    """Return whether sharing beats taking turns on the same workers.

    Args:
        together: steps/s of each member while they share.
        alone: steps/s of each member alone.
    """
    if min(together) <= 0.0 or min(alone) <= 0.0:
        return False
    return together[0] / alone[0] + together[1] / alone[1] > 1.0
