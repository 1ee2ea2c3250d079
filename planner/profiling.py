"""Profiling: a job type is let for short turns on worker types where it never ran.

No policy knows of it. Policies are told a throughput above the estimate where it is a mere
inference: estimate x min(cap, 1 + bonus x relative deviation), the upper end of what is likely. So
a worker type that might well be the best one is tried; the first stretch there puts a measurement
in the place of the estimate, and the bonus is gone, within one or two rounds. That is the principle
of upper confidence bounds (Auer, Cesa-Bianchi and Fischer, Machine Learning 2002), with a cap, so
that no policy ever believes in more than ``cap`` times the estimate. The price: a worker type whose
estimate is too low by more than the cap may never be tried while a better one is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.estimator import Source
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.estimator import Estimate, Estimator

_INFERRED = frozenset({Source.ESTIMATED, Source.ASSUMED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """How much better than estimated policies are told that unmeasured worker types are.

    Attributes:
        bonus: deviations that are added; 0 turns profiling off.
        cap: largest factor between what is told and what is estimated, >= 1.
    """

    bonus: float = 1.0
    cap: float = 1.5

    def __post_init__(self) -> None:
        """Refuse values that would make worker types look slower, or endlessly fast."""
        if not 0.0 <= self.bonus < math.inf:
            raise ParameterError(f"profiling bonus is {self.bonus!r}; give a number >= 0")
        if not 1.0 <= self.cap < math.inf:
            raise ParameterError(f"profiling cap is {self.cap!r}; give a number >= 1")

    def factor(self, estimate: Estimate) -> float:
        """Return what the estimate is multiplied by; 1 unless it is an inference."""
        if estimate.source not in _INFERRED:
            return 1.0
        return min(self.cap, 1.0 + self.bonus * estimate.relative_deviation)


#: Policies are told the estimates as they are.
NO_PROFILING = Profiling(bonus=0.0, cap=1.0)


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
