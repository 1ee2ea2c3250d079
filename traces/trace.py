"""A trace: jobs in order of arrival, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.jobs.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under what conditions a job may run; only the service, and replays of it, heed them.

    Attributes:
        project: whose quota it falls under; empty for the default one.
        depends_on: ids of jobs of the trace that have to complete before it may run.
        array_index: its position in the array that it is a part of, or None.
        max_run_time_s: how long it may hold workers in all, or None.
        retry_oom: whether running out of memory is retried like another failure.
    """

    project: str = ""
    depends_on: tuple[str, ...] = ()
    array_index: int | None = None
    max_run_time_s: float | None = None
    retry_oom: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload.

    Attributes:
        jobs: sorted by arrival; jobs that arrive together keep the order of the file.
        source: the file, or the generator's name.
        format: as in ``traces.formats.format_names``, or ``generated``.
        notes: what a reader of results should know: how job types were drawn, which worker type
            durations refer to, where the figures come from.
        conditions: job id -> under what conditions it may run; jobs that have none are left out.
    """

    jobs: tuple[Job, ...]
    source: str = ""
    format: str = ""
    notes: tuple[str, ...] = ()
    conditions: Mapping[str, Conditions] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """The scale factors in use, ascending."""
        return tuple(sorted({count for job in self.jobs for count in job.counts}))

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.jobs[-1].arrival_s - self.jobs[0].arrival_s if self.jobs else 0.0
