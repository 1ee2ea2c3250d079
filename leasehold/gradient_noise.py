"""Gradient noise, and from it the worth and the learning rate of a larger batch.

Symbols: b and B samples of a small and a large batch, m samples per step, m0 the initial batch, q
the squared norm of the true gradient, S the trace of the covariance of one sample's gradient,
v = S / m0 the variance of the gradient of m0 samples.

Source: the gradient noise scale of McCandlish et al. (2018, appendix A); AdaScale (Johnson et al.,
ICML 2020); Pollux (Qiao et al., OSDI 2021, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How much of the noise figures is kept over one initial batch; AdaptDL has the same figure.
_KEPT = 0.999
#: Least q and v. Differences of norms may come out at zero or below.
_TINY = 1e-30
#: Returns the factor of the learning rate, given m / m0 and the gain of the step.
Rule = Callable[[float, float], float]
RuleName = Literal["adascale", "linear", "sqrt", "fixed"]
_RULES: dict[str, Rule] = {
    "adascale": lambda _scale, gained: gained,
    "linear": lambda scale, _gained: scale,
    "sqrt": lambda scale, _gained: math.sqrt(scale),
    "fixed": lambda _scale, _gained: 1.0,
}


def learning_rate_rule(rule: RuleName | Rule) -> Rule:
    """Return the rule of a name; a function is a rule already.

    Raises:
        ValueError: there is no rule of this name.
    """
    if callable(rule):
        return rule
    if rule not in _RULES:
        raise ValueError(
            f"there is no learning rate rule '{rule}'; use {', '.join(_RULES)}, or a function of "
            "m / m0 and gain"
        )
    return _RULES[rule]


def gain(initial: float, noise: float, batch: float) -> float:
    """Return AdaScale's r: how many steps of the initial batch one step is worth, at least 1.

    Args:
        initial: m0, samples.
        noise: gradient noise scale, samples.
        batch: m, samples, at least ``initial``.
    """
    return max(1.0, batch / initial * ((noise + initial) / (noise + batch)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNorms:
    """Squared norms of the gradients of one step.

    Attributes:
        small_sqr: mean of the squared norms of M gradients.
        large_sqr: squared norm of the gradient of all their samples.
        small: b, samples of each of the M; of unlike ones the harmonic mean.
        large: B, samples of all of them.
    """

    small_sqr: float
    large_sqr: float
    small: float
    large: float


class GradientNoise:
    """Estimates the noise of gradients, from small and large batches of the same step.

    The expected squared norm of a gradient of n samples is q + S / n. So two sizes give both:
    q = (B |G_B|^2 - b |G_b|^2) / (B - b) and S = (|G_b|^2 - |G_B|^2) / (1 / b - 1 / B), without
    bias. Both are averaged separately, since their ratio in one step is useless. The averages are
    exponential, with 0.999 kept over each initial batch, and corrected for the beginning.

    Args:
        initial: m0, samples.
    """

    def __init__(self, *, initial: int) -> None:
        self._initial = initial
        self._sqr = self._variance = self._weight = 0.0

    def observe(self, norms: GradientNorms) -> None:
        """Record a step; a step with gradients that are not finite is left out."""
        b, B = norms.small, norms.large
        sqr = (B * norms.large_sqr - b * norms.small_sqr) / (B - b)
        trace = (norms.small_sqr - norms.large_sqr) / (1 / b - 1 / B)
        if not (math.isfinite(sqr) and math.isfinite(trace)):
            return
        kept = _KEPT ** (B / self._initial)
        self._sqr = kept * self._sqr + (1 - kept) * sqr
        self._variance = kept * self._variance + (1 - kept) * trace / self._initial
        self._weight = kept * self._weight + (1 - kept)

    @property
    def known(self) -> bool:
        """Whether there is a measurement."""
        return self._weight > 0

    @property
    def sqr(self) -> float:
        """q, the squared norm of the true gradient."""
        return max(self._sqr / self._weight, _TINY) if self.known else _TINY

    @property
    def variance(self) -> float:
        """v, the variance of the gradient of the initial batch."""
        return max(self._variance / self._weight, _TINY) if self.known else _TINY

    @property
    def scale_samples(self) -> float:
        """The gradient noise scale m0 v / q; 0 if nothing was measured: no batch is worth more."""
        return self._initial * self.variance / self.sqr if self.known else 0.0

    def state_dict(self) -> dict[str, float]:
        """Return the averages."""
        return {"sqr": self._sqr, "variance": self._variance, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the averages."""
        self._sqr, self._variance = state["sqr"], state["variance"]
        self._weight = state["weight"]
