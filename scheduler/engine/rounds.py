"""The round mechanism: from X to the configurations that run in a round.

Every configuration of a job (or of a pair) carries a credit: the seconds that X has promised it so
far minus the seconds it received. What would be more than a round behind at its end is
urgent and runs first; then what is held, then what lags most. A configuration that is ahead of X is
not entitled, so none gets ahead by more than a round. What the entitled leave over is offered to
the jobs that still wait, as a bonus that is not charged, unless the policy means it to stay idle.
Promises
in configurations of equal value are one promise (``alike``), and of rounds of equal value the one
is chosen in which most jobs stay where they are (``staying``).

Bound, for an X that stays and has no entry above ``NEARLY_ALWAYS``: with one worker type and gangs
of one no configuration is ever more than one round away from X times the elapsed time. With several
types a job may be wanted on two of them at once, and the deviation stays below two rounds. With
larger gangs it is bounded as far as they can be packed at all. Entries above ``NEARLY_ALWAYS`` may
delay others by ``HEAD_START`` rounds more. ``benchmarks/rounds.py --draws 40`` measures 1.0, 1.8
and 2.0 rounds where Gavel's rule reaches 5.4, 6.5 and 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import margin
from scheduler.engine.jobs import NONE
from scheduler.engine.kernels import choose_entitled, choose_leftover
from scheduler.engine.staying import exchange, pooled, stay

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.alike import Alike
    from scheduler.engine.avoidance import Bars
    from scheduler.engine.jobs import JobTable
    from scheduler.engine.pairs import PairTable

#: Smaller fractions of X are noise of the solver.
NEGLIGIBLE = 1e-6
#: A configuration with a larger fraction needs more than 20 rounds to make up for one.
NEARLY_ALWAYS = 0.95
#: Rounds of lag that it is credited with. At 4 a makespan was missed by a round; at 16 gangs wait.
HEAD_START = 8.0
#: Rounds by which an urgent configuration goes before what is only held.
URGENT = 1e6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What runs in a round.

    Attributes:
        configuration: (N,) single configuration of each job, NONE if it waits or shares.
        pair: (N,) entry of the pair table, NONE otherwise.
        charged: (N,) whether the time counts against X.
        turn_of: (N,) configuration whose turn it was, where a job stays as it is instead; NONE
            otherwise. The round counts as that one's.
        found: what lagged, of which it was chosen.
        urgent: (C,) what of it had to come first.
        wanted: (N, J) what X gives any time.
        shared: the pairs that X gives any time; None without pairs.
        held: (N,) single configuration that each job had before.
        profile: (N,) row of the configuration table.
        kept: (N,) whose leases go on whoever is due; None: nobody's.
        beyond: (N,) those of them that are charged though it is not their turn.
        full: (N,) whose quotas have no room for what they held; None where there are no quotas.
    """

    configuration: IntArray
    pair: IntArray
    charged: BoolArray
    turn_of: IntArray
    found: Candidates
    urgent: BoolArray
    wanted: BoolArray
    shared: Candidates | None
    held: IntArray
    profile: IntArray
    kept: BoolArray | None
    beyond: BoolArray
    full: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Configurations that may run, C of them.

    Attributes:
        first: (C,) row of the job, or of the pair's first member.
        second: (C,) row of the second member, NONE for a single job.
        configuration: (C,) single configuration, NONE for a pair.
        pair: (C,) entry of the pair table, NONE for a single job.
        deficit_s: (C,) seconds by which it would lag behind X at the end of the round.
        held: (C,) whether it runs now, or what is of equal value.
        always: (C,) whether X gives it nearly all the time.
        demand: (C, K + Q) workers, and what is held of each quota.
        elsewhere: (C,) whether the job runs in another configuration of equal value.
        promise: (C,) number that a job's configurations of equal value share, NONE without such.
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

    def where(self, kept: BoolArray) -> Candidates:
        """Return the candidates of a mask."""
        return Candidates(**{name: getattr(self, name)[kept] for name in Candidates.__slots__})


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
        keep_bonus_s: seconds of lag that a configuration held now is credited with.
        bars: what jobs that avoid nodes cannot have; None where none does.
        kept: (N,) jobs that go on as they are, whoever is due; their workers are among the free
            ones. None: nobody.
        caps: quotas that are left; None where there are none.
    """
    draft = _Draft(jobs, eligible, free, caps)
    if kept is not None:
        draft.keep(kept, jobs, pairs, table)
    held, profile = jobs.ints("configuration"), jobs.ints("profile")
    wanted, found = _singles(
        jobs,
        table,
        alike,
        held=held,
        profile=profile,
        eligible=eligible,
        length_s=length_s,
        lead_s=lead_s,
        bars=bars,
        caps=caps,
    )
    shared = every_pair = None
    if len(pairs):
        every_pair = shared = _shared(
            jobs, pairs, table, eligible=eligible, length_s=length_s, lead_s=lead_s, caps=caps
        )
        if bars is not None:  # the partner may stay where the other one must not come
            strange = bars.row[shared.first] | bars.row[shared.second]
            shared = shared.where(shared.held | ~strange)
        lagging = shared.deficit_s > np.where(shared.held, -NEGLIGIBLE, NEGLIGIBLE) * length_s
        found = _join(found, shared.where(lagging))
    restart_s = jobs.floats("restart_s")[found.first]
    bonus_s = np.where(found.held, keep_bonus_s + np.minimum(restart_s, length_s), 0.0)
    # What X wants nearly all the time could hardly ever catch up, so it has a head start; it does
    # not come first come what may, or gangs would wait for good behind full-time jobs.
    bonus_s += np.where(found.always, HEAD_START * length_s, 0.0)
    urgent = found.always | (found.deficit_s > length_s * (1 + NEGLIGIBLE))
    bonus_s += np.where(urgent, URGENT * length_s, 0.0)
    draft.take(found, bonus_s, urgent, charged=True)
    if not draft.busy.all() and draft.free.any():
        offered = jobs["x_only"] == 0
        if shared is not None:
            shared = shared.where(offered[shared.first] & offered[shared.second])
            idle = np.zeros(len(shared.first))
            draft.take(shared, idle, idle > 0, charged=False)
        waiting = offered & ~draft.busy
        leftover = _leftover(
            jobs,
            table,
            alike,
            waiting=waiting,
            free=draft.free,
            length_s=length_s,
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
        urgent=urgent,
        wanted=wanted,
        shared=every_pair,
        held=held,
        profile=profile,
        kept=kept,
        beyond=beyond,
        full=None if caps is None else _full(caps, draft, table, profile, held),
    )


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
            together = _of_pairs(self.caps, members, together)
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
        contested = (found.demand[waits[found.first]] > 0).any(axis=0)
        for row in np.flatnonzero(kept).tolist():
            held, entry = int(self.configuration[row]), int(self.pair[row])
            own = np.flatnonzero((found.first == row) | (found.second == row))
            if len(own):
                self.charged[row] = True
                due = found.configuration[own]
                if held != NONE and not (due == held).any():
                    turn_of[row] = due[np.argmax(found.deficit_s[own])]
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
        self, found: Candidates, bonus_s: FloatArray, urgent: BoolArray, *, charged: bool
    ) -> None:
        """Take candidates by lag and bonus while their workers last."""
        if not len(found.first):
            return
        lag_s = found.deficit_s + bonus_s
        workers = found.demand[:, : self.types].sum(axis=1)
        order = np.lexsort((found.elsewhere, found.first, -workers, -lag_s))
        chosen = choose_entitled(
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


def _singles(
    jobs: JobTable,
    table: ConfigurationTable,
    alike: Alike,
    *,
    held: IntArray,
    profile: IntArray,
    eligible: BoolArray,
    length_s: float,
    lead_s: float,
    bars: Bars | None,
    caps: Caps | None,
) -> tuple[BoolArray, Candidates]:
    """List the single configurations that would lag behind X at the end of the round.

    Returns:
        (N, J) what X gives any time, and what of that would lag behind.
    """
    x = jobs.x
    wanted: BoolArray = x > NEGLIGIBLE
    credit_s = jobs.credit_s
    if lead_s > 0:
        credit_s = credit_s + x * lead_s
        running = np.flatnonzero((jobs["charged"] != 0) & (held >= 0))
        credit_s[running, held[running]] -= lead_s
    # What is held may get ahead by a whole round before it pauses: fewer restarts, same bound.
    kept = np.zeros(x.shape, dtype=bool)
    running = np.flatnonzero(held >= 0)
    kept[running, held[running]] = True
    promise = np.full(x.shape, NONE, dtype=np.int64)
    shared = np.flatnonzero(alike.shared[profile])
    if len(shared):  # one promise of time in any of them
        group = np.tile(np.arange(x.shape[1]), (len(shared), 1))
        group[:, : alike.group.shape[1]] = alike.group[profile[shared]]
        x, credit_s = x.copy(), credit_s.copy()
        x[shared] = pooled(x[shared], group)
        credit_s[shared] = pooled(credit_s[shared], group)
        kept[shared] = pooled(kept[shared].astype(float), group) > 0.0
        promise[shared] = shared[:, None] * x.shape[1] + group
    deficit_s = credit_s + x * length_s
    least = np.where(kept, -NEGLIGIBLE, NEGLIGIBLE) * length_s
    entitled = wanted & (deficit_s > least) & eligible[:, None]
    if bars is not None:
        entitled[:, : bars.configuration.shape[1]] &= ~bars.configuration
    first, configuration = np.nonzero(entitled)
    none = np.full(len(first), NONE, dtype=np.int64)
    demand = table.demand[profile[first], configuration]
    return wanted, Candidates(
        first=first,
        second=none,
        configuration=configuration,
        pair=none,
        deficit_s=deficit_s[first, configuration],
        held=kept[first, configuration],
        always=x[first, configuration] > NEARLY_ALWAYS,
        demand=demand if caps is None else caps.widened(caps.group[first], demand),
        elsewhere=kept[first, configuration] & (held[first] != configuration),
        promise=promise[first, configuration],
    )


def _shared(
    jobs: JobTable,
    pairs: PairTable,
    table: ConfigurationTable,
    *,
    eligible: BoolArray,
    length_s: float,
    lead_s: float,
    caps: Caps | None,
) -> Candidates:
    """List the pairs that X wants, whether they lag behind it or are ahead."""
    rows = jobs.rows_of(pairs.numbers.ravel()).reshape(-1, 2)
    there = (rows >= 0).all(axis=1) & (pairs.x > NEGLIGIBLE)
    q = np.flatnonzero(there & eligible[rows[:, 0]] & eligible[rows[:, 1]])
    first, second = rows[q, 0], rows[q, 1]
    running = jobs["pair"][first] == q
    deficit_s = pairs.credit_s[q] + pairs.x[q] * (length_s + lead_s)
    demand = table.pair_demand[pairs.index[q]]
    if caps is not None:
        demand = _of_pairs(caps, caps.group[rows[q]], demand)
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
    )


def _room(free: IntArray, caps: Caps) -> IntArray:
    """Return (K + Q,) workers that are free, and what is left of each quota."""
    left = np.maximum(np.floor(caps.limit), 0.0).astype(np.int64)
    return np.concatenate((free[: caps.counts.shape[1]], left))


def _of_pairs(caps: Caps, members: IntArray, demand: IntArray) -> IntArray:
    """Return (P, K + Q) workers of pairs, and what they hold of each quota.

    Args:
        caps: the quotas.
        members: (P, 2) groups of the members.
        demand: (P, K) workers.
    """
    held = caps.held_by_pairs(members[:, 0], members[:, 1], demand)
    return np.concatenate((demand, held), axis=1)


def _join(one: Candidates, other: Candidates) -> Candidates:
    """Put two lists behind one another."""
    return Candidates(
        **{
            name: np.concatenate([getattr(one, name), getattr(other, name)])
            for name in Candidates.__slots__
        }
    )


def _leftover(
    jobs: JobTable,
    table: ConfigurationTable,
    alike: Alike,
    *,
    waiting: BoolArray,
    free: IntArray,
    length_s: float,
    bars: Bars | None,
    caps: Caps | None,
) -> IntArray:
    """Offer what is left to waiting jobs: by the policy's rank, then to who ends soonest."""
    rows = np.flatnonzero(waiting)
    profile = jobs.ints("profile")
    fastest = table.throughput[profile[rows]].max(axis=1)
    left_s = (jobs["total_steps"][rows] - jobs["steps_done"][rows]) / np.maximum(fastest, 1e-300)
    order = rows[np.lexsort((rows, left_s, jobs["rank"][rows]))]
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
