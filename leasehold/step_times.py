"""Times of a job's passes and exchanges, by the sizes that it has run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Step times are the mean of about as many of the newest steps.
_NEWEST_STEPS = 50


@dataclass(slots=True, kw_only=True)
class _Timing:
    """Mean times of a size: steps, seconds of a pass and of the pass with the exchange."""

    steps: int = 0
    pass_s: float = 0.0
    last_pass_s: float = 0.0

    def add(self, pass_s: float, last_pass_s: float) -> None:
        """Record a step."""
        self.steps = min(self.steps + 1, _NEWEST_STEPS)
        self.pass_s += (pass_s - self.pass_s) / self.steps
        self.last_pass_s += (last_pass_s - self.last_pass_s) / self.steps


class StepTimes:
    """How long passes and exchanges take, by the sizes that the job has run.

    A pass of b samples takes alpha + beta b, by least squares over the sizes on this worker type.
    With only one size, half of the time counts as fixed. The exchange adds the extra time of the
    last pass, on this number of workers.

    Args:
        worker_type: of this process; times on other types are not used.
        workers: N.
    """

    def __init__(self, *, worker_type: str, workers: int) -> None:
        self._worker_type, self._workers = worker_type, workers
        self._timings: dict[tuple[str, int, float], _Timing] = {}
        self._measured_here: set[tuple[str, int, float]] = set()

    def add(self, per_worker: float, *, pass_s: float, last_pass_s: float) -> None:
        """Record a step; the first of a size in this process replaces older times."""
        key = (self._worker_type, self._workers, per_worker)
        if key not in self._measured_here:
            self._measured_here.add(key)
            self._timings[key] = _Timing()
        self._timings[key].add(pass_s, last_pass_s)

    @property
    def measured(self) -> list[tuple[int, float, float, float]]:
        """Measurements of this process: workers, samples per worker and pass, both times."""
        return [
            (key[1], key[2], self._timings[key].pass_s, self._timings[key].last_pass_s)
            for key in sorted(self._measured_here)
        ]

    def iteration_s(self, per_worker: float, passes: int) -> float:
        """Return the seconds of a step; needs at least one measurement."""
        fixed_s, each_s = self._fit()
        exchanges = [
            max(timing.last_pass_s - timing.pass_s, 0.0)
            for (kind, workers, _), timing in self._timings.items()
            if (kind, workers) == (self._worker_type, self._workers)
        ]
        exchange_s = sum(exchanges) / len(exchanges) if exchanges else 0.0
        return passes * (fixed_s + each_s * per_worker) + exchange_s

    def _fit(self) -> tuple[float, float]:
        """Return alpha and beta, both at least zero."""
        points = [
            (per_worker, timing.pass_s)
            for (kind, _, per_worker), timing in self._timings.items()
            if kind == self._worker_type
        ]
        b = sum(x for x, _ in points) / len(points)
        seconds = sum(y for _, y in points) / len(points)
        spread = sum((x - b) ** 2 for x, _ in points)
        if spread == 0.0:
            return seconds / 2, seconds / 2 / b
        each_s = max(sum((x - b) * (y - seconds) for x, y in points) / spread, 0.0)
        if each_s * b > seconds:
            return 0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points)
        return seconds - each_s * b, each_s

    def state_dict(self) -> list[list[Any]]:
        """Return all times, also those on other worker types and counts."""
        return [
            [*key, timing.steps, timing.pass_s, timing.last_pass_s]
            for key, timing in self._timings.items()
        ]

    def load_state_dict(self, state: list[list[Any]]) -> None:
        """Restore the times of earlier leases."""
        self._measured_here = set()
        self._timings = {
            (kind, workers, per_worker): _Timing(steps=n, pass_s=pass_s, last_pass_s=last_s)
            for kind, workers, per_worker, n, pass_s, last_s in state
        }
