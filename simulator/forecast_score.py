"""Forecasts at submission beside the actual completion times, and their score."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionForecast:
    """The forecast for a job at its submission, beside the actual completion time.

    Attributes:
        job_id: the job.
        submitted_s: its submission.
        jct_s: the forecast of its completion time, from submission to end.
        low_s: lower bound of the interval.
        high_s: upper bound.
        alone_s: the forecast if no further job came.
        actual_s: the actual completion time; None if it did not complete.
    """

    job_id: str
    submitted_s: float
    jct_s: float
    low_s: float
    high_s: float
    alone_s: float
    actual_s: float | None

    @property
    def error(self) -> float | None:
        """The error of the forecast, as a part of the forecast."""
        return None if self.actual_s is None else abs(self.jct_s - self.actual_s) / self.jct_s

    @property
    def held(self) -> bool | None:
        """Whether the actual time lies in the interval, bounds included."""
        return None if self.actual_s is None else self.low_s <= self.actual_s <= self.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastScore:
    """How good the forecasts of a run were.

    Attributes:
        jobs: forecasts of jobs that completed.
        mean_error: mean of the errors, as parts of the forecast.
        p99_error: 99th percentile of them.
        mean_error_alone: mean error of forecasts without further jobs.
        coverage: share of the intervals that held the actual time.
        median_width: median width of the intervals, as a part of the forecast.
    """

    jobs: int
    mean_error: float
    p99_error: float
    mean_error_alone: float
    coverage: float
    median_width: float

    @classmethod
    def of(cls, forecasts: Sequence[SubmissionForecast]) -> ForecastScore:
        """Score the forecasts of jobs that completed."""
        ended = [one for one in forecasts if one.actual_s is not None]
        if not ended:
            return cls(jobs=0, **{f.name: math.nan for f in fields(cls) if f.name != "jobs"})
        actual, jct, low, high, alone = (
            np.array([getattr(one, name) for one in ended])
            for name in ("actual_s", "jct_s", "low_s", "high_s", "alone_s")
        )
        error = np.abs(jct - actual) / jct
        return cls(
            jobs=len(ended),
            mean_error=float(error.mean()),
            p99_error=float(np.quantile(error, 0.99)),
            mean_error_alone=float((np.abs(alone - actual) / alone).mean()),
            coverage=float(((low <= actual) & (actual <= high)).mean()),
            median_width=float(np.median((high - low) / jct)),
        )

    def to_dict(self) -> dict[str, float | None]:
        """Return the figures, ready for JSON: NaN is None."""
        return {f.name: _json_value(getattr(self, f.name)) for f in fields(self)}


def _json_value(value: float) -> float | None:
    return value if math.isfinite(value) else None
