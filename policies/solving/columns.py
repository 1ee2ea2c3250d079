"""Space sharing with many classes: give the linear program only the pairs that can help.

Column generation: solve with some pairs, price all others by the duals in one compiled pass, add
the most profitable ones of every class, and repeat until no pair is profitable. That proves that
the optimum over these pairs is the optimum over all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.kernels.pricing import price_pairs
from policies.solving.linear import Model, new_highs, solve_to_optimum
from policies.solving.structured import solve_structured
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from policies.solving.level import LevelProgram, LevelSolution
    from scheduler.domain.arrays import FloatArray, IntArray

#: A pair is added when its profit, relative to the price of one job's time, is above this.
PROFIT = 1e-9
ROUNDS = 200


def solve_by_columns(program: LevelProgram, columns: IntArray | None = None) -> LevelSolution:
    """Solve a level program with too many class pairs to offer at once.

    Args:
        program: with pairs.
        columns: pairs to start with, from a similar program; None to choose them by the prices
            of the program without pairs.

    Raises:
        SolveError: HiGHS failed, or the pairs did not converge.
    """
    if columns is None:
        start = solve_structured(program)
        columns = np.empty(0, dtype=np.int64) if start is None else _profitable(program, start)
    model = Model(program, columns)
    highs = new_highs()
    highs.passModel(model.as_lp())
    for turn in range(ROUNDS):
        solve_to_optimum(highs, program)
        solution = model.read(highs)
        new = np.setdiff1d(_profitable(program, solution, turn), model.pairs)
        if not len(new):
            return replace(solution, columns=model.pairs, solver="columns")
        _add(highs, model, new)
    raise SolveError(
        f"space sharing of {program.classes.size} classes did not settle in {ROUNDS} rounds of "
        "column generation; check the problem for extreme weights or throughputs"
    )


def _profitable(program: LevelProgram, solution: LevelSolution, turn: int = 0) -> IntArray:
    """Return the profitable pairs by the prices, at most two per class."""
    best, which, scale = price_all_pairs(program, solution, turn)
    chosen: IntArray = np.unique(which[best > PROFIT * scale])
    return chosen[chosen >= 0]


def price_all_pairs(
    program: LevelProgram, solution: LevelSolution, turn: int = 0
) -> tuple[FloatArray, IntArray, float]:
    """Price all class pairs.

    Args:
        program: with pairs.
        solution: its prices are used.
        turn: the round, see ``price_pairs``.

    Returns:
        (M, 2) the largest profit of a pair in which the class comes first or second, (M, 2) that
        pair, and the size of a price to judge profits by.
    """
    classes = program.classes
    worth = solution.row_price * program.gain / classes.count
    time = solution.time_price / classes.count
    rows, throughput, rent = classes.pair_prices(solution.worker_price)
    bonus = np.empty(0) if program.pair_cost is None else program.pair_cost
    best, which = price_pairs(
        *(classes.pair_classes, rows, throughput),
        *(rent, worth, time, bonus, turn),
    )
    scale = max(float(time.max(initial=0.0)), float(rent.max(initial=0.0)))
    return best, which, scale


def _add(highs: Any, model: Model, new: IntArray) -> None:
    """Add columns to HiGHS, and continue from its present basis."""
    block = model.pair_block(new)
    number = len(new)
    highs.addCols(
        number,
        -model.pair_costs(new) * model.cost_scale,
        np.zeros(number),
        np.full(number, np.inf),
        block.nnz,
        block.indptr[:-1].astype(np.int32),
        block.indices.astype(np.int32),
        block.data,
    )
    highs.setOptionValue("simplex_strategy", 4)
    model.pairs = np.concatenate((model.pairs, new))
