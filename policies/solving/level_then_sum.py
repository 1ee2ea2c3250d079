"""Max-min level, then the largest sum at that level; also weighted sums alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.solving.answers import FamilyAnswer, counted_classes, empty_answer
from policies.solving.classes import TINY
from policies.solving.discipline import (
    CheckedSolution,
    answer_of_kernel,
    solve_level,
    zero_level,
)
from policies.solving.level import LevelProgram
from policies.solving.needs import tiny_fractions
from policies.solving.ties import share_out
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from policies.families import MaxMin, WeightedSum
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import FloatArray

#: How much of the level, relatively, a second stage may give up to rounding.
HOLD = 1e-8
#: Up to this many classes HiGHS solves a second stage on which the kernel fails; beyond it (never
#: seen) the answer of the first stage is final.
SMALL = 5000
#: Up to this many classes the second stage first sets a price on the level. With more classes it
#: first uses floors, which then take half the steps.
FEW = 200


def solve_max_min(family: MaxMin, classes: ClassProblem, *, canonical: bool) -> FamilyAnswer:
    """Make the smallest coefficient * throughput as large as possible; see ``solve_family``."""
    counts, warnings = counted_classes(classes, family.coefficient)
    if not counts.any():
        return empty_answer(classes, warnings)
    gain = np.where(counts, family.coefficient, 0.0)
    program = LevelProgram(
        classes=classes,
        gain=gain,
        slope=counts.astype(float),
        floor=np.where(counts, 0.0, -np.inf),
        price=1.0,
    )
    checked = solve_level(program)
    level = checked.value
    if canonical:
        worth = gain if family.worth is None else np.where(counts, family.worth, 0.0)
        checked = second_stage(program, checked, worth)
    thr = classes.effective_throughput(checked.solution.x, checked.solution.pair_x)
    return FamilyAnswer(
        x=checked.solution.x,
        pair_x=checked.solution.pair_x,
        value=float((gain * thr)[counts].min()),
        bound=max(checked.bound, level) if not canonical else level,
        solver=checked.solution.solver,
        warnings=warnings,
    )


def second_stage(
    program: LevelProgram, first: CheckedSolution, worth: FloatArray
) -> CheckedSolution:
    """Hold the reached level and maximise the sum over jobs of worth * thr.

    The sum does not decide among jobs that differ only in weight; see ``share_out``.
    """
    checked = _largest_sum(program, first, worth)
    solution = checked.solution
    weight = program.classes.problem.weight
    if (weight == weight[0]).all():
        return checked
    target = program.floor + program.slope * first.solution.level
    need = np.where(program.leveled, target / np.where(program.gain > 0, program.gain, 1.0), 0.0)
    x = share_out(program.classes, solution.x, solution.pair_x, need, worth)
    return replace(checked, solution=replace(solution, x=x))


def _largest_sum(
    program: LevelProgram, first: CheckedSolution, worth: FloatArray
) -> CheckedSolution:
    """Maximise the sum of worth * thr at the reached level.

    If a positive price holds every class at its floor, the sum is fixed already. If no solver finds
    a better answer, the answer of the first stage is final.
    """
    classes = program.classes
    solution = first.solution
    price = solution.row_price * program.slope
    if (price[program.leveled] > 1e-7 * price.max(initial=0.0)).all():
        return first
    # A job that needs almost no time would dominate the sum.
    need = tiny_fractions(program, solution.level)
    if need is not None:
        worth = worth * (need / TINY)
    cost = (worth * classes.count)[:, None] * classes.throughput
    if len(classes.pair_index):
        pair_cost = (worth[classes.pair_classes] * classes.pair_throughput).sum(axis=1)
        return _or_first(_at_level(program, solution.level, cost, pair_cost), first)
    few = classes.size <= FEW
    if few and (checked := _both_at_once(program, first, cost)):
        return checked
    stage = _at_level(program, solution.level, cost)
    checked = answer_of_kernel(stage, near=solution.x)
    if checked is None and not few:
        checked = _both_at_once(program, first, cost)
    return checked or (_or_first(stage, first) if classes.size <= SMALL else first)


def _at_level(
    program: LevelProgram, level: float, cost: FloatArray, pair_cost: FloatArray | None = None
) -> LevelProgram:
    """Return the program that holds a level by floors and maximises a sum."""
    held = program.floor + program.slope * level
    return replace(
        program,
        slope=np.zeros(program.classes.size),
        floor=held - HOLD * np.abs(held),
        cost=cost,
        pair_cost=pair_cost,
        price=0.0,
    )


def _or_first(stage: LevelProgram, first: CheckedSolution) -> CheckedSolution:
    """Solve the second stage; if no solver can, return the first stage, which has the level."""
    try:
        return solve_level(stage, first)
    except SolveError:
        return first


def _both_at_once(
    program: LevelProgram, first: CheckedSolution, cost: FloatArray
) -> CheckedSolution | None:
    """Give the level a price that outweighs the sum; None unless the level comes out as before.

    For a high enough price this is exact. It spares the kernel the program with floors, which has
    no interior.
    """
    solution = first.solution
    total = float((cost * solution.x).sum())
    size = max(abs(solution.level), zero_level(program))
    for outweigh in (30.0, 3000.0):
        priced = replace(program, cost=cost, price=outweigh * total / size)
        checked = answer_of_kernel(priced)
        if checked is None:
            return None
        if checked.solution.level >= solution.level - HOLD * size:
            return checked
    return None


def solve_weighted_sum(family: WeightedSum, classes: ClassProblem) -> FamilyAnswer:
    """Make the weighted sum of throughputs as large as possible; see ``solve_family``."""
    counts, warnings = counted_classes(classes)
    if not counts.any():
        return empty_answer(classes, warnings)
    coefficient = np.nan_to_num(family.coefficient, posinf=0.0)
    worth = coefficient[:, None] * classes.throughput
    if family.cost is not None:
        worth = worth - family.cost
    pair_cost = None
    if len(classes.pair_index):
        worths = coefficient[classes.pair_classes] * classes.pair_throughput
        pair_cost = worths.sum(axis=1)
        if family.pair_cost is not None:
            pair_cost = pair_cost - family.pair_cost
    floor = np.full(classes.size, -np.inf)
    if family.required is not None:
        floor = np.where(counts & (family.required > 0), family.required, -np.inf)
    program = LevelProgram(
        classes=classes,
        gain=np.isfinite(floor).astype(float),
        slope=np.zeros(classes.size),
        floor=floor,
        cost=worth * classes.count[:, None],
        pair_cost=pair_cost,
    )
    checked = solve_level(program)
    return FamilyAnswer(
        x=checked.solution.x,
        pair_x=checked.solution.pair_x,
        value=checked.value,
        bound=checked.bound,
        solver=checked.solution.solver,
        warnings=warnings,
    )
