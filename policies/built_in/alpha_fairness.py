"""Alpha fairness: one parameter from throughput to max-min."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from policies.families import AlphaFair
from policies.parameters import parameter
from policies.program import ProgramPolicy

if TYPE_CHECKING:
    from policies.families import Family
    from policies.terms import Terms
    from scheduler.domain.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class AlphaFairness(ProgramPolicy):
    """Trade total throughput against fairness with one parameter.

    Program: maximise the sum over m of w_m U(s_m thr(m, X) / thr(m, equal share)), with
    U(t) = t^(1 - alpha) / (1 - alpha), and log t at alpha = 1. alpha = 0 maximises the sum, 1 is
    proportional fairness, and the larger alpha, the nearer max-min fairness.

    Source: Mo and Walrand, Fair end-to-end window-based congestion control (ToN 2000).
    """

    name: ClassVar[str] = "alpha_fairness"

    alpha: float = parameter(
        2.0, ge=0.0, le=8.0, help="Aversion to inequality: 0 sum, 1 proportional, large max-min."
    )

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        return stated(terms, self.alpha)

    def family(self, terms: Terms) -> Family:
        """Return the family of the objective."""
        return AlphaFair(weight=terms.weight, coefficient=shares(terms), alpha=self.alpha)


def shares(terms: Terms) -> FloatArray:
    """Return (M,) the coefficient of a class's steps/s in units of its equal share."""
    result: FloatArray = terms.scale_factor / terms.equal_share_throughput
    return result


def stated(terms: Terms, alpha: float) -> Any:
    """Return the cvxpy objective of alpha fairness over equal shares."""
    import cvxpy as cp  # noqa: PLC0415  takes a second to import

    t = cp.multiply(shares(terms), terms.throughput)
    weight = terms.weight * terms.count
    if alpha == 1:
        return weight @ cp.log(t)
    if alpha == 0:
        return weight @ t
    return (weight @ cp.power(t, 1 - alpha)) / (1 - alpha)
