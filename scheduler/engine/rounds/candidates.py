"""Candidates: the configurations that X gives any time, and how far each lags behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.rounds.migration import sum_equivalent
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
) -> tuple[BoolArray, FloatArray, Candidates]:
    """List the single configurations that would lag behind X at the end of the round.

    Returns:
        (N, J) configurations to which X gives any time, (N, J) seconds by which each would lag
        behind, and the candidates among them.
    """
    x = jobs.x
    wanted: BoolArray = x > NEGLIGIBLE
    credit_s = jobs.credit_s
    if lead_s > 0:
        credit_s = credit_s + x * lead_s
        running = np.flatnonzero((jobs["charged"] != 0) & (held >= 0))
        credit_s[running, held[running]] -= lead_s
    # A held configuration may get ahead by one more round before it pauses: fewer restarts.
    kept = np.zeros(x.shape, dtype=bool)
    running = (held >= 0).nonzero()[0]
    kept[running, held[running]] = True
    promise = None
    if equivalent.any and len(shared := equivalent.shared[profile].nonzero()[0]):
        # They share one promise of time.
        group = np.tile(np.arange(x.shape[1]), (len(shared), 1))
        group[:, : equivalent.group.shape[1]] = equivalent.group[profile[shared]]
        x, credit_s = x.copy(), credit_s.copy()
        x[shared] = sum_equivalent(x[shared], group)
        credit_s[shared] = sum_equivalent(credit_s[shared], group)
        kept[shared] = sum_equivalent(kept[shared].astype(float), group) > 0.0
        promise = np.full(x.shape, NONE, dtype=np.int64)
        promise[shared] = shared[:, None] * x.shape[1] + group
    deficit_s = credit_s + x * length_s
    trace_s = NEGLIGIBLE * length_s
    least = np.where(kept, -trace_s - ahead_s, trace_s - ahead_s)
    entitled = wanted & (deficit_s > least) & eligible[:, None]
    if exclusions is not None:
        entitled[:, : exclusions.configuration.shape[1]] &= ~exclusions.configuration
    at = np.flatnonzero(entitled)  # ``take`` by one index is faster than by two
    first, configuration = np.divmod(at, x.shape[1])
    none = np.full(len(first), NONE, dtype=np.int64)
    demand = table.demand[profile[first], configuration]
    running_or_alike = kept.take(at)
    return (
        wanted,
        deficit_s,
        Candidates(
            first=first,
            second=none,
            configuration=configuration,
            pair=none,
            deficit_s=deficit_s.take(at),
            held=running_or_alike,
            always=x.take(at) > NEARLY_ALWAYS,
            demand=demand if caps is None else caps.widened(caps.group[first], demand),
            elsewhere=running_or_alike & (held[first] != configuration),
            promise=none if promise is None else promise.take(at),
            share=jobs.x.take(at),
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
