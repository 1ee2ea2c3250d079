"""Level programs by HiGHS: the general solver, with and without pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csc_array, eye_array, hstack

from policies.solving.level import LevelProgram, LevelSolution
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray

#: HiGHS's default of 1e-7 is too coarse for checks to 1e-7.
TOLERANCE = 1e-9
#: The smallest that HiGHS accepts: an objective may have a second part of weight 1e-6.
DUAL_TOLERANCE = 1e-10
#: Solves of a refined answer: each shrinks the remaining errors by ``CLOSER`` at most.
REFINEMENTS, CLOSER = 4, 1e6
#: Steps of a refining solve at most, beside one per column; 10 to 40 are usual.
MOST_STEPS = 1000


def solve_linear(program: LevelProgram, columns: IntArray | None = None) -> LevelSolution:
    """Solve a level program with HiGHS.

    Args:
        program: the program.
        columns: (Q,) the class pairs to offer; None for all.

    Raises:
        SolveError: HiGHS found no optimum.
    """
    model = Model(program, columns)
    highs = new_highs()
    highs.passModel(model.as_lp())
    solve_to_optimum(highs, program)
    return model.read(highs)


def solve_refined(program: LevelProgram) -> LevelSolution:
    """Solve a level program with HiGHS to the precision of doubles (Gleixner et al., 2016).

    HiGHS's tolerances are absolute. If a small class gains what a large class gives up, they may
    hide more than the answer. So the enlarged errors of an answer become the bounds, right side and
    cost of another program. Its answer corrects the first. Rows have slacks, since their prices
    are costs too. It uses the interior point method, because the simplex method has failed before.

    Raises:
        SolveError: HiGHS found no optimum.
    """
    model = Model(program, None)
    lp = model.as_lp()
    matrix = _with_slacks(lp)
    low = np.concatenate((lp.col_lower_, lp.row_lower_))
    high = np.concatenate((lp.col_upper_, lp.row_upper_))
    cost = np.concatenate((lp.col_cost_, np.zeros(lp.num_row_)))
    lp.num_col_ = len(cost)
    lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
    lp.a_matrix_.value_ = matrix.data
    v, y = np.zeros(len(cost)), np.zeros(lp.num_row_)
    short, wrong = np.ones(2)
    for _ in range(REFINEMENTS):
        lp.col_lower_, lp.col_upper_ = (low - v) / short, (high - v) / short
        lp.row_lower_ = lp.row_upper_ = -(matrix @ v) / short
        lp.col_cost_ = (cost - matrix.T @ y) / wrong
        highs = new_highs()
        highs.setOptionValue("solver", "ipm")
        highs.setOptionValue("small_matrix_value", 1e-12)
        for limit in ("ipm_iteration_limit", "simplex_iteration_limit"):
            highs.setOptionValue(limit, MOST_STEPS + lp.num_col_)  # HiGHS may cycle
        highs.passModel(lp)
        solve_to_optimum(highs, program)
        answer = highs.getSolution()
        v = v + np.array(answer.col_value) * short
        y = y + np.array(answer.row_dual) * wrong
        beyond = max(np.max(low - v), np.max(v - high), np.max(np.abs(matrix @ v)))
        rent = cost - matrix.T @ y
        loss = max(np.max(-rent[np.isinf(high)]), np.max(rent[np.isinf(low)], initial=0.0))
        noise = np.finfo(float).eps * max(1.0, float(np.abs(y).max()))
        if beyond <= noise and loss <= noise:
            break
        short = max(beyond, short / CLOSER)
        wrong = max(loss, wrong / CLOSER, noise)
    return model.solution(v[: len(v) - len(y)], y)


def solve_to_optimum(highs: Any, program: LevelProgram) -> None:
    """Run HiGHS to the optimum.

    Raises:
        SolveError: HiGHS found no optimum.
    """
    highs.run()
    status = highs.modelStatusToString(highs.getModelStatus())
    if status != "Optimal":
        raise SolveError(
            f"HiGHS ended with status '{status}' on a program of {program.classes.size} classes; "
            "check the problem for throughputs, weights or capacities that are not finite"
        )


def new_highs() -> Any:
    """Return a silent HiGHS instance, single-threaded so that answers are repeatable."""
    import highspy  # noqa: PLC0415 (slow to import, and on the command line's way)

    highs = highspy.Highs()
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", TOLERANCE),
        ("dual_feasibility_tolerance", DUAL_TOLERANCE),
    ):
        highs.setOptionValue(name, value)
    return highs


class Model:
    """The arrays of one program, scaled so that rows and objective are of order 1.

    HiGHS's tolerances are absolute, and a max-min dual is about 1/N: without scaling the
    certificates of large programs are worth nothing.
    """

    def __init__(self, program: LevelProgram, columns: IntArray | None) -> None:
        classes = program.classes
        self.program = program
        pairs = len(classes.pair_index)
        self.pairs = np.arange(pairs) if columns is None else columns
        self.m, self.j = np.nonzero(classes.usable)
        self.leveled = np.flatnonzero(program.leveled)
        best = (program.gain[:, None] * classes.throughput).max(axis=1, initial=0.0)
        if pairs and (best == 0.0).any():
            shared = program.gain[classes.pair_classes] * classes.pair_throughput
            np.maximum.at(best, classes.pair_classes.ravel(), shared.ravel())
        self.row_scale = 1.0 / np.where(best > 0, best, 1.0)
        slope = program.slope * self.row_scale
        top = slope[self.leveled].max(initial=0.0)
        self.level_scale = 1.0 / top if top > 0 else 1.0
        self.has_level = program.price > 0
        self.capacity_scale = 1.0 / np.maximum(classes.capacity, 1.0)
        singles = np.zeros(len(self.m)) if program.cost is None else program.cost[self.m, self.j]
        level = [program.price * self.level_scale] if self.has_level else []
        self.cost = np.concatenate((singles, level))
        largest = np.abs(self.cost).max(initial=0.0)
        if program.pair_cost is not None:
            largest = max(largest, np.abs(program.pair_cost).max(initial=0.0))
        self.cost_scale = max(len(self.leveled), 1) / largest if largest > 0 else 1.0
        self.level_row = np.full(classes.size, -1)
        self.level_row[self.leveled] = np.arange(len(self.leveled))
        self.rows = len(self.leveled) + classes.size + len(classes.capacity)

    def pair_costs(self, pairs: IntArray) -> FloatArray:
        """Return (Q,) the gain of the pairs in the objective."""
        cost = self.program.pair_cost
        return np.zeros(len(pairs)) if cost is None else cost[pairs]

    def single_block(self) -> csc_array[Any]:
        """Return the columns of single configurations, and of the level if the program has one.

        Rows: level rows, time rows, worker types.
        """
        program, classes = self.program, self.program.classes
        n_level, n_single = len(self.leveled), len(self.m)
        single = np.arange(n_single)
        rate = (program.gain * self.row_scale)[self.m] * classes.throughput[self.m, self.j]
        entries = [
            (self.level_row[self.m], single, rate),
            (n_level + self.m, single, np.ones(n_single)),
        ]
        for k, scale in enumerate(self.capacity_scale):
            held = classes.count[self.m] * classes.demand[self.m, self.j, k] * scale
            entries.append((np.full(n_single, n_level + classes.size + k), single, held))
        if self.has_level:
            rise = -(program.slope * self.row_scale)[self.leveled] * self.level_scale
            entries.append((np.arange(n_level), np.full(n_level, n_single), rise))
        return _columns(entries, (self.rows, len(self.cost)))

    def pair_block(self, pairs: IntArray) -> csc_array[Any]:
        """Return the columns of class pairs."""
        program, classes = self.program, self.program.classes
        n_level, number = len(self.leveled), len(pairs)
        column = np.arange(number)
        table = classes.problem.table
        rows = classes.pair_index[pairs]
        entries = []
        for side in (0, 1):
            member = classes.pair_classes[pairs, side]
            share = 1.0 / classes.count[member]
            rate = (program.gain * self.row_scale)[member] * table.pair_throughput[rows, side]
            entries.append((self.level_row[member], column, rate * share))
            entries.append((n_level + member, column, share))
        together = classes.pair_held(pairs)
        for k, scale in enumerate(self.capacity_scale):
            held = together[:, k] * scale
            entries.append((np.full(number, n_level + classes.size + k), column, held))
        return _columns(entries, (self.rows, number))

    def as_lp(self) -> Any:
        """Return the program as HiGHS reads it, as a minimisation."""
        import highspy  # noqa: PLC0415 - slow to import, seldom needed

        matrix = self.single_block()
        if len(self.pairs):
            matrix = csc_array(hstack((matrix, self.pair_block(self.pairs)), format="csc"))
        classes = self.program.classes
        floor = (self.program.floor * self.row_scale)[self.leveled]
        ones = np.ones(classes.size)
        full = classes.capacity * self.capacity_scale
        infinite = np.full(len(self.leveled), highspy.kHighsInf)
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = matrix.shape
        lp.col_cost_ = -np.concatenate((self.cost, self.pair_costs(self.pairs))) * self.cost_scale
        lower = np.zeros(lp.num_col_)
        if self.has_level:
            lower[len(self.m)] = -highspy.kHighsInf
        lp.col_lower_ = lower
        lp.col_upper_ = np.full(lp.num_col_, highspy.kHighsInf)
        lp.row_lower_ = np.concatenate((floor, np.full(len(ones) + len(full), -highspy.kHighsInf)))
        lp.row_upper_ = np.concatenate((infinite, ones, full))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = matrix.indptr
        lp.a_matrix_.index_ = matrix.indices
        lp.a_matrix_.value_ = matrix.data
        return lp

    def read(self, highs: Any) -> LevelSolution:
        """Return HiGHS's answer in the units of the program."""
        answer = highs.getSolution()
        return self.solution(np.array(answer.col_value), np.array(answer.row_dual))

    def solution(self, values: FloatArray, duals: FloatArray) -> LevelSolution:
        """Return the answer of values (C,) of columns and (R,) duals of rows, as scaled here."""
        classes = self.program.classes
        duals = duals / self.cost_scale
        x = np.zeros_like(classes.throughput)
        x[self.m, self.j] = values[: len(self.m)]
        pair_x = np.zeros(len(classes.pair_index))
        pair_x[self.pairs] = values[len(self.cost) :]
        n_level = len(self.leveled)
        row_price = np.zeros(classes.size)
        row_price[self.leveled] = duals[:n_level] * self.row_scale[self.leveled]
        return LevelSolution(
            x=x,
            pair_x=pair_x,
            level=float(values[len(self.m)] * self.level_scale) if self.has_level else 0.0,
            row_price=np.maximum(row_price, 0.0),
            time_price=np.maximum(-duals[n_level : n_level + classes.size], 0.0),
            worker_price=np.maximum(-duals[n_level + classes.size :] * self.capacity_scale, 0.0),
            solver="highs",
        )


def _with_slacks(lp: Any) -> csc_array[Any]:
    """Return the matrix of a program of HiGHS, and a column of -1 for the value of each row."""
    a, shape = lp.a_matrix_, (lp.num_row_, lp.num_col_)
    matrix = csc_array((np.array(a.value_), np.array(a.index_), np.array(a.start_)), shape=shape)
    return csc_array(hstack((matrix, -eye_array(lp.num_row_)), format="csc"))


def _columns(
    entries: list[tuple[IntArray, IntArray, FloatArray]], shape: tuple[int, int]
) -> csc_array[Any]:
    """Return a matrix from rows, columns and values; rows below 0 and zeros are left out."""
    row = np.concatenate([e[0] for e in entries])
    column = np.concatenate([e[1] for e in entries])
    value = np.concatenate([e[2] for e in entries])
    used = (row >= 0) & (value != 0)
    return csc_array(coo_array((value[used], (row[used], column[used])), shape=shape))
