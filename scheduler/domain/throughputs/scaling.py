"""Gangs: the throughput at an unmeasured scale factor, from the known ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

#: Share of the linear speed-up that is kept each time a gang doubles beyond the known scale
#: factors.
EFFICIENCY_PER_DOUBLING = 0.9


def steps_per_s_at(
    known: Sequence[tuple[int, float]],
    scale_factor: int,
    *,
    efficiency_per_doubling: float = EFFICIENCY_PER_DOUBLING,
) -> float:
    """Return the throughput at a scale factor from those known on the same worker type.

    - Beyond the largest known one, S: ``T(n) = T(S) * (n / S) * efficiency ** log2(n / S)``;
    - between two known ones: on the straight line between them;
    - below the smallest known one: in proportion to the workers.

    Args:
        known: (scale factor, steps/s), at least one, by ascending scale factor.
        scale_factor: the one that is wanted, >= 1.
        efficiency_per_doubling: share of the linear speed-up kept at each doubling, in (0, 1].
    """
    largest, at_largest = known[-1]
    if scale_factor >= largest:
        growth = scale_factor / largest
        return float(at_largest * growth * efficiency_per_doubling ** math.log2(growth))
    smallest, at_smallest = known[0]
    if scale_factor <= smallest:
        return at_smallest * scale_factor / smallest
    below = max(point for point in known if point[0] <= scale_factor)
    above = min(point for point in known if point[0] > scale_factor)
    part = (scale_factor - below[0]) / (above[0] - below[0])
    return below[1] + part * (above[1] - below[1])


def may_run_at(told: Collection[tuple[int, bool]], scale_factor: int) -> bool:
    """Return whether a job may run at a scale factor, by those at which it is known to run or not.

    It does not run beyond a count at which it does not, seen from one at which it does: neither at
    more workers (it does not scale) nor at fewer (a model needs their memory).

    Args:
        told: (scale factor, whether it runs there), of one worker type, in any order.
        scale_factor: the one that is wanted, which is not among them.
    """
    sides = (
        [runs for n, runs in sorted(told, reverse=True) if n < scale_factor],
        [runs for n, runs in sorted(told) if n > scale_factor],
    )
    return all(not side or side[0] or not any(side) for side in sides)
