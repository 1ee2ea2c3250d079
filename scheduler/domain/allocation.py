"""The allocation X: a policy's answer."""

from __future__ import annotations

import functools
import inspect
import warnings as python_warnings
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        rank: (N,) order in which waiting jobs may use what is left over, lowest first; None if the
            policy has no opinion.
        objective: the value of the policy's objective, for reports and tests.
        solver: what produced the answer.
        warnings: what the user should know (an SLO that cannot be met, say).
        no_backfill: (N,) jobs that run by X alone: they get no left-over workers. None for no jobs.
        may_use_remaining_work: whether the policy may know how long jobs take. If it may, rounds
            serve first the job that ends soonest among jobs that lag about equally. If not, they
            serve first the job that has received least.
        follow_exactly: whether rounds follow X as closely as they can, regardless of the band that
            is set: for objectives that the worst-off job alone decides.
    """

    #: Field -> its name in stored data and, until the release after 0.3.0, in plugins.
    STORED_NAMES: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "no_backfill": "x_only",
            "may_use_remaining_work": "by_lengths",
            "follow_exactly": "by_lag",
        }
    )

    x: FloatArray
    pair_jobs: IntArray
    pair_index: IntArray
    pair_x: FloatArray
    rank: FloatArray | None = None
    objective: float = float("nan")
    solver: str = ""
    warnings: tuple[str, ...] = ()
    no_backfill: BoolArray | None = None
    may_use_remaining_work: bool = True
    follow_exactly: bool = False

    @classmethod
    def singles(
        cls,
        x: FloatArray,
        *,
        rank: FloatArray | None = None,
        objective: float = float("nan"),
        solver: str = "",
        warnings: tuple[str, ...] = (),
        no_backfill: BoolArray | None = None,
        **old_names: Any,
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
            no_backfill=no_backfill,
            **old_names,
        )

    def __getattr__(self, name: str) -> Any:
        """Return a field under its old name."""
        if (field := _FIELDS.get(name)) is None:
            raise AttributeError(f"'Allocation' has no field '{name}'")
        _warn_of_old_name(name, field)
        return getattr(self, field)

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


#: Old name -> field.
_FIELDS: Final = {old: field for field, old in Allocation.STORED_NAMES.items()}


def _warn_of_old_name(old: str, field: str) -> None:
    inside = {__name__, "dataclasses", "copy"}
    levels = enumerate(inspect.stack(0), 1)
    level = next(n for n, (frame, *_) in levels if frame.f_globals["__name__"] not in inside)
    python_warnings.warn(
        f"Allocation.{old} is now called {field}; the old name goes with the release after 0.3.0",
        DeprecationWarning,
        stacklevel=level,
    )


def _accept_old_names(make: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor accept fields under their old names; they precede the new ones."""

    @functools.wraps(make)
    def make_from(self: Allocation, **values: Any) -> None:
        for old in _FIELDS.keys() & values.keys():
            _warn_of_old_name(old, _FIELDS[old])
            values[_FIELDS[old]] = values.pop(old)
        make(self, **values)

    return make_from


Allocation.__init__ = _accept_old_names(Allocation.__init__)  # type: ignore[method-assign]
