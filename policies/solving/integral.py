"""Whole allocations: a weighted sum in which everything runs all the time or not at all.

    maximise    sum_mj worth_mj x_mj + sum_p pair_worth_p X_p
    subject to  time of every job <= 1, workers of type k in use <= W_k, x and X in {0, 1}

Fractions of gangs may be impossible to run. On 8 workers the linear program accepts a gang of 4 all
the time and a gang of 8 half of the time, but the two never fit in one round. Whole answers can run
as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.kernels.near import fill, least_lack, near_prices
from policies.solving.discipline import solve_level
from policies.solving.level import LevelProgram
from policies.solving.linear import new_highs
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray

#: Relative gap at which the search stops.
GAP = 1e-4
#: The search near the prices looks at answers below the bound by ``MARGIN`` of it more than every
#: answer must be, then ``MORE`` times that. It ends within ``CLOSE`` of the best.
MARGIN, MORE, CLOSE = 2e-5, 4.0, 1e-5
#: Nodes of that search at most; larger searches are left to HiGHS.
MOST_NEAR = 400_000
#: Losses up to this part of the bound are rounding: the job may as well run there.
NOTHING = 1e-8
#: Columns (those of the least reduced cost) and nodes of the search at most.
MOST_COLUMNS, MOST_NODES = 4000, 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeAnswer:
    """An allocation of zeros and ones.

    Attributes:
        x: (M, J) single configurations.
        pair_x: (P,) pairs.
        value: the objective attained.
        bound: bound on the objective of every allocation, whole or not.
        solver: name of the solver that gave the answer.
    """

    x: FloatArray
    pair_x: FloatArray
    value: float
    bound: float
    solver: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Columns:
    """Configurations and pairs alike, C columns in order of reduced cost.

    Attributes:
        at: (C,) position among all columns, singles before pairs.
        first: (C,) job.
        second: (C,) second job, -1 for a single configuration.
        demand: (C, K) workers.
        worth: (C,) gain in the objective.
        loss: (C,) >= 0 reduced cost: how far below the bound any answer that uses it must stay.
    """

    at: IntArray
    first: IntArray
    second: IntArray
    demand: FloatArray
    worth: FloatArray
    loss: FloatArray

    def take(self, which: IntArray | BoolArray) -> _Columns:
        return _Columns(
            at=self.at[which],
            first=self.first[which],
            second=self.second[which],
            demand=self.demand[which],
            worth=self.worth[which],
            loss=self.loss[which],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Prices:
    """Prices of the linear program.

    Attributes:
        worker: (K,) >= 0.
        time: (M,) >= 0 of each job's time: its loss if it waits.
    """

    worker: FloatArray
    time: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ways:
    """All that each job can do: run in one of its columns or wait.

    The ways are the C columns, then M ways to wait.

    Attributes:
        job: (C + M,) the job of each way.
        loss: (C + M,) loss against the job's best way.
        demand: (C + M, K) workers; none to wait.
        base: (M,) a way of each job without loss: the filled one, if it has no loss.
        free: (K,) workers that are free if each job takes its base, < 0 if there are too few.
    """

    job: IntArray
    loss: FloatArray
    demand: FloatArray
    base: IntArray
    free: FloatArray

    @classmethod
    def build(
        cls,
        columns: _Columns,
        classes: ClassProblem,
        prices: _Prices,
        filled: IntArray,
        nothing: float,
    ) -> _Ways:
        """Build the ways; losses up to ``nothing`` count as 0."""
        waits = np.arange(classes.size)
        job = np.concatenate((columns.first, waits))
        loss = np.concatenate((columns.loss, prices.time))
        demand = np.concatenate((columns.demand, np.zeros((classes.size, len(classes.capacity)))))
        order = np.lexsort((loss, job))
        best = order[np.searchsorted(job[order], waits)]
        base = len(columns.at) + waits
        base[columns.first[filled]] = filled
        base = np.where(loss[base] <= nothing, base, best)
        free = classes.capacity - demand[base].sum(axis=0)
        return cls(job=job, loss=loss, demand=demand, base=base, free=free)

    def change(self, moves: IntArray) -> FloatArray:
        """Return (A, K) workers that each move takes, less those of the job's base."""
        result: FloatArray = self.demand[moves] - self.demand[self.base[self.job[moves]]]
        return result

    def moves(self, limit: float) -> tuple[IntArray, IntArray]:
        """Return (A,) ways with a loss up to the limit, and (I + 1,) start of each job's ways.

        Jobs with the cheapest moves come first.
        """
        moves = np.flatnonzero(self.loss <= limit)
        moves = moves[self.base[self.job[moves]] != moves]
        job, loss = self.job[moves], self.loss[moves]
        least = np.full(len(self.base), np.inf)
        np.minimum.at(least, job, loss)
        order = np.lexsort((loss, job, least[job]))
        of = job[order]
        starts = np.flatnonzero(np.concatenate(([True], of[1:] != of[:-1]))) if len(of) else of
        return moves[order], np.append(starts, len(of))


def solve_whole(
    classes: ClassProblem, worth: FloatArray, pair_worth: FloatArray | None = None
) -> WholeAnswer:
    """Solve a weighted sum over whole allocations.

    The linear program comes first. Its prices give every column a reduced cost, and a greedy fill
    in that order gives a whole answer. A column with a reduced cost above the gap of the two
    is in no better answer (reduced-cost fixing). Without pairs, a search over the few cheap moves
    (``kernels.near``) finishes. With pairs, or if that search is too large, branch and bound does.

    Args:
        classes: every class a single job.
        worth: (M, J) gain in the objective of running a job in a configuration.
        pair_worth: (P,) gain of running a pair; needed if the table has pairs.

    Returns:
        An answer within 1e-4 of the best whole one, unless the search met its limits on columns
        or nodes; its ``bound`` holds in any case.

    Raises:
        SolveError: a class has several jobs, or the linear program could not be solved.
    """
    if len(classes.count) != classes.problem.jobs:
        raise SolveError("a whole allocation is over single jobs; group the jobs by job_number")
    pair_worth = np.zeros(len(classes.pair_index)) if pair_worth is None else pair_worth
    if not (worth.any() or pair_worth.any()):  # no job can run: a program without columns
        return WholeAnswer(
            x=np.zeros(worth.shape), pair_x=pair_worth, value=0.0, bound=0.0, solver="none"
        )
    columns, prices, bound = _priced(classes, worth, pair_worth)
    chosen = _fill(columns, classes)
    value = float(columns.worth[chosen].sum())
    solver, proven = "prices", bound - value <= GAP * max(bound, 0.0)
    if not proven and not len(pair_worth) and np.isfinite(classes.capacity).all():
        moved, proven = _near(columns, classes, prices, chosen, bound)
        if (better := float(columns.worth[moved].sum())) > value:
            chosen, value, solver = moved, better, "near"
    if not proven:
        kept = columns.take(np.flatnonzero(columns.loss <= bound - value)[:MOST_COLUMNS])
        found = _search(kept, classes, bound)
        if found is not None and (better := float(kept.worth[found].sum())) > value:
            columns, chosen, value, solver = kept, found, better, "highs"
    x, pair_x = _as_arrays(classes, columns.at[chosen], worth.size)
    return WholeAnswer(x=x, pair_x=pair_x, value=value, bound=bound, solver=solver)


def _priced(
    classes: ClassProblem, worth: FloatArray, pair_worth: FloatArray
) -> tuple[_Columns, _Prices, float]:
    """Return the columns worth anything by reduced cost, prices, and the bound they prove."""
    m, j, k = classes.demand.shape
    program = LevelProgram(
        classes=classes,
        gain=np.zeros(m),
        slope=np.zeros(m),
        floor=np.full(m, -np.inf),
        cost=worth,
        pair_cost=pair_worth if len(pair_worth) else None,
    )
    solution = solve_level(program).solution
    price = np.maximum(solution.worker_price, 0.0)
    none = np.full(m * j, -1, dtype=np.int64)
    columns = _Columns(
        at=np.arange(m * j + len(pair_worth)),
        first=np.concatenate((np.repeat(np.arange(m), j), classes.pair_classes[:, 0])),
        second=np.concatenate((none, classes.pair_classes[:, 1])),
        demand=np.concatenate((classes.demand.reshape(m * j, k), classes.pair_demand)),
        worth=np.concatenate((np.where(classes.usable, worth, 0.0).ravel(), pair_worth)),
        loss=np.zeros(m * j + len(pair_worth)),
    )
    columns = columns.take(columns.worth > 0)
    profit = columns.worth - columns.demand @ price
    time = np.maximum(solution.time_price, 0.0) if len(pair_worth) else np.zeros(m)
    paired = columns.second >= 0
    single = ~paired
    np.maximum.at(time, columns.first[single], profit[single])
    both = time[columns.first] + np.where(paired, time[columns.second], 0.0)
    np.maximum.at(time, columns.first, profit - both + time[columns.first])
    both = time[columns.first] + np.where(paired, time[columns.second], 0.0)
    loss = np.maximum(both - profit, 0.0)
    order = np.lexsort((columns.at, loss))
    priced = _Columns(
        **{name: getattr(columns, name) for name in ("at", "first", "second", "demand", "worth")},
        loss=loss,
    ).take(order)
    prices = _Prices(worker=price, time=time)
    return priced, prices, float(price @ classes.capacity + time.sum())


def _fill(columns: _Columns, classes: ClassProblem) -> IntArray:
    """Return the columns that a greedy fill takes, in order of reduced cost."""
    chosen: IntArray = fill(
        *(columns.first, columns.second, columns.demand),
        *(classes.capacity.copy(), classes.size),
    )
    return chosen


def _near(
    columns: _Columns, classes: ClassProblem, prices: _Prices, filled: IntArray, bound: float
) -> tuple[IntArray, bool]:
    """Return the columns of the best answer near the prices, and whether it is proven.

    An answer is below the bound by the losses of its jobs (waiting jobs too) plus the price of the
    free workers. So in an answer near the bound each job has a small loss. The search starts with
    answers a little further below the bound than every answer must be, then widens up to
    ``filled``.
    """
    number = len(columns.at)
    ways = _Ways.build(columns, classes, prices, filled, NOTHING * bound)
    best, lacks = filled, bound - float(columns.worth[filled].sum())
    moves, first = ways.moves(lacks)
    cheap = moves[np.argsort(ways.loss[moves], kind="stable")]
    least = least_lack(
        *(ways.free, prices.worker, ways.change(cheap), ways.loss[cheap], len(first)),
    )
    margin = MARGIN * bound
    while least < lacks - CLOSE * bound:
        limit = min(least + margin, lacks)
        moves, first = ways.moves(limit)
        taken, cost, reached = near_prices(
            *(ways.free, prices.worker, first, ways.change(moves), ways.loss[moves]),
            *(limit, CLOSE * bound, MOST_NEAR),
        )
        if cost < lacks:
            at = ways.base.copy()
            at[ways.job[moves[taken]]] = moves[taken]
            best, lacks = np.sort(at[at < number]), cost
        if reached < 0:
            return best, False
        if reached >= lacks - CLOSE * bound:
            break
        margin *= MORE
    return best, True


def _search(columns: _Columns, classes: ClassProblem, scale: float) -> IntArray | None:
    """Return the columns of the best whole answer found by branch and bound; None for none."""
    highs = new_highs()
    highs.setOptionValue("mip_rel_gap", GAP)
    highs.setOptionValue("mip_max_nodes", MOST_NODES)
    highs.passModel(_as_lp(columns, classes, scale))
    highs.run()
    values = np.array(highs.getSolution().col_value)
    return np.flatnonzero(values > 0.5) if len(values) else None


def _as_lp(columns: _Columns, classes: ClassProblem, scale: float) -> Any:
    """Return the program as HiGHS reads it: a row per job that occurs, then worker types."""
    import highspy  # noqa: PLC0415 - slow to import, seldom needed
    from scipy.sparse import coo_array, csc_array  # noqa: PLC0415 - slow to import, seldom needed

    number = len(columns.at)
    paired = np.flatnonzero(columns.second >= 0)
    k, at = np.nonzero(columns.demand.T)
    row = np.concatenate((columns.first, columns.second[paired], classes.size + k))
    column = np.concatenate((np.arange(number), paired, at))
    data = np.concatenate((np.ones(number + len(paired)), columns.demand[at, k]))
    shape = (classes.size + len(classes.capacity), number)
    matrix: csc_array[Any] = csc_array(coo_array((data, (row, column)), shape=shape))
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = shape
    lp.col_cost_ = -columns.worth / scale
    lp.col_lower_, lp.col_upper_ = np.zeros(number), np.ones(number)
    lp.row_lower_ = np.full(shape[0], -highspy.kHighsInf)
    lp.row_upper_ = np.concatenate((np.ones(classes.size), classes.capacity))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
    lp.a_matrix_.value_ = matrix.data
    lp.integrality_ = [highspy.HighsVarType.kInteger] * number
    return lp


def _as_arrays(classes: ClassProblem, at: IntArray, singles: int) -> tuple[FloatArray, FloatArray]:
    """Return (M, J) and (P,) arrays with 1 at the chosen columns."""
    x = np.zeros(singles)
    pair_x = np.zeros(len(classes.pair_index))
    x[at[at < singles]] = 1.0
    pair_x[at[at >= singles] - singles] = 1.0
    return x.reshape(classes.throughput.shape), pair_x
