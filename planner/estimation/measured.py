"""One cell of the known figures: a job type at a scale factor on a worker type."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Relative deviation of a long stretch of running from the throughput of the program.
_STRETCH = 0.05
#: Error of the bounds of a stretch, in seconds.
_BOUNDS_S = 0.5
#: Most weight of past measurements, ten long stretches; older ones fade.
_MEMORY = 10.0 / _STRETCH**2
#: Distance, in deviations, from which on a stretch is a surprise.
_SURPRISE = 3.0
#: Part of the weight that is left after a second surprise of the same sign.
_DOUBTED = 0.1
#: Weight of the newest stretch in the running estimate of the scatter.
_NEWEST = 0.2
#: Relative deviation of a declared figure: a user measured it on a similar machine.
DECLARED = 0.2
#: Bound on steps/s; a program with less than the inverse counts as standing still. So no figure
#: derived from these leaves the range of floating-point numbers.
MOST_STEPS_PER_S = 1e100


@dataclass(slots=True, kw_only=True)
class MeasuredFigure:
    """Declared and measured figures.

    Attributes:
        declared: steps/s, 0 if the job does not run, or None.
        log: mean of the log steps/s measured, fading.
        weight: its precision, one over the variance; 0 before the first stretch.
        scatter: squared distance of stretches from the expected value, in units of its variance.
        surprises: surprises in a row, with their sign.
        samples: stretches measured.
        open_steps: steps of stretches too short for a whole step.
        open_s: their seconds.
    """

    declared: float | None = None
    log: float = 0.0
    weight: float = 0.0
    scatter: float = 1.0
    surprises: int = 0
    samples: int = 0
    open_steps: float = 0.0
    open_s: float = 0.0

    @property
    def known(self) -> bool:
        """Whether there is a positive figure."""
        return self.weight > 0.0 or bool(self.declared)

    @property
    def never(self) -> bool:
        """Whether a declared 0, never disproved, says that the job does not run there."""
        return self.declared == 0.0 and not self.weight

    def take(self, steps: float, seconds: float) -> bool:
        """Add a stretch; return whether it changed the figures.

        Stretches are added up until they contain a whole step.
        """
        steps, seconds = self.open_steps + steps, self.open_s + seconds
        if steps < 1.0:
            self.open_steps, self.open_s = steps, seconds
            return False
        self.open_steps = self.open_s = 0.0
        variance = _STRETCH**2 + (1.0 / steps) ** 2 + (_BOUNDS_S / seconds) ** 2
        rate = min(max(steps / seconds, 1.0 / MOST_STEPS_PER_S), MOST_STEPS_PER_S)
        self._learn(math.log(rate), variance)
        return True

    def _learn(self, log: float, variance: float) -> None:
        self.samples += 1
        precision = 1.0 / variance
        if self.weight:
            self._compare(log - self.log, variance + 1.0 / self.weight)
        self.log += precision / (self.weight + precision) * (log - self.log)
        self.weight = min(self.weight + precision, _MEMORY)

    def _compare(self, off: float, variance: float) -> None:
        """Check whether a stretch fits; two surprises of one sign mean a changed program."""
        ratio = off * off / variance
        if ratio <= _SURPRISE**2 * max(self.scatter, 1.0):
            self.surprises = 0
            self.scatter += _NEWEST * (ratio - self.scatter)
            return
        sign = 1 if off > 0 else -1
        self.surprises = self.surprises + sign if self.surprises * sign > 0 else sign
        if abs(self.surprises) >= 2:
            self.weight *= _DOUBTED
            self.scatter = 1.0

    def belief(self) -> tuple[float, float, bool]:
        """Return log steps/s, its variance, and whether measurements carry it.

        The declared figure is a prior with deviation ``DECLARED``, or more if measurements
        contradict it more. Call it only if there is a figure.
        """
        if not self.weight:
            assert self.declared
            return math.log(self.declared), DECLARED**2, False
        doubt = max(self.scatter, 1.0) / self.weight
        if not self.declared:
            return self.log, doubt, True
        prior = math.log(self.declared)
        own = max(DECLARED**2, (prior - self.log) ** 2 - doubt)
        share = own / (own + doubt)
        log = prior + share * (self.log - prior)
        return log, own * doubt / (own + doubt), share >= 0.5

    def dump(self) -> list[float | int | None]:
        """Return its values as a list of plain numbers."""
        return [
            *(self.declared, self.log, self.weight, self.scatter, self.surprises, self.samples),
            *(self.open_steps, self.open_s),
        ]
