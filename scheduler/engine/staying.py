"""Who stays: among rounds of equal value, the one in which the fewest jobs move.

Promises of time in configurations of equal value are one promise (``alike``). Jobs exchange what a
round has for them where that is of equal value to both and one of them can stay. Where nobody
waits, a job moves only for a gain that is beyond the doubt of its figures and worth the restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import margin
from scheduler.engine.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.alike import Alike
    from scheduler.engine.avoidance import Bars
    from scheduler.engine.jobs import JobTable


def pooled(values: FloatArray, group: IntArray) -> FloatArray:
    """Return (R, J) the sums of (R, J) values over what is of equal value, for each that is."""
    sums = np.zeros_like(values)
    np.add.at(sums, (np.arange(len(values))[:, None], group), values)
    result: FloatArray = np.take_along_axis(sums, group, axis=1)
    return result


def settle(jobs: JobTable, alike: Alike) -> None:
    """Spread credits over what is of equal value as X does, as if the time had been so received.

    Otherwise they would drift apart without bound, and be claims once the figures differ.
    """
    rows = np.flatnonzero(alike.shared[jobs["profile"]])
    if not len(rows):
        return
    group = alike.group[jobs["profile"][rows]]
    width = group.shape[1]
    x, credit_s = jobs.x[rows, :width], jobs.credit_s[rows, :width]
    total = pooled(x, group)
    spread = pooled(credit_s, group) * x / np.where(total > 0.0, total, 1.0)
    jobs.credit_s[rows, :width] = np.where(total > 0.0, spread, credit_s)


def exchange(
    choice: IntArray, jobs: JobTable, table: ConfigurationTable, alike: Alike, bars: Bars | None
) -> None:
    """Let jobs exchange what they are to run, where it is worth the same, so that more can stay.

    Nobody gets anything of another value, and the workers that are taken are the same.

    Args:
        choice: (N,) single configuration of each job, NONE without one; changed in place.
        jobs: the job table.
        table: configurations by profile.
        alike: what is of equal value.
        bars: what jobs that avoid nodes cannot have; None where none does.
    """
    rows = np.flatnonzero(
        alike.shared[jobs["profile"]] & (choice != NONE) & (choice != jobs["configuration"])
    )
    if len(rows) >= 2:
        _Exchange(choice, rows.tolist(), jobs=jobs, table=table, alike=alike, bars=bars).run()


class _Exchange:
    """Swaps of what two jobs are to run; each lets one of them stay, or both."""

    def __init__(
        self,
        choice: IntArray,
        rows: list[int],
        *,
        jobs: JobTable,
        table: ConfigurationTable,
        alike: Alike,
        bars: Bars | None,
    ) -> None:
        self.choice, self.rows, self.bars = choice, rows, bars
        self.held, self.profile = jobs.ints("configuration"), jobs.ints("profile")
        self.demand, self.group = table.demand, alike.group
        #: demand -> rows that are to take it and would not stay, in order.
        self.movers: dict[bytes, dict[int, None]] = {}
        for row in rows:
            self.movers.setdefault(self._demand(row, choice[row]), {})[row] = None

    def run(self) -> None:
        """Swap until nothing more is won."""
        while sum(self._keep(row) for row in self.rows if self._could_stay(row)):
            pass

    def _demand(self, row: int, configuration: int) -> bytes:
        return bytes(self.demand[self.profile[row], configuration].tobytes())

    def _could_stay(self, row: int) -> bool:
        here, there, group = self.held[row], self.choice[row], self.group[self.profile[row]]
        return bool(here not in {NONE, there} and group[here] == group[there])

    def _keep(self, row: int) -> bool:
        """Let a row stay if another takes what it was to run; true if so."""
        wanted = self._demand(row, self.held[row])
        given = self._demand(row, self.choice[row])
        found = gets = NONE
        for partner in self.movers.get(wanted, ()):
            offered = self._equal(partner, given)
            if offered != NONE and (found == NONE or offered == self.held[partner]):
                found, gets = partner, offered
                if offered == self.held[partner]:
                    break
        if found == NONE:
            return False
        del self.movers[wanted][found], self.movers[given][row]
        self.choice[row], self.choice[found] = self.held[row], gets
        if gets != self.held[found]:
            self.movers[given][found] = None
        return True

    def _equal(self, row: int, demand: bytes) -> int:
        """Return what is worth the same to a row and takes that demand, NONE without one."""
        group = self.group[self.profile[row]]
        for j in np.flatnonzero(group == group[self.choice[row]]).tolist():
            barred = self.bars is not None and bool(self.bars.configuration[row, j])
            if not barred and self._demand(row, j) == demand:
                return int(j)
        return NONE


def stay(
    choice: IntArray,
    free: IntArray,
    jobs: JobTable,
    table: ConfigurationTable,
    alike: Alike,
    *,
    length_s: float,
    negligible: float,
) -> IntArray:
    """Leave jobs where they are if nobody waits and a move gains nothing that is certain.

    Jobs that only exchange workers hold the same ones together, so they can stay whatever X says.
    Who would leave other workers idle stays only where X wants that too, or where it is of equal
    value, so that a policy that looks at prices is not outwitted. A job that keeps nothing when it
    is preempted, and has begun anew before, is not drawn into an exchange, nor are those who come
    for its workers.

    Args:
        choice: (N,) single configuration of each job, NONE without one; changed in place.
        free: (K,) workers that are left over; changed in place.
        jobs: the job table.
        table: configurations by profile.
        alike: what is of equal value.
        length_s: of the round.
        negligible: smaller fractions of X are none.

    Returns:
        (N,) configuration whose turn it was, where a job stays; NONE otherwise.
    """
    turn_of: IntArray = np.full(len(choice), NONE, dtype=np.int64)
    held = jobs.ints("configuration")
    rows = np.flatnonzero((held != NONE) & (choice != NONE) & (held != choice))
    if not len(rows):
        return turn_of
    here, there, profile = held[rows], choice[rows], jobs.ints("profile")[rows]
    same = alike.group[profile, here] == alike.group[profile, there]
    gain = table.throughput[profile, there] / np.maximum(table.throughput[profile, here], 1e-300)
    stretch_s = _stretch_s(jobs, table, alike, rows, there, length_s=length_s)
    worth = gain * (1.0 - np.minimum(jobs["restart_s"][rows] / stretch_s, 1.0))
    doubt = margin(alike.doubt[profile, here], alike.doubt[profile, there])
    content = same | ((doubt >= 0.0) & (worth <= np.exp(doubt)))
    more = table.demand[profile, here] - table.demand[profile, there]
    loses = (jobs["attempts"][rows] > 1) & (jobs["steps_safe"][rows] <= 0)
    stays = _exchanged(more, np.flatnonzero(loses), gain)
    at = np.flatnonzero(content & ~stays)
    at = at[_largest_fit(more[at], np.zeros_like(free))]
    if not more[at].sum(axis=0).any():
        stays[at] = True
    at = np.flatnonzero(content & ~stays & (same | (jobs.x[rows, here] > negligible)))
    stays[at[_largest_fit(more[at], free)]] = True
    free -= more[stays].sum(axis=0)
    choice[rows[stays]] = here[stays]
    turn_of[rows[stays]] = there[stays]
    return turn_of


def _stretch_s(
    jobs: JobTable,
    table: ConfigurationTable,
    alike: Alike,
    rows: IntArray,
    there: IntArray,
    *,
    length_s: float,
) -> FloatArray:
    """Return (R,) how long X has each job there at a stretch, or until it would be done here."""
    profile, held = jobs.ints("profile")[rows], jobs.ints("configuration")[rows]
    group = alike.group[profile]
    share = pooled(jobs.x[rows, : group.shape[1]], group)[np.arange(len(rows)), there]
    left = jobs["total_steps"][rows] - jobs["steps_done"][rows]
    left_s = left / np.maximum(table.throughput[profile, held], 1e-300)
    stretch_s: FloatArray = np.minimum(length_s / np.maximum(1.0 - share, 1e-9), left_s)
    return np.maximum(stretch_s, 1e-9)


def _exchanged(more: IntArray, losing: IntArray, gain: FloatArray) -> BoolArray:
    """Return who must stay so that jobs that would lose all their work need not move.

    Args:
        more: (R, K) workers that each asks for beyond those it gives up, if it stays.
        losing: rows of jobs that keep nothing when they are preempted.
        gain: (R,) factor by which each would be faster where its turn is.

    Returns:
        (R,) those jobs, each with the ones that came for its workers, the least gain first; without
        those that leave or take workers that nobody else exchanges.
    """
    stays = np.zeros(len(more), dtype=bool)
    for row in losing.tolist():
        tried = stays.copy()
        tried[row] = True
        while (lacking := more[tried].sum(axis=0)).any():
            coming = np.flatnonzero(~tried & (more[:, int(np.argmax(lacking))] < 0))
            if not len(coming):
                break
            tried[coming[np.argmin(gain[coming])]] = True
        else:
            stays = tried
    return stays


def _largest_fit(more: IntArray, free: IntArray) -> BoolArray:
    """Return which changes can be made at once: all, less the last of those that ask too much.

    Args:
        more: (R, K) workers that each asks for beyond those it gives up.
        free: (K,) workers to give.
    """
    fits = np.ones(len(more), dtype=bool)
    while len(more):
        lacking = more[fits].sum(axis=0) - free
        k = int(np.argmax(lacking))
        if lacking[k] <= 0:
            break
        asking = np.flatnonzero(fits & (more[:, k] > 0))[::-1]
        enough = np.searchsorted(np.cumsum(more[asking, k]), lacking[k]) + 1
        fits[asking[:enough]] = False
    return fits
