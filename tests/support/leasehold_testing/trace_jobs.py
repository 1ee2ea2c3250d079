"""Jobs of traces for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from traces.trace import TraceJob


def with_fields(
    jobs: Iterable[TraceJob], fields: Mapping[str, Mapping[str, Any]]
) -> tuple[TraceJob, ...]:
    """Return the jobs with further fields: job id -> fields."""
    return tuple(replace(job, **fields.get(job.job_id, {})) for job in jobs)
