"""A trace: jobs in order of arrival, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload.

    Attributes:
        jobs: sorted by arrival; jobs that arrive together keep the order of the file.
        source: the file, or the generator's name.
        format: one of ``traces.FORMATS``, or ``generated``.
        notes: what a reader of results should know: how job types were drawn, which worker type
            durations refer to, where the figures come from.
    """

    jobs: tuple[Job, ...]
    source: str = ""
    format: str = ""
    notes: tuple[str, ...] = ()

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """The scale factors in use, ascending."""
        return tuple(sorted({job.scale_factor for job in self.jobs}))

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.jobs[-1].arrival_s - self.jobs[0].arrival_s if self.jobs else 0.0
