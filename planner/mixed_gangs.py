"""Mixed gangs: one data-parallel job on workers of two types at once.

Each process takes a part of the global batch in proportion to its pace. So all finish a step at the
same time, and the gang is as fast as its workers together, less an overhead. HadarE (Sultana et
al., 2025) gives unlike nodes unlike parts of a job in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from planner.estimation.measured import MeasuredFigure
from scheduler.domain.configuration import ANYWHERE, Configuration
from scheduler.domain.sources import ConfigurationSource
from scheduler.domain.throughputs.ways import mixed_rate
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.sources import SharedWay
    from scheduler.domain.throughputs.ways import CatalogueKey

#: A type's part of a gang is a multiple of one over this number, rounded to whole workers.
PARTS: Final = 8
#: Two types make no gang if a worker of one has less than this part of the other's pace.
SLOWEST: Final = 0.25
#: Most gangs of job types that are kept; beyond, the oldest without an active job are dropped.
MOST_REMEMBERED: Final = 2000
_VERSION: Final = 1

#: (worker type, workers of it), sorted.
_Gang = tuple[tuple[str, int], ...]


@dataclass(slots=True, kw_only=True)
class _Known:
    """Measurements of one job type on one gang.

    Attributes:
        cell: the measurements.
        revision: number of the last change.
    """

    cell: MeasuredFigure = field(default_factory=MeasuredFigure)
    revision: int = 0


class MixedRates:
    """Measured rates of mixed gangs, by job type and workers."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, _Gang], _Known] = {}
        #: job type -> number of the last change of any of its gangs.
        self._news: dict[str, int] = {}
        #: number of changes to the figures.
        self._learned = 0

    def observe(
        self, job_type: str, workers: Mapping[str, int], steps: float, seconds: float
    ) -> bool:
        """Add a stretch; return whether it changed the figures.

        Raises:
            InputError: steps or seconds are out of range.
        """
        if not (0.0 <= steps < math.inf and 0.0 < seconds < math.inf):
            raise InputError(
                f"'{job_type}' on {dict(workers)} was seen to do {steps!r} steps in {seconds!r} s; "
                "both must be finite, steps >= 0 and seconds > 0"
            )
        known = self._known.setdefault((job_type, _gang(workers)), _Known())
        if not known.cell.take(steps, seconds):
            return False
        self._learned += 1
        known.revision = self._news[job_type] = self._learned
        return True

    def belief(
        self, job_type: str, workers: Mapping[str, int], expected: float
    ) -> tuple[float, float, bool] | None:
        """Return steps/s, its relative deviation, and whether measurements carry it.

        Args:
            job_type: key.
            workers: worker type -> workers of it.
            expected: steps/s by the rates of the single types, which counts as a declared figure.

        Returns:
            None if nothing was measured.
        """
        known = self._known.get((job_type, _gang(workers)))
        if known is None or not known.cell.weight:
            return None
        log, variance, measured = replace(known.cell, declared=expected).belief()
        return math.exp(log), math.sqrt(variance), measured

    def revision(self, job_type: str) -> int:
        """Return the number of the last change of a job type's gangs."""
        return self._news.get(job_type, 0)

    def forget(self, job_type: str) -> int:
        """Drop the measurements of a job type; return the number of gangs."""
        gone = [key for key in self._known if key[0] == job_type]
        for key in gone:
            del self._known[key]
        if gone:
            self._learned += 1
            self._news[job_type] = self._learned
        return len(gone)

    def forget_oldest(self, active: Iterable[str]) -> None:
        """Drop job types if there are too many gangs: the oldest without an active job."""
        beyond = len(self._known) - MOST_REMEMBERED
        if beyond > 0:
            stay = set(active)
            for job_type in dict.fromkeys(key[0] for key in self._known):
                if beyond > 0 and job_type not in stay:
                    beyond -= self.forget(job_type)

    def dump(self) -> dict[str, Any]:
        """Return all learned figures as plain JSON values."""
        return {
            "version": _VERSION,
            "gangs": [
                [job_type, [list(part) for part in gang], *known.cell.dump()]
                for (job_type, gang), known in self._known.items()
            ],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> MixedRates:
        """Return the value that ``dump`` stored.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored rates of mixed gangs have version {data.get('version')!r}; this release "
                f"reads {_VERSION}; run the release that wrote them"
            )
        rates = cls()
        names = tuple(MeasuredFigure.__dataclass_fields__)
        try:
            for job_type, gang, *values in data["gangs"]:
                rates._learned += 1
                key = str(job_type), tuple((str(name), int(count)) for name, count in gang)
                cell = MeasuredFigure(**dict(zip(names, values, strict=True)))
                rates._known[key] = _Known(cell=cell, revision=rates._learned)
                rates._news[key[0]] = rates._learned
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"stored rates of mixed gangs are damaged: {error!r}") from error
        return rates


class MixedGangs(ConfigurationSource):
    """Another source, and mixed gangs of the jobs that may have them.

    A mixed gang has workers of two types, each a multiple of an eighth of its workers, rounded. It
    is left out if the cluster lacks the workers, if the job does not run at the same count on each
    type alone, or if one type has less than a quarter of the other's pace. So a worker count has at
    most 7 K (K - 1) / 2 of them.

    Args:
        shown: ways in which jobs run alone, for policies.
        known: the same without the bonus of profiling; by default ``shown``.
        measured: rates of mixed gangs.
    """

    def __init__(
        self,
        shown: ConfigurationSource,
        known: ConfigurationSource | None = None,
        measured: MixedRates | None = None,
    ) -> None:
        self._shown = shown
        self._known = shown if known is None else known
        self._measured = MixedRates() if measured is None else measured

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job could run alone, those on one worker type first."""
        ways = self._shown.ways(key, cluster)
        return (*ways, *self._mixed(key, cluster)) if key.mixed_gangs else ways

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the answer of the other source: mixed gangs share no workers."""
        return self._shown.shared(one, other, cluster, exclusive)

    def may_share(self, key: CatalogueKey) -> bool:
        """Return the answer of the other source."""
        return self._shown.may_share(key)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the revisions of the other source and of the gangs, and the cluster's workers."""
        shown = self._shown.revision(key, cluster)
        if not key.mixed_gangs:
            return shown
        known = self._known.revision(key, cluster)
        return shown, known, self._measured.revision(key.job_type), cluster.spec

    def _mixed(self, key: CatalogueKey, cluster: Cluster) -> Iterator[Configuration]:
        """Yield mixed configurations by worker count, types and workers of the first type."""
        singles = _singles(self._known.ways(key, cluster))
        capacity = cluster.capacity.tolist()
        kinds = range(len(cluster.type_names))
        for count in key.scale_factors:
            for pair in combinations(kinds, 2):
                one, other = (singles.get((k, count)) for k in pair)
                if one is None or other is None or not _are_near(one, other):
                    continue
                for part in splits(count):
                    demand = [0] * len(kinds)
                    demand[pair[0]], demand[pair[1]] = part, count - part
                    if all(held <= there for held, there in zip(demand, capacity, strict=True)):
                        yield self._configuration(key, cluster, tuple(demand), (one, other))

    def _configuration(
        self,
        key: CatalogueKey,
        cluster: Cluster,
        demand: tuple[int, ...],
        singles: tuple[Configuration, Configuration],
    ) -> Configuration:
        count = sum(demand)
        paces = [0.0] * len(demand)
        for way in singles:
            paces[_type(way)] = float(f"{way.throughput / count:.6g}")  # rounded as it is shown
        names = cluster.type_names
        workers = {name: n for name, n in zip(names, demand, strict=True) if n}
        rates = {names[_type(way)]: way.throughput for way in singles}
        rate = rates[names[_type(singles[0])]] if key.timed else mixed_rate(workers, rates)
        doubt = max(way.doubt for way in singles)
        measured = self._measured.belief(key.job_type, workers, rate)
        if measured is not None:
            rate, doubt = measured[:2]
        return Configuration(demand=demand, throughput=rate, doubt=doubt, paces=tuple(paces))

    def is_measured(self, job_type: str, workers: Mapping[str, int], rate: float) -> bool:
        """Return whether measurements carry the rate of a gang."""
        found = self._measured.belief(job_type, workers, rate)
        return found is not None and found[2]


def splits(count: int) -> tuple[int, ...]:
    """Return how many of a gang's workers may be of its first type, ascending."""
    parts = {round(count * part / PARTS) for part in range(1, PARTS)}
    return tuple(sorted(parts - {0, count}))


def _singles(ways: Sequence[Configuration]) -> dict[tuple[int, int], Configuration]:
    """Return the plan-free ways on one type that may span nodes, by type and count."""
    found: dict[tuple[int, int], Configuration] = {}
    for way in ways:
        if way.locality == ANYWHERE and not way.plan and way.throughput > 0.0:
            found.setdefault((_type(way), sum(way.demand)), way)
    return found


def _type(way: Configuration) -> int:
    return next(k for k, count in enumerate(way.demand) if count)


def _are_near(one: Configuration, other: Configuration) -> bool:
    rates = one.throughput, other.throughput
    return min(rates) >= SLOWEST * max(rates)


def _gang(workers: Mapping[str, int]) -> _Gang:
    return tuple(sorted(workers.items()))
