"""The catalogue: the profiles of a live service, and the configuration table that they make."""

from __future__ import annotations

from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from planner.agnostic import agnostic as flattened
from planner.oracle import unit_demand
from planner.packing import pair_configurations
from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
    margin,
)
from scheduler.domain.profiling import NO_PROFILING
from scheduler.domain.throughput import ThroughputTable
from scheduler.domain.ways import CatalogueKey, Estimate, Source, Way
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from planner.estimator import Estimator
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.profiling import Profiling
    from scheduler.domain.spec import JobSpec
    from scheduler.domain.throughput import ProfileKey

_VERSION: Final = 1

#: The throughput of a job whose steps are its seconds.
_SECONDS: Final = Estimate(steps_per_s=1.0, relative_deviation=0.0, source=Source.DECLARED)


class Catalogue:
    """Profiles of jobs as they come. A profile keeps its index for ever.

    A profile has a configuration for each worker type that it allows, in the order of the
    cluster's, and for each of its worker counts. A configuration keeps its index as well, also
    where the job is known not to run: there it has no throughput. Worker types join at the end.

    Args:
        throughputs: figures of jobs that share workers; of jobs alone only what sharing costs them
            is taken from it, since how fast they are is the estimator's.
    """

    def __init__(self, throughputs: ThroughputTable | None = None) -> None:
        self._throughputs = throughputs or ThroughputTable(isolated=MappingProxyType({}))
        #: profile -> key; only grows.
        self._keys: list[CatalogueKey] = []
        #: the inverse of ``_keys``.
        self._index: dict[CatalogueKey, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def profile_of(self, spec: JobSpec) -> int:
        """Return the profile of a job; one that is new is appended."""
        key = CatalogueKey.of(spec)
        if key not in self._index:
            self._index[key] = len(self._keys)
            self._keys.append(key)
        return self._index[key]

    def key(self, profile: int) -> CatalogueKey:
        """Return what the jobs of a profile have in common."""
        return self._keys[profile]

    def table(
        self,
        worker_types: tuple[str, ...],
        estimator: Estimator,
        *,
        agnostic: bool = False,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
        profiling: Profiling = NO_PROFILING,
    ) -> ConfigurationTable:
        """Lay out all profiles.

        Args:
            worker_types: the K names, in the cluster's order.
            estimator: how fast jobs are.
            agnostic: show every worker type as fast as the first one.
            space_sharing: add the pairs of profiles that may share workers and gain by it.
            exclusive: worker types on which two jobs cannot share a worker: no pairs there.
            profiling: what is added to mere inferences. Leave it out where times are predicted.
        """
        view = _View(worker_types, estimator, profiling)
        profiles = tuple(view.profile(key) for key in self._keys)
        pairs = self._pairs(view, profiles, frozenset(exclusive)) if space_sharing else ()
        table = ConfigurationTable.build(worker_types, profiles, pairs)
        return flattened(table) if agnostic else table

    def renewed(
        self,
        old: ConfigurationTable,
        worker_types: tuple[str, ...],
        estimator: Estimator,
        *,
        agnostic: bool = False,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
        profiling: Profiling = NO_PROFILING,
        tolerance: float = 0.05,
    ) -> ConfigurationTable | None:
        """Return a new table if it says something else than the old one, else None.

        Args:
            old: the table in force.
            worker_types: as in ``table``.
            estimator: as in ``table``.
            agnostic: as in ``table``.
            space_sharing: as in ``table``.
            exclusive: as in ``table``.
            profiling: as in ``table``.
            tolerance: relative change of a throughput up to which nothing is new.
        """
        new = self.table(
            worker_types,
            estimator,
            agnostic=agnostic,
            space_sharing=space_sharing,
            exclusive=exclusive,
            profiling=profiling,
        )
        return new if differs(old, new, tolerance=tolerance) else None

    def _pairs(
        self, view: _View, profiles: tuple[Profile, ...], exclusive: frozenset[str]
    ) -> tuple[PairConfiguration, ...]:
        """Return the pairs that pay: known costs of sharing, applied to the estimates alone."""
        known = {key for pair in self._throughputs.shared for key in pair}
        able = [
            u
            for u, key in enumerate(self._keys)
            if key.space_sharing
            and len(key.scale_factors) == 1
            and not key.timed
            and (key.job_type, key.scale_factors[0]) in known
        ]
        # Profiles of one job type differ in where they may run: each goes under a name of its own.
        names = [(str(u), profiles[u].scale_factor) for u in able]
        alone = {
            name: view.by_worker_type(profiles[u]) for name, u in zip(names, able, strict=True)
        }
        members: dict[ProfileKey, list[ProfileKey]] = {}
        for name, u in zip(names, able, strict=True):
            members.setdefault((self._keys[u].job_type, name[1]), []).append(name)
        shared = {
            (one, other): {
                worker_type: (
                    cost[0] * alone[one][worker_type],
                    cost[1] * alone[other][worker_type],
                )
                for worker_type, cost in costs.items()
                if worker_type in alone[one]
                and worker_type in alone[other]
                and worker_type not in exclusive
            }
            for first, second in self._throughputs.shared
            if first in members and second in members
            for costs in [self._costs(first, second)]
            for one in members[first]
            for other in members[second]
        }
        table = ThroughputTable(isolated=alone, shared=shared)
        return tuple(
            PairConfiguration(
                profiles=(able[pair.profiles[0]], able[pair.profiles[1]]),
                demand=pair.demand,
                throughput=pair.throughput,
            )
            for pair in pair_configurations(view.worker_types, table, names)
        )

    def _costs(self, first: ProfileKey, second: ProfileKey) -> dict[str, tuple[float, float]]:
        """Return worker type -> throughput of each of two while they share, over that alone."""
        alone = self._throughputs.steps_per_s
        return {
            worker_type: (
                rates[0] / alone(*first, worker_type),
                rates[1] / alone(*second, worker_type),
            )
            for worker_type, rates in self._throughputs.shared[first, second].items()
            if min(alone(*first, worker_type), alone(*second, worker_type)) > 0.0
        }

    # -- state ------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the profiles as plain JSON values."""
        return {
            "version": _VERSION,
            "profiles": [
                {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(key).items()}
                for key in self._keys
            ],
        }

    @classmethod
    def restore(
        cls, data: Mapping[str, Any], throughputs: ThroughputTable | None = None
    ) -> Catalogue:
        """Return the catalogue that ``dump`` was called on.

        Args:
            data: what ``dump`` returned.
            throughputs: as given to that catalogue.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored profiles have version {data.get('version')!r}; this release reads "
                f"{_VERSION}; run the release that wrote them"
            )
        catalogue = cls(throughputs)
        try:
            for entry in data["profiles"]:
                values: dict[str, Any] = {
                    n: tuple(v) if isinstance(v, list) else v for n, v in entry.items()
                }
                key = CatalogueKey(**values)
                catalogue._index[key] = len(catalogue._keys)
                catalogue._keys.append(key)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"stored profiles are damaged: {error!r}") from error
        return catalogue


def ways(key: CatalogueKey, worker_types: tuple[str, ...], estimator: Estimator) -> tuple[Way, ...]:
    """Return the ways in which a job could run alone, in the order of its configurations.

    Ways in which it is known not to run are left out.
    """
    view = _View(worker_types, estimator, NO_PROFILING)
    return tuple(
        Way(worker_type=worker_types[k], count=count, estimate=estimate)
        for k, count, estimate in view.ways(key)
        if estimate.steps_per_s > 0.0
    )


def differs(old: ConfigurationTable, new: ConfigurationTable, *, tolerance: float = 0.05) -> bool:
    """Return whether two tables say something else to a policy, or of what is of equal value.

    Args:
        old: a table.
        new: another.
        tolerance: relative change of a throughput up to which nothing is new.
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
    return bool((np.abs(_margins(new) - _margins(old)) > tolerance).any())


def _margins(table: ConfigurationTable) -> FloatArray:
    """Return (U, J) how far another throughput may be from each and count as equal."""
    return margin(table.doubt, table.doubt)


class _View:
    """The estimates for one cluster, each looked up once."""

    def __init__(
        self, worker_types: tuple[str, ...], estimator: Estimator, profiling: Profiling
    ) -> None:
        self.worker_types = worker_types
        self._estimator = estimator
        self._profiling = profiling
        self._seen: dict[tuple[str, int, str], Estimate] = {}

    def ways(self, key: CatalogueKey) -> Iterator[tuple[int, int, Estimate]]:
        """Yield worker type, count and estimate of every configuration of a profile."""
        for k, worker_type in enumerate(self.worker_types):
            if key.allows(worker_type):
                for count in key.scale_factors:
                    yield k, count, self._estimate(key, count, worker_type)

    def profile(self, key: CatalogueKey) -> Profile:
        """Return a profile with what policies are told."""
        size = len(self.worker_types)
        return Profile(
            job_type=key.job_type,
            scale_factor=key.scale_factors[0],
            configurations=tuple(
                Configuration(
                    demand=unit_demand(k, size, count),
                    throughput=estimate.steps_per_s * self._profiling.factor(estimate),
                    doubt=estimate.relative_deviation,
                )
                for k, count, estimate in self.ways(key)
            ),
        )

    def by_worker_type(self, profile: Profile) -> dict[str, float]:
        """Return worker type -> steps/s of a profile with one worker count."""
        return {
            self.worker_types[next(k for k, d in enumerate(c.demand) if d)]: c.throughput
            for c in profile.configurations
        }

    def _estimate(self, key: CatalogueKey, count: int, worker_type: str) -> Estimate:
        if key.timed:
            return _SECONDS
        cell = key.job_type, count, worker_type
        if cell not in self._seen:
            self._seen[cell] = self._estimator.estimate(*cell)
        return self._seen[cell]
