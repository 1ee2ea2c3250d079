"""Proportional fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from policies.built_in.alpha_fairness import shares, stated
from policies.families import AlphaFair
from policies.program import ProgramPolicy

if TYPE_CHECKING:
    from policies.families import Family
    from policies.terms import Terms


@dataclass(frozen=True, kw_only=True)
class ProportionalFairness(ProgramPolicy):
    """Give the shares that no change could improve by more per cent than it costs others.

    Program: maximise the sum over m of w_m log(s_m thr(m, X) / thr(m, equal share)): the weighted
    Nash bargaining solution. The normaliser shifts the value and not the answer.

    Source: Kelly, Charging and rate control for elastic traffic (1997); Eisenberg and Gale (1959).
    """

    name: ClassVar[str] = "proportional_fairness"

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        return stated(terms, 1.0)

    def family(self, terms: Terms) -> Family:
        """Return the family of the objective."""
        return AlphaFair(weight=terms.weight, coefficient=shares(terms), alpha=1.0)
