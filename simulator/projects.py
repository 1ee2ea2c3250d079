"""What projects may have in a replay: a YAML file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

from scheduler.control.requests import ProjectLimits
from scheduler.errors import InputError
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOWN = ("max_workers", "max_jobs", "weight", "inner_policy")
_INNER = ("fairness", "fifo")


def read_projects(path: str) -> tuple[ProjectLimits, ...]:
    """Read a mapping of projects' names to their limits, by the names of ``ProjectLimits``.

    Raises:
        InputError: the file cannot be read, or has an unknown key or a value out of range.
    """
    try:
        document = read_yaml(path)
    except InputError as error:
        raise InputError(f"projects file '{path}' cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"projects file '{path}': give a mapping of project names to limits")
    try:
        return tuple(limits_of(str(name), given) for name, given in document.items())
    except InputError as error:
        raise InputError(f"projects file '{path}', {error}") from error


def limits_of(name: str, given: Any) -> ProjectLimits:
    """Return the limits of a project from a mapping by the names of ``ProjectLimits``.

    Raises:
        InputError: a key is unknown, or a value out of range.
    """
    if not isinstance(given, dict):
        _fail(name, f"it is {given!r}; give a mapping with {', '.join(_KNOWN)}")
    for key, value in given.items():
        if key not in _KNOWN:
            _fail(name, f"unknown key '{key}'; known are {', '.join(_KNOWN)}")
        if not _fits(key, value):
            _fail(name, f"'{key}' is {value!r}; {_WANTED[key]}")
    return ProjectLimits(project=name, **given)


_WANTED: Mapping[str, str] = {
    "max_workers": "it must be a whole number >= 0",
    "max_jobs": "it must be a whole number >= 0",
    "weight": "it must be a number > 0",
    "inner_policy": "it must be fairness or fifo",
}


def _fits(key: str, value: object) -> bool:
    if key == "inner_policy":
        return value in _INNER
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if key == "weight":
        return math.isfinite(value) and value > 0
    return isinstance(value, int) and value >= 0


def _fail(name: str, problem: str) -> NoReturn:
    raise InputError(f"project '{name}': {problem}")
