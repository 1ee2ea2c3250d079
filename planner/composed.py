"""Several sources of configurations as one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from scheduler.domain.configuration import ConfigurationTable, Profile
from scheduler.domain.sources import ConfigurationSource
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import Configuration
    from scheduler.domain.sources import SharedWay
    from scheduler.domain.throughputs.ways import CatalogueKey


#: Most characters of a plan: it goes into the environment of every process.
LONGEST_PLAN: Final = 4096


class SourceWarning(UserWarning):
    """The configurations of a source cannot be used for a job."""


class Composed(ConfigurationSource):
    """A first source, and further configurations from others.

    A way is identified by its workers, locality and plan. Of several figures of one way the one
    with the least doubt counts, of equal doubts the first. Ways of the others are left out for jobs
    with steps in seconds, for worker types or counts that a job does not allow, and if they are
    invalid. If a source fails, a warning is issued and the other sources count.

    Args:
        first: the source that sets the order of the configurations.
        others: name -> source.
    """

    def __init__(
        self, first: ConfigurationSource, others: Sequence[tuple[str, ConfigurationSource]]
    ) -> None:
        self._first = first
        self._others = tuple(others)

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways of all sources."""
        found: dict[object, Configuration] = {
            (way.demand, way.locality, way.plan): way for way in self._first.ways(key, cluster)
        }
        for name, source in () if key.timed else self._others:
            for way in _asked(name, source, key, cluster):
                manner = way.demand, way.locality, way.plan
                if manner not in found or way.doubt < found[manner].doubt:
                    found[manner] = way
        return tuple(found.values())

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the ways of the first source that knows the two jobs together."""
        sources = (self._first, *(source for _, source in self._others))
        return next(filter(None, (s.shared(one, other, cluster, exclusive) for s in sources)), ())

    def may_share(self, key: CatalogueKey) -> bool:
        """Return whether one of the sources may know partners of a job."""
        return self._first.may_share(key) or any(s.may_share(key) for _, s in self._others)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the revisions of all sources."""
        first = self._first.revision(key, cluster)
        return first, [source.revision(key, cluster) for _, source in self._others]


def _asked(
    name: str, source: ConfigurationSource, key: CatalogueKey, cluster: Cluster
) -> Iterable[Configuration]:
    """Return the usable ways of a job from a source."""
    try:
        ways = tuple(source.ways(key, cluster))
        profile = Profile(
            job_type=key.job_type, scale_factor=key.scale_factors[0], configurations=ways
        )
        ConfigurationTable.build(cluster.type_names, (profile,))
        for way in ways:
            if len(way.plan) > LONGEST_PLAN or "\0" in way.plan:
                raise InputError(  # noqa: TRY301  as below
                    f"plan is {way.plan[:40]!r}; give at most {LONGEST_PLAN} characters, none of "
                    "them zero"
                )
            if sum(count > 0 for count in way.demand) != 1:
                raise InputError(  # noqa: TRY301  reported as a fault of the returned ways
                    f"demand is {way.demand}; a way holds workers of exactly one type"
                )
    except Exception as error:  # noqa: BLE001  a plugin may raise anything; the others must count
        _warn(f"source '{name}' is left out for job type '{key.job_type}': {error}")
        return ()
    return [way for way in ways if _is_allowed(way, key, cluster)]


def _is_allowed(way: Configuration, key: CatalogueKey, cluster: Cluster) -> bool:
    k, count = next((k, count) for k, count in enumerate(way.demand) if count)
    return key.allows(cluster.type_names[k]) and count in key.scale_factors


def _warn(text: str) -> None:
    warnings.warn(text, SourceWarning, stacklevel=4)
