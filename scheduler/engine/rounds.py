"""The round mechanism: from X to the configurations that run in a round.

Every configuration of a job (or of a pair) carries a credit: the seconds that X has promised it so
far minus the seconds it received. What would be too far behind at its end is urgent and runs first;
then what is held, and what lags most or ends soonest, as the band says (``urgency``). A
configuration that is too far ahead of X is not entitled. What the entitled leave over is offered to
the jobs that still wait, as a bonus that is not charged, unless the policy means it to stay idle.
Where something is late all the same, since gangs do not fit one by one, the best round of all is
sought (``packings``). Promises in configurations of equal value are one promise (``alike``), and of
rounds of equal value the one is chosen in which most jobs stay where they are (``staying``).

Bound, for an X that stays and has no entry above ``NEARLY_ALWAYS``, without a band: with one worker
type and gangs of one no configuration is ever more than one round away from X times the elapsed
time. With several types a job may be wanted on two of them at once, and the deviation stays below
two rounds. With larger gangs it is bounded for every X that can be realised at all. A band adds
``behind_rounds`` to what it may be behind, and ``ahead_rounds`` to what it may be ahead. Entries
above ``NEARLY_ALWAYS`` may delay others by ``HEAD_START`` rounds more. Without a band
``benchmarks/rounds.py --draws 40`` measures 1.0, 1.8 and 2.0 rounds where Gavel's rule reaches 5.4,
6.5 and 4.4.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import margin
from scheduler.engine import packings
from scheduler.engine.candidates import (
    NEGLIGIBLE,
    Candidates,
    join,
    of_pairs,
    shared_pairs,
    singles,
)
from scheduler.engine.jobs import NONE
from scheduler.engine.kernels import choose_entitled, choose_leftover
from scheduler.engine.staying import exchange, stay
from scheduler.engine.urgency import time_left_s

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.alike import Alike
    from scheduler.engine.avoidance import Bars
    from scheduler.engine.jobs import JobTable
    from scheduler.engine.packings import Search
    from scheduler.engine.pairs import PairTable
    from scheduler.engine.urgency import Band

#: Rounds of lag that it is credited with. At 4 a makespan was missed by a round; at 16 gangs wait.
HEAD_START = 8.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What runs in a round.

    Attributes:
        configuration: (N,) single configuration of each job, NONE if it waits or shares.
        pair: (N,) entry of the pair table, NONE otherwise.
        charged: (N,) whether the time counts against X.
        turn_of: (N,) configuration whose turn it was, where a job stays as it is instead; NONE
            otherwise. The round counts as that one's.
        found: what could be chosen by X: all that is not too far ahead of it.
        left_s: (N,) seconds that jobs are expected to go on.
        by_lengths: whether by their lengths, or by what they have had.
        by_lag: whether who is further behind went first, and not who goes on for less.
        urgent: (C,) what of it had to come first.
        wanted: (N, J) what X gives any time.
        shared: the pairs that X gives any time; None without pairs.
        held: (N,) single configuration that each job had before.
        profile: (N,) row of the configuration table.
        kept: (N,) whose leases go on whoever is due; None: nobody's.
        beyond: (N,) those of them that are charged though it is not their turn.
        full: (N,) whose quotas have no room for what they held; None where there are no quotas.
        searched: whether a round was found that serves what is owed; None where none was sought.
    """

    configuration: IntArray
    pair: IntArray
    charged: BoolArray
    turn_of: IntArray
    found: Candidates
    left_s: FloatArray
    by_lengths: bool
    by_lag: bool
    urgent: BoolArray
    wanted: BoolArray
    shared: Candidates | None
    held: IntArray
    profile: IntArray
    kept: BoolArray | None
    beyond: BoolArray
    full: BoolArray | None = None
    searched: bool | None = None


def choose_round(
    jobs: JobTable,
    pairs: PairTable,
    table: ConfigurationTable,
    alike: Alike,
    *,
    eligible: BoolArray,
    free: IntArray,
    length_s: float,
    lead_s: float,
    keep_bonus_s: float,
    band: Band,
    by_lengths: bool = True,
    search: Search | None = None,
    bars: Bars | None = None,
    kept: BoolArray | None = None,
    caps: Caps | None = None,
) -> Choice:
    """Choose what runs for the next ``length_s`` seconds.

    Args:
        jobs: the job table.
        pairs: the pair table.
        table: configurations by profile.
        alike: what is of equal value in it.
        eligible: (N,) jobs to consider.
        free: (K,) workers to give; not changed.
        length_s: seconds that the choice holds.
        lead_s: seconds until it begins.
        keep_bonus_s: seconds of lag, or of what it has left to do, that a configuration held now
            is credited with.
        band: how far what runs may depart from X.
        by_lengths: whether the policy may know how long jobs take, see ``Allocation``.
        search: when the best round may be sought where something is late; None for never.
        bars: what jobs that avoid nodes cannot have; None where none does.
        kept: (N,) jobs that go on as they are, whoever is due; their workers are among the free
            ones. None: nobody.
        caps: quotas that are left; None where there are none.
    """
    draft = _Draft(jobs, eligible, free, caps)
    if kept is not None:
        draft.keep(kept, jobs, pairs, table)
    held, profile = jobs.ints("configuration"), jobs.ints("profile")
    wanted, deficit_s, found = singles(
        jobs,
        table,
        alike,
        held=held,
        profile=profile,
        eligible=eligible,
        length_s=length_s,
        lead_s=lead_s,
        ahead_s=band.ahead_s,
        bars=bars,
        caps=caps,
    )
    left_s = time_left_s(jobs, table, by_lengths=by_lengths)
    shared = every_pair = None
    if len(pairs):
        every_pair = shared = shared_pairs(
            jobs, pairs, table, eligible=eligible, length_s=length_s, lead_s=lead_s, caps=caps
        )
        if bars is not None:  # the partner may stay where the other one must not come
            strange = bars.row[shared.first] | bars.row[shared.second]
            shared = shared.where(shared.held | ~strange)
        least_s = np.where(shared.held, -NEGLIGIBLE, NEGLIGIBLE) * length_s - band.ahead_s
        found = join(found, shared.where(shared.deficit_s > least_s))
    restart_s = jobs.floats("restart_s")[found.first]
    bonus_s = np.where(found.held, keep_bonus_s + np.minimum(restart_s, length_s), 0.0)
    # What X wants nearly all the time could hardly ever catch up, so it has a head start; it does
    # not come first come what may, or gangs would wait for good behind full-time jobs.
    bonus_s += np.where(found.always, HEAD_START * length_s, 0.0)
    work_s = left_s[found.first]
    both = found.second != NONE
    work_s[both] = np.minimum(work_s[both], left_s[found.second[both]])
    allowed_s = band.allowed_s(work_s) + NEGLIGIBLE * length_s
    urgent = found.always | (found.deficit_s > allowed_s)
    # Who has less left, and so less time to make up for it, is the more urgent at an equal lag.
    lag_s = found.deficit_s if band.by_lag else found.deficit_s - allowed_s
    priority = bonus_s + np.where(urgent | band.by_lag, lag_s, -work_s)
    begun = draft.copy()
    chosen = draft.take(found, priority, urgent, charged=True)
    searched = None
    if search is not None and search.may and packings.is_late(found, chosen, band, search.begun_s):
        owed = packings.owed(
            jobs,
            table,
            deficit_s,
            pairs=every_pair,
            busy=begun.busy,
            types=draft.types,
            bars=bars,
        )
        searched = _serve_what_is_owed(draft, begun, found, chosen, bonus_s=bonus_s, owed=owed)
    if not draft.busy.all() and draft.free.any():
        offered = jobs["x_only"] == 0
        if shared is not None:
            shared = shared.where(offered[shared.first] & offered[shared.second])
            never = np.zeros(len(shared.first), dtype=bool)
            draft.take(shared, shared.deficit_s, never, charged=False)
        waiting = offered & ~draft.busy
        leftover = _leftover(
            jobs,
            table,
            alike,
            waiting=waiting,
            free=draft.free,
            length_s=length_s,
            left_s=left_s,
            bars=bars,
            caps=caps,
        )
        draft.configuration[leftover >= 0] = leftover[leftover >= 0]
    if alike.any:
        exchange(draft.configuration, jobs, alike, bars, caps)
    turn_of: IntArray = np.full(len(jobs), NONE, dtype=np.int64)
    if (~eligible | (draft.configuration != NONE) | (draft.pair != NONE)).all():
        turn_of = stay(
            draft.configuration,
            draft.free,
            jobs,
            table,
            alike,
            length_s=length_s,
            negligible=NEGLIGIBLE,
            caps=caps,
        )
        turn_of[~draft.charged] = NONE
    beyond = np.zeros(len(jobs), dtype=bool)
    if kept is not None:
        beyond = draft.charge_kept(
            kept, found, wanted=wanted, turn_of=turn_of, jobs=jobs, pairs=pairs, table=table
        )
    return Choice(
        configuration=draft.configuration,
        pair=draft.pair,
        charged=draft.charged,
        turn_of=turn_of,
        found=found,
        left_s=left_s,
        by_lengths=by_lengths,
        by_lag=band.by_lag,
        urgent=urgent,
        wanted=wanted,
        shared=every_pair,
        held=held,
        profile=profile,
        kept=kept,
        beyond=beyond,
        searched=searched,
        full=None if caps is None else _full(caps, draft, table, profile, held),
    )


def _serve_what_is_owed(
    draft: _Draft,
    begun: _Draft,
    found: Candidates,
    chosen: BoolArray,
    *,
    bonus_s: FloatArray,
    owed: float,
) -> bool | None:
    """Choose anew where what runs is worth less than is owed, see ``packings``.

    Args:
        draft: the choice; it becomes the other one where that is found.
        begun: as it was before anything of this was chosen.
        found: what could be chosen.
        chosen: (C,) what was.
        bonus_s: (C,) seconds of lag that each is credited with, so that fewer jobs move; rounds
            that serve what is owed with it are taken first.
        owed: see ``packings.owed``.

    Returns:
        Whether a choice was found that is worth what is owed; None where there was no need.
    """
    value = packings.worth(found, draft.types)
    if not packings.short_of(value, chosen, owed):
        return None
    for credited in (value + packings.worth(found, draft.types, bonus_s), value):
        runs = packings.best(found, credited, begun.free, begun.busy)
        if runs is not None and not packings.short_of(value, runs, owed):
            break
    else:
        return False
    for part in (runs, packings.affordable(value, runs, owed)):
        some = found.where(part)
        begun.take(some, some.deficit_s, np.zeros(len(some.first), dtype=bool), charged=True)
    draft.become(begun)
    return True


def _full(
    caps: Caps, draft: _Draft, table: ConfigurationTable, profile: IntArray, held: IntArray
) -> BoolArray:
    """Return (N,) jobs whose quotas have no room for the single configuration that they held."""
    rows = np.flatnonzero(held != NONE)
    lacks = caps.held(caps.group[rows], table.demand[profile[rows], held[rows]])
    full = np.zeros(len(held), dtype=bool)
    full[rows] = (lacks > draft.free[draft.types :]).any(axis=1)
    return full


class _Draft:
    """A choice in the making."""

    def __init__(
        self, jobs: JobTable, eligible: BoolArray, free: IntArray, caps: Caps | None
    ) -> None:
        n = len(jobs)
        #: (K + Q,) workers that are left, and what is left of each quota.
        self.free = free.copy() if caps is None else _room(free, caps)
        self.caps = caps
        #: K, the worker types.
        self.types = len(free) if caps is None else caps.counts.shape[1]
        self.busy = ~eligible
        self.configuration: IntArray = np.full(n, NONE, dtype=np.int64)
        self.pair: IntArray = np.full(n, NONE, dtype=np.int64)
        self.charged: BoolArray = np.zeros(n, dtype=bool)

    def copy(self) -> _Draft:
        """Return a copy, to begin anew from."""
        twin = copy(self)
        for name in ("free", "busy", "configuration", "pair", "charged"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def become(self, other: _Draft) -> None:
        """Take over what another draft has."""
        self.__dict__.update(other.__dict__)

    def keep(
        self, kept: BoolArray, jobs: JobTable, pairs: PairTable, table: ConfigurationTable
    ) -> None:
        """Let jobs go on as they are."""
        rows = np.flatnonzero(kept)
        self.busy[rows] = True
        self.configuration[rows] = jobs["configuration"][rows]
        self.pair[rows] = jobs["pair"][rows]
        alone = rows[self.configuration[rows] != NONE]
        demand = table.demand[jobs["profile"][alone], self.configuration[alone]]
        entries = np.unique(self.pair[rows])
        entries = entries[entries != NONE]
        together = table.pair_demand[pairs.index[entries]]
        if self.caps is not None:
            demand = self.caps.widened(self.caps.group[alone], demand)
            members = self.caps.group[jobs.rows_of(pairs.numbers[entries])]
            together = of_pairs(self.caps, members, together)
        taken = demand.sum(axis=0) + together.sum(axis=0)
        self.free[: len(taken)] -= taken
        np.maximum(self.free[self.types :], 0, out=self.free[self.types :])

    def charge_kept(
        self,
        kept: BoolArray,
        found: Candidates,
        *,
        wanted: BoolArray,
        turn_of: IntArray,
        jobs: JobTable,
        pairs: PairTable,
        table: ConfigurationTable,
    ) -> BoolArray:
        """Let the time of kept jobs count against X, where somebody who is due waits for them.

        Where nobody does, it is a bonus as what is left over; and so it is of those to whom X gives
        no time, or nothing but what it gives: they could only make up for it by leaving workers
        idle.

        Returns:
            (N,) those that are charged though it is not their turn; ``turn_of`` is written where
            it, or X, is in another configuration.
        """
        beyond: BoolArray = np.zeros(len(jobs), dtype=bool)
        waits = (self.configuration == NONE) & (self.pair == NONE)
        due = waits[found.first] & (found.deficit_s > 0)
        contested = (found.demand[due] > 0).any(axis=0)
        for row in np.flatnonzero(kept).tolist():
            held, entry = int(self.configuration[row]), int(self.pair[row])
            own = np.flatnonzero((found.first == row) | (found.second == row))
            if len(own):
                self.charged[row] = True
                turns = found.configuration[own]
                if held != NONE and not (turns == held).any():
                    turn_of[row] = turns[np.argmax(found.deficit_s[own])]
                continue
            if held != NONE:
                demand, promised = table.demand[jobs["profile"][row], held], wanted[row].any()
            else:
                demand, promised = table.pair_demand[pairs.index[entry]], pairs.x[entry] > 0
            if self.caps is not None:
                demand = self.caps.widened(self.caps.group[[row]], demand[None])[0]
            if promised and not jobs["x_only"][row] and (contested & (demand > 0)).any():
                self.charged[row] = beyond[row] = True
                if held != NONE and not wanted[row, held]:
                    turn_of[row] = np.argmax(jobs.x[row])
        return beyond

    def take(
        self, found: Candidates, priority: FloatArray, urgent: BoolArray, *, charged: bool
    ) -> BoolArray:
        """Take candidates, the urgent ones first, by priority while their workers last.

        Returns:
            (C,) those that were taken.
        """
        if not len(found.first):
            return np.zeros(0, dtype=bool)
        workers = found.demand[:, : self.types].sum(axis=1)
        order = np.lexsort((found.elsewhere, found.first, -workers, -priority, ~urgent))
        chosen: BoolArray = choose_entitled(
            order,
            np.ascontiguousarray(found.first),  # else it is compiled twice
            np.ascontiguousarray(found.second),
            found.demand,
            found.promise,
            urgent,
            self.free,
            self.busy,
        )
        first, second = found.first[chosen], found.second[chosen]
        self.configuration[first] = found.configuration[chosen]
        self.pair[first] = found.pair[chosen]
        self.charged[first] = charged
        both = second >= 0
        self.pair[second[both]] = found.pair[chosen][both]
        self.charged[second[both]] = charged
        return chosen


def _room(free: IntArray, caps: Caps) -> IntArray:
    """Return (K + Q,) workers that are free, and what is left of each quota."""
    left = np.maximum(np.floor(caps.limit), 0.0).astype(np.int64)
    return np.concatenate((free[: caps.counts.shape[1]], left))


def _leftover(
    jobs: JobTable,
    table: ConfigurationTable,
    alike: Alike,
    *,
    waiting: BoolArray,
    free: IntArray,
    length_s: float,
    left_s: FloatArray,
    bars: Bars | None,
    caps: Caps | None,
) -> IntArray:
    """Offer what is left to waiting jobs: by the policy's rank, then to who ends soonest."""
    rows = np.flatnonzero(waiting)
    profile = jobs.ints("profile")
    order = rows[np.lexsort((rows, left_s[rows], jobs["rank"][rows]))]
    restart_s = np.minimum(jobs.floats("restart_s"), 0.9 * length_s)
    throughput = table.throughput[profile]
    if bars is not None:
        throughput = np.where(bars.configuration, 0.0, throughput)
    doubt = alike.doubt[profile]
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
        np.exp(np.maximum(unsure, 0.0)) * length_s / (length_s - restart_s),
        free,
    )
    return leftover
