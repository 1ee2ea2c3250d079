"""Configurations: the ways in which a job, or a pair of jobs, can run.

A *profile* is the list of configurations of one job type at one scale factor. Jobs of the
same profile have the same rows, so the tables here grow with the kinds of jobs and not with
their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scheduler.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scheduler.domain.arrays import FloatArray, IntArray

#: A job stays on its workers if its gain elsewhere is below the doubt of the figures. If the gain
#: is larger than this, it moves even if the figures are in doubt, since a measurement ends the
#: doubt.
MOST_DOUBT = 0.1
#: Logarithms of throughputs are equal if they are no further apart.
ROUNDING = 1e-9

#: Localities: wherever there are workers, or on one node.
ANYWHERE, CONSOLIDATED = "any", "consolidated"
_LOCALITIES = frozenset((ANYWHERE, CONSOLIDATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way in which a single job can run.

    Attributes:
        demand: (K,) workers of each worker type that it holds.
        throughput: steps/s of the whole job.
        doubt: standard deviation of the throughput's logarithm; 0 if it is known, infinite if the
            figure is another worker type's and says nothing about this one.
        locality: ``ANYWHERE``, or ``CONSOLIDATED`` if it must not span nodes.
        plan: the launch's parallel or memory plan, or empty. The job receives it unchanged.
        paces: (K,) steps/s of one worker of each type held, if they are of several types; else
            empty. The processes split a batch by them.
    """

    demand: tuple[int, ...]
    throughput: float
    doubt: float = 0.0
    locality: str = ANYWHERE
    plan: str = ""
    paces: tuple[float, ...] = ()

    @property
    def is_mixed(self) -> bool:
        """Whether it holds workers of several types."""
        return sum(count > 0 for count in self.demand) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfiguration:
    """Two jobs that share the same workers.

    Attributes:
        profiles: indices of the members' profiles, the smaller one first.
        demand: (K,) workers of each type that the pair holds together.
        throughput: steps/s of the first and of the second member while they share.
    """

    profiles: tuple[int, int]
    demand: tuple[int, ...]
    throughput: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The configurations of one job type at one scale factor."""

    job_type: str
    scale_factor: int
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigurationTable:
    """All profiles and pairs, as arrays. Profile indices stay valid when the table grows.

    Letters: U profiles, J configurations of a profile at most, K worker types, P pairs.

    Attributes:
        worker_types: the K names, in the cluster's order.
        profiles: the U profiles.
        throughput: (U, J) steps/s; 0 if a profile has fewer configurations.
        demand: (U, J, K) workers held; 0 in the padding.
        pair_profiles: (P, 2) profile indices, first <= second.
        pair_demand: (P, K) workers held by a pair together.
        pair_throughput: (P, 2) steps/s of each member while they share.
    """

    worker_types: tuple[str, ...]
    profiles: tuple[Profile, ...]
    throughput: FloatArray
    demand: IntArray
    pair_profiles: IntArray
    pair_demand: IntArray
    pair_throughput: FloatArray

    @classmethod
    def build(
        cls,
        worker_types: tuple[str, ...],
        profiles: tuple[Profile, ...],
        pairs: tuple[PairConfiguration, ...] = (),
    ) -> ConfigurationTable:
        """Lay profiles and pairs out as arrays.

        Raises:
            InputError: a throughput or a doubt is negative or no number, a demand has not one count
                per worker type, or a pair names profiles that do not exist or in the wrong order.
        """
        k = len(worker_types)
        width = max((len(p.configurations) for p in profiles), default=1)
        throughput = np.zeros((len(profiles), max(width, 1)))
        demand = np.zeros((len(profiles), max(width, 1), k), dtype=np.int64)
        sound = True
        for u, profile in enumerate(profiles):
            ways = profile.configurations
            sound = sound and all(len(way.demand) == k for way in ways)
            if not sound:
                break
            throughput[u, : len(ways)] = [way.throughput for way in ways]
            demand[u, : len(ways)] = [way.demand for way in ways] or 0
            sound = {way.locality for way in ways} <= _LOCALITIES and all(
                way.doubt >= 0.0 for way in ways
            )
        if not sound or pairs or demand.min(initial=0) < 0 or not _are_rates(throughput):
            _check(worker_types, profiles, pairs)
        pair_profiles = np.array([p.profiles for p in pairs], dtype=np.int64).reshape(-1, 2)
        pair_demand = np.array([p.demand for p in pairs], dtype=np.int64).reshape(len(pairs), k)
        pair_throughput = np.array([p.throughput for p in pairs], dtype=float).reshape(-1, 2)
        table = cls(
            worker_types=worker_types,
            profiles=profiles,
            throughput=throughput,
            demand=demand,
            pair_profiles=pair_profiles,
            pair_demand=pair_demand,
            pair_throughput=pair_throughput,
        )
        table.protect()
        return table

    def protect(self) -> None:
        """Make writes to an array fail; a copy from another process needs this call again."""
        arrays: tuple[NDArray[np.generic], ...] = (
            self.throughput,
            self.demand,
            self.pair_profiles,
            self.pair_demand,
            self.pair_throughput,
        )
        for array in arrays:
            array.setflags(write=False)

    def with_worker_types(self, worker_types: tuple[str, ...]) -> ConfigurationTable:
        """Return the same table over more worker types, on which nothing runs yet.

        Args:
            worker_types: this table's types, and further ones behind them.
        """
        none = (0,) * (len(worker_types) - len(self.worker_types))
        profiles = tuple(
            replace(
                profile,
                configurations=tuple(
                    replace(
                        way,
                        demand=(*way.demand, *none),
                        paces=way.paces and (*way.paces, *map(float, none)),
                    )
                    for way in profile.configurations
                ),
            )
            for profile in self.profiles
        )
        rows = zip(
            self.pair_profiles.tolist(),
            self.pair_demand.tolist(),
            self.pair_throughput.tolist(),
            strict=True,
        )
        pairs = tuple(
            PairConfiguration(
                profiles=(first, second), demand=(*demand, *none), throughput=(mine, theirs)
            )
            for (first, second), demand, (mine, theirs) in rows
        )
        return ConfigurationTable.build(worker_types, profiles, pairs)

    @property
    def doubt(self) -> FloatArray:
        """(U, J) doubt of each throughput, see ``Configuration``; 0 in the padding."""
        doubt = np.zeros(self.throughput.shape)
        for u, profile in enumerate(self.profiles):
            for j, configuration in enumerate(profile.configurations):
                doubt[u, j] = configuration.doubt
        return doubt

    @property
    def has_pairs(self) -> bool:
        """Whether any two jobs may share workers."""
        return len(self.pair_profiles) > 0


def margin(one: FloatArray | float, other: FloatArray | float) -> FloatArray:
    """Return how far apart the logarithms of two throughputs may be and still count as equal.

    Args:
        one: doubt of the first, see ``Configuration``.
        other: doubt of the second.

    Returns:
        Two standard deviations of their difference, at most ``MOST_DOUBT``, and a trace for
        rounding; -1 where nothing can be said, so that they never count as equal.
    """
    both = np.hypot(one, other)
    result: FloatArray = np.where(
        np.isfinite(both), np.minimum(2.0 * both, MOST_DOUBT) + ROUNDING, -1.0
    )
    return result


def _are_rates(throughput: FloatArray) -> bool:
    return bool((np.isfinite(throughput) & (throughput >= 0.0)).all())


def _check(
    worker_types: tuple[str, ...],
    profiles: tuple[Profile, ...],
    pairs: tuple[PairConfiguration, ...],
) -> None:
    for profile in profiles:
        what = f"profile '{profile.job_type}' at scale factor {profile.scale_factor}"
        for configuration in profile.configurations:
            _check_figures(what, configuration.demand, (configuration.throughput,), worker_types)
            if not configuration.doubt >= 0.0:
                raise InputError(f"{what}: doubt is {configuration.doubt}; it must be >= 0")
            if configuration.locality not in (ANYWHERE, CONSOLIDATED):
                raise InputError(
                    f"{what}: locality is {configuration.locality!r}; give '{ANYWHERE}' or "
                    f"'{CONSOLIDATED}'"
                )
    for pair in pairs:
        first, second = pair.profiles
        if not 0 <= first <= second < len(profiles):
            raise InputError(
                f"pair of profiles {pair.profiles}: give two of the {len(profiles)} profiles, "
                "the smaller index first"
            )
        _check_figures(
            f"pair of profiles {pair.profiles}", pair.demand, pair.throughput, worker_types
        )


def _check_figures(
    what: str, demand: tuple[int, ...], throughput: tuple[float, ...], types: tuple[str, ...]
) -> None:
    if len(demand) != len(types):
        raise InputError(
            f"{what}: demand is {demand}; give one count for each worker type ({', '.join(types)})"
        )
    if any(count < 0 for count in demand):
        raise InputError(f"{what}: demand is {demand}; it must be >= 0")
    if not all(0.0 <= steps_per_s < math.inf for steps_per_s in throughput):
        raise InputError(f"{what}: throughput is {throughput}; it must be a number >= 0")
