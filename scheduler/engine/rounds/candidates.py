"""Candidates: the configurations that X gives any time, and how far each lags behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import true_entries
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.limits.node_exclusions import Exclusions
    from scheduler.engine.rounds.equivalence import EquivalentConfigurations
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.pairs import PairTable

#: Smaller fractions of X are solver noise.
NEGLIGIBLE = 1e-6
#: A configuration with a larger fraction needs more than 20 rounds to make up for one.
NEARLY_ALWAYS = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Configurations that may run, C of them.

    Attributes:
        first: (C,) row of the job, or of the pair's first member.
        second: (C,) row of the second member, NONE for a single job.
        configuration: (C,) single configuration, NONE for a pair.
        pair: (C,) entry of the pair table, NONE for a single job.
        deficit_s: (C,) seconds by which it would lag behind X at the end of the round.
        held: (C,) whether it, or a configuration of equal value, runs now.
        always: (C,) whether X gives it nearly all the time.
        demand: (C, K + Q) workers, and units of each quota.
        elsewhere: (C,) whether the job runs in another configuration of equal value.
        promise: (C,) number that a job's configurations of equal value share, NONE without one.
        share: (C,) fraction of time that X gives it.
    """

    first: IntArray
    second: IntArray
    configuration: IntArray
    pair: IntArray
    deficit_s: FloatArray
    held: BoolArray
    always: BoolArray
    demand: IntArray
    elsewhere: BoolArray
    promise: IntArray
    share: FloatArray

    def where(self, kept: BoolArray) -> Candidates:
        """Return the candidates of a mask."""
        return Candidates(**{name: getattr(self, name)[kept] for name in Candidates.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lags:
    """How far single configurations lag behind X, for those E that have X or credit, or run.

    Attributes:
        row: (E,) row of the job.
        configuration: (E,) configuration.
        share: (E,) fraction of time that X gives it.
        deficit_s: (E,) seconds by which it would lag behind X at the end of the round.
    """

    row: IntArray
    configuration: IntArray
    share: FloatArray
    deficit_s: FloatArray


def single_candidates(
    jobs: JobTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    *,
    held: IntArray,
    profile: IntArray,
    eligible: BoolArray,
    length_s: float,
    lead_s: float,
    ahead_s: float,
    exclusions: Exclusions | None,
    caps: Caps | None,
) -> tuple[Lags, Candidates]:
    """List the single configurations that would lag behind X at the end of the round.

    Returns:
        How far each would lag behind, and the candidates among them.
    """
    # One job of many counts makes the tables wide, and most entries of the others are 0.
    width = table.demand.shape[1]
    used = (jobs.x[:, :width] != 0.0) | (jobs.credit_s[:, :width] != 0.0)
    running = np.flatnonzero(held >= 0)
    used[running, held[running]] = True
    row, column = true_entries(used)
    x, credit_s = jobs.x[row, column], jobs.credit_s[row, column]
    kept: BoolArray = held[row] == column
    lags = credit_s
    if lead_s > 0:
        lags = credit_s + x * lead_s - lead_s * (kept & (jobs["charged"][row] != 0))
    total, promise = x, np.full(len(row), NONE, dtype=np.int64)
    # A held configuration may get ahead by one more round before it pauses: fewer restarts.
    running_or_alike = kept
    if equivalent.any:
        # They share one promise of time.
        shared = np.flatnonzero(equivalent.shared[profile[row]])
        group = equivalent.group[profile[row[shared]], column[shared]]
        promise[shared] = row[shared] * width + group
        _, of = np.unique(promise[shared], return_inverse=True)
        total, lags, running_or_alike = x.copy(), lags.copy(), kept.copy()
        for values in total, lags:
            values[shared] = np.bincount(of, values[shared])[of]
        running_or_alike[shared] = np.bincount(of, kept[shared])[of] > 0.0
    deficit_s = lags + total * length_s
    trace_s = NEGLIGIBLE * length_s
    least_s = np.where(running_or_alike, -trace_s - ahead_s, trace_s - ahead_s)
    entitled = (x > NEGLIGIBLE) & (deficit_s > least_s) & eligible[row]
    if exclusions is not None:
        entitled &= ~exclusions.configuration[row, column]
    at = np.flatnonzero(entitled)
    first, configuration = row[at], column[at]
    demand = table.demand[profile[first], configuration]
    return (
        Lags(row=row, configuration=column, share=x, deficit_s=deficit_s),
        Candidates(
            first=first,
            second=np.full(len(first), NONE, dtype=np.int64),
            configuration=configuration,
            pair=np.full(len(first), NONE, dtype=np.int64),
            deficit_s=deficit_s[at],
            held=running_or_alike[at],
            always=total[at] > NEARLY_ALWAYS,
            demand=demand if caps is None else caps.widened(caps.group[first], demand),
            elsewhere=running_or_alike[at] & ~kept[at],
            promise=promise[at],
            share=x[at],
        ),
    )


def pair_candidates(
    jobs: JobTable,
    pairs: PairTable,
    table: ConfigurationTable,
    *,
    eligible: BoolArray,
    length_s: float,
    lead_s: float,
    caps: Caps | None,
) -> Candidates:
    """List the pairs to which X gives time, whether they lag behind it or are ahead."""
    rows = jobs.rows_of(pairs.numbers.ravel()).reshape(-1, 2)
    there = (rows >= 0).all(axis=1) & (pairs.x > NEGLIGIBLE)
    q = np.flatnonzero(there & eligible[rows[:, 0]] & eligible[rows[:, 1]])
    first, second = rows[q, 0], rows[q, 1]
    running = jobs["pair"][first] == q
    deficit_s = pairs.credit_s[q] + pairs.x[q] * (length_s + lead_s)
    demand = table.pair_demand[pairs.index[q]]
    if caps is not None:
        demand = of_pairs(caps, caps.group[rows[q]], demand)
    return Candidates(
        first=first,
        second=second,
        configuration=np.full(len(q), NONE, dtype=np.int64),
        pair=q,
        deficit_s=deficit_s - lead_s * (running & (jobs["charged"][first] != 0)),
        held=running,
        always=pairs.x[q] > NEARLY_ALWAYS,
        demand=demand,
        elsewhere=np.zeros(len(q), dtype=bool),
        promise=np.full(len(q), NONE, dtype=np.int64),
        share=pairs.x[q],
    )


def of_pairs(caps: Caps, members: IntArray, demand: IntArray) -> IntArray:
    """Return (P, K + Q) workers of pairs, and units of each quota.

    Args:
        caps: the quotas.
        members: (P, 2) groups of the members.
        demand: (P, K) workers.
    """
    held = caps.held_by_pairs(members[:, 0], members[:, 1], demand)
    return np.concatenate((demand, held), axis=1)


def join_candidates(one: Candidates, other: Candidates) -> Candidates:
    """Put two lists behind one another."""
    return Candidates(
        **{
            name: np.concatenate([getattr(one, name), getattr(other, name)])
            for name in Candidates.__slots__
        }
    )
