"""Placement: choose the concrete workers of an assignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

from scheduler.engine.placement.kernels import choose_workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, IntArray
    from scheduler.engine.tables.fleet import Fleet


def largest_first(demands: IntArray, marked: BoolArray) -> list[int]:
    """Return the positions of the marked ones of (R, K) demands, the largest first."""
    positions = np.flatnonzero(marked)
    order = np.argsort(-demands[positions].sum(axis=1), kind="stable")
    largest: list[int] = positions[order].tolist()
    return largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One job, or two jobs that share, with the workers that they ask for.

    Attributes:
        rows: the members' rows in the job table.
        demand: (K,) workers by type.
        held: for each member the workers that it holds now, empty without any.
    """

    rows: tuple[int, ...]
    demand: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]


class Placer:
    """Chooses workers so that few jobs move and gangs stay on few nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def keep(self, units: Sequence[Unit]) -> list[tuple[int, ...]]:
        """Match units with worker sets that their members hold, so that the fewest jobs move.

        Returns:
            For each unit the workers that it keeps, or an empty tuple if it needs a new placement.
        """
        sets: dict[tuple[int, ...], int] = {}
        wishes: list[tuple[int, int]] = []
        for u, unit in enumerate(units):
            fitting = (w for w in unit.held if w and self._matches(w, unit.demand))
            wishes.extend((u, sets.setdefault(workers, len(sets))) for workers in fitting)
        kept: list[tuple[int, ...]] = [()] * len(units)
        if not wishes:
            return kept
        stay = np.zeros((len(units), len(sets)))
        for u, s in wishes:
            stay[u, s] += 1.0
        names = list(sets)
        if np.count_nonzero(stay) == len(names) == np.count_nonzero(stay.any(axis=1)):
            chosen = zip(*np.nonzero(stay), strict=True)  # every set has one taker
        else:
            chosen = zip(*linear_sum_assignment(stay, maximize=True), strict=True)
        for u, s in chosen:
            if stay[u, s] > 0:
                kept[u] = names[s]
        return kept

    def place(
        self,
        demands: IntArray,
        available: BoolArray,
        avoided: Sequence[BoolArray | None] = (),
        together: BoolArray | None = None,
    ) -> list[tuple[int, ...]]:
        """Choose workers for each demand, for large gangs first.

        Requests that must lie on one node come before all others, then those that avoid some
        workers.

        Args:
            demands: (R, K) workers by type for each request.
            available: (W,) workers that may be given; updated in place.
            avoided: for each request (W,) workers that it must not be given, or None.
            together: (R,) requests that get workers of one node or no workers; None for no
                requests.

        Returns:
            Worker indices, ascending, for each demand; empty if there were not enough.
        """
        masks = {r: mask for r, mask in enumerate(avoided) if mask is not None}
        gangs = [] if together is None else largest_first(demands, together)
        if not masks and not gangs:
            return self._place(demands, available)
        result: list[tuple[int, ...]] = [()] * len(demands)
        for r in gangs:
            free = available & ~masks[r] if r in masks else available
            result[r] = self.on_one_node(demands[r], free)
            available[list(result[r])] = False
        for r in (r for r in masks if r not in set(gangs)):
            (result[r],) = self._place(demands[[r]], available & ~masks[r])
            available[list(result[r])] = False
        choosy = {*gangs, *masks}
        others = [r for r in range(len(demands)) if r not in choosy]
        placed = self._place(demands[others], available)
        for r, workers in zip(others, placed, strict=True):
            result[r] = workers
        return result

    def on_one_node(self, demand: IntArray, available: BoolArray) -> tuple[int, ...]:
        """Return workers of the fullest node that has enough of them, ascending; or an empty tuple.

        Args:
            demand: (K,) workers by type.
            available: (W,) workers that may be given; left as they are.
        """
        free = self._fleet.count_on_nodes(available)
        rooms = np.flatnonzero((free >= demand).all(axis=1))
        if not len(rooms):
            return ()
        room = rooms[np.argmin(free[rooms][:, demand > 0].sum(axis=1))]
        first, behind = self._fleet.node_start[room : room + 2].tolist()
        found: list[int] = []
        for k in np.flatnonzero(demand).tolist():
            usable = available[first:behind] & (self._fleet.type_of[first:behind] == k)
            found += (first + np.flatnonzero(usable)[: demand[k]]).tolist()
        return tuple(sorted(found))

    def _place(self, demands: IntArray, available: BoolArray) -> list[tuple[int, ...]]:
        fleet = self._fleet
        workers = choose_workers(demands, available, fleet.type_of, fleet.node_start).tolist()
        result: list[tuple[int, ...]] = []
        begin = 0
        for end in demands.sum(axis=1).cumsum().tolist():
            given = workers[begin:end]
            result.append(() if -1 in given else tuple(given))
            begin = end
        return result

    def _matches(self, workers: tuple[int, ...], demand: tuple[int, ...]) -> bool:
        type_of = self._fleet.type_of
        counts = [0] * len(self._fleet.worker_types)
        for worker in workers:
            counts[type_of[worker]] += 1
        return tuple(counts) == demand
