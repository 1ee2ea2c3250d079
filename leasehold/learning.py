"""The report of a job with adaptive batches to its agent: its steps and gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from leasehold.bounds import LONGEST_S, MOST_COUNT, MOST_RANKS, MOST_STEP_TIMES, SHORTEST_S

if TYPE_CHECKING:
    from collections.abc import Mapping


@runtime_checkable
class HasFigures(Protocol):
    """Data that measures how fast a job learns, such as ``AdaptiveBatches``."""

    @property
    def figures(self) -> Mapping[str, Any]:
        """The measurements; see ``AdaptiveBatches.figures``."""
        ...


def learning_of(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return figures in the agent's form; one bad figure would make it refuse the whole line.

    If there are more step times than it takes, those of the largest batches are sent. None before
    the first measurement.
    """
    noise = figures.get("noise_scale_samples")
    if noise is not None:
        noise = None if math.isnan(noise) else min(_short(max(noise, 0.0)), float(MOST_COUNT))
    found = (_short_time(*time) for time in figures.get("step_times", ()))
    times = [list(time) for time in found if _is_told(*time)]
    if noise is None and not times:
        return None
    return {
        "noise_scale_samples": noise,
        "batch_samples": min(max(int(figures["batch_samples"]), 1), MOST_COUNT),
        "step_times": times[-MOST_STEP_TIMES:],
    }


def _is_told(workers: int, per_worker: float, pass_s: float, last_pass_s: float) -> bool:
    counts = 1 <= workers <= MOST_RANKS and 0.0 < per_worker <= MOST_COUNT
    return counts and all(SHORTEST_S <= s <= LONGEST_S for s in (pass_s, last_pass_s))


def _short_time(
    workers: int, per_worker: float, pass_s: float, last_pass_s: float
) -> tuple[int, float, float, float]:
    return int(workers), _short(per_worker), _short(pass_s), _short(last_pass_s)


def _short(value: float) -> float:
    """Return a figure with six digits: a line has little room."""
    return float(f"{value:.6g}")
