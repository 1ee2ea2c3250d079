"""Urgency: which candidates must come first by X, and the order of the others.

Rounds follow X within a band. Candidates that are far behind are urgent and come first, in the
order of their lag. All others may be a little ahead of X; of these the job that ends soonest comes
first, since it frees its workers and then needs no more time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.rounds.candidates import NEGLIGIBLE
from scheduler.engine.rounds.value_kernels import worth_of_round

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.rounds.candidates import Candidates
    from scheduler.engine.tables.jobs import JobTable

#: A job may be behind by a round, plus this for each round of work that it has left: a job that
#: ends soon has no time to catch up.
GRANTED: Final = 0.1
#: Rounds of lag credited to candidates to which X gives nearly all the time, since they could
#: hardly catch up. They do not always come first: gangs would then wait behind them forever. At 4 a
#: makespan was missed by a round; at 16 gangs wait.
HEAD_START: Final = 8.0
#: Value of a worker of an urgent candidate. One that completes a job within the round has 1. It is
#: above that of any held candidate, so that urgent ones come first.
URGENT: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far a round may depart from X.

    Attributes:
        round_s: length of a round.
        behind: rounds behind X from which on a candidate is urgent, however much it has left; >= 1.
        ahead: rounds ahead of X up to which a configuration may be.
    """

    round_s: float
    behind: float
    ahead: float

    @property
    def follow_exactly(self) -> bool:
        """Whether there is no band: the candidate that is furthest behind goes first."""
        return self.behind <= 1.0 and self.ahead <= 0.0

    @property
    def ahead_s(self) -> float:
        """Seconds ahead of X up to which a configuration may be."""
        return self.ahead * self.round_s


def time_left_s(
    jobs: JobTable, table: ConfigurationTable, *, may_use_remaining_work: bool
) -> FloatArray:
    """Return (N,) seconds that each job is expected to go on in its fastest configuration.

    Args:
        jobs: the job table.
        table: configurations by profile.
        may_use_remaining_work: whether the policy may use the lengths of jobs. If not, a job
            is expected to go on for as long as it has run.
    """
    result: FloatArray
    if not may_use_remaining_work:
        result = jobs["attained_worker_s"] / np.maximum(jobs["scale_factor"], 1)
        return result
    fastest = table.throughput.max(axis=1, initial=0.0)[jobs["profile"]]
    result = jobs.steps_left() / np.maximum(fastest, 1e-300)
    return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rating:
    """The order of C candidates.

    Attributes:
        urgent: (C,) candidates that must come first.
        priority: (C,) order among the urgent ones, and among the others; largest first.
        bonus_s: (C,) seconds credited because a candidate runs now or X gives it nearly all time.
        value: (C,) value of a round to each; None without a band, since the order decides then.
    """

    urgent: BoolArray
    priority: FloatArray
    bonus_s: FloatArray
    value: FloatArray | None


def rate_candidates(
    found: Candidates,
    band: Band,
    *,
    types: int,
    length_s: float,
    left_s: FloatArray,
    restart_s: FloatArray,
    keep_bonus_s: float,
) -> Rating:
    """Put candidates in order.

    Within the band the value of a round is the part of its remaining work that a candidate could do
    in it; this lets many jobs complete soon. Urgent candidates count per worker, and more the
    longer they are overdue. Running candidates count more by the cost of a move.

    Args:
        found: the candidates.
        band: how far a round may depart from X.
        types: K, the worker types; quotas are behind them in the demand.
        length_s: seconds of the round.
        left_s: (N,) seconds that jobs are expected to go on.
        restart_s: (N,) seconds that each would lose by moving.
        keep_bonus_s: seconds of credit for candidates that run now.
    """
    workers = found.demand[:, :types].sum(axis=1)
    urgent, bonus_s, lag_s, value = worth_of_round(
        *(found.first, found.second, found.held, found.always, found.deficit_s),
        *(workers, left_s, restart_s, length_s, keep_bonus_s, HEAD_START * length_s),
        *(band.behind * band.round_s, band.round_s, GRANTED, NEGLIGIBLE * length_s, URGENT),
    )
    if band.follow_exactly:
        return Rating(urgent=urgent, priority=lag_s, bonus_s=bonus_s, value=None)
    return Rating(urgent=urgent, priority=value / workers, bonus_s=bonus_s, value=value)
