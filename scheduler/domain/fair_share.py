"""Half-life fair share: an entity that has recently used more than its share counts for less.

Usage is worker-seconds that fade away by half in every half-life. Among the entities that compete,
an entity's part of all usage is held against its part of all weights, and its effective weight is

    weight x 2^(1 - min(usage part / weight part, 5))

so the weight itself if it has had just its share, twice the weight if it has had nothing, half of
it if it has had twice its share, and never less than a sixteenth.

Source: Slurm's classic fair-share factor, 2^(-usage part / share)
(https://slurm.schedmd.com/classic_fair_share.html), here times two, so that a balance leaves
weights as they are, and bounded, so that an entity that had everything still gets on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray

#: Usage counts up to so many times the share; beyond it the effective weight falls no further.
MOST_SHARES = 5.0


def faded(
    usage_s: FloatArray, rate: FloatArray, *, elapsed_s: float, half_life_s: float
) -> FloatArray:
    """Return (E,) usage after some more time.

    Args:
        usage_s: (E,) worker-seconds, faded until the begin of that time.
        rate: (E,) workers held throughout.
        elapsed_s: the time, >= 0.
        half_life_s: > 0.
    """
    left = 2.0 ** (-elapsed_s / half_life_s)
    result: FloatArray = usage_s * left + rate * ((1.0 - left) * half_life_s / math.log(2.0))
    return result


def factors(weight: FloatArray, usage_s: FloatArray, competes: BoolArray) -> FloatArray:
    """Return (E,) by what the entities' weights are multiplied; 1 for entities that do not compete.

    Args:
        weight: (E,) > 0.
        usage_s: (E,) faded worker-seconds, >= 0.
        competes: (E,) entities that have jobs which could run.
    """
    result = np.ones(len(weight))
    used = float(usage_s[competes].sum())
    if used > 0.0:
        part = usage_s[competes] / used
        share = weight[competes] / weight[competes].sum()
        result[competes] = 2.0 ** (1.0 - np.minimum(part / share, MOST_SHARES))
    return result
