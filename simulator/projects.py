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
    return tuple(_limits(path, str(name), given) for name, given in document.items())


def _limits(path: str, name: str, given: Any) -> ProjectLimits:
    if not isinstance(given, dict):
        _fail(path, name, f"it is {given!r}; give a mapping with {', '.join(_KNOWN)}")
    for key, value in given.items():
        if key not in _KNOWN:
            _fail(path, name, f"unknown key '{key}'; known are {', '.join(_KNOWN)}")
        if not _fits(key, value):
            _fail(path, name, f"'{key}' is {value!r}; {_WANTED[key]}")
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


def _fail(path: str, name: str, problem: str) -> NoReturn:
    raise InputError(f"projects file '{path}', project '{name}': {problem}")
