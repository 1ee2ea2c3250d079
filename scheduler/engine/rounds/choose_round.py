"""The round mechanism: from X to the configurations that run in a round.

Every configuration of a job (or of a pair) carries a credit: the seconds that X has promised it so
far minus the seconds it received. Candidates that would be too far behind at the end of the round
are urgent and run first. Then come held configurations, and those that lag most or end soonest, as
the band says (``urgency``). If that leaves more than a thousandth of the possible value, a better
round is sought (``partial_choice``). Each round carries a proof of how good it is
(``certificate``). A configuration that is too far ahead of X is not entitled. Workers that the
entitled jobs leave over are offered to waiting jobs, as a bonus that is not charged, unless the
policy wants them idle. If a candidate is still late because gangs do not fit one by one, the best
round of all is sought (``round_milp``). Promises in configurations of equal value are one promise
(``equivalence``). Among rounds of equal value the one is chosen in which most jobs stay on their
workers (``migration``).

Bound, for a constant X without entries above ``NEARLY_ALWAYS``, without a band: with one worker
type and gangs of one no configuration is ever more than one round away from X times the elapsed
time. With several types a job may be wanted on two of them at once, and the deviation stays below
two rounds. With larger gangs it is bounded for every X that can be realised at all. A band adds
``behind_rounds`` to the lag, and ``ahead_rounds`` to the lead. Entries above ``NEARLY_ALWAYS`` may
delay others by ``HEAD_START`` rounds more. Without a band ``benchmarks/rounds.py --draws 40``
measures 1.0, 1.8 and 2.0 rounds; Gavel's rule reaches 5.4, 6.5 and 4.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import margin
from scheduler.engine.rounds import round_milp
from scheduler.engine.rounds.candidates import (
    NEGLIGIBLE,
    Candidates,
    join_candidates,
    pair_candidates,
    single_candidates,
)
from scheduler.engine.rounds.certificate import certify
from scheduler.engine.rounds.kernels import choose_leftover
from scheduler.engine.rounds.migration import suppress_moves, swap_equivalent
from scheduler.engine.rounds.partial_choice import PartialChoice, improve_choice, serve_owed_time
from scheduler.engine.rounds.urgency import rate_candidates, time_left_s
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.limits.node_exclusions import Exclusions
    from scheduler.engine.rounds.certificate import Certificate
    from scheduler.engine.rounds.equivalence import EquivalentConfigurations
    from scheduler.engine.rounds.round_milp import SearchSchedule
    from scheduler.engine.rounds.urgency import Band, Rating
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.pairs import PairTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The configurations that run in a round, and the inputs of the choice.

    Attributes:
        configuration: (N,) single configuration of each job, NONE if it waits or shares.
        pair: (N,) entry of the pair table, NONE otherwise.
        charged: (N,) whether the time counts against X.
        turn_of: (N,) configuration that was due, if a job keeps its workers instead; NONE
            otherwise. The round counts as that one's.
        found: candidates by X: all configurations and pairs that are not too far ahead of it.
        left_s: (N,) seconds that jobs are expected to go on.
        may_use_remaining_work: whether ``left_s`` comes from the jobs' lengths; if not, from
            their past time.
        follow_exactly: whether the order was by lag, not by remaining time.
        urgent: (C,) candidates that had to come first.
        wanted: (N, J) configurations to which X gives any time.
        shared: the pairs to which X gives any time; None without pairs.
        held: (N,) single configuration that each job had before.
        profile: (N,) row of the configuration table.
        kept: (N,) jobs with leases that are protected in this round; None for no jobs.
        beyond: (N,) protected jobs that are charged though it is not their turn.
        full: (N,) jobs without room in quotas for the configuration they held; None without
            quotas.
        searched: whether a search found a round that serves the owed time; None without a search.
        certificate: how good the choice is; None if it was not requested.
    """

    configuration: IntArray
    pair: IntArray
    charged: BoolArray
    turn_of: IntArray
    found: Candidates
    left_s: FloatArray
    may_use_remaining_work: bool
    follow_exactly: bool
    urgent: BoolArray
    wanted: BoolArray
    shared: Candidates | None
    held: IntArray
    profile: IntArray
    kept: BoolArray | None
    beyond: BoolArray
    full: BoolArray | None = None
    searched: bool | None = None
    certificate: Certificate | None = None


def choose_round(
    jobs: JobTable,
    pairs: PairTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    *,
    eligible: BoolArray,
    free: IntArray,
    length_s: float,
    lead_s: float,
    keep_bonus_s: float,
    band: Band,
    may_use_remaining_work: bool = True,
    search: SearchSchedule | None = None,
    exclusions: Exclusions | None = None,
    kept: BoolArray | None = None,
    caps: Caps | None = None,
) -> Choice:
    """Choose what runs for the next ``length_s`` seconds.

    Args:
        jobs: the job table.
        pairs: the pair table.
        table: configurations by profile.
        equivalent: configurations of equal value.
        eligible: (N,) jobs to consider.
        free: (K,) workers to give; not changed.
        length_s: seconds that the choice holds.
        lead_s: seconds until it begins.
        keep_bonus_s: seconds of lag, or of remaining time, with which held configurations are
            credited.
        band: how far a round may depart from X.
        may_use_remaining_work: whether the policy may use the lengths of jobs, see ``Allocation``.
        search: when the best round may be sought for late candidates; None for never.
        exclusions: configurations that jobs cannot have; None if there are no bars.
        kept: (N,) protected jobs, which go on as they are; their workers are among the free ones.
            None for no jobs.
        caps: quotas that are left; None if there are no quotas.
    """
    partial_choice = PartialChoice(jobs, eligible, free, caps)
    if kept is not None:
        partial_choice.keep(kept, jobs, pairs, table)
    held, profile = jobs.ints("configuration"), jobs.ints("profile")
    wanted, deficit_s, found = single_candidates(
        jobs,
        table,
        equivalent,
        held=held,
        profile=profile,
        eligible=eligible,
        length_s=length_s,
        lead_s=lead_s,
        ahead_s=band.ahead_s,
        exclusions=exclusions,
        caps=caps,
    )
    left_s = time_left_s(jobs, table, may_use_remaining_work=may_use_remaining_work)
    shared = every_pair = None
    if len(pairs):
        every_pair = pair_candidates(
            jobs, pairs, table, eligible=eligible, length_s=length_s, lead_s=lead_s, caps=caps
        )
        shared = every_pair if exclusions is None else _without_strangers(every_pair, exclusions)
        least_s = np.where(shared.held, -NEGLIGIBLE, NEGLIGIBLE) * length_s - band.ahead_s
        found = join_candidates(found, shared.where(shared.deficit_s > least_s))
    rated = rate_candidates(
        found,
        band,
        types=partial_choice.types,
        length_s=length_s,
        left_s=left_s,
        restart_s=jobs.floats("restart_s"),
        keep_bonus_s=keep_bonus_s,
    )
    begun = partial_choice.copy() if search is not None else partial_choice
    chosen = partial_choice.take(found, rated.priority, rated.urgent, charged=True)
    searched = proven = None
    if search is not None:
        owed = partial(
            round_milp.total_owed,
            jobs,
            table,
            deficit_s,
            pairs=every_pair,
            busy=begun.busy,
            types=partial_choice.types,
            exclusions=exclusions,
        )
        searched, proven = _improve(
            partial_choice, begun, found, chosen, rated=rated, band=band, search=search, owed=owed
        )
    if not partial_choice.busy.all() and partial_choice.free.any():
        _hand_out(
            partial_choice,
            jobs,
            table,
            equivalent,
            shared=shared,
            length_s=length_s,
            left_s=left_s,
            exclusions=exclusions,
        )
    if equivalent.any:
        swap_equivalent(partial_choice.configuration, jobs, equivalent, exclusions, caps)
    turn_of: IntArray = np.full(len(jobs), NONE, dtype=np.int64)
    if (~eligible | (partial_choice.configuration != NONE) | (partial_choice.pair != NONE)).all():
        turn_of = suppress_moves(
            partial_choice.configuration,
            partial_choice.free,
            jobs,
            table,
            equivalent,
            length_s=length_s,
            negligible=NEGLIGIBLE,
            caps=caps,
        )
        turn_of[~partial_choice.charged] = NONE
    beyond = np.zeros(len(jobs), dtype=bool)
    if kept is not None:
        beyond = partial_choice.charge_kept(
            kept, found, wanted=wanted, turn_of=turn_of, jobs=jobs, pairs=pairs, table=table
        )
    return Choice(
        configuration=partial_choice.configuration,
        pair=partial_choice.pair,
        charged=partial_choice.charged,
        turn_of=turn_of,
        found=found,
        left_s=left_s,
        may_use_remaining_work=may_use_remaining_work,
        follow_exactly=band.follow_exactly,
        urgent=rated.urgent,
        wanted=wanted,
        shared=every_pair,
        held=held,
        profile=profile,
        kept=kept,
        beyond=beyond,
        searched=searched,
        certificate=proven,
        full=None if caps is None else _full(caps, partial_choice, table, profile, held),
    )


def _without_strangers(shared: Candidates, exclusions: Exclusions) -> Candidates:
    """Leave out pairs with a member in ``exclusions.row``; pairs that run now may stay."""
    strange = exclusions.row[shared.first] | exclusions.row[shared.second]
    return shared.where(shared.held | ~strange)


def _improve(
    partial_choice: PartialChoice,
    begun: PartialChoice,
    found: Candidates,
    chosen: BoolArray,
    *,
    rated: Rating,
    band: Band,
    search: SearchSchedule,
    owed: Callable[[], float],
) -> tuple[bool | None, Certificate]:
    """Improve a round; if a candidate is late, choose a round that serves the owed time.

    Returns:
        Whether the owed time could be served, None if nothing is late; and the round's certificate.
    """
    bounds = (math.nan, math.nan)
    if rated.value is not None:
        chosen, bounds = improve_choice(partial_choice, begun, found, chosen, rated.value)
    searched = None
    if search.may and round_milp.is_late(found, chosen, band, search.begun_s):
        bonus_s = rated.bonus_s
        searched = serve_owed_time(
            partial_choice, begun, found, chosen, bonus_s=bonus_s, owed=owed()
        )
    if searched:
        chosen = partial_choice.runs(found, begun)
    length_s = band.round_s
    return searched, certify(found, chosen, rated.value, bounds=bounds, length_s=length_s)


def _full(
    caps: Caps,
    partial_choice: PartialChoice,
    table: ConfigurationTable,
    profile: IntArray,
    held: IntArray,
) -> BoolArray:
    """Return (N,) jobs without room in their quotas for the single configuration they held."""
    rows = np.flatnonzero(held != NONE)
    lacks = caps.held(caps.group[rows], table.demand[profile[rows], held[rows]])
    full = np.zeros(len(held), dtype=bool)
    full[rows] = (lacks > partial_choice.free[partial_choice.types :]).any(axis=1)
    return full


def _hand_out(
    partial_choice: PartialChoice,
    jobs: JobTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    *,
    shared: Candidates | None,
    length_s: float,
    left_s: FloatArray,
    exclusions: Exclusions | None,
) -> None:
    """Offer the left-over workers to waiting jobs, unless the policy wants them idle."""
    offered = jobs["x_only"] == 0
    if shared is not None:
        shared = shared.where(offered[shared.first] & offered[shared.second])
        never = np.zeros(len(shared.first), dtype=bool)
        partial_choice.take(shared, shared.deficit_s, never, charged=False)
    leftover = _leftover(
        jobs,
        table,
        equivalent,
        waiting=offered & ~partial_choice.busy,
        free=partial_choice.free,
        length_s=length_s,
        left_s=left_s,
        exclusions=exclusions,
        caps=partial_choice.caps,
    )
    partial_choice.configuration[leftover >= 0] = leftover[leftover >= 0]


def _leftover(
    jobs: JobTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    *,
    waiting: BoolArray,
    free: IntArray,
    length_s: float,
    left_s: FloatArray,
    exclusions: Exclusions | None,
    caps: Caps | None,
) -> IntArray:
    """Offer left-over workers to waiting jobs: by the policy's rank, then by remaining time."""
    rows = np.flatnonzero(waiting)
    profile = jobs.ints("profile")
    order = rows[np.lexsort((rows, left_s[rows], jobs["rank"][rows]))]
    width = table.throughput.shape[1]
    works = 1.0 - np.minimum(jobs.restarts_s[:, :width] / length_s, 0.9)
    throughput = table.throughput[profile] * works
    if exclusions is not None:
        throughput = np.where(exclusions.configuration, 0.0, throughput)
    doubt = equivalent.doubt[profile]
    held = jobs.ints("configuration")
    demand = table.demand[profile]
    if caps is not None:
        demand = caps.widened(caps.group, demand)
    unsure = margin(doubt[np.arange(len(held)), held], doubt.max(axis=1))
    leftover: IntArray = choose_leftover(
        order,
        throughput,
        demand,
        held,
        np.exp(np.maximum(unsure, 0.0)) / works[np.arange(len(held)), held],
        free,
    )
    return leftover
