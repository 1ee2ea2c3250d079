"""GPU use under leases: sums by project, and texts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease


def use_in_words(live: LiveLease) -> str:
    """Return the end of a sentence on the use of a job's GPUs; empty if it is not measured."""
    if live.use is None:
        return ""
    if live.idle_since_s is None:
        return f"; its GPUs compute {live.use:.0%} of the time"
    since = datetime.fromtimestamp(live.idle_since_s, UTC).isoformat(timespec="seconds")
    return f"; its GPUs compute {live.use:.0%} of the time, and have hardly done since {since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """The GPU use of one project.

    Attributes:
        gpus: measured workers under leases.
        used: how many of them computed recently, as a sum of shares of the time.
        idle_gpus: GPUs of jobs that were reported as idle.
        idle_jobs: how many such jobs there are.
    """

    gpus: int = 0
    used: float = 0.0
    idle_gpus: int = 0
    idle_jobs: int = 0

    def with_more(self, workers: int, use: float, *, idle: bool) -> GpuFigures:
        """Return the figures with one more job, which uses its workers for a share of the time."""
        return GpuFigures(
            gpus=self.gpus + workers,
            used=self.used + workers * use,
            idle_gpus=self.idle_gpus + workers * idle,
            idle_jobs=self.idle_jobs + idle,
        )
