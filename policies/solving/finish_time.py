"""Finish-time fairness as a short sequence of level programs.

rho is attained if thr_m >= remaining_m / (rho * isolated_time_m - age_m) for every job. The right
side is convex in rho. So its tangents at any rho give a linear program with a lower bound as its
optimum, and the next tangents are taken there. This is Newton's method, and converges as fast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.solving.answers import FamilyAnswer, counted_classes, empty_answer
from policies.solving.discipline import (
    GAP,
    CheckedSolution,
    UnprovenError,
    check_solution,
    solve_level,
)
from policies.solving.level import LevelProgram
from policies.solving.level_then_sum import second_stage
from policies.solving.structured import solve_structured_finish

if TYPE_CHECKING:
    from policies.families import FinishTime
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray

#: Newton needs 4 to 7 steps; more than this means that double precision is not enough.
STEPS = 40
#: Prices below this part of the largest are noise.
NOISE = 1e-5
#: How much of its need, relatively, a class may lose to rounding when others rise further.
HOLD = 1e-7


def solve_finish_time(
    family: FinishTime, classes: ClassProblem, *, canonical: bool
) -> FamilyAnswer:
    """Minimise the largest rho; see ``solve_family``."""
    counts, warnings = counted_classes(classes, family.remaining, family.isolated_time)
    if not counts.any():
        return empty_answer(classes, warnings)
    answer = None if len(classes.pair_index) else _directly(family, classes, counts)
    program, checked, bound = answer or _newton(family, classes, counts)
    value = largest_rho(family, classes, *_fractions(checked), counts)
    if classes.capped:
        program, checked = _beside_quotas(family, classes, counts, program, checked)
    if canonical:
        safe = np.where(counts, 1.0 / np.where(counts, family.remaining, 1.0), 0.0)
        checked = second_stage(program, checked, safe)
    return FamilyAnswer(
        x=checked.solution.x,
        pair_x=checked.solution.pair_x,
        value=max(value, largest_rho(family, classes, *_fractions(checked), counts)),
        bound=bound,
        solver=checked.solution.solver,
        warnings=warnings,
    )


def _beside_quotas(
    family: FinishTime,
    classes: ClassProblem,
    counts: BoolArray,
    program: LevelProgram,
    checked: CheckedSolution,
) -> tuple[LevelProgram, CheckedSolution]:
    """Lower the largest rho of the other jobs while a quota limits some jobs.

    A job that its quota limits keeps its time, and must not decide the shares of the others.
    """
    needs, active = np.zeros(classes.size), counts.copy()
    while True:
        solution = checked.solution
        quotas = solution.worker_price[classes.types :]
        # If a job's own time is the limit, the workers' prices are only noise.
        largest = max(solution.worker_price.max(initial=0.0), solution.time_price.max(initial=0.0))
        if not (quotas > NOISE * largest).any():
            return program, checked
        price = solution.row_price * program.slope
        down = active & (price > NOISE * price.max(initial=0.0))
        thr = classes.effective_throughput(*_fractions(checked))
        needs = np.where(down, thr * (1.0 - HOLD), needs)
        active &= ~down
        if not active.any() or not down.any():
            return program, checked
        try:
            program, checked, _ = _newton(family, classes, active, needs)
        except UnprovenError:  # keep the answer reached so far
            return program, checked


def _directly(
    family: FinishTime, classes: ClassProblem, counts: BoolArray
) -> tuple[LevelProgram, CheckedSolution, float] | None:
    """Solve with the kernel, and prove its answer with the tangents there; None if that fails."""
    found = solve_structured_finish(
        family.age, family.remaining, family.isolated_time, classes, counts
    )
    if found is None:
        return None
    solution, rho = found
    program = linearise(family, classes, counts, rho)
    inverse = np.where(counts, 1.0 / np.where(counts, program.gain, 1.0), 0.0)
    checked = check_solution(program, replace(solution, row_price=solution.row_price * inverse))
    bound = rho - checked.bound
    if largest_rho(family, classes, *_fractions(checked), counts) > bound * (1 + GAP):
        return None
    return program, checked, bound


def largest_rho(
    family: FinishTime,
    classes: ClassProblem,
    x: FloatArray,
    pair_x: FloatArray,
    counts: BoolArray,
) -> float:
    """Return the objective of an allocation; inf if a job that counts receives nothing."""
    thr = classes.effective_throughput(x, pair_x)[counts]
    if (thr <= 0).any():
        return float("inf")
    time = family.age[counts] + family.remaining[counts] / thr
    return float((time / family.isolated_time[counts]).max(initial=0.0))


def _fractions(checked: CheckedSolution) -> tuple[FloatArray, FloatArray]:
    return checked.solution.x, checked.solution.pair_x


def linearise(
    family: FinishTime,
    classes: ClassProblem,
    counts: BoolArray,
    rho: float,
    needs: FloatArray | None = None,
) -> LevelProgram:
    """Return the program linearised at rho; its level z means that rho - z is reached.

    Rows are divided by the throughput that rho requires, so that they are of order 1. A class with
    ``needs`` (M,) > 0 needs that throughput at every rho, and has a fixed row for it.
    """
    one = np.where(counts, 1.0, 0.0)
    span = np.where(counts, rho * family.isolated_time - family.age, 1.0)
    gain = np.where(counts, span / np.where(counts, family.remaining, 1.0), 0.0)
    slope = np.where(counts, family.isolated_time / span, 0.0)
    floor: FloatArray = np.where(counts, one, -np.inf)
    if needs is not None:
        kept = needs > 0
        gain = np.where(kept, 1.0 / np.where(kept, needs, 1.0), gain)
        floor = np.where(kept, 1.0, floor)
    return LevelProgram(classes=classes, gain=gain, slope=slope, floor=floor, price=1.0, scale=rho)


def _newton(
    family: FinishTime,
    classes: ClassProblem,
    counts: BoolArray,
    needs: FloatArray | None = None,
) -> tuple[LevelProgram, CheckedSolution, float]:
    """Return the last linear program, its answer, and the best lower bound on rho."""
    pole = float((family.age[counts] / family.isolated_time[counts]).max())
    rho = _start(family, classes, counts, pole)
    bound = pole
    checked: CheckedSolution | None = None
    for _ in range(STEPS):
        program = linearise(family, classes, counts, rho, needs)
        try:
            checked = solve_level(program, checked)
        except UnprovenError as error:
            proven = np.nanmax((bound, rho - error.bound))
            raise UnprovenError(str(error), float(proven)) from error
        bound = max(bound, rho - checked.bound)
        reached = largest_rho(family, classes, *_fractions(checked), counts)
        following = rho - checked.value
        if reached <= bound * (1 + 1e-9) or abs(following - rho) <= 1e-10 * rho:
            break
        rho = max(following, pole + 0.1 * (rho - pole))
    assert checked is not None
    if reached > bound * (1 + GAP):
        raise UnprovenError(
            f"finish-time fairness of {classes.size} classes stopped at rho {reached:.9g} with a "
            f"bound of {bound:.9g}; check the problem for extreme ages or remaining steps",
            bound,
        )
    return program, checked, bound


def _start(family: FinishTime, classes: ClassProblem, counts: BoolArray, pole: float) -> float:
    """Return a starting rho: the one without pairs, or else the one with a full share for each job.

    The first is too high and the second too low. After one step both are too low, and from there
    the steps rise to the optimum.
    """
    if len(classes.pair_index) and classes.usable[counts].any(axis=1).all():
        found = solve_structured_finish(
            family.age, family.remaining, family.isolated_time, classes, counts
        )
        if found is not None:
            return found[1]
    best = classes.throughput.max(axis=1, initial=0.0)
    if len(classes.pair_index):
        np.maximum.at(best, classes.pair_classes.ravel(), classes.pair_throughput.ravel())
    time = family.age[counts] + family.remaining[counts] / best[counts]
    ideal = float((time / family.isolated_time[counts]).max())
    return max(ideal, pole * (1 + 1e-6))
