"""What policies are nudged to try, and how strongly; see ``scheduler.domain.profiling``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.estimator import Estimator
    from scheduler.domain.profiling import Profiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A worker type on which a job type should be tried.

    Attributes:
        job_type: key.
        scale_factor: workers.
        worker_type: where it never ran, and nobody declared how fast it is.
        factor: by how much policies are told more than the estimate.
    """

    job_type: str
    scale_factor: int
    worker_type: str
    factor: float


def profile_wishes(
    estimator: Estimator,
    profiling: Profiling,
    keys: Iterable[tuple[str, int]],
    worker_types: Iterable[str],
) -> tuple[Wish, ...]:
    """Return what policies are nudged to try, the strongest nudge first.

    Args:
        estimator: what is known.
        profiling: how strongly it nudges.
        keys: job types and scale factors.
        worker_types: those in the cluster.
    """
    types = tuple(worker_types)
    wishes = (
        Wish(
            job_type=job_type,
            scale_factor=scale_factor,
            worker_type=worker_type,
            factor=profiling.factor(estimator.estimate(job_type, scale_factor, worker_type)),
        )
        for job_type, scale_factor in keys
        for worker_type in types
    )
    return tuple(sorted((w for w in wishes if w.factor > 1.0), key=lambda w: -w.factor))
