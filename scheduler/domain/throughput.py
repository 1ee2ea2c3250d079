"""Throughput tables: measured or estimated steps/s of job types on worker types."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: (job type, scale factor): what a row of a throughput table is about.
ProfileKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTable:
    """Steps/s alone and in pairs.

    Attributes:
        isolated: profile key -> worker type -> steps/s of the whole job alone on
            ``scale_factor`` workers of that type. A missing entry or 0: it does not run there.
        shared: (first key, second key) -> worker type -> steps/s of the first and of the second
            while they share the workers. Both orders are present.
        source: where the figures come from, for reports.
    """

    isolated: Mapping[ProfileKey, Mapping[str, float]]
    shared: Mapping[tuple[ProfileKey, ProfileKey], Mapping[str, tuple[float, float]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    source: str = ""

    @property
    def worker_types(self) -> tuple[str, ...]:
        """Every worker type that the table knows, sorted."""
        return tuple(sorted({w for row in self.isolated.values() for w in row}))

    @property
    def job_types(self) -> tuple[str, ...]:
        """Every job type that the table knows, sorted."""
        return tuple(sorted({job_type for job_type, _ in self.isolated}))

    def steps_per_s(self, job_type: str, scale_factor: int, worker_type: str) -> float:
        """Return the job's steps/s alone on that worker type; 0 where it does not run."""
        return self.isolated.get((job_type, scale_factor), {}).get(worker_type, 0.0)
