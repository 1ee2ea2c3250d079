"""Lexicographic max-min fairness (water filling), flat and by entity, one linear program per level.

All jobs that are not frozen rise together until some of them cannot rise further. A positive price
of a job's row proves that it cannot rise unless another job falls. So no integer program is needed
to find the bottlenecks (Gavel, OSDI'20, section 4.3, uses one per level).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.solving.answers import FamilyAnswer, counted_classes, empty_answer
from policies.solving.discipline import (
    MISS,
    CheckedSolution,
    answer_of_kernel,
    solve_level,
    zero_level,
)
from policies.solving.level import LevelProgram
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray

#: A class is frozen if its row's price is above this part of the largest price. Too high a value
#: only costs another level program; too low a value would freeze classes that could still rise.
BOTTLENECK = 1e-5
#: How much of its level, relatively, a frozen class may lose to rounding.
HOLD = 1e-7
#: How much of its level, relatively, a frozen class may miss while others rise: with ``HOLD`` alone
#: the kernel often does not converge. The last answer keeps the levels to ``MISS``.
LOOSE = 5e-6
#: Warning to the user if a level after the first has no proven answer.
UNPROVEN = (
    "the jobs that are best off ({}) are not lifted further: no solver's answer passed its checks; "
    "check the problem for extreme weights or throughputs"
)


def water_fill(
    classes: ClassProblem, coefficient: FloatArray, weight: FloatArray | None = None
) -> FamilyAnswer:
    """Maximise the smallest coefficient_m thr_m / weight_m, then the next smallest, and so on.

    Args:
        classes: rows, capacity and pairs.
        coefficient: (M,) > 0.
        weight: (M,) > 0; ones if None.

    Returns:
        An answer with the value and the bound of the first level (max-min).

    Raises:
        SolveError: no solver's answer to some level passed its checks.
    """
    rise = np.ones(classes.size) if weight is None else weight

    def slopes(active: BoolArray) -> FloatArray:
        return np.where(active, rise, 0.0)

    return _fill(classes, coefficient, slopes)


def hierarchical_fill(
    classes: ClassProblem,
    coefficient: FloatArray,
    *,
    entity: IntArray,
    entity_weight: FloatArray,
    entity_policy: Sequence[str],
    order: FloatArray,
    weight: FloatArray | None = None,
) -> FamilyAnswer:
    """Fill by entity: entities share by weight, and divide their share among their jobs.

    At every level an entity's weight is divided among its jobs that can still rise. If its policy
    is "fairness", they share in proportion to their weights; if it is "fifo", the first in order
    gets all. A job's coefficient_m thr_m rises at the rate of its share (Gavel, OSDI'20, section
    4.3).

    Args:
        classes: rows, capacity and pairs. Jobs of different entities must be in different classes,
            and so must jobs of one FIFO entity (by a key that holds their order).
        coefficient: (M,) > 0.
        entity: (M,) index of each class's entity.
        entity_weight: (E,) > 0.
        entity_policy: (E,) "fairness" or "fifo".
        order: (M,) in which a FIFO entity serves its classes, lowest first.
        weight: (M,) > 0, of a job inside its entity; ones if None.

    Returns:
        An answer; its value is the level that the first bottleneck reached.

    Raises:
        SolveError: no solver's answer to some level passed its checks.
    """
    share = np.ones(classes.size) if weight is None else weight
    entities = len(entity_weight)
    fifo = np.array([policy == "fifo" for policy in entity_policy], dtype=bool)[entity]

    def slopes(active: BoolArray) -> FloatArray:
        part = np.where(active & ~fifo, share, 0.0)
        waiting = np.flatnonzero(active & fifo)
        waiting = waiting[np.lexsort((order[waiting], entity[waiting]))]
        _, first = np.unique(entity[waiting], return_index=True)
        part[waiting[first]] = 1.0
        total = np.bincount(entity, part * classes.count, minlength=entities)
        return part * (entity_weight / np.where(total > 0, total, 1.0))[entity]

    return _fill(classes, coefficient, slopes)


def _fill(
    classes: ClassProblem,
    coefficient: FloatArray,
    slopes: Callable[[BoolArray], FloatArray],
    miss: float = LOOSE,
) -> FamilyAnswer:
    """Raise, freeze, repeat; run again with exact floors if the levels cannot be kept together.

    Args:
        classes: rows, capacity and pairs.
        coefficient: (M,) > 0 if a class counts.
        slopes: the rates (M,) at which the active (M,) classes rise; 0 for those that wait.
        miss: how much of its level, relatively, a frozen class may miss while others rise.
    """
    counts, warnings = counted_classes(classes, coefficient)
    if not counts.any():
        return empty_answer(classes, warnings)
    gain = np.where(counts, coefficient, 0.0)
    level = np.zeros(classes.size)
    active = counts.copy()
    first: CheckedSolution | None = None
    checked: CheckedSolution | None = None
    while active.any():
        slope = slopes(active)
        held = np.where(slope > 0, level, level * (1.0 - HOLD))
        program = LevelProgram(
            classes=classes,
            gain=gain,
            slope=slope,
            floor=np.where((slope > 0) | (level > 0), held, -np.inf),
            price=1.0,
        )
        found = _solve(program, checked, miss)
        if found is None:
            warnings += (UNPROVEN.format(int(classes.count[active].sum())),)
            break
        checked = found
        first = first or checked
        level = np.where(slope > 0, level + slope * max(checked.value, 0.0), level)
        price = checked.solution.row_price * slope
        frozen = active & (price > BOTTLENECK * price.max()) & (slope > 0)
        active &= ~frozen
        if checked.value <= BOTTLENECK * zero_level(program) and active.any():
            final = _rest(program, level, active, checked)
            if final is not None:
                checked = final
                break
        if not frozen.any():  # no price shows which classes cannot rise
            warnings += (UNPROVEN.format(int(classes.count[active].sum())),)
            break
    assert first is not None
    assert checked is not None
    checked, kept = _kept(replace(program, floor=np.where(level > 0, level, -np.inf)), checked)
    if not kept and miss > MISS:
        return _fill(classes, coefficient, slopes, MISS)
    return FamilyAnswer(
        x=checked.solution.x,
        pair_x=checked.solution.pair_x,
        value=first.value,
        bound=first.bound,
        solver=checked.solution.solver,
        warnings=warnings,
    )


def _eased(program: LevelProgram, before: CheckedSolution) -> LevelProgram:
    """Lower the floors to the values of the previous level, so that a solution surely exists.

    The checks let a floor be missed by a millionth of the largest. At the smallest floor that may
    be more than ``HOLD`` allows.
    """
    solution = before.solution
    thr = program.classes.effective_throughput(solution.x, solution.pair_x)
    return replace(program, floor=np.minimum(program.floor, program.gain * thr))


def _rest(
    program: LevelProgram, level: FloatArray, active: BoolArray, before: CheckedSolution
) -> CheckedSolution | None:
    """Test whether any active class can still rise after a flat level; None if one can.

    Without this test, each waiting job of a FIFO entity behind a full cluster would cost one level.
    """
    classes = program.classes
    floor = np.where(level > 0, level * (1.0 - HOLD), -np.inf)
    weight = np.where(active, program.gain * classes.count, 0.0)
    stage = replace(
        program,
        slope=np.zeros(classes.size),
        floor=floor,
        price=0.0,
        cost=weight[:, None] * classes.throughput,
    )
    if len(classes.pair_index):
        pair_cost = (weight / classes.count)[classes.pair_classes] * classes.pair_throughput
        stage = replace(stage, pair_cost=pair_cost.sum(axis=1))
    checked = _first_proven((stage, _eased(stage, before)), before)
    if checked is None:  # the next levels decide
        return None
    best = program.gain * classes.throughput.max(axis=1, initial=0.0)
    flat = float(weight @ np.where(active, level / np.where(active, program.gain, 1.0), 0.0))
    return checked if checked.value - flat <= 1e-4 * float(best[active].min()) else None


def _solve(
    program: LevelProgram, before: CheckedSolution | None, miss: float
) -> CheckedSolution | None:
    """Solve one level, starting near the feasible previous level; None if no solver can.

    Raises:
        SolveError: no solver's answer to the first level passed its checks.
    """
    if before is None:
        return solve_level(program)
    found = None
    if not len(program.classes.pair_index):
        found = answer_of_kernel(program, before.solution.x, miss=miss)
    return found or _first_proven((program, _eased(program, before)), before)


def _first_proven(
    programs: tuple[LevelProgram, ...], before: CheckedSolution
) -> CheckedSolution | None:
    """Return the answer to the first of the programs that has a proven one."""
    for program in programs:
        try:
            return solve_level(program, before)
        except SolveError:
            continue
    return None


def _kept(levels: LevelProgram, last: CheckedSolution) -> tuple[CheckedSolution, bool]:
    """Return an answer that keeps all levels, the last one if it does; and whether it keeps them.

    Args:
        levels: with the levels reached as floors.
        last: the answer to the last level.
    """
    solution = last.solution
    reached = levels.gain * levels.classes.effective_throughput(solution.x, solution.pair_x)
    if (reached >= levels.floor * (1.0 - HOLD - MISS)).all():
        return last, True
    # All rise in proportion to their levels: no class is held, so the kernel has an interior.
    slope = np.where(levels.leveled, levels.floor, 0.0)
    even = replace(levels, slope=slope, floor=np.where(levels.leveled, 0.0, -np.inf))
    try:
        checked = solve_level(even, last)
    except SolveError:
        return last, False
    return checked, checked.value >= 1.0 - HOLD - MISS
