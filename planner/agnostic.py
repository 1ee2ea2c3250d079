"""Heterogeneity off: the same problem, as if all worker types were equal.

The policy stays the same; only its throughputs change. This is the baseline for heterogeneity-aware
answers (Gavel, OSDI 2020, section 7, sets every throughput to 1 for it; a job's own first
throughput keeps steps and seconds meaningful).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.configuration import Configuration, margin
from scheduler.domain.sources import ConfigurationSource, SharedWay

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.ways import CatalogueKey

#: Total workers held, locality and plan: configurations that agree in these differ only in the
#: worker type. Of a job that gives its model only the workers count, since each type has its plan.
_Shape = tuple[int, str, str]


class Agnostic(ConfigurationSource):
    """Another source, with every worker type as fast as the first one on which a job runs.

    Configurations of a job that hold equally many workers with the same locality and plan get the
    throughput of the one on the first worker type. If a configuration's own throughput differs
    beyond the doubt of both, the figure says nothing about the worker type, and its doubt becomes
    infinite. So configurations that look equal are not treated as equal, and turns on each type
    still make shares equal.

    A pair's members keep the *slowdown* that sharing costs them on the first worker type on which
    the pair runs; if both also run alone there first, that is the pair's own throughput on that
    type.

    Args:
        aware: the source that knows the difference.
    """

    def __init__(self, aware: ConfigurationSource) -> None:
        self._aware = aware

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the configurations of the other source, as if all types were equal."""
        return flattened(self._aware.ways(key, cluster), planned=bool(key.model))

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the pairs of the other source, as if all types were equal."""
        ways = self._aware.shared(one, other, cluster, exclusive)
        if not ways:
            return ()
        alone = [self._aware.ways(key, cluster) for key in (one, other)]
        true = [_by_demand(own) for own in alone]
        shown = [_by_demand(flattened(own)) for own in alone]
        first = min(ways, key=_first_type)
        slowdown = [
            rate / own[first.demand] for rate, own in zip(first.throughput, true, strict=True)
        ]
        return tuple(
            replace(
                way,
                throughput=(
                    slowdown[0] * shown[0][way.demand],
                    slowdown[1] * shown[1][way.demand],
                ),
            )
            for way in ways
        )

    def may_share(self, key: CatalogueKey) -> bool:
        """Return the answer of the other source."""
        return self._aware.may_share(key)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the revision of the other source."""
        return self._aware.revision(key, cluster)


def flattened(
    configurations: Sequence[Configuration], *, planned: bool = False
) -> tuple[Configuration, ...]:
    """Return a job's configurations as ``Agnostic`` shows them.

    Args:
        configurations: in the order of the profile.
        planned: whether the job gives its model.
    """
    reference: dict[_Shape, Configuration] = {}
    for configuration in sorted(configurations, key=_first_type):
        if configuration.throughput > 0.0:
            reference.setdefault(_shape(configuration, planned=planned), configuration)
    return tuple(
        _shown(c, reference[_shape(c, planned=planned)]) if c.throughput > 0.0 else c
        for c in configurations
    )


def _shown(own: Configuration, first: Configuration) -> Configuration:
    """Return a configuration as fast as the first of its shape."""
    apart = abs(math.log(own.throughput / first.throughput))
    known = apart <= margin(own.doubt, first.doubt)
    return replace(own, throughput=first.throughput, doubt=own.doubt if known else math.inf)


def _first_type(way: Configuration | SharedWay) -> int:
    return next((k for k, count in enumerate(way.demand) if count), 0)


def _shape(configuration: Configuration, *, planned: bool) -> _Shape:
    workers = sum(configuration.demand)
    return (workers, "", "") if planned else (workers, configuration.locality, configuration.plan)


def _by_demand(configurations: Sequence[Configuration]) -> Mapping[tuple[int, ...], float]:
    return {c.demand: c.throughput for c in reversed(configurations)}
