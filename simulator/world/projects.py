"""Limits of projects in a replay: a YAML file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from scheduler.control.facts.requests import ProjectLimits
from scheduler.domain.quota import IdleQuota
from scheduler.errors import InputError
from traces.readers.header_csv import suggest_name
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys of a project's limits.
LIMITS = (
    *("max_workers", "max_jobs", "weight", "inner_policy"),
    *("entities", "job_types", "max_job_weight"),
    *("max_workers_of", "max_workers_per_user", "max_workers_per_user_of", "idle_quota"),
    *("budget_gpu_hours", "budget_usd", "budget_warning"),
)
_INNER = ("fairness", "fifo")


def read_projects(path: str) -> tuple[ProjectLimits, ...]:
    """Read a mapping of projects' names to their limits, by the names of ``ProjectLimits``.

    Raises:
        InputError: the file cannot be read, or has an unknown key or a value out of range.
    """
    try:
        document = read_yaml(path)
    except InputError as error:
        raise InputError(f"projects file {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"projects file '{path}': give a mapping of project names to limits")
    found, faults = [], []
    for name, given in document.items():
        try:
            found.append(limits_of(str(name), given))
        except InputError as error:
            faults.append(str(error))
    if faults:
        raise InputError(f"projects file '{path}', {'; '.join(faults)}")
    return tuple(found)


def limits_of(name: str, given: Any) -> ProjectLimits:
    """Return the limits of a project from a mapping by the names of ``ProjectLimits``.

    Raises:
        InputError: a key is unknown, or a value out of range.
    """
    if not isinstance(given, dict):
        _fail(name, f"it is {given!r}; give a mapping with {', '.join(LIMITS)}")
    faults = [
        f"'{key}' is {value!r}; {_WANTED[key]}"
        if key in LIMITS
        else f"unknown key '{key}'{suggest_name(str(key), LIMITS)}; known are {', '.join(LIMITS)}"
        for key, value in given.items()
        if key not in LIMITS or not _fits(key, value)
    ]
    if faults:
        _fail(name, "; ".join(faults))
    found: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in given.items()
    }
    if "idle_quota" in found:
        found["idle_quota"] = IdleQuota(found["idle_quota"])
    return ProjectLimits(project=name, **found)


_WANTED: Mapping[str, str] = {
    "max_workers": "it must be a whole number >= 0",
    "max_jobs": "it must be a whole number >= 0",
    "weight": "it must be a number > 0",
    "inner_policy": "it must be fairness or fifo",
    "entities": "it must be a list of names",
    "job_types": "it must be a list of patterns",
    "max_job_weight": "it must be a number > 0",
    "max_workers_of": "it must map worker types to whole numbers >= 0",
    "max_workers_per_user": "it must be a whole number >= 0",
    "max_workers_per_user_of": "it must map worker types to whole numbers >= 0",
    "idle_quota": "it must be keep, lend or share",
    "budget_gpu_hours": "it must be a number >= 0",
    "budget_usd": "it must be a number >= 0",
    "budget_warning": "it must be a number > 0, 1 at most",
}


#: Numbers that need not be whole: (more than, at most).
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "weight": (0.0, sys.float_info.max),
    "max_job_weight": (0.0, sys.float_info.max),
    "budget_gpu_hours": (-sys.float_info.min, sys.float_info.max),
    "budget_usd": (-sys.float_info.min, sys.float_info.max),
    "budget_warning": (0.0, 1.0),
}


def _fits(key: str, value: object) -> bool:
    if key in {"inner_policy", "idle_quota"}:
        return value in (_INNER if key == "inner_policy" else tuple(IdleQuota))
    if key in {"max_workers_of", "max_workers_per_user_of"}:
        return isinstance(value, dict) and all(
            isinstance(name, str) and name and _is_count(most) for name, most in value.items()
        )
    if key in {"entities", "job_types"}:
        return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    if key in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
        least, most = _NUMBERS[key]
        return least < value <= most
    return _is_count(value) and key not in _NUMBERS


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _fail(name: str, problem: str) -> NoReturn:
    raise InputError(f"project '{name}': {problem}")
