"""Rules of a project for its jobs' entity, job type and weight.

Each of these affects other projects. An entity's share is divided among all jobs that name it.
Throughputs that are learned count for all jobs of the type. Weight takes share from all other jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from scheduler.control.facts.requests import ProjectLimits
from scheduler.domain.quota import IdleQuota

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.domain.jobs.spec import JobSpec

#: Limits that are stored only if set, as older releases without them stored limits.
_RULES: Final = (
    *("entities", "job_types", "max_job_weight"),
    *("max_workers_of", "max_workers_per_user", "max_workers_per_user_of", "idle_quota"),
    *("budget_gpu_hours", "budget_usd", "budget_warning"),
)


def broken_rule(limits: ProjectLimits | None, spec: JobSpec, weight: float) -> str:
    """Return which rule of its project a job breaks; empty if none.

    The project itself as the entity, and job types ``project/...``, are always its own.

    Args:
        limits: of its project; None if it has none.
        spec: the job.
        weight: its weight now, or its future one.
    """
    if limits is None:
        return ""
    name = limits.project
    if limits.entities is not None and spec.account not in {name, *limits.entities}:
        allowed = ", ".join((name, *limits.entities))
        return _words("entity", f"'{spec.account}'", name, allowed, "--entities")
    if limits.job_types is not None and not _is_own(spec.named_type, name, limits.job_types):
        allowed = ", ".join((f"{name}/*", *limits.job_types))
        return _words("job_type", f"'{spec.named_type}'", name, allowed, "--job-types")
    if too_heavy := too_heavy_for(limits, weight):
        return too_heavy
    return ""


def too_heavy_for(limits: ProjectLimits | None, weight: float) -> str:
    """Return why a job may not have a weight; empty if it may."""
    if limits is None or limits.max_job_weight is None or weight <= limits.max_job_weight:
        return ""
    most = f"at most {limits.max_job_weight:g}"
    return _words("weight", f"{weight:g}", limits.project, most, "--max-job-weight")


def _is_own(job_type: str, project: str, patterns: tuple[str, ...]) -> bool:
    own = job_type.startswith(f"{project}/")
    return own or any(fnmatchcase(job_type, pattern) for pattern in patterns)


def _words(field: str, value: str, project: str, allowed: str, option: str) -> str:
    return (
        f"{field} is {value}, and jobs of project '{project}' may have {allowed}; give one of "
        f"these, or ask an operator for more (`leasehold project set {project} {option} ...`)"
    )


def limits_to_json(limits: ProjectLimits) -> dict[str, Any]:
    """Return limits as plain values; rules that are not set are left out."""
    found = {one.name: getattr(limits, one.name) for one in fields(limits)}
    unset = ProjectLimits(project=limits.project)
    kept = {
        name: value
        for name, value in found.items()
        if name not in _RULES or value != getattr(unset, name)
    }
    return {name: _plain(value) for name, value in kept.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value.value if isinstance(value, IdleQuota) else value


def too_many_workers(limits: ProjectLimits | None, spec: JobSpec, types: Iterable[str]) -> str:
    """Return why a job alone asks for more workers than its project may hold; empty if not.

    Args:
        limits: of its project; None if it has none.
        spec: the job.
        types: worker types that it is known to run on; empty if no type is known.
    """
    if limits is None:
        return ""
    asks, project = spec.scale_factor, f"project '{limits.project}'"
    for whom, whole, of in (
        (project, limits.max_workers, limits.max_workers_of),
        (
            f"each user of {project}",
            limits.max_workers_per_user,
            limits.max_workers_per_user_of,
        ),
    ):
        if whole is not None and asks > whole:
            return f"the job asks for {asks} workers, and {whom} may have {whole} at once"
        able = spec.worker_types or tuple(types)
        most = sorted(of.get(name, asks) for name in able)
        if able and sum(most[-2:] if spec.mixed_gangs else most[-1:]) < asks:
            room = ", ".join(f"{of[name]} {name}" for name in able)
            return f"the job asks for {asks} workers, and {whom} may have {room} at once"
    return ""


def limits_from_json(value: Mapping[str, Any]) -> ProjectLimits:
    """Return the limits of stored values; fields of a newer release are ignored."""
    known = {field.name for field in fields(ProjectLimits)}
    found: dict[str, Any] = {
        name: tuple(given) if isinstance(given, list) else given
        for name, given in value.items()
        if name in known
    }
    if "idle_quota" in found:
        found["idle_quota"] = IdleQuota(found["idle_quota"])
    return ProjectLimits(**found)
