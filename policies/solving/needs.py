"""What each job needs of its time to reach a level, and jobs that need next to nothing.

Solvers take what is below their tolerances for 0, and a job may need less than that: beside a job
of months, one that has a second to go asks for a ten-millionth of its time. It must still get it,
since it alone would lower the level to 0. What is missing there costs the others nothing that could
be measured, so that it is added by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.kernels.level import needs
from policies.solving.classes import TINY

if TYPE_CHECKING:
    from policies.solving.level import LevelProgram, LevelSolution
    from scheduler.domain.arrays import FloatArray

#: A lifted job gets so much more than it needs, so that rounding does not take it away again.
MARGIN = 1e-12


def tiny_fractions(program: LevelProgram, level: float) -> FloatArray | None:
    """Return (M,) the least fraction of its time in which a job of each class reaches a level.

    Args:
        program: whose level rows say what a class must reach.
        level: z.

    Returns:
        At most ``TINY``, which stands for all that is more and for nothing at all; None where there
        is nothing else.
    """
    found, fractions = needs(
        program.gain, program.slope, program.floor, program.classes.fastest, level, TINY
    )
    return fractions if found else None


def lift(
    program: LevelProgram,
    solution: LevelSolution,
    need: FloatArray | None,
    x: FloatArray,
    pair_x: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Give jobs that need next to nothing of their time what they lack of it.

    Args:
        program: what was solved.
        solution: a solver's answer, whose level and prices are used.
        need: (M,) see ``tiny_fractions``.
        x: (M, J) clipped fractions.
        pair_x: (P,) likewise; may be changed in place.

    Returns:
        Fractions that may ask for a little more than there is: see ``ClassProblem.fit``.
    """
    if need is None:
        return x, pair_x
    classes = program.classes
    reached = program.gain * classes.effective_throughput(x, pair_x)
    target = program.floor + program.slope * solution.level
    lacking = np.where(
        need < TINY, (target * (1.0 + MARGIN) - reached) / np.maximum(target, 1e-300), 0.0
    )
    short = np.flatnonzero(lacking > 0)
    alone = short[classes.usable[short].any(axis=1)]
    if len(alone):
        rent = classes.demand[alone] @ np.maximum(solution.worker_price, 0.0)
        rent += 1e-9 * max(float(rent.max()), 1e-300)  # where workers cost nothing: the fastest
        usable = classes.usable[alone]
        rate = np.where(usable, classes.throughput[alone], 1.0)
        j = np.where(usable, rent / rate, np.inf).argmin(axis=1)
        steps = lacking[alone] * need[alone] * classes.fastest[alone]
        x[alone, j] += steps / classes.throughput[alone, j]
    for m in short[~classes.usable[short].any(axis=1)]:
        _lift_in_company(program, int(m), float(lacking[m] * need[m]), pair_x)
    return x, pair_x


def _lift_in_company(program: LevelProgram, m: int, missing: float, pair_x: FloatArray) -> None:
    """Give jobs of a class that run only in pairs more of their fastest one."""
    classes = program.classes
    mine = classes.pair_classes == m
    rate = np.where(mine, classes.pair_throughput, 0.0)
    pair = int(rate.max(axis=1).argmax())
    both = float(rate[pair].sum())
    pair_x[pair] += missing * classes.fastest[m] * classes.count[m] / both
