"""Choose the candidates that run: one by one, by prices, or by an integer program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.rounds import round_milp
from scheduler.engine.rounds.candidates import of_pairs
from scheduler.engine.rounds.certificate import FAR, GAP
from scheduler.engine.rounds.kernels import choose_entitled
from scheduler.engine.rounds.prices import find_prices, search_by_prices
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.rounds.candidates import Candidates
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.pairs import PairTable


class PartialChoice:
    """A choice that is not complete yet."""

    def __init__(
        self, jobs: JobTable, eligible: BoolArray, free: IntArray, caps: Caps | None
    ) -> None:
        n = len(jobs)
        #: (K + Q,) workers that are left, and the room in each quota.
        self.free = free.copy() if caps is None else _room(free, caps)
        self.caps = caps
        #: K, the worker types.
        self.types = len(free) if caps is None else caps.counts.shape[1]
        self.busy = ~eligible
        self.configuration: IntArray = np.full(n, NONE, dtype=np.int64)
        self.pair: IntArray = np.full(n, NONE, dtype=np.int64)
        self.charged: BoolArray = np.zeros(n, dtype=bool)

    def copy(self) -> PartialChoice:
        """Return a copy to start again from."""
        twin = object.__new__(PartialChoice)  # a third of the time of ``copy``
        twin.__dict__.update(self.__dict__)
        for name in ("free", "busy", "configuration", "pair", "charged"):
            twin.__dict__[name] = self.__dict__[name].copy()
        return twin

    def runs(self, found: Candidates, begun: PartialChoice) -> BoolArray:
        """Return (C,) whether each candidate runs and did not run when the choice began."""
        alone = self.configuration[found.first] == found.configuration
        together = self.pair[found.first] == found.pair
        result: BoolArray = np.where(found.second == NONE, alone, together)
        return result & ~begun.busy[found.first]

    def become(self, other: PartialChoice) -> None:
        """Become equal to another choice."""
        self.__dict__.update(other.__dict__)

    def keep(
        self, kept: BoolArray, jobs: JobTable, pairs: PairTable, table: ConfigurationTable
    ) -> None:
        """Let protected jobs keep their workers."""
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
        """Count the time of kept jobs against X if a job that is due waits for their workers.

        If none waits, the time is a bonus, like that of leftover workers. It is a bonus, too, if X
        gives a job no time, or if the job may have no more than X gives: such jobs could only make
        up for it by leaving workers idle.

        Returns:
            (N,) jobs that are charged although it is not their turn. ``turn_of`` is set for jobs
            with a turn, or an X, in another configuration.
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
        """Take candidates by priority, the urgent ones first, while there are workers.

        Returns:
            (C,) whether each was taken.
        """
        if not len(found.first):
            return np.zeros(0, dtype=bool)
        workers = found.demand[:, : self.types].sum(axis=1)
        keys = (-workers, -priority, ~urgent)
        # Singles come in order of their rows: usually no further sort keys are needed.
        mixed = found.elsewhere.any() or (found.first[1:] < found.first[:-1]).any()
        order = np.lexsort((found.elsewhere, found.first, *keys) if mixed else keys)
        chosen: BoolArray = choose_entitled(
            order,
            np.ascontiguousarray(found.first),  # otherwise it is compiled twice
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
    """Return (K + Q,) workers that are free, and the room in each quota."""
    left = np.maximum(np.floor(caps.limit), 0.0).astype(np.int64)
    return np.concatenate((free[: caps.counts.shape[1]], left))


def improve_choice(
    partial_choice: PartialChoice,
    begun: PartialChoice,
    found: Candidates,
    chosen: BoolArray,
    value: FloatArray,
) -> tuple[BoolArray, tuple[float, float]]:
    """Look for better choices until no choice can be worth much more.

    The search goes by the gain beyond the prices of workers, then by an integer program. Gangs
    that are taken one by one can leave workers idle that another choice would use.

    Args:
        partial_choice: the choice; it becomes a better one if one is found.
        begun: the choice before any candidate was chosen.
        found: the C candidates.
        chosen: (C,) which of them the choice runs.
        value: (C,) value of each.

    Returns:
        (C,) which candidates run in the end; upper bounds for whole and for divided workers.
    """
    reached = float(value[chosen].sum())
    priced = find_prices(found, value, begun.free, begun.busy, reached=reached)
    bound = priced.bound
    if reached >= (1.0 - GAP) * bound:
        return chosen, (bound, bound)
    never = np.zeros(len(value), dtype=bool)
    gain = priced.gain / found.demand[:, : partial_choice.types].sum(axis=1)
    other = begun.copy()
    runs = other.take(found, gain, never, charged=True)
    if value[runs].sum() > reached:
        partial_choice.become(other)
        chosen, reached = runs, float(value[runs].sum())
    if reached >= (1.0 - GAP) * bound:
        return chosen, (bound, bound)
    must, may = priced.core(reached)
    other = begun.copy()
    if not other.take(found.where(must), gain[must], never[must], charged=True).all():
        return chosen, (reached, priced.bound)  # no choice is better
    for exact in (False, True):
        if exact and reached >= (1.0 - FAR) * bound:
            break
        if exact:
            worth = np.where(may, value, 0.0)
            found_runs, most = round_milp.best_choice(
                found, worth, other.free, other.busy, gap=GAP / 10.0
            )
            runs = never if found_runs is None else found_runs
            bound = min(bound, float(value[must].sum()) + most)
        elif not (found.second[may] >= 0).any():
            runs, bound = search_by_prices(found, priced, may, other.free, reached)
        else:
            continue
        if value[must | runs].sum() > reached:
            better = other.copy()
            better.take(found, gain, runs, charged=True)
            partial_choice.become(better)
            chosen = partial_choice.runs(found, begun)
            reached = float(value[chosen].sum())
    return chosen, (max(bound, reached), priced.bound)


def serve_owed_time(
    partial_choice: PartialChoice,
    begun: PartialChoice,
    found: Candidates,
    chosen: BoolArray,
    *,
    bonus_s: FloatArray,
    owed: float,
) -> bool | None:
    """Choose again if the running candidates are worth less than is owed, see ``round_milp``.

    Args:
        partial_choice: the choice; it becomes another one if one is found.
        begun: the choice before any candidate was chosen.
        found: the C candidates.
        chosen: (C,) which of them the choice runs.
        bonus_s: (C,) seconds of lag with which each is credited so that fewer jobs move. Rounds
            that serve the owed time with this credit are tried first.
        owed: see ``round_milp.total_owed``.

    Returns:
        Whether a choice was found that is worth ``owed``; None if there was no need.
    """
    value = round_milp.candidate_worth(found, partial_choice.types)
    if not round_milp.short_of(value, chosen, owed):
        return None
    for credited in (
        value + round_milp.candidate_worth(found, partial_choice.types, bonus_s),
        value,
    ):
        runs, _ = round_milp.best_choice(found, credited, begun.free, begun.busy)
        if runs is not None and not round_milp.short_of(value, runs, owed):
            break
    else:
        return False
    for part in (runs, round_milp.affordable_candidates(value, runs, owed)):
        some = found.where(part)
        begun.take(some, some.deficit_s, np.zeros(len(some.first), dtype=bool), charged=True)
    partial_choice.become(begun)
    return True
