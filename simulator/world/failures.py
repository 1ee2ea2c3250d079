"""Failures: workers that break and come back, and workers that are slow."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain.lease_life import EndReason
from scheduler.errors import InputError
from simulator.world.nodes import Mishap
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from scheduler.domain.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutage:
    """A node that dies with everything on it, and comes back empty.

    Attributes:
        node: its name.
        lost_s: time of its last sign of life.
        back_s: when it is back, later than that; inf for never.
    """

    node: str
    lost_s: float
    back_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureModel:
    """How workers, nodes and jobs fail.

    Attributes:
        mtbf_s: mean time between failures of one worker (exponential); inf for never.
        repair_s: mean time until it is back (exponential).
        straggler_share: part of the workers that is slow, 0 to 1.
        straggler_speed: speed of a slow worker relative to a healthy one, above 0, up to 1.
        job_mtbf_s: mean running time between failures of a job itself; inf for never.
        checkpoint_interval_s: how often running jobs checkpoint; a loss costs the work since then.
        outages: nodes that are lost at known times; only in replays of the service.
        mishaps: (job id, mishap), once each; only in replays of the service.
    """

    mtbf_s: float = math.inf
    repair_s: float = 3600.0
    straggler_share: float = 0.0
    straggler_speed: float = 0.5
    job_mtbf_s: float = math.inf
    checkpoint_interval_s: float = 600.0
    outages: tuple[NodeOutage, ...] = ()
    mishaps: tuple[tuple[str, Mishap], ...] = ()

    def mishaps_of_jobs(self) -> dict[str, list[Mishap]]:
        """Return job id -> its mishaps, the earliest first."""
        found: dict[str, list[Mishap]] = {}
        for job_id, mishap in sorted(self.mishaps, key=lambda pair: pair[1].steps):
            found.setdefault(job_id, []).append(mishap)
        return found

    def check_names(self, *, nodes: Container[str], jobs: Container[str]) -> None:
        """Check that all named nodes and jobs exist.

        Raises:
            InputError: one does not exist.
        """
        for outage in self.outages:
            if outage.node not in nodes:
                raise InputError(f"outages: there is no node '{outage.node}' in the cluster")
        for job_id, _ in self.mishaps:
            if job_id not in jobs:
                raise InputError(f"mishaps: there is no job '{job_id}' in the trace")


_LIMITS = {
    "mtbf_s": (0.0, math.inf),
    "repair_s": (0.0, math.inf),
    "straggler_share": (-1e-300, 1.0),
    "straggler_speed": (0.0, 1.0),
    "job_mtbf_s": (0.0, math.inf),
    "checkpoint_interval_s": (0.0, math.inf),
}
_LISTS = ("outages", "mishaps")
#: End of a job by a mishap -> its node's report.
_ENDS = {"failed": EndReason.FAILED, "out_of_memory": EndReason.OOM}


def read_failures(path: str | None) -> FailureModel:
    """Read a YAML file with the fields of ``FailureModel`` as keys; None for no failures.

    Raises:
        InputError: the file cannot be read, or has an unknown key or a value out of range.
    """
    if path is None:
        return FailureModel()
    try:
        document = read_yaml(path)
    except InputError as exc:
        raise InputError(f"failure file {exc}") from exc
    try:
        return _model(document)
    except InputError as error:
        raise InputError(f"failure file '{path}': {error}") from error


def _model(document: Any) -> FailureModel:
    known = ", ".join((*_LIMITS, *_LISTS))
    if not isinstance(document, dict):
        raise InputError(f"give a mapping with {known}")
    for key in document:
        if key not in _LIMITS and key not in _LISTS:
            raise InputError(f"unknown key '{key}'; known are {known}")
    return FailureModel(
        **{key: _number(document, key, *_LIMITS[key]) for key in _LIMITS if key in document},
        outages=tuple(_outage(one) for one in _entries(document, "outages")),
        mishaps=tuple(_mishap(one) for one in _entries(document, "mishaps")),
    )


def _number(fields: Mapping[str, Any], key: str, low: float = 0.0, high: float = math.inf) -> float:
    value = fields[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low < value <= high):
        raise InputError(
            f"'{key}' is {value!r}; it must be above {max(low, 0.0):g} and at most {high:g}"
        )
    return float(value)


def _entries(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise InputError(f"'{key}' is {value!r}; it must be a list")
    return value


def _fields(entry: Any, what: str, required: tuple[str, ...], more: tuple[str, ...] = ()) -> Any:
    """Return the fields of an entry, after a check of its keys."""
    keys = set(entry) if isinstance(entry, dict) else set()
    if not (set(required) <= keys <= {*required, *more}):
        wanted = ", ".join((*required, *(f"{key} (may be left out)" for key in more)))
        raise InputError(f"an entry of '{what}' is {entry!r}; give {wanted}")
    return entry


def _outage(entry: Any) -> NodeOutage:
    fields = _fields(entry, "outages", ("node", "lost_s"), ("back_s",))
    lost_s = _number(fields, "lost_s", -1e-300)
    back_s = _number(fields, "back_s", lost_s) if "back_s" in fields else math.inf
    return NodeOutage(node=str(fields["node"]), lost_s=lost_s, back_s=back_s)


def _mishap(entry: Any) -> tuple[str, Mishap]:
    fields = _fields(entry, "mishaps", ("job", "steps", "end"))
    end = fields["end"]
    if not isinstance(end, str) or end not in _ENDS:
        raise InputError(f"'end' of a mishap is {end!r}; it must be {' or '.join(_ENDS)}")
    steps = _number(fields, "steps", -1e-300)
    return str(fields["job"]), Mishap(steps=steps, end=_ENDS[end])


class FailureProcess:
    """Draws when workers fail and when they return."""

    def __init__(self, model: FailureModel, workers: int, rng: np.random.Generator) -> None:
        self._model = model
        self._rng = rng
        #: (time, worker, True if it is lost then and False if it returns)
        self._heap: list[tuple[float, int, bool]] = []
        #: whether jobs fail on their own.
        self.jobs_fail = math.isfinite(model.job_mtbf_s)
        slow = rng.random(workers) < model.straggler_share
        #: (W,) speed relative to a healthy worker.
        self.speed: FloatArray = np.where(slow, model.straggler_speed, 1.0)
        if math.isfinite(model.mtbf_s):
            times = rng.exponential(model.mtbf_s, workers)
            self._heap = [(float(t), w, True) for w, t in enumerate(times)]
            heapq.heapify(self._heap)

    @property
    def next_s(self) -> float:
        """When the next event happens; inf if never."""
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> tuple[int, bool]:
        """Take the next event: (worker, True if it is lost, False if it is back)."""
        at_s, worker, lost = heapq.heappop(self._heap)
        mean = self._model.repair_s if lost else self._model.mtbf_s
        next_s = at_s + float(self._rng.exponential(mean))
        heapq.heappush(self._heap, (next_s, worker, not lost))
        return worker, lost

    def draw_job_failures_s(self, leases: int) -> FloatArray:
        """Draw for several leases, in their order, as ``draw_job_failure_s`` does for one."""
        if not self.jobs_fail:
            return np.full(leases, math.inf)
        return np.array([self.draw_job_failure_s() for _ in range(leases)])

    def draw_job_failure_s(self) -> float:
        """Draw the running time after which a lease's job fails on its own; inf for never."""
        if not self.jobs_fail:
            return math.inf
        return float(self._rng.exponential(self._model.job_mtbf_s))
