"""The builder of configuration tables, for the service and for replays."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import (
    CONSOLIDATED,
    ConfigurationTable,
    PairConfiguration,
    Profile,
    margin,
)
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import Configuration
    from scheduler.domain.sources import ConfigurationSource, SharedWay
    from scheduler.domain.throughputs.ways import CatalogueKey


class TableBuilder:
    """Builds tables from a source. It asks the source again only after a change.

    Args:
        source: of the configurations; ``planner.composed.Composed`` turns several into one.
    """

    def __init__(self, source: ConfigurationSource) -> None:
        self._source = source
        #: key -> revision, profile.
        self._profiles: dict[CatalogueKey, tuple[object, Profile]] = {}
        #: two keys -> their revisions and the types without sharing, ways.
        self._shared: dict[
            tuple[CatalogueKey, CatalogueKey], tuple[object, tuple[SharedWay, ...]]
        ] = {}

    def table(
        self,
        cluster: Cluster,
        keys: Sequence[CatalogueKey],
        *,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
    ) -> ConfigurationTable:
        """Lay out all ways in which the jobs of some profiles can run.

        Args:
            cluster: the K worker types, and the nodes.
            keys: of the profiles; profile ``u`` of the table has ``keys[u]``.
            space_sharing: add the pairs of profiles that may share workers and gain by it.
            exclusive: worker types on which two jobs cannot share a worker, so without pairs.

        Raises:
            InputError: a key is listed twice, or the source returns invalid ways.
        """
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if list(keys).count(key) > 1)
            raise InputError(
                f"profile key ({twice.job_type!r}, {', '.join(map(str, twice.scale_factors))}) is "
                "listed twice; list every key once"
            )
        largest = tuple(cluster.most_on_a_node.values())
        revisions = [(largest, self._source.revision(key, cluster)) for key in keys]
        profiles = tuple(
            self._profile(key, cluster, largest, revision)
            for key, revision in zip(keys, revisions, strict=True)
        )
        pairs: tuple[PairConfiguration, ...] = ()
        if space_sharing:
            pairs = tuple(self._pairs(cluster, keys, revisions, exclusive))
        return ConfigurationTable.build(cluster.type_names, profiles, pairs)

    def renewed(
        self,
        old: ConfigurationTable,
        cluster: Cluster,
        keys: Sequence[CatalogueKey],
        *,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
        tolerance: float = 0.05,
    ) -> ConfigurationTable | None:
        """Return a new table if it differs from the old one, else None.

        Args:
            old: the table in force.
            cluster: as in ``table``.
            keys: as in ``table``.
            space_sharing: as in ``table``.
            exclusive: as in ``table``.
            tolerance: relative change of a throughput that counts as no difference.
        """
        new = self.table(cluster, keys, space_sharing=space_sharing, exclusive=exclusive)
        return new if differs(old, new, tolerance=tolerance) else None

    def _profile(
        self, key: CatalogueKey, cluster: Cluster, largest: tuple[int, ...], revision: object
    ) -> Profile:
        known = self._profiles.get(key)
        if known is not None and known[0] == revision:
            return known[1]
        profile = Profile(
            job_type=key.job_type,
            scale_factor=key.scale_factors[0],
            configurations=tuple(
                way if _has_room(way, largest) else replace(way, throughput=0.0)
                for way in self._source.ways(key, cluster)
            ),
        )
        self._profiles[key] = revision, profile
        return profile

    def _pairs(
        self,
        cluster: Cluster,
        keys: Sequence[CatalogueKey],
        revisions: Sequence[object],
        exclusive: Collection[str],
    ) -> Iterator[PairConfiguration]:
        """Yield the pairs by worker count, members and worker type."""
        barred = frozenset(exclusive)
        by_count: dict[int, list[int]] = {}
        for u, key in enumerate(keys):
            able = key.space_sharing and len(key.scale_factors) == 1 and not key.timed
            if able and self._source.may_share(key):
                by_count.setdefault(key.scale_factors[0], []).append(u)
        for members in by_count.values():
            for u, v in combinations_with_replacement(members, 2):
                both = keys[u], keys[v]
                revision = revisions[u], revisions[v], barred
                known = self._shared.get(both)
                if known is None or known[0] != revision:
                    found = self._source.shared(*both, cluster, barred)
                    known = self._shared[both] = revision, found
                for way in known[1]:
                    yield PairConfiguration(
                        profiles=(u, v), demand=way.demand, throughput=way.throughput
                    )


def unit_demand(k: int, size: int, count: int) -> tuple[int, ...]:
    """Return the (K,) demand of ``count`` workers of type ``k`` only."""
    return (0,) * k + (count,) + (0,) * (size - k - 1)


def _has_room(way: Configuration, largest: tuple[int, ...]) -> bool:
    """Return whether some node is large enough for a configuration that must not span nodes."""
    return way.locality != CONSOLIDATED or all(
        count <= most for count, most in zip(way.demand, largest, strict=True)
    )


def differs(old: ConfigurationTable, new: ConfigurationTable, *, tolerance: float = 0.05) -> bool:
    """Return whether two tables differ for a policy, or in which configurations are equal.

    Args:
        old: a table.
        new: another.
        tolerance: relative change of a throughput that counts as no difference.
    """
    pairs = [
        (old.throughput, new.throughput),
        (old.demand, new.demand),
        (old.pair_profiles, new.pair_profiles),
        (old.pair_demand, new.pair_demand),
        (old.pair_throughput, new.pair_throughput),
    ]
    if old.worker_types != new.worker_types or any(a.shape != b.shape for a, b in pairs):
        return True
    if any(
        bool(((a > 0) != (b > 0)).any() or (np.abs(b - a) > tolerance * np.abs(a)).any())
        for a, b in pairs
    ):
        return True
    if any(
        one.configurations is not other.configurations and _manners(one) != _manners(other)
        for one, other in zip(old.profiles, new.profiles, strict=True)
    ):
        return True
    return bool((np.abs(_margins(new) - _margins(old)) > tolerance).any())


def _manners(profile: Profile) -> list[tuple[str, str]]:
    """Return the locality and plan of a profile's configurations."""
    return [(way.locality, way.plan) for way in profile.configurations]


def _margins(table: ConfigurationTable) -> FloatArray:
    """Return (U, J) how far another throughput may be from each and still be of equal value."""
    return margin(table.doubt, table.doubt)
