"""Level programs by HiGHS: the general solver, with and without pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csc_array

from policies.level import LevelProgram, LevelSolution
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray

#: HiGHS accepts no tolerance below 1e-10; its default of 1e-7 is too coarse for checks to 1e-7.
TOLERANCE = 1e-9


def solve_linear(program: LevelProgram, columns: IntArray | None = None) -> LevelSolution:
    """Solve a level program with HiGHS.

    Args:
        program: what to solve.
        columns: (Q,) the class pairs to offer; None for all.

    Raises:
        SolveError: HiGHS found no optimum.
    """
    model = _Model(program, columns)
    highs = new_highs()
    highs.passModel(model.as_lp())
    highs.run()
    status = highs.modelStatusToString(highs.getModelStatus())
    if status != "Optimal":
        raise SolveError(
            f"HiGHS ended with status '{status}' on a program of {program.classes.size} classes; "
            "check the problem for throughputs, weights or capacities that are not finite"
        )
    return model.read(highs)


def new_highs() -> Any:
    """Return a silent HiGHS instance, single-threaded so that answers are repeatable."""
    import highspy  # noqa: PLC0415 (slow to import, and on the command line's way)

    highs = highspy.Highs()
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", TOLERANCE),
        ("dual_feasibility_tolerance", TOLERANCE),
    ):
        highs.setOptionValue(name, value)
    return highs


class _Model:
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
        if len(self.pairs):
            shared = program.gain[classes.pair_classes] * classes.pair_throughput
            np.maximum.at(best, classes.pair_classes.ravel(), shared.ravel())
        self.row_scale = 1.0 / np.where(best > 0, best, 1.0)
        slope = program.slope * self.row_scale
        top = slope[self.leveled].max(initial=0.0)
        self.level_scale = 1.0 / top if top > 0 else 1.0
        self.has_level = program.price > 0
        self.capacity_scale = 1.0 / np.maximum(classes.capacity, 1.0)
        self.cost = self._costs()
        largest = np.abs(self.cost).max(initial=0.0)
        self.cost_scale = max(len(self.leveled), 1) / largest if largest > 0 else 1.0

    def _costs(self) -> FloatArray:
        program = self.program
        singles = np.zeros(len(self.m)) if program.cost is None else program.cost[self.m, self.j]
        pairs = np.zeros(len(self.pairs))
        if program.pair_cost is not None:
            pairs = program.pair_cost[self.pairs]
        level = [program.price * self.level_scale] if self.has_level else []
        return np.concatenate((singles, pairs, level))

    def matrix(self) -> csc_array[Any]:
        """Return rows: level rows, time rows, worker types; columns: singles, pairs, level."""
        program, classes = self.program, self.program.classes
        level_row = np.full(classes.size, -1)
        level_row[self.leveled] = np.arange(len(self.leveled))
        n_level, n_single, n_pair = len(self.leveled), len(self.m), len(self.pairs)
        scaled_gain = program.gain * self.row_scale
        rows: list[IntArray] = []
        cols: list[IntArray] = []
        data: list[FloatArray] = []

        def add(row: IntArray, col: IntArray, value: FloatArray) -> None:
            used = (row >= 0) & (value != 0)
            rows.append(row[used])
            cols.append(col[used])
            data.append(value[used])

        single = np.arange(n_single)
        add(level_row[self.m], single, scaled_gain[self.m] * classes.throughput[self.m, self.j])
        add(n_level + self.m, single, np.ones(n_single))
        for k, scale in enumerate(self.capacity_scale):
            held = classes.count[self.m] * classes.demand[self.m, self.j, k] * scale
            add(np.full(n_single, n_level + classes.size + k), single, held)
        pair = n_single + np.arange(n_pair)
        for side in (0, 1) if n_pair else ():
            member = classes.pair_classes[self.pairs, side]
            share = 1.0 / classes.count[member]
            rate = classes.pair_throughput[self.pairs, side]
            add(level_row[member], pair, scaled_gain[member] * rate * share)
            add(n_level + member, pair, share)
        for k, scale in enumerate(self.capacity_scale) if n_pair else ():
            held = classes.pair_demand[self.pairs, k] * scale
            add(np.full(n_pair, n_level + classes.size + k), pair, held)
        if self.has_level:
            rise = -(program.slope * self.row_scale)[self.leveled] * self.level_scale
            add(np.arange(n_level), np.full(n_level, n_single + n_pair), rise)
        shape = (n_level + classes.size + len(classes.capacity), len(self.cost))
        entries = (np.concatenate(data), (np.concatenate(rows), np.concatenate(cols)))
        return csc_array(coo_array(entries, shape=shape))

    def as_lp(self) -> Any:
        """Return the program as HiGHS reads it, as a minimisation."""
        import highspy  # noqa: PLC0415

        matrix = self.matrix()
        classes = self.program.classes
        floor = (self.program.floor * self.row_scale)[self.leveled]
        ones = np.ones(classes.size)
        full = classes.capacity * self.capacity_scale
        infinite = np.full(len(self.leveled), highspy.kHighsInf)
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = matrix.shape
        lp.col_cost_ = -self.cost * self.cost_scale
        lower = np.zeros(len(self.cost))
        if self.has_level:
            lower[-1] = -highspy.kHighsInf
        lp.col_lower_ = lower
        lp.col_upper_ = np.full(len(self.cost), highspy.kHighsInf)
        lp.row_lower_ = np.concatenate((floor, np.full(len(ones) + len(full), -highspy.kHighsInf)))
        lp.row_upper_ = np.concatenate((infinite, ones, full))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = matrix.indptr
        lp.a_matrix_.index_ = matrix.indices
        lp.a_matrix_.value_ = matrix.data
        return lp

    def read(self, highs: Any) -> LevelSolution:
        """Return HiGHS's answer in the units of the program."""
        classes = self.program.classes
        answer = highs.getSolution()
        values = np.array(answer.col_value)
        duals = np.array(answer.row_dual) / self.cost_scale
        x = np.zeros_like(classes.throughput)
        x[self.m, self.j] = values[: len(self.m)]
        pair_x = np.zeros(len(classes.pair_index))
        pair_x[self.pairs] = values[len(self.m) : len(self.m) + len(self.pairs)]
        n_level = len(self.leveled)
        row_price = np.zeros(classes.size)
        row_price[self.leveled] = duals[:n_level] * self.row_scale[self.leveled]
        return LevelSolution(
            x=x,
            pair_x=pair_x,
            level=float(values[-1] * self.level_scale) if self.has_level else 0.0,
            row_price=np.maximum(row_price, 0.0),
            time_price=np.maximum(-duals[n_level : n_level + classes.size], 0.0),
            worker_price=np.maximum(-duals[n_level + classes.size :] * self.capacity_scale, 0.0),
            solver="highs",
        )
