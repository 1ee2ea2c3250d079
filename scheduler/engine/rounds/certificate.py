"""Certificates: how good a planned round is, with proof.

A round is a packing: each job runs in one configuration at most, within the available workers.
``urgency`` says what each candidate is worth. No round is worth more than the best solution of an
integer program, and that is worth no more than the linear relaxation, in which workers can be
divided. The gap between a round and these bounds is the most that a better choice could gain.

Source of the bound by prices: Lagrangian relaxation of the capacity (M. L. Fisher, The Lagrangian
relaxation method for solving integer programming problems, Management Science, 1981).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, FloatArray
    from scheduler.engine.rounds.candidates import Candidates

#: A choice that is proven to be within this part of the best one is taken.
GAP: Final = 0.001
#: If a quick search does not prove this much, an integer program is solved.
FAR: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How good a round was when it was planned.

    Without a band, and for policies that ask for rounds by lag alone, no sum is maximised: the
    round follows X as closely as the order allows. Then ``value``, ``bound`` and ``fluid`` are nan.

    Attributes:
        value: sum of the values of the candidates that run.
        bound: upper bound on that sum for any choice of whole workers; >= ``value``.
        fluid: upper bound if workers could be divided; >= ``bound``.
        behind_rounds: rounds by which the candidate that is furthest behind X lags at the end.
        off_rounds: distance from X at the end of the round, in rounds, mean of all candidates.
        candidates: configurations and pairs that could run.
    """

    value: float
    bound: float
    fluid: float
    behind_rounds: float
    off_rounds: float
    candidates: int

    @property
    def gap(self) -> float:
        """Largest part of the best value that another choice of whole workers could gain."""
        return _short(self.value, self.bound)

    @property
    def fluid_gap(self) -> float:
        """The same if workers could be divided: includes the loss by gangs that do not fit."""
        return _short(self.value, self.fluid)


def _short(value: float, most: float) -> float:
    if math.isnan(value):
        return math.nan
    return max(1.0 - value / most, 0.0) if most > 0 else 0.0


def certify(
    found: Candidates,
    runs: BoolArray,
    value: FloatArray | None,
    *,
    bounds: Sequence[float],
    length_s: float,
) -> Certificate:
    """Return the certificate of a choice.

    Args:
        found: the C candidates.
        runs: (C,) which of them run.
        value: (C,) value of each; None without a sum.
        bounds: upper bounds for whole and for divided workers.
        length_s: seconds of the round.
    """
    reached = bound = fluid = math.nan
    if value is not None:
        reached = float(value[runs].sum())
        bound = max(bounds[0], reached)
        fluid = max(bounds[1], bound)
    behind_s = found.deficit_s.copy()
    served = runs
    if found.promise.max(initial=NONE) != NONE:
        served = runs | np.isin(found.promise, found.promise[runs & (found.promise >= 0)])
    behind_s[served] -= length_s
    off = np.abs(behind_s) / length_s
    return Certificate(
        value=reached,
        bound=bound,
        fluid=fluid,
        behind_rounds=max(float(behind_s.max(initial=0.0)) / length_s, 0.0),
        off_rounds=float(off.mean()) if len(off) else 0.0,
        candidates=len(off),
    )
