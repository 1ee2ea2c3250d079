"""The solve discipline: check every answer in numpy, and ask the next solver on failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from policies.kernels import level as kernel
from policies.solving.classes import NOISE, TINY
from policies.solving.columns import solve_by_columns
from policies.solving.level import LevelProgram, LevelSolution, dual_value
from policies.solving.linear import solve_linear, solve_refined
from policies.solving.needs import lift_tiny_needs, tiny_fractions
from policies.solving.structured import solve_structured
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.domain.arrays import FloatArray

#: Largest relative gap between an answer and its dual bound.
GAP = 1e-6
#: How much of its floor, relatively, a class may miss: less than the gap, since floors are already
#: lowered a little for rounding.
MISS = 5e-7
#: A value that is a difference of large numbers is proven to this part of these, times the gap.
ROUNDING = 1e-9
#: Above this many class pairs, columns are generated instead of offered all at once.
MANY_PAIRS = 1500


class UnprovenError(SolveError):
    """No solver's answer passed its checks, but a bound on every answer may be known.

    Attributes:
        bound: in the units of the program, or of its family; nan if unknown.
    """

    def __init__(self, message: str, bound: float = float("nan")) -> None:
        """Store the message and the bound; the message alone is enough, as for every error."""
        super().__init__(message)
        self.bound = bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedSolution:
    """A level solution that is feasible, with its value recomputed and a proof of its quality.

    Attributes:
        solution: repaired; its level is the one that the allocation attains.
        value: the objective attained.
        bound: an upper bound on any allocation's objective.
    """

    solution: LevelSolution
    value: float
    bound: float


def solve_level(program: LevelProgram, before: CheckedSolution | None = None) -> CheckedSolution:
    """Solve a level program; return the first solver's answer that passes its checks.

    Args:
        program: the program.
        before: the answer to a similar program over the same classes; its pairs are used at first.

    Raises:
        UnprovenError: no solver's answer passed; the message lists each solver's failure.
    """
    failures: list[str] = []
    bounds: list[float] = []
    for name, attempt in _attempts(program, before):
        if attempt is None:
            failures.append(f"{name}: did not converge")
            continue
        checked, problem = _examine(program, attempt)
        if not problem:
            return checked
        failures.append(f"{name}: {problem}")
        if np.isfinite(checked.bound):
            bounds.append(checked.bound)
    raise UnprovenError(
        f"no solver answered a program of {program.classes.size} classes: {'; '.join(failures)}; "
        "check the problem for extreme weights or throughputs",
        min(bounds, default=np.nan),
    )


def answer_of_kernel(
    program: LevelProgram, near: FloatArray | None = None, *, miss: float = MISS
) -> CheckedSolution | None:
    """Solve a program without pairs by the kernel; None if its answer fails the checks.

    Args:
        program: without pairs.
        near: (M, J) a feasible point to start nearer to, or None.
        miss: how much of its floor, relatively, a class may miss.
    """
    raw = solve_structured(program, near)
    if raw is None:
        return None
    checked, problem = _examine(program, raw, miss)
    return None if problem else checked


def _examine(
    program: LevelProgram, raw: LevelSolution, miss: float = MISS
) -> tuple[CheckedSolution, str]:
    """Return the repaired answer, its noise clipped if possible, and a complaint or nothing."""
    if not len(program.classes.pair_index) and (examined := _examined(program, raw, miss)):
        return examined, ""
    checked = check_solution(program, raw)
    problem = _complaint(program, checked, miss)
    if problem:
        whole = check_solution(program, raw, clipped=False)
        if not _complaint(program, whole, miss):
            return whole, ""
    return checked, problem


def _examined(program: LevelProgram, raw: LevelSolution, miss: float) -> CheckedSolution | None:
    """Return the answer without pairs as the kernel repairs it; None if the checks fail."""
    classes = program.classes
    stands, x, level, value, bound, row_price, scale = kernel.examine(
        *(classes.throughput, classes.demand, classes.usable, classes.count, classes.capacity),
        *(program.gain, program.slope, program.floor),
        classes.throughput[:0] if program.cost is None else program.cost,
        *(program.price, program.scale, raw.x, raw.level, raw.row_price, raw.worker_price),
        *(NOISE, TINY, GAP, miss, ROUNDING),
    )
    if not stands:
        return None
    solution = LevelSolution(
        x=x,
        pair_x=raw.pair_x,
        level=level,
        row_price=row_price,
        worker_price=raw.worker_price * scale,
        time_price=raw.time_price * scale,
        solver=raw.solver,
    )
    return CheckedSolution(solution=solution, value=value, bound=bound)


def _attempts(
    program: LevelProgram, before: CheckedSolution | None
) -> Iterator[tuple[str, LevelSolution | None]]:
    """Yield the answers of the solvers in order of preference."""
    if not len(program.classes.pair_index):
        yield "interior", solve_structured(program)
    if len(program.classes.pair_index) > MANY_PAIRS:
        columns = None if before is None else before.solution.columns
        try:
            yield "columns", solve_by_columns(program, columns)
        except SolveError as error:
            yield f"columns ({error})", None
    for name, solve in (("highs", solve_linear), ("refined", solve_refined)):
        try:
            yield name, solve(program)
        except SolveError as error:
            yield f"{name} ({error})", None


def check_solution(
    program: LevelProgram, raw: LevelSolution, *, clipped: bool = True
) -> CheckedSolution:
    """Repair an answer, recompute its objective and its bound.

    Args:
        program: the program that was solved.
        raw: a solver's answer.
        clipped: whether fractions that may be noise become 0.
    """
    classes = program.classes
    need = tiny_fractions(program, raw.level)
    least = need if clipped else np.zeros(classes.size)
    x, pair_x = lift_tiny_needs(program, raw, need, *classes.clip(raw.x, raw.pair_x, least))
    x, pair_x = classes.fit(x, pair_x)
    y = np.where(program.leveled, np.maximum(raw.row_price, 0.0), 0.0)
    scale = 1.0
    if program.price > 0:
        total = float((y * program.slope).sum())  # no BLAS: its idle threads spin
        scale = program.price / total if total > 0 else 1.0
    solution = replace(
        raw,
        x=x,
        pair_x=pair_x,
        level=_attained(program, x, pair_x) if program.price > 0 else raw.level,
        row_price=y * scale,
        worker_price=raw.worker_price * scale,
        time_price=raw.time_price * scale,
    )
    floor = np.where(program.leveled, program.floor, 0.0)
    bound = dual_value(program, solution) - float((solution.row_price * floor).sum())
    return CheckedSolution(solution=solution, value=program.value(solution), bound=bound)


def _attained(program: LevelProgram, x: FloatArray, pair_x: FloatArray) -> float:
    """Return the level that the allocation really reaches."""
    reached = program.gain * program.classes.effective_throughput(x, pair_x)
    slack = np.full(len(reached), np.inf)
    np.divide(reached - program.floor, program.slope, out=slack, where=program.slope > 0)
    return float(slack.min(initial=np.inf))


def zero_level(program: LevelProgram) -> float:
    """Return the scale by which errors of a level near 0 are relative.

    It is the largest of: how far below 0 the level may lie, a thousandth of the level that one job
    could reach alone, and the scale that the program gives.
    """
    alone = program.classes.fastest_alone
    found: float = kernel.zero_level(
        program.gain, program.slope, program.floor, alone, program.scale
    )
    return found


def _complaint(program: LevelProgram, checked: CheckedSolution, miss: float) -> str:
    """Return a complaint about an answer, or an empty text."""
    size = max(abs(checked.value), abs(checked.bound), program.price * zero_level(program))
    solution = checked.solution
    if program.cost is not None:
        floor = np.where(program.leveled, np.abs(program.floor), 0.0)
        largest = max(np.abs(program.cost).max(initial=0.0), (solution.row_price * floor).sum())
        size = max(size, ROUNDING * float(largest))
    if not np.isfinite(size):
        return f"value {checked.value!r}, bound {checked.bound!r}"
    held = program.leveled & (program.slope == 0 if program.price > 0 else True)
    if held.any():
        reached = program.gain * program.classes.effective_throughput(solution.x, solution.pair_x)
        short = (program.floor - reached)[held] / np.maximum(np.abs(program.floor[held]), 1e-300)
        if short.max() > miss:
            return f"a floor is missed by {100 * short.max():.3g} %"
    if checked.bound - checked.value > GAP * size:
        return f"value {checked.value:.9g} is not proven: the bound is {checked.bound:.9g}"
    return ""
