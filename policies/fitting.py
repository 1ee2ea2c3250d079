"""Which configurations of a table fit the workers in service; cached, since it rarely changes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitting:
    """The configurations that fit. Letters as in ``ConfigurationTable``; arrays are read-only.

    Attributes:
        usable: (U, J) whether a configuration fits the workers in service and makes progress.
        rate: (U, J) steps/s; 0 if it is not usable.
        demand: (U, J, K) workers held.
        able: (U,) whether a profile has such a configuration.
        thriftiest: (U, K) each profile's best throughput per worker on workers of one type, in
            steps/s of as many workers as its reference count; 0 if it does not run or fit.
    """

    usable: BoolArray
    rate: FloatArray
    demand: FloatArray
    able: BoolArray
    thriftiest: FloatArray


def fitting(problem: Problem) -> Fitting:
    """Return the configurations that fit the capacity of a problem; quotas do not count."""
    return _fitting(problem.table, tuple(problem.capacity.tolist()))


@lru_cache(maxsize=4)
def _fitting(table: ConfigurationTable, capacity: tuple[float, ...]) -> Fitting:
    demand = table.demand.astype(float)
    workers = demand.sum(axis=2)
    usable = (demand <= np.array(capacity)).all(axis=2) & (workers > 0) & (table.throughput > 0)
    rate = np.where(usable, table.throughput, 0.0)
    reference = np.array([profile.scale_factor for profile in table.profiles], dtype=float)
    single_type = np.count_nonzero(demand, axis=2) == 1
    thrifty = np.where(single_type, rate / (np.maximum(workers, 1.0) / reference[:, None]), 0.0)
    found = Fitting(
        usable=usable,
        rate=rate,
        demand=demand,
        able=usable.any(axis=1),
        thriftiest=np.where(demand > 0, thrifty[:, :, None], 0.0).max(axis=1, initial=0.0),
    )
    for field in fields(found):
        getattr(found, field.name).flags.writeable = False
    return found
