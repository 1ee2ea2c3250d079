"""A trace: jobs in order of arrival, and their source."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.jobs.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions under which a job may run; only the service and its replays use them.

    Attributes:
        project: the job's project, which sets its quota; empty for the default project.
        depends_on: ids of jobs of the trace that must complete before the job may run.
        array_index: the job's position in its array, or None if it is in none.
        max_run_time_s: total time for which the job may hold workers, or None.
        retry_oom: whether running out of memory is retried like other failures.
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
        notes: remarks for readers of results: how job types were drawn, which worker type durations
            refer to, where the figures come from.
        conditions: job id -> conditions under which it may run; jobs without any are left out.
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
