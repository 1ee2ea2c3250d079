"""The allocation X: a policy's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """The fraction of wall-clock time that each job should spend in each configuration.

    Letters: N jobs of the problem in its order, J configurations per job, Q pairs in use.

    Attributes:
        x: (N, J) fractions in single configurations.
        pair_jobs: (Q, 2) positions of the members in the problem; the first member has the
            profile ``table.pair_profiles[pair_index, 0]``.
        pair_index: (Q,) row of the table's pairs.
        pair_x: (Q,) fractions.
        rank: (N,) order in which waiting jobs may use what is left over, lowest first; None where
            the policy has no opinion.
        objective: the value of the policy's objective, for reports and tests.
        solver: what produced the answer.
        warnings: what the user should know (an SLO that cannot be met, say).
        x_only: (N,) jobs that run by X alone, so that workers that X leaves idle are meant to be
            where they could have used them. None for no job: what is left over is offered to all.
        by_lengths: whether the policy may know how long jobs take. Then, of what X owes much the
            same, rounds serve first what ends soonest, else who has had least so far.
        by_lag: whether rounds follow X as closely as they can, whatever band around it is set:
            for objectives that the worst-off job alone decides.
    """

    x: FloatArray
    pair_jobs: IntArray
    pair_index: IntArray
    pair_x: FloatArray
    rank: FloatArray | None = None
    objective: float = float("nan")
    solver: str = ""
    warnings: tuple[str, ...] = ()
    x_only: BoolArray | None = None
    by_lengths: bool = True
    by_lag: bool = False

    @classmethod
    def singles(
        cls,
        x: FloatArray,
        *,
        rank: FloatArray | None = None,
        objective: float = float("nan"),
        solver: str = "",
        warnings: tuple[str, ...] = (),
        x_only: BoolArray | None = None,
    ) -> Allocation:
        """Make an allocation without pairs."""
        return cls(
            x=x,
            pair_jobs=np.empty((0, 2), dtype=np.int64),
            pair_index=np.empty(0, dtype=np.int64),
            pair_x=np.empty(0),
            rank=rank,
            objective=objective,
            solver=solver,
            warnings=warnings,
            x_only=x_only,
        )

    def effective_throughput(self, problem: Problem) -> FloatArray:
        """Return (N,) steps/s: the sum over configurations of throughput x time fraction."""
        result: FloatArray = (problem.throughput * self.x).sum(axis=1)
        if len(self.pair_x):
            shared = problem.table.pair_throughput[self.pair_index] * self.pair_x[:, None]
            np.add.at(result, self.pair_jobs[:, 0], shared[:, 0])
            np.add.at(result, self.pair_jobs[:, 1], shared[:, 1])
        return result

    def time_fraction(self) -> FloatArray:
        """Return (N,) the fraction of time in which each job runs at all."""
        result: FloatArray = self.x.sum(axis=1)
        if len(self.pair_x):
            np.add.at(result, self.pair_jobs[:, 0], self.pair_x)
            np.add.at(result, self.pair_jobs[:, 1], self.pair_x)
        return result

    def usage(self, problem: Problem) -> FloatArray:
        """Return (K,) the number of workers of each type in use on average."""
        result: FloatArray = np.einsum("nj,njk->k", self.x, problem.demand)
        if len(self.pair_x):
            result = result + self.pair_x @ problem.table.pair_demand[self.pair_index]
        return result
