"""The best round by an integer program, if gangs do not fit one by one.

Taking gangs one by one may leave one of them out in every round, though rounds exist that give it
its time. The credits show this: by the perceptron cycling theorem they stay bounded if in each
round the running candidates are owed at least as many worker-seconds as X gives at that moment,
sum(credit x workers x runs) >= sum(credit x workers x X). If X is a mixture of rounds, the best
round of all does so, as a mean is never above the largest. So if a candidate is late and the choice
falls short of that sum, an integer program finds the best round.

Sources: H. D. Block and S. A. Levin, On the boundedness of an iterative procedure for solving a
system of linear inequalities (Proceedings of the AMS, 1970), for the theorem; L. Tassiulas and A.
Ephremides (IEEE Transactions on Automatic Control, 1992) for service by the largest weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.limits.node_exclusions import Exclusions
    from scheduler.engine.rounds.candidates import Candidates, Lags
    from scheduler.engine.rounds.urgency import Band
    from scheduler.engine.tables.jobs import JobTable

#: A candidate is late if it falls this many rounds further behind, under the X in force, than the
#: lag at which it became urgent at the latest. So an X that changes all the time costs nothing.
LATE: Final = 5.0
#: The largest program; with more candidates rounds stay as they are.
MOST: Final = 3000
#: Nodes of its tree after which a search stops.
NODES: Final = 500
#: Smaller differences are rounding.
_DUST: Final = 1e-9
#: Most rounds without a search after one that found nothing.
_LONGEST_PAUSE: Final = 64


@dataclass(slots=True)
class SearchSchedule:
    """When the next search for the best round is allowed.

    If X cannot be realised at all, as is common if gangs leave workers over, a search finds
    nothing. So pauses double until another allocation comes.

    Attributes:
        begun_s: the largest lag, in seconds, when X came.
        wait: rounds until the next search is allowed.
        pause: length of the wait after the next search that finds nothing.
    """

    begun_s: float = 0.0
    wait: int = 0
    pause: int = 1

    @property
    def may(self) -> bool:
        """Whether a search is allowed in this round."""
        return self.wait <= 0

    def begin(self, behind_s: float) -> None:
        """Reset for a new X; ``behind_s`` is the largest lag at that time."""
        self.begun_s, self.wait, self.pause = max(behind_s, 0.0), 0, 1

    def note(self, found: bool | None) -> None:
        """Note whether a search found a round; None without a search."""
        if found is None:
            self.wait = max(self.wait - 1, 0)
        elif found:
            self.wait, self.pause = 0, 1
        else:
            self.wait, self.pause = self.pause, min(2 * self.pause, _LONGEST_PAUSE)


def is_late(found: Candidates, chosen: BoolArray, band: Band, begun_s: float) -> bool:
    """Return whether a candidate is late and no candidate of equal value is chosen.

    Args:
        found: the candidates.
        chosen: (C,) those that run.
        band: how far a round may depart from X.
        begun_s: see ``SearchSchedule``.
    """
    late = ~chosen & (found.deficit_s > (band.behind + LATE) * band.round_s + begun_s)
    if not late.any():
        return False
    served = found.promise[chosen & (found.promise >= 0)]
    return bool((late & ~np.isin(found.promise, served)).any())


def total_owed(
    jobs: JobTable,
    table: ConfigurationTable,
    lags: Lags,
    *,
    pairs: Candidates | None,
    busy: BoolArray,
    types: int,
    exclusions: Exclusions | None,
) -> float:
    """Return the worker-seconds that X is owed at this moment: sum(lag x workers x X).

    Args:
        jobs: the job table.
        table: configurations by profile.
        lags: of single configurations.
        pairs: the pairs to which X gives any time; None without pairs.
        busy: (N,) jobs that must not be chosen.
        types: K, the worker types.
        exclusions: configurations that jobs cannot have; None if there are no bars.
    """
    counts = ~busy[lags.row]
    if exclusions is not None:
        counts &= ~exclusions.configuration[lags.row, lags.configuration]
    workers = table.demand.sum(axis=2)[jobs["profile"][lags.row], lags.configuration]
    result = float((lags.deficit_s * lags.share * workers)[counts].sum())
    if pairs is not None:
        open_to = ~busy[pairs.first] & ~busy[pairs.second]
        result += float((candidate_worth(pairs, types) * pairs.share)[open_to].sum())
    return result


def candidate_worth(found: Candidates, types: int, lag_s: FloatArray | None = None) -> FloatArray:
    """Return (C,) worker-seconds that each candidate is owed; negative if it is ahead of X.

    Args:
        found: the candidates.
        types: K, the worker types; quotas come after them in the demand.
        lag_s: (C,) seconds that count; None for the lag of each.
    """
    seconds = found.deficit_s if lag_s is None else lag_s
    result: FloatArray = seconds * found.demand[:, :types].sum(axis=1)
    return result


def best_choice(
    found: Candidates, value: FloatArray, free: IntArray, busy: BoolArray, *, gap: float = 0.0
) -> tuple[BoolArray | None, float]:
    """Choose the candidates with the largest total value, at most one for each job.

    Args:
        found: the candidates.
        value: (C,) value of each; candidates of value <= 0 are left out.
        free: (K,) workers to give.
        busy: (N,) rows that already run.
        gap: part of the best value that the choice may miss.

    Returns:
        (C,) which candidates run, None if the bounds of the search were reached; and an upper
        bound on the value of any choice.
    """
    import highspy  # noqa: PLC0415 - slow to import, rarely needed

    columns = open_to(found, value, free, busy)
    result: BoolArray = np.zeros(len(value), dtype=bool)
    if not len(columns):
        return result, 0.0
    if len(columns) > MOST:
        return None, np.inf
    scale = value[columns].max()
    rows, matrix = _constraints(found, columns)
    limits = np.concatenate((free.astype(float), np.ones(len(rows))))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(columns), len(limits)
    program.col_cost_ = -value[columns] / scale
    program.col_lower_, program.col_upper_ = np.zeros(len(columns)), np.ones(len(columns))
    program.row_lower_, program.row_upper_ = np.full(len(limits), -highspy.kHighsInf), limits
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = matrix.indptr
    program.a_matrix_.index_ = matrix.indices
    program.a_matrix_.value_ = matrix.data
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(columns)
    highs = highspy.Highs()
    for option, setting in (
        *(("output_flag", False), ("threads", 1), ("mip_rel_gap", gap), ("mip_abs_gap", 1e-9)),
        ("mip_max_nodes", NODES),
        # These options only help with large programs. Here they take two thirds of the time.
        *(("mip_heuristic_effort", 0.0), ("mip_heuristic_run_feasibility_jump", False)),
        *(("mip_detect_symmetry", False), ("mip_allow_restart", False)),
    ):
        highs.setOptionValue(option, setting)
    highs.passModel(program)
    highs.run()
    bound = -highs.getInfo().mip_dual_bound * scale
    runs = np.array(highs.getSolution().col_value)
    if len(runs) != len(columns):
        return None, bound
    result[columns[runs > 0.5]] = True
    if (found.demand[result].sum(axis=0) > free).any() or _doubled(found, result):
        return None, bound
    return result, bound


def open_to(found: Candidates, value: FloatArray, free: IntArray, busy: BoolArray) -> IntArray:
    """Return the candidates that have a value > 0 and may run."""
    may = (value > 0) & ~busy[found.first]
    second = found.second >= 0
    if second.any():
        may &= ~(second & busy[found.second])
    result: IntArray = np.flatnonzero(may & (found.demand <= free).all(axis=1))
    return result


def _doubled(found: Candidates, runs: BoolArray) -> bool:
    """Return whether a job would run twice."""
    rows = np.concatenate((found.first[runs], found.second[runs]))
    rows = rows[rows >= 0]
    return len(np.unique(rows)) < len(rows)


def _constraints(found: Candidates, columns: IntArray) -> tuple[IntArray, csc_array]:
    """Return the rows of the candidates' jobs, and the matrix: workers, then one row per job."""
    from scipy.sparse import csc_array  # noqa: PLC0415 - slow to import, rarely needed

    first, second = found.first[columns], found.second[columns]
    at = np.arange(len(columns))
    both = second >= 0
    members = np.concatenate((first, second[both]))
    rows, place = np.unique(members, return_inverse=True)
    demand = found.demand[columns].T
    types = len(demand)
    k, c = np.nonzero(demand)
    row = np.concatenate((k, types + place))
    column = np.concatenate((c, at, at[both]))
    data = np.concatenate((demand[k, c].astype(float), np.ones(len(members))))
    matrix = csc_array((data, (row, column)), shape=(types + len(rows), len(columns)))
    return rows, matrix


def affordable_candidates(value: FloatArray, runs: BoolArray, owed: float) -> BoolArray:
    """Return (C,) candidates that may run beside the chosen ones, with a total value >= ``owed``.

    Args:
        value: (C,) value of each candidate.
        runs: (C,) those that are chosen.
        owed: the least total value.
    """
    slack = value[runs].sum() - owed
    order = np.argsort(-value, kind="stable")
    order = order[~runs[order]]
    result: BoolArray = np.zeros(len(value), dtype=bool)
    result[order[slack + np.cumsum(np.minimum(value[order], 0.0)) >= 0.0]] = True
    return result


def short_of(value: FloatArray, runs: BoolArray, owed: float) -> bool:
    """Return whether the running candidates are worth less than ``owed``."""
    return bool(value[runs].sum() < owed - _DUST * np.abs(value).sum())
