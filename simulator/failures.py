"""Failures: workers that break and come back, and workers that are slow."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.errors import InputError
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureModel:
    """How workers fail.

    Attributes:
        mtbf_s: mean time between failures of one worker (exponential); inf for never.
        repair_s: mean time until it is back (exponential).
        straggler_share: part of the workers that is slow, 0 to 1.
        straggler_speed: speed of a slow worker relative to a healthy one, above 0, up to 1.
        job_mtbf_s: mean running time between failures of a job itself; inf for never.
        checkpoint_interval_s: how often running jobs checkpoint; a loss costs what came since.
    """

    mtbf_s: float = math.inf
    repair_s: float = 3600.0
    straggler_share: float = 0.0
    straggler_speed: float = 0.5
    job_mtbf_s: float = math.inf
    checkpoint_interval_s: float = 600.0


def read_failures(path: str | None) -> FailureModel:
    """Read a YAML file whose keys are the fields of ``FailureModel``; None for no failures.

    Raises:
        InputError: the file cannot be read, or has an unknown key or a value out of range.
    """
    if path is None:
        return FailureModel()
    try:
        document = read_yaml(path)
    except InputError as exc:
        raise InputError(f"failure file '{path}' cannot be read: {exc}") from exc
    limits = {
        "mtbf_s": (0.0, math.inf),
        "repair_s": (0.0, math.inf),
        "straggler_share": (-1e-300, 1.0),
        "straggler_speed": (0.0, 1.0),
        "job_mtbf_s": (0.0, math.inf),
        "checkpoint_interval_s": (0.0, math.inf),
    }
    if not isinstance(document, dict):
        raise InputError(f"failure file '{path}': give a mapping with {', '.join(limits)}")
    for key, value in document.items():
        if key not in limits:
            raise InputError(
                f"failure file '{path}': unknown key '{key}'; known are {', '.join(limits)}"
            )
        low, high = limits[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and low < value <= high):
            raise InputError(
                f"failure file '{path}': '{key}' is {value!r}; it must be above {max(low, 0.0):g} "
                f"and at most {high:g}"
            )
    return FailureModel(**{key: float(value) for key, value in document.items()})


class FailureProcess:
    """Draws when workers are lost and when they return."""

    def __init__(self, model: FailureModel, workers: int, rng: np.random.Generator) -> None:
        self._model = model
        self._rng = rng
        #: (time, worker, True if it is lost then and False if it returns)
        self._heap: list[tuple[float, int, bool]] = []
        #: whether jobs fail by themselves.
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
        """When something happens next; inf if never."""
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> tuple[int, bool]:
        """Take the next happening: (worker, whether it is lost rather than back)."""
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
        """Draw the running time after which a lease's job fails by itself; inf for never."""
        if not self.jobs_fail:
            return math.inf
        return float(self._rng.exponential(self._model.job_mtbf_s))
