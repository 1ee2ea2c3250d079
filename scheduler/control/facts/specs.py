"""Job specifications as plain JSON values, and as jobs of the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.job import Job
from scheduler.domain.jobs.spec import JobSpec

if TYPE_CHECKING:
    from scheduler.domain.jobs.job import Restarts

#: The assumed run time of a job that declares neither steps nor a duration.
UNKNOWN_DURATION_S = 3600.0


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


#: (field, its default), computed once: a thousand jobs are written three times each.
_DEFAULTS: Final = tuple((field.name, _default(field)) for field in fields(JobSpec))
_VALUES: Final = attrgetter(*(name for name, _ in _DEFAULTS))


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Return a specification as plain values; fields that have their default are left out."""
    given = zip(_DEFAULTS, _VALUES(spec), strict=True)
    return {
        name: _plain(value)
        for (name, default), value in given
        if value is not default and value != default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def spec_from_json(data: Mapping[str, Any]) -> JobSpec:
    """Return the specification from stored values; fields of a newer release are ignored."""
    known = {field.name for field in fields(JobSpec)}
    return JobSpec(**{name: _frozen(value) for name, value in data.items() if name in known})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return MappingProxyType(dict(value)) if isinstance(value, dict) else value


def steps_of(spec: JobSpec) -> float:
    """Return the steps of a job; without declared steps, one per second of its run time."""
    if spec.total_steps is not None:
        return spec.total_steps
    return UNKNOWN_DURATION_S if spec.duration_s is None else spec.duration_s


def engine_job(
    spec: JobSpec,
    *,
    job_id: str,
    owner: str = "",
    arrival_s: float,
    weight: float,
    deadline_s: float | None,
    attempts: int = 0,
    steps_done: float = 0.0,
    restarts: Restarts | None = None,
) -> Job:
    """Return a job as the engine sees it.

    Args:
        spec: as submitted.
        job_id: its id.
        owner: the user that submitted it.
        arrival_s: when it was submitted.
        weight: its importance now.
        deadline_s: by when it should be complete now.
        attempts: leases that it has had.
        steps_done: steps that are saved.
        restarts: the cost of changing its workers, on any workers and on given types; None: as its
            specification declares.
    """
    total = steps_of(spec)
    usual_s, on_some = (spec.restart_s, spec.restarts) if restarts is None else restarts
    return Job(
        job_id=job_id,
        job_type=spec.type_key,
        total_steps=total,
        scale_factor=spec.scale_factor,
        arrival_s=arrival_s,
        weight=weight,
        deadline_s=deadline_s,
        entity=spec.account,
        max_failures=spec.max_failures,
        restart_s=usual_s,
        restarts=on_some,
        attempts_before=attempts,
        steps_before=min(steps_done, math.nextafter(total, 0.0)),
        preemptible=spec.preemptible,
        min_run_time_s=spec.min_run_time_s,
        max_run_time_s=math.inf if spec.max_run_time_s is None else spec.max_run_time_s,
        checkpoints=False,  # the engine learns it when leases of the job end
        project=spec.project,
        owner=owner,
    )


def missed_deadline(deadline_s: float | None, *, now_s: float) -> str:
    """Return why a deadline cannot be accepted; empty if it can.

    No policy can meet a deadline that has passed; those that use deadlines would ignore it.
    """
    if deadline_s is None or deadline_s > now_s:
        return ""
    when, now = in_words(deadline_s), in_words(now_s)
    return f"deadline_s is {when}, which has passed (it is {now}); give a later time, or none"


def in_words(at_s: float) -> str:
    """Return a time in UTC for people to read."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
