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
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.limits.node_exclusions import Exclusions
    from scheduler.engine.rounds.candidates import Lags
    from scheduler.engine.rounds.certificate import Certificate
    from scheduler.engine.rounds.equivalence import EquivalentConfigurations
    from scheduler.engine.rounds.round_milp import SearchSchedule
    from scheduler.engine.rounds.urgency import Band, Rating
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.pairs import PairTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundInputs:
    """The inputs of the choice of a round; the choice changes none of them.

    Attributes:
        jobs: the job table.
        pairs: the pair table.
        table: configurations by profile.
        equivalent: configurations of equal value.
        eligible: (N,) jobs to consider.
        free: (K,) workers to give.
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

    jobs: JobTable
    pairs: PairTable
    table: ConfigurationTable
    equivalent: EquivalentConfigurations
    eligible: BoolArray
    free: IntArray
    length_s: float
    lead_s: float = 0.0
    keep_bonus_s: float = 0.0
    band: Band
    may_use_remaining_work: bool = True
    search: SearchSchedule | None = None
    exclusions: Exclusions | None = None
    kept: BoolArray | None = None
    caps: Caps | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The configurations that run in a round, and why.

    Attributes:
        inputs: what it was chosen from; its tables have changed since.
        configuration: (N,) single configuration of each job, NONE if it waits or shares.
        pair: (N,) entry of the pair table, NONE otherwise.
        charged: (N,) whether the time counts against X.
        turn_of: (N,) configuration that was due, if a job keeps its workers instead; NONE
            otherwise. The round counts as that one's.
        found: candidates by X: all configurations and pairs that are not too far ahead of it.
        left_s: (N,) seconds that jobs are expected to go on: by the jobs' lengths, or by their past
            time if the policy may not use those.
        urgent: (C,) candidates that had to come first.
        wanted: (N, J) configurations to which X gives any time.
        shared: the pairs to which X gives any time; None without pairs.
        held: (N,) single configuration that each job had before.
        profile: (N,) row of the configuration table.
        beyond: (N,) protected jobs that are charged though it is not their turn.
        full: (N,) jobs without room in quotas for the configuration they held; None without
            quotas.
        searched: whether a search found a round that serves the owed time; None without a search.
        certificate: how good the choice is; None if it was not requested.
    """

    inputs: RoundInputs
    configuration: IntArray
    pair: IntArray
    charged: BoolArray
    turn_of: IntArray
    found: Candidates
    left_s: FloatArray
    urgent: BoolArray
    wanted: BoolArray
    shared: Candidates | None
    held: IntArray
    profile: IntArray
    beyond: BoolArray
    full: BoolArray | None = None
    searched: bool | None = None
    certificate: Certificate | None = None


def choose_round(given: RoundInputs) -> Choice:
    """Choose what runs for the next ``length_s`` seconds."""
    partial_choice = _without_protected(given)
    offers = _find_offers(given)
    left_s = time_left_s(
        given.jobs, given.table, may_use_remaining_work=given.may_use_remaining_work
    )
    rated = _rate_offers(given, offers.found, left_s, partial_choice.types)
    searched, certificate = _take_entitled(given, partial_choice, offers, rated)
    _hand_out_rest(given, partial_choice, offers, left_s)
    turn_of = _avoid_moves(given, partial_choice)
    return Choice(
        inputs=given,
        configuration=partial_choice.configuration,
        pair=partial_choice.pair,
        charged=partial_choice.charged,
        turn_of=turn_of,
        found=offers.found,
        left_s=left_s,
        urgent=rated.urgent,
        wanted=offers.wanted,
        shared=offers.every_pair,
        held=offers.held,
        profile=offers.profile,
        beyond=_charge_protected(given, partial_choice, offers, turn_of),
        full=_without_room(given, partial_choice, offers),
        searched=searched,
        certificate=certificate,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Offers:
    """The candidates of a round.

    Attributes:
        found: those that are not too far ahead of X.
        wanted: (N, J) configurations to which X gives any time.
        lags: how far single configurations lag behind X.
        every_pair: the pairs to which X gives any time; None without pairs.
        shared: those of them that may run.
        held: (N,) single configuration of each job.
        profile: (N,) row of the configuration table.
    """

    found: Candidates
    wanted: BoolArray
    lags: Lags
    every_pair: Candidates | None
    shared: Candidates | None
    held: IntArray
    profile: IntArray


def _without_protected(given: RoundInputs) -> PartialChoice:
    """Return a choice in which protected jobs have their workers, and no other job has any."""
    partial_choice = PartialChoice(given.jobs, given.eligible, given.free, given.caps)
    if given.kept is not None:
        partial_choice.keep(given.kept, given.jobs, given.pairs, given.table)
    return partial_choice


def _find_offers(given: RoundInputs) -> _Offers:
    """Return the configurations and pairs that may run."""
    held, profile = given.jobs.ints("configuration"), given.jobs.ints("profile")
    lags, found = single_candidates(
        given.jobs,
        given.table,
        given.equivalent,
        held=held,
        profile=profile,
        eligible=given.eligible,
        length_s=given.length_s,
        lead_s=given.lead_s,
        ahead_s=given.band.ahead_s,
        exclusions=given.exclusions,
        caps=given.caps,
    )
    shared = every_pair = None
    if len(given.pairs):
        every_pair = shared = pair_candidates(
            given.jobs,
            given.pairs,
            given.table,
            eligible=given.eligible,
            length_s=given.length_s,
            lead_s=given.lead_s,
            caps=given.caps,
        )
        if given.exclusions is not None:
            shared = _without_strangers(every_pair, given.exclusions)
        least_s = np.where(shared.held, -NEGLIGIBLE, NEGLIGIBLE) * given.length_s
        least_s = least_s - given.band.ahead_s
        found = join_candidates(found, shared.where(shared.deficit_s > least_s))
    return _Offers(
        found=found,
        wanted=given.jobs.x > NEGLIGIBLE,
        lags=lags,
        every_pair=every_pair,
        shared=shared,
        held=held,
        profile=profile,
    )


def _without_strangers(shared: Candidates, exclusions: Exclusions) -> Candidates:
    """Leave out pairs with a member in ``exclusions.row``; pairs that run now may stay."""
    strange = exclusions.row[shared.first] | exclusions.row[shared.second]
    return shared.where(shared.held | ~strange)


def _rate_offers(given: RoundInputs, found: Candidates, left_s: FloatArray, types: int) -> Rating:
    """Return the order in which candidates are taken, and their values."""
    return rate_candidates(
        found,
        given.band,
        types=types,
        length_s=given.length_s,
        left_s=left_s,
        restart_s=given.jobs.floats("restart_s"),
        keep_bonus_s=given.keep_bonus_s,
    )


def _take_entitled(
    given: RoundInputs, partial_choice: PartialChoice, offers: _Offers, rated: Rating
) -> tuple[bool | None, Certificate | None]:
    """Take candidates one by one; if the best round may be sought, improve on that.

    If a candidate is late then, a round is sought that serves the owed time.

    Returns:
        Whether the owed time could be served, None if nothing is late; and the round's certificate,
        None without a search.
    """
    found, search = offers.found, given.search
    if search is None:
        partial_choice.take(found, rated.priority, rated.urgent, charged=True)
        return None, None
    begun = partial_choice.copy()
    chosen = partial_choice.take(found, rated.priority, rated.urgent, charged=True)
    bounds = (math.nan, math.nan)
    if rated.value is not None:
        chosen, bounds = improve_choice(partial_choice, begun, found, chosen, rated.value)
    searched = None
    if search.may and round_milp.is_late(found, chosen, given.band, search.begun_s):
        owed = round_milp.total_owed(
            given.jobs,
            given.table,
            offers.lags,
            pairs=offers.every_pair,
            busy=begun.busy,
            types=partial_choice.types,
            exclusions=given.exclusions,
        )
        searched = serve_owed_time(
            partial_choice, begun, found, chosen, bonus_s=rated.bonus_s, owed=owed
        )
    if searched:
        chosen = partial_choice.runs(found, begun)
    length_s = given.band.round_s
    return searched, certify(found, chosen, rated.value, bounds=bounds, length_s=length_s)


def _hand_out_rest(
    given: RoundInputs, partial_choice: PartialChoice, offers: _Offers, left_s: FloatArray
) -> None:
    """Offer the left-over workers to waiting jobs, unless the policy wants them idle."""
    if partial_choice.busy.all() or not partial_choice.free.any():
        return
    offered, shared = given.jobs["x_only"] == 0, offers.shared
    if shared is not None:
        shared = shared.where(offered[shared.first] & offered[shared.second])
        never = np.zeros(len(shared.first), dtype=bool)
        partial_choice.take(shared, shared.deficit_s, never, charged=False)
    waiting = offered & ~partial_choice.busy
    leftover = _leftover(given, waiting, partial_choice.free, left_s)
    partial_choice.configuration[leftover >= 0] = leftover[leftover >= 0]


def _leftover(
    given: RoundInputs, waiting: BoolArray, free: IntArray, left_s: FloatArray
) -> IntArray:
    """Offer left-over workers to waiting jobs: by the policy's rank, then by remaining time."""
    jobs, table, caps = given.jobs, given.table, given.caps
    rows = np.flatnonzero(waiting)
    profile = jobs.ints("profile")
    order = rows[np.lexsort((rows, left_s[rows], jobs["rank"][rows]))]
    width = table.throughput.shape[1]
    works = 1.0 - np.minimum(jobs.restarts_s[:, :width] / given.length_s, 0.9)
    throughput = table.throughput[profile] * works
    if given.exclusions is not None:
        throughput = np.where(given.exclusions.configuration, 0.0, throughput)
    doubt = given.equivalent.doubt[profile]
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


def _avoid_moves(given: RoundInputs, partial_choice: PartialChoice) -> IntArray:
    """Let jobs stay on their workers if that costs nothing; return ``Choice.turn_of``."""
    chosen = partial_choice.configuration
    if given.equivalent.any:
        swap_equivalent(chosen, given.jobs, given.equivalent, given.exclusions, given.caps)
    turn_of: IntArray = np.full(len(given.jobs), NONE, dtype=np.int64)
    if (~given.eligible | (chosen != NONE) | (partial_choice.pair != NONE)).all():
        turn_of = suppress_moves(
            chosen,
            partial_choice.free,
            given.jobs,
            given.table,
            given.equivalent,
            length_s=given.length_s,
            negligible=NEGLIGIBLE,
            caps=given.caps,
        )
        turn_of[~partial_choice.charged] = NONE
    return turn_of


def _charge_protected(
    given: RoundInputs, partial_choice: PartialChoice, offers: _Offers, turn_of: IntArray
) -> BoolArray:
    """Charge protected jobs for workers that others wait for; return ``Choice.beyond``."""
    if given.kept is None:
        return np.zeros(len(given.jobs), dtype=bool)
    return partial_choice.charge_kept(
        given.kept,
        offers.found,
        wanted=offers.wanted,
        turn_of=turn_of,
        jobs=given.jobs,
        pairs=given.pairs,
        table=given.table,
    )


def _without_room(
    given: RoundInputs, partial_choice: PartialChoice, offers: _Offers
) -> BoolArray | None:
    """Return (N,) jobs without room in their quotas for the single configuration they held."""
    caps, held = given.caps, offers.held
    if caps is None:
        return None
    rows = np.flatnonzero(held != NONE)
    lacks = caps.held(caps.group[rows], given.table.demand[offers.profile[rows], held[rows]])
    full = np.zeros(len(held), dtype=bool)
    full[rows] = (lacks > partial_choice.free[partial_choice.types :]).any(axis=1)
    return full
