"""A source of your own: models that run faster split over the workers of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.configuration import CONSOLIDATED, Configuration
from scheduler.domain.sources import ConfigurationSource

if TYPE_CHECKING:
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.ways import CatalogueKey

#: (job type, worker type, workers) -> steps/s when the model's tensors are split over them.
MEASURED = {
    ("llm-7b", "a100", 4): 3.1,
    ("llm-7b", "a100", 8): 5.6,
    ("llm-7b", "h100", 4): 6.4,
}


class TensorSplit(ConfigurationSource):
    """Splits that were measured, each on one node."""

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the splits of a job on the cluster's worker types."""
        return tuple(
            Configuration(
                demand=tuple(count if i == k else 0 for i in range(len(cluster.type_names))),
                throughput=MEASURED[key.job_type, worker_type, count],
                doubt=0.1,
                locality=CONSOLIDATED,
                plan=f"tensor={count}",
            )
            for k, worker_type in enumerate(cluster.type_names)
            for count in key.scale_factors
            if (key.job_type, worker_type, count) in MEASURED
        )
