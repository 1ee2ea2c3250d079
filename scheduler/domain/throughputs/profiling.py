"""Profiling: a job type runs for short turns on worker types where it never ran.

No policy knows of it. Policies get a throughput above the estimate if it is a mere inference:
estimate x min(cap, 1 + bonus x relative deviation), the upper end of what is likely. So
a worker type that might well be the best one is tried; the first stretch there puts a measurement
in the place of the estimate, and the bonus is gone, within one or two rounds. That is the principle
of upper confidence bounds (Auer, Cesa-Bianchi and Fischer, Machine Learning 2002), with a cap, so
that no policy ever believes in more than ``cap`` times the estimate. The price: if the estimate of
a worker type is too low by more than the cap, it may never be tried while a better one is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.domain.throughputs.ways import Source
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from scheduler.domain.throughputs.ways import Estimate

_INFERRED = frozenset({Source.ESTIMATED, Source.ASSUMED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """The bonus on the estimates of unmeasured worker types that policies get.

    Attributes:
        bonus: deviations that are added; 0 turns profiling off.
        cap: largest factor between the figure with the bonus and the estimate, >= 1.
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


#: Policies get the estimates unchanged.
NO_PROFILING = Profiling(bonus=0.0, cap=1.0)
