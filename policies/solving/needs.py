"""The fraction of its time that each job needs to reach a level, and jobs with tiny needs.

Solvers treat values below their tolerances as 0, and a job may need less. Beside a job of months, a
job with a second left needs a ten-millionth of its time. It must still get that, since alone it
would lower the level to 0. The missing time costs the other jobs no measurable amount, so
``lift_tiny_needs`` adds it directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.kernels.level import needs
from policies.solving.classes import TINY

if TYPE_CHECKING:
    from policies.solving.level import LevelProgram, LevelSolution
    from scheduler.domain.arrays import FloatArray

#: A lifted job gets this part more than it needs, so that rounding does not remove it again.
MARGIN = 1e-12


def tiny_fractions(program: LevelProgram, level: float) -> FloatArray | None:
    """Return (M,) the least fraction of its time in which a job of each class reaches a level.

    Args:
        program: its level rows say which throughput a class must reach.
        level: z.

    Returns:
        At most ``TINY``, which stands for larger needs and for no need; None if all are ``TINY``.
    """
    found, fractions = needs(
        program.gain, program.slope, program.floor, program.classes.fastest, level, TINY
    )
    return fractions if found else None


def lift_tiny_needs(
    program: LevelProgram,
    solution: LevelSolution,
    need: FloatArray | None,
    x: FloatArray,
    pair_x: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Give jobs that need a tiny fraction of their time the part of it that they lack.

    Args:
        program: the program that was solved.
        solution: a solver's answer; its level and prices are used.
        need: (M,) see ``tiny_fractions``.
        x: (M, J) clipped fractions.
        pair_x: (P,) clipped fractions; may be changed in place.

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
        rent += 1e-9 * max(float(rent.max()), 1e-300)  # if workers cost nothing: the fastest
        usable = classes.usable[alone]
        rate = np.where(usable, classes.throughput[alone], 1.0)
        j = np.where(usable, rent / rate, np.inf).argmin(axis=1)
        steps = lacking[alone] * need[alone] * classes.fastest[alone]
        x[alone, j] += steps / classes.throughput[alone, j]
    for m in short[~classes.usable[short].any(axis=1)]:
        _lift_in_company(program, int(m), float(lacking[m] * need[m]), pair_x)
    return x, pair_x


def _lift_in_company(program: LevelProgram, m: int, missing: float, pair_x: FloatArray) -> None:
    """Give jobs of a class that runs only in pairs more of their fastest pair."""
    classes = program.classes
    mine = classes.pair_classes == m
    rate = np.where(mine, classes.pair_throughput, 0.0)
    pair = int(rate.max(axis=1).argmax())
    both = float(rate[pair].sum())
    pair_x[pair] += missing * classes.fastest[m] * classes.count[m] / both
