"""One cell of what is known: a job type at a scale factor on a worker type."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Relative deviation of a long stretch of running from the throughput of the program.
_STRETCH = 0.05
#: Seconds by which the bounds of a stretch may be off.
_BOUNDS_S = 0.5
#: What is remembered weighs at most as much as so many long stretches; older ones fade.
_MEMORY = 10.0 / _STRETCH**2
#: How far off, in deviations, a stretch is a surprise.
_SURPRISE = 3.0
#: What is left of the memory after a second surprise of the same sign.
_DOUBTED = 0.1
#: Share of the newest stretch in the running figure of how much stretches scatter.
_NEWEST = 0.2
#: Relative deviation of a declared figure: it was measured somewhere, by somebody, alike.
DECLARED = 0.2
#: No program does more steps a second, and one that does fewer than one in so many counts as
#: standing still; so no figure derived from these leaves the range of floating-point numbers.
MOST_STEPS_PER_S = 1e100


@dataclass(slots=True, kw_only=True)
class Cell:
    """What was declared and what was measured.

    Attributes:
        declared: steps/s, 0 where the job does not run, or None.
        log: mean of the log steps/s measured, fading.
        weight: its precision, one over the variance; 0 before the first stretch.
        scatter: how far stretches lie off what was expected, in units of its variance.
        surprises: surprises in a row, with their sign.
        samples: stretches measured.
        open_steps: steps of stretches too short for a step to be done in them.
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
        """Whether anything positive is known."""
        return self.weight > 0.0 or bool(self.declared)

    @property
    def never(self) -> bool:
        """Whether it was declared, and never disproved, that the job does not run there."""
        return self.declared == 0.0 and not self.weight

    def take(self, steps: float, seconds: float) -> bool:
        """Take a stretch in; returns whether anything was learned of it.

        A stretch in which not one step was done is kept until one is.
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
        """See whether a stretch fits; a changed program is one that surprises twice alike."""
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

        The declared figure is a prior of deviation ``DECLARED``, or of as much as the
        measurements contradict it, if that is more. Call it only where something is known.
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
