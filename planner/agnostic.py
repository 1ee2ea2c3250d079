"""Heterogeneity off: the same problem, as if all worker types were equal.

The policy stays the same; only its throughputs change. This is the baseline for heterogeneity-aware
answers (Gavel, OSDI 2020, section 7, sets every throughput to 1 for it; a job's own first
throughput keeps steps and seconds meaningful).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.configuration import Configuration, margin
from scheduler.domain.sources import ConfigurationSource, SharedWay

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.ways import CatalogueKey

#: Total workers held, locality and plan: configurations that agree in these differ only in the
#: worker type. Of a job that gives its model each type has its own plan: see ``_places``.
_Shape = tuple[int, str, str]


class Agnostic(ConfigurationSource):
    """Another source, with every worker type as fast as the first one on which a job runs.

    Configurations of a job that hold equally many workers with the same locality and plan get the
    throughput of the one on the first worker type; so do those of a job that gives its model, for
    which each type has a plan of its own. If a configuration's own throughput differs
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
    shapes = _places(configurations) if planned else [_shape(c) for c in configurations]
    reference: dict[_Shape, Configuration] = {}
    for way, shape in sorted(zip(configurations, shapes, strict=True), key=_first_of_both):
        if way.throughput > 0.0:
            reference.setdefault(shape, way)
    return tuple(
        _shown(way, reference[shape]) if way.throughput > 0.0 else way
        for way, shape in zip(configurations, shapes, strict=True)
    )


def _shown(own: Configuration, first: Configuration) -> Configuration:
    """Return a configuration as fast as the first of its shape."""
    apart = abs(math.log(own.throughput / first.throughput))
    known = apart <= margin(own.doubt, first.doubt)
    return replace(own, throughput=first.throughput, doubt=own.doubt if known else math.inf)


def _first_type(way: Configuration | SharedWay) -> int:
    return next((k for k, count in enumerate(way.demand) if count), 0)


def _first_of_both(pair: tuple[Configuration, _Shape]) -> int:
    return _first_type(pair[0])


def _shape(configuration: Configuration) -> _Shape:
    return sum(configuration.demand), configuration.locality, configuration.plan


def _places(configurations: Sequence[Configuration]) -> list[_Shape]:
    """Return workers held, and the place of each configuration among those of its demand."""
    seen: Counter[tuple[int, ...]] = Counter()
    shapes = []
    for way in configurations:
        shapes.append((sum(way.demand), str(seen[way.demand]), ""))
        seen[way.demand] += 1
    return shapes


def _by_demand(configurations: Sequence[Configuration]) -> Mapping[tuple[int, ...], float]:
    return {c.demand: c.throughput for c in reversed(configurations)}
