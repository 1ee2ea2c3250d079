"""Prices of workers bound the value of every choice, and exclude candidates from good ones.

A choice cannot use more than the free workers. So it is worth at most the price of these, plus the
gain of each job beyond the prices. A choice with a candidate that is not the best of its job at
these prices falls short of that bound by the difference. Candidates that would make a choice worse
than a known one are left out, and candidates that every better choice must have are taken.

Source: Lagrangian relaxation of the capacity, and fixing by reduced costs (M. L. Fisher, The
Lagrangian relaxation method for solving integer programming problems, Management Science, 1981).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.rounds.kernels import price_bound, search_core
from scheduler.engine.rounds.value_kernels import entries_of_jobs

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.engine.rounds.candidates import Candidates

#: Most improvements of prices. After a hundred the bound is within 0.01 % of the least one.
_STEPS: Final = 100
#: A search among the other candidates stops after this many steps, which take a millisecond.
_SEARCH_STEPS: Final = 50_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Prices:
    """Prices of workers, and the bounds that they give for C candidates.

    Each job has an entry for each of its candidates that can run: E entries of G jobs, in order of
    the jobs. A pair counts as two halves, one for each member, with half of its workers and half of
    its value. Every choice can be expressed like this.

    Attributes:
        bound: upper bound on the value of any choice.
        price: (K,) price of a worker of each type, and of a unit of each quota; >= 0.
        found: the candidates.
        value: (C,) value of each.
        columns: candidates that can run.
        entry: (E,) position of each entry in ``columns``.
        begin: (G + 1,) first entry of each job, then E.
        part: (E,) part of the candidate that an entry is, 1 or 0.5.
        worth: (E,) value of each entry.
        demand: (E, K) workers of each entry.
    """

    bound: float
    price: FloatArray
    found: Candidates
    value: FloatArray
    columns: IntArray
    entry: IntArray
    begin: IntArray
    part: FloatArray
    worth: FloatArray
    demand: FloatArray

    @cached_property
    def gain(self) -> FloatArray:
        """(C,) value of each above its price; 0 if it cannot run."""
        gain = np.zeros(len(self.value))
        columns = self.columns
        gain[columns] = self.value[columns] - self.found.demand[columns] @ self.price
        return gain

    @property
    def loss(self) -> FloatArray:
        """(C,) least shortfall of any choice in which it runs; inf if it cannot run."""
        return self._shortfalls[0]

    @property
    def missed(self) -> FloatArray:
        """(C,) least shortfall of any choice in which it does not run; 0 for pairs."""
        return self._shortfalls[1]

    @property
    def waits(self) -> FloatArray:
        """(C,) least shortfall of any choice in which its job waits."""
        return self._shortfalls[2]

    @cached_property
    def _shortfalls(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compare the best entry of each job with the next best one."""
        columns, entry, begin, part = self.columns, self.entry, self.begin, self.part
        loss = np.full(len(self.value), np.inf)
        missed, waits = np.zeros(len(self.value)), np.zeros(len(self.value))
        if not len(columns):
            return loss, missed, waits
        of_entry = self.worth - self.demand @ self.price
        job = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
        top = np.maximum(np.maximum.reduceat(of_entry, begin[:-1]), 0.0)
        best = (of_entry >= top[job]) & (top[job] > 0.0)
        others = np.where(best, -np.inf, of_entry)
        next_best = np.maximum(np.maximum.reduceat(others, begin[:-1]), 0.0)
        next_best[np.bincount(job[best], minlength=len(top)) > 1] = np.inf
        loss[columns] = 0.0
        np.add.at(loss, columns[entry], top[job] - of_entry)
        waits[columns[entry]] = top[job]
        sure = best & (part == 1.0)
        missed[columns[entry[sure]]] = np.maximum(top[job] - next_best[job], 0.0)[sure]
        return loss, missed, waits

    def core(self, reached: float) -> tuple[BoolArray, BoolArray]:
        """Return (C,) candidates that any better choice has, and (C,) others that it may have.

        Args:
            reached: value of the best known choice.
        """
        must: BoolArray = self.bound - self.missed < reached
        may: BoolArray = (self.bound - self.loss >= reached) & ~must
        return must, may


def find_prices(
    found: Candidates, value: FloatArray, free: IntArray, busy: BoolArray, *, reached: float
) -> Prices:
    """Find prices of workers that bound the value of choices; fast for many candidates.

    Args:
        found: the candidates.
        value: (C,) value of each.
        free: (K,) free workers.
        busy: (N,) rows that run already.
        reached: value of the best known choice.
    """
    columns, entry, begin, part, worth, demand = entries_of_jobs(
        found.first, found.second, found.demand, value, free, busy
    )
    bound, price = 0.0, np.zeros(len(free))
    if len(columns):
        bound, price = price_bound(worth, demand, begin, free.astype(float), reached, _STEPS)
    return Prices(
        bound=bound,
        price=price,
        found=found,
        value=value,
        columns=columns,
        entry=entry,
        begin=begin,
        part=part,
        worth=worth,
        demand=demand,
    )


def search_by_prices(
    found: Candidates, priced: Prices, may: BoolArray, free: IntArray, reached: float
) -> tuple[BoolArray, float]:
    """Find the best choice among a few candidates, or a good one if that takes too long.

    Args:
        found: the candidates.
        priced: their prices.
        may: (C,) candidates that may be chosen; no pairs.
        free: (K,) workers that are left for them.
        reached: value of the best known choice.

    Returns:
        (C,) which of them run, and an upper bound on the value of any choice.
    """
    result: BoolArray = np.zeros(len(may), dtype=bool)
    columns = np.flatnonzero(may)
    most = priced.bound - reached
    if not len(columns):
        return result, priced.bound - min(float(priced.price @ free), most)
    # Jobs that would lose most by waiting are decided first.
    jobs, some = np.unique(found.first[columns], return_index=True)
    place = np.argsort(np.argsort(-priced.waits[columns[some]], kind="stable"), kind="stable")
    rank = np.concatenate((place[np.searchsorted(jobs, found.first[columns])], place))
    loss = np.concatenate((priced.loss[columns], priced.waits[columns[some]]))
    demand = found.demand[np.concatenate((columns, columns[some]))]
    demand[len(columns) :] = 0
    order = np.lexsort((loss, rank))
    begin = np.flatnonzero(np.diff(rank[order], prepend=-1, append=len(jobs)))
    options, lost, complete = search_core(
        loss[order], demand[order], begin, free.copy(), priced.price, most, _SEARCH_STEPS
    )
    if lost < most:
        picked = order[options]
        result[columns[picked[picked < len(columns)]]] = True
    return result, priced.bound - (lost if complete else 0.0)
