"""Overheads: the seconds that launching, checkpointing and restoring cost a job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain.jobs.job import is_seconds
from scheduler.errors import InputError
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.domain.arrays import IntArray
    from scheduler.domain.lease import Leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Seconds that a job type loses.

    Attributes:
        launch_s: from the grant of a lease until the first step.
        checkpoint_s: to write a checkpoint when a lease ends.
        restore_s: to read it back when a later lease begins.
        notice_s: how long it works on after the notice of its lease's end, at most until its
            workers are needed; infinite: until then. Matters if rounds are planned ahead.
        complete_s: from its last step until its workers are free and it counts as complete.
        workers: the overhead on some workers: ``v100:8`` (eight of a type) or ``v100`` (any
            number).
    """

    launch_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0
    notice_s: float = math.inf
    complete_s: float = 0.0
    workers: Mapping[str, Overhead] = field(default_factory=dict)

    @property
    def restart_s(self) -> float:
        """Seconds of work that a change of workers costs."""
        return self.launch_s + self.checkpoint_s + self.restore_s

    @property
    def restarts(self) -> Mapping[str, float]:
        """The same on some workers, see ``Job.restarts``."""
        return {workers: there.restart_s for workers, there in self.workers.items()}

    def there(self, worker_type: str, count: int) -> Overhead:
        """Return the overhead on some workers."""
        return self.workers.get(f"{worker_type}:{count}", self.workers.get(worker_type, self))


_SECONDS = ("launch_s", "checkpoint_s", "restore_s", "notice_s", "complete_s")
_ROW = np.dtype([(name, np.float64) for name in _SECONDS])


def _row_of(overhead: Overhead) -> tuple[float, ...]:
    return tuple(getattr(overhead, name) for name in _SECONDS)


def overhead_rows(overheads: Iterable[Overhead]) -> NDArray[np.void]:
    """Return overheads as rows of an array with the fields of ``Overhead``."""
    return np.array([_row_of(overhead) for overhead in overheads], dtype=_ROW)


class OverheadRows:
    """The cost of each job's newest lease: rows as ``overhead_rows`` makes them.

    Args:
        overheads: of the N jobs.
        worker_types: (W,) names of the types of the workers.
    """

    def __init__(self, overheads: Iterable[Overhead], worker_types: Sequence[str]) -> None:
        all_of_them = list(overheads)
        #: (N,) changed in place.
        self.rows = overhead_rows(all_of_them)
        self._varied = {i: one for i, one in enumerate(all_of_them) if one.workers}
        self._worker_types = worker_types

    def granted(self, jobs: IntArray, leases: Leases) -> None:
        """Set the costs of jobs, at (n,) positions, to those on the workers of their new leases."""
        if not self._varied:
            return
        for job, workers in zip(jobs.tolist(), leases.workers, strict=True):
            if job in self._varied:
                worker_type = self._worker_types[workers[0]]
                self.rows[job] = _row_of(self._varied[job].there(worker_type, len(workers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Overheads by job type; ``default`` for all others."""

    default: Overhead = Overhead()
    by_job_type: Mapping[str, Overhead] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, job_type: str) -> Overhead:
        """Return the overhead of a job type, or of its model if the type itself has no entry."""
        found = self.by_job_type.get(job_type)
        if found is None:
            found = self.by_job_type.get(job_type.partition("(")[0].rstrip(), self.default)
        return found


def read_overheads(name: str) -> Overheads:
    """Read ``none``, ``default`` (bundled), or a YAML file.

    The file has ``default`` and ``job_types``; each entry has ``launch_s``, ``checkpoint_s``,
    ``restore_s``, ``notice_s`` and ``complete_s``, or some of them. A job type may be given by the
    part of its name before the bracket. ``workers`` maps a worker type (``v100``), or a number of
    its workers (``v100:8``), to the seconds that differ there.

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


def _entry(value: object, key: str, name: str, *, base: Overhead | None = None) -> Overhead:
    known = _SECONDS if base is not None else (*_SECONDS, "workers")
    if not isinstance(value, dict) or set(value) - set(known):
        raise InputError(
            f"overhead file '{name}': entry '{key}' is {value!r}; give {', '.join(known)}"
        )
    seconds = {
        field_name: number for field_name, number in value.items() if field_name != "workers"
    }
    for field_name, number in seconds.items():
        if not is_seconds(number):
            raise InputError(
                f"overhead file '{name}': '{key}.{field_name}' is {number!r}; "
                "it must be a number of seconds >= 0"
            )
    given: dict[str, Any] = {k: float(v) for k, v in seconds.items()}
    found = replace(base or Overhead(), **given)
    some = value.get("workers") or {}
    if not isinstance(some, dict):
        raise InputError(
            f"overhead file '{name}': '{key}.workers' must map worker types to overheads"
        )
    varied = {
        str(workers): _entry(there, f"{key}.workers.{workers}", name, base=found)
        for workers, there in some.items()
    }
    return replace(found, workers=varied) if varied else found
