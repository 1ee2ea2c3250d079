"""The port behind which ways to run jobs are known: sources of configurations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import Configuration
    from scheduler.domain.throughputs.ways import CatalogueKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWay:
    """One way in which two jobs could share workers.

    Attributes:
        demand: (K,) workers of each type that they hold together.
        throughput: steps/s of the first and of the second one while they share.
    """

    demand: tuple[int, ...]
    throughput: tuple[float, float]


class ConfigurationSource(ABC):
    """Knows ways in which jobs can run.

    Deterministic: no clock, no randomness. Its answers may change only together with ``revision``,
    since it is asked again only then.
    """

    @abstractmethod
    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job could run alone; none where nothing is known of it.

        Args:
            key: what the jobs of a profile have in common.
            cluster: the worker types, and the nodes that are known: those that were removed are
                not among them.

        Returns:
            Configurations over the cluster's K worker types, in an order that stays: those that
            become known later come behind. One without throughput keeps the place of a way in
            which the job is known not to run.
        """

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the ways in which two jobs could share workers and gain by it; usually none.

        Args:
            one: of the first job; it may share.
            other: of the second one, which may be of the same profile.
            cluster: as in ``ways``.
            exclusive: worker types on which two jobs cannot share a worker: no such ways there.
        """
        del one, other, cluster, exclusive
        return ()

    def may_share(self, key: CatalogueKey) -> bool:
        """Return whether there can be any ``shared`` ways of a job at all."""
        del key
        return False

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return a value that differs (``!=``) whenever the ways of a job may differ.

        The ways of two jobs together may change when either one's does. By default a source is
        asked again when types or nodes have joined.
        """
        del key
        return cluster
