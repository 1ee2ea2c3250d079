"""Overheads: the seconds that launching, checkpointing and restoring cost a job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from scheduler.errors import InputError
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Seconds that a job type loses.

    Attributes:
        launch_s: from the grant of a lease until the first step.
        checkpoint_s: to write a checkpoint when a lease ends.
        restore_s: to read it back when a later lease begins.
        notice_s: how long it goes on working after the notice of its lease's end, at most until
            its workers are wanted; infinite: until then. Matters where rounds are planned ahead.
        complete_s: from its last step until its workers are free and it counts as complete.
    """

    launch_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0
    notice_s: float = math.inf
    complete_s: float = 0.0

    @property
    def restart_s(self) -> float:
        """Seconds of work that a change of workers costs."""
        return self.launch_s + self.checkpoint_s + self.restore_s


_SECONDS = ("launch_s", "checkpoint_s", "restore_s", "notice_s", "complete_s")
_ROW = np.dtype([(name, np.float64) for name in _SECONDS])


def columns(overheads: Iterable[Overhead]) -> NDArray[np.void]:
    """Return overheads as rows of an array whose fields are those of ``Overhead``."""
    return np.array([tuple(getattr(o, name) for name in _SECONDS) for o in overheads], dtype=_ROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Overheads by job type; ``default`` for all others."""

    default: Overhead = Overhead()
    by_job_type: Mapping[str, Overhead] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, job_type: str) -> Overhead:
        """Return the overhead of a job type, of its model where the type itself has no entry."""
        found = self.by_job_type.get(job_type)
        if found is None:
            found = self.by_job_type.get(job_type.partition("(")[0].rstrip(), self.default)
        return found


def read_overheads(name: str) -> Overheads:
    """Read ``none``, ``default`` (bundled), or a YAML file.

    The file has ``default`` and ``job_types``; each entry has ``launch_s``, ``checkpoint_s``,
    ``restore_s``, ``notice_s`` and ``complete_s``, or some of them. A job type may be given by the
    part of its name before the bracket.

    Raises:
        InputError: the file cannot be read or has an unknown or negative entry.
    """
    if name == "none":
        return Overheads()
    with resources.as_file(resources.files("simulator") / "data" / "overheads.yaml") as bundled:
        try:
            document = read_yaml(bundled if name == "default" else name)
        except InputError as exc:
            raise InputError(f"overhead file {exc}; none and default need no file") from exc
    if not isinstance(document, dict) or set(document) - {"default", "job_types"}:
        raise InputError(f"overhead file '{name}': give 'default' and 'job_types', nothing else")
    types = document.get("job_types") or {}
    if not isinstance(types, dict):
        raise InputError(f"overhead file '{name}': 'job_types' must map job types to overheads")
    return Overheads(
        default=_entry(document.get("default") or {}, "default", name),
        by_job_type={str(key): _entry(value, str(key), name) for key, value in types.items()},
    )


def _entry(value: object, key: str, name: str) -> Overhead:
    if not isinstance(value, dict) or set(value) - set(_SECONDS):
        raise InputError(
            f"overhead file '{name}': entry '{key}' is {value!r}; give {', '.join(_SECONDS)}"
        )
    for field_name, seconds in value.items():
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        good = number and math.isfinite(seconds) and seconds >= 0
        if not good:
            raise InputError(
                f"overhead file '{name}': '{key}.{field_name}' is {seconds!r}; "
                "it must be a number of seconds >= 0"
            )
    return Overhead(**{k: float(v) for k, v in value.items()})
