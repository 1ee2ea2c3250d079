"""Which configurations of a profile are of equal value, as far as the figures tell.

Two are if a job holds equally many workers in them, at the same price, and their throughputs are no
further apart than the doubt of both. Promises of time in such configurations are one promise: the
round mechanism looks at their sum, and leaves a job where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import MOST_DOUBT, margin

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable

_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alike:
    """What is of equal value. Letters as in ``ConfigurationTable``.

    Attributes:
        group: (U, J) the first configuration of equal value; a configuration's own index where
            there is no other.
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
    def of(cls, table: ConfigurationTable, cost_usd_per_hour: FloatArray) -> Alike:
        """Compare the configurations of each profile.

        Args:
            table: configurations by profile.
            cost_usd_per_hour: (K,) price of one worker.
        """
        steps, demand = table.throughput, table.demand
        group: IntArray = np.full(steps.shape, -1, dtype=np.int64)
        doubt = table.doubt
        workers, price = demand.sum(axis=2), demand @ cost_usd_per_hour
        for u in _candidates(steps):
            # The fastest leads, so that nothing in a group is further from it than the doubt.
            for j in np.argsort(-steps[u], kind="stable").tolist():
                if steps[u, j] <= 0 or group[u, j] >= 0:
                    continue
                gap = np.log(steps[u, j] / np.maximum(steps[u], _TINY))
                same = (
                    (group[u] < 0)
                    & (steps[u] > 0)
                    & (workers[u] == workers[u, j])
                    & np.isclose(price[u], price[u, j], rtol=1e-9, atol=0.0)
                    & (gap <= margin(doubt[u, j], doubt[u]))
                )
                same[j] = True
                group[u, same] = np.flatnonzero(same)[0]
        own = np.arange(group.shape[1])
        group = np.where(group < 0, own, group)
        flat = demand.reshape(-1, demand.shape[2])
        slot = np.unique(flat, axis=0, return_inverse=True)[1].reshape(group.shape)
        shared = (group != own).any(axis=1)
        return cls(
            group=group, slot=slot, doubt=doubt, price=price, shared=shared, any=bool(shared.any())
        )


def _candidates(steps: FloatArray) -> list[int]:
    """Return the profiles, of (U, J) steps/s, in which two figures are close at all."""
    if steps.shape[1] < 2:
        return []
    logs = np.sort(np.log(np.maximum(steps, _TINY)), axis=1)
    close = (np.diff(logs, axis=1) <= MOST_DOUBT + 1e-9) & (logs[:, 1:] > np.log(_TINY))
    return np.flatnonzero(close.any(axis=1)).tolist()
