"""Space sharing: pairs of jobs on the same workers.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads" (OSDI 2020), section 3.1: a policy may allot time to pairs of jobs as it does to jobs.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from scheduler.domain.configuration import PairConfiguration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.domain.throughput import ProfileKey, ThroughputTable


def pair_configurations(
    worker_types: tuple[str, ...], throughputs: ThroughputTable, keys: Sequence[ProfileKey]
) -> tuple[PairConfiguration, ...]:
    """Return the pairs that are worth considering, ordered by members and worker type.

    Two profiles pair on a worker type where they have the same scale factor (so that they hold
    the same workers), both make progress, and sharing beats taking turns: the sum of the
    members' throughputs, each divided by its throughput alone on that worker type, exceeds 1.
    To drop the others loses nothing: any time given to such a pair can be split between its
    members alone so that neither is slower.

    Args:
        worker_types: the K names, in the cluster's order.
        throughputs: steps/s alone and in pairs.
        keys: profile keys; the pairs name profiles by position here.

    Returns:
        The pairs; the member of the smaller index comes first. A profile may pair with itself.
    """
    by_scale: dict[int, list[int]] = {}
    for u, (_, scale_factor) in enumerate(keys):
        by_scale.setdefault(scale_factor, []).append(u)
    return tuple(
        pair
        for members in by_scale.values()
        for u, v in combinations_with_replacement(members, 2)
        for pair in _pairs_of(worker_types, throughputs, keys, u, v)
    )


def _pairs_of(
    worker_types: tuple[str, ...],
    throughputs: ThroughputTable,
    keys: Sequence[ProfileKey],
    u: int,
    v: int,
) -> Iterator[PairConfiguration]:
    first, second = keys[u], keys[v]
    shared = throughputs.shared.get((first, second))
    if not shared:
        return
    alone_first = throughputs.isolated.get(first, {})
    alone_second = throughputs.isolated.get(second, {})
    for k, name in enumerate(worker_types):
        together = shared.get(name, (0.0, 0.0))
        alone = alone_first.get(name, 0.0), alone_second.get(name, 0.0)
        if pays(together, alone):
            demand = tuple(first[1] if i == k else 0 for i in range(len(worker_types)))
            yield PairConfiguration(profiles=(u, v), demand=demand, throughput=together)


def pays(together: tuple[float, float], alone: tuple[float, float]) -> bool:
    """Return whether sharing beats taking turns on the same workers.

    Args:
        together: steps/s of each member while they share.
        alone: steps/s of each member alone.
    """
    if min(together) <= 0.0 or min(alone) <= 0.0:
        return False
    return together[0] / alone[0] + together[1] / alone[1] > 1.0
