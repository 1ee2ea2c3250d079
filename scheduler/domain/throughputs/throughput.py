"""Throughput tables: measured or estimated steps/s of job types on worker types."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: (job type, scale factor): what a row of a throughput table is about.
ProfileKey = tuple[str, int]
#: First job, second job, worker type, and the part of its speed alone that each keeps if the two
#: share workers.
SharingCost: TypeAlias = tuple[ProfileKey, ProfileKey, str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTable:
    """Steps/s alone and in pairs.

    Attributes:
        isolated: profile key -> worker type -> steps/s of the whole job alone on
            ``scale_factor`` workers of that type. A missing entry or 0: it does not run there.
        shared: (first key, second key) -> worker type -> steps/s of the first and of the second
            while they share the workers. Both orders are present.
        spread: profile key -> worker type -> steps/s alone if the workers are on several nodes; 0:
            they must be on one. Without an entry nodes make no difference.
        source: the origin of the figures, for reports.
        left_out: worker types ``<type>_unconsolidated`` with rows that were left out.
        derive_counts: whether figures at worker counts without a row are derived from other counts
            (``traces.tables.scaling``). If not, a job type does not run at such a count.
    """

    isolated: Mapping[ProfileKey, Mapping[str, float]]
    shared: Mapping[tuple[ProfileKey, ProfileKey], Mapping[str, tuple[float, float]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    spread: Mapping[ProfileKey, Mapping[str, float]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    source: str = ""
    left_out: tuple[str, ...] = ()
    derive_counts: bool = False

    @property
    def worker_types(self) -> tuple[str, ...]:
        """Every worker type that the table knows, sorted."""
        return tuple(sorted({w for row in self.isolated.values() for w in row}))

    @property
    def job_types(self) -> tuple[str, ...]:
        """Every job type that the table knows, sorted."""
        return tuple(sorted({job_type for job_type, _ in self.isolated}))

    def alone(self) -> Iterator[tuple[str, int, str, float]]:
        """Yield job type, scale factor, worker type and steps/s of all figures."""
        for (job_type, scale_factor), row in self.isolated.items():
            for worker_type, steps_per_s in row.items():
                yield job_type, scale_factor, worker_type, steps_per_s

    def sharing(self) -> Iterator[SharingCost]:
        """Yield first, second, worker type and the part of its speed alone that each keeps.

        Each pair comes once. A pair is left out if a member does not run alone on the worker type.
        """
        for (first, second), rates in self.shared.items():
            if first > second:
                continue
            for worker_type, (one, other) in rates.items():
                alone = (
                    self.steps_per_s(*first, worker_type),
                    self.steps_per_s(*second, worker_type),
                )
                if min(alone) > 0.0:
                    yield first, second, worker_type, (one / alone[0], other / alone[1])

    def steps_per_s(self, job_type: str, scale_factor: int, worker_type: str) -> float:
        """Return the job's steps/s alone on that worker type; 0 if it does not run."""
        return self.isolated.get((job_type, scale_factor), {}).get(worker_type, 0.0)
