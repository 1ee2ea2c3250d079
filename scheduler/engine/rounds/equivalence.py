"""Configurations of a profile that are of equal value within the doubt of their throughputs.

Two are of equal value if a job holds equally many workers in them, at the same price, and their
throughputs differ by no more than the doubt of both. Promises of time in such configurations are
one promise: the round mechanism uses their sum, and lets a job stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import distinct_columns
from scheduler.domain.configuration import MOST_DOUBT, ROUNDING
from scheduler.engine.rounds.kernels import group_alike

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable

_TINY = 1e-300
#: Logarithms of throughputs are closer together than this. At a million workers a sum of both is
#: rounded by at most 4e-7, so ``_candidates`` may name a profile too many, but misses no profile.
_APART = 2_000.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EquivalentConfigurations:
    """Configurations of equal value. Letters as in ``ConfigurationTable``.

    Attributes:
        group: (U, J) the first configuration of equal value; a configuration's own index if there
            is no other.
        slot: (U, J) number that configurations of one demand share.
        doubt: (U, J) see ``Configuration``; 0 in the padding.
        price: (U, J) USD per hour of the workers.
        shared: (U,) profiles that have two of equal value.
        any: whether there is such a profile.
    """

    group: IntArray
    slot: IntArray
    doubt: FloatArray
    price: FloatArray
    shared: BoolArray
    any: bool

    @classmethod
    def of(
        cls, table: ConfigurationTable, cost_usd_per_hour: FloatArray
    ) -> EquivalentConfigurations:
        """Compare the configurations of each profile.

        Args:
            table: configurations by profile.
            cost_usd_per_hour: (K,) price of one worker.
        """
        steps, demand = table.throughput, table.demand
        group: IntArray = np.full(steps.shape, -1, dtype=np.int64)
        doubt = table.doubt
        workers, price = demand.sum(axis=2), demand @ cost_usd_per_hour
        some = _candidates(steps, workers)
        if len(some):
            found = group[some]
            group_alike(
                np.argsort(-steps[some], axis=1, kind="stable"),
                steps[some],
                workers[some],
                price[some],
                np.array([MOST_DOUBT, ROUNDING]),
                doubt[some],
                found,
            )
            group[some] = found
        own = np.arange(group.shape[1])
        group = np.where(group < 0, own, group)
        flat = demand.reshape(-1, demand.shape[2])
        slot = distinct_columns(flat.T)[1].reshape(group.shape)
        shared = (group != own).any(axis=1)
        return cls(
            group=group, slot=slot, doubt=doubt, price=price, shared=shared, any=bool(shared.any())
        )


def _candidates(steps: FloatArray, workers: IntArray) -> IntArray:
    """Return (n,) profiles in which two throughputs for equally many workers are close.

    Args:
        steps: (U, J) steps/s.
        workers: (U, J) held.
    """
    # Throughputs for equally many workers stand side by side, those of other counts far apart.
    apart = np.log(np.maximum(steps, _TINY)) + _APART * workers
    order = np.argsort(apart, axis=1)
    apart, runs = (np.take_along_axis(of, order, axis=1) for of in (apart, steps > 0))
    close = (np.diff(apart, axis=1) <= MOST_DOUBT + 1e-5) & runs[:, :-1] & runs[:, 1:]
    return np.flatnonzero(close.any(axis=1))
