"""Nodes that a job avoids for a while: it could not be started there, or has failed there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.domain.arrays import BoolArray
    from scheduler.engine.tables.fleet import Fleet

#: Longest time for which a node is avoided, in units of the first one.
LONGEST: Final = 16.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bars:
    """What jobs cannot have now, since they avoid nodes or must lie on one.

    Attributes:
        configuration: (N, J) single configurations for which too few workers are left, or no node
            has enough.
        row: (N,) jobs that avoid a node.
    """

    configuration: BoolArray
    row: BoolArray


class Avoidance:
    """Which job avoids which node, and until when. It is no property of the node: others run there.

    Args:
        fleet: the workers.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        #: job number -> position of a node -> (times in a row, until when it is avoided); what has
        #: passed is kept, so that the next time is longer.
        self._nodes: dict[int, dict[int, tuple[int, float]]] = {}

    def __bool__(self) -> bool:
        """Return whether there is anything to heed; most of the time there is not."""
        return bool(self._nodes)

    def avoid(
        self, number: int, workers: Iterable[int], *, now_s: float, first_s: float
    ) -> list[tuple[str, int, float]]:
        """Let a job avoid the nodes of some workers, each time for twice as long.

        Returns:
            For each node its name, how often in a row, and for how many seconds.
        """
        told = []
        nodes = self._nodes.setdefault(number, {})
        for position in sorted({int(self._fleet.node_of[worker]) for worker in workers}):
            times = nodes.get(position, (0, 0.0))[0] + 1
            wait_s = first_s * min(2.0 ** (times - 1), LONGEST)
            nodes[position] = times, now_s + wait_s
            told.append((self._fleet.nodes[position].name, times, wait_s))
        return told

    def forgive(self, number: int, workers: Iterable[int]) -> None:
        """Note that a job was started on the nodes of some workers."""
        nodes = self._nodes.get(number)
        if nodes is None:
            return
        for worker in workers:
            nodes.pop(int(self._fleet.node_of[worker]), None)
        if not nodes:
            del self._nodes[number]

    def forget(self, number: int) -> None:
        """Drop a job that has ended."""
        self._nodes.pop(number, None)

    def active(self, now_s: float) -> list[int]:
        """Return the numbers of the jobs that avoid a node now."""
        return [
            number
            for number, nodes in self._nodes.items()
            if any(until_s > now_s for _, until_s in nodes.values())
        ]

    def of(self, number: int, now_s: float) -> list[tuple[str, int, float]]:
        """Return the nodes that a job avoids now: name, times in a row, until when."""
        return [
            (self._fleet.nodes[position].name, times, until_s)
            for position, (times, until_s) in sorted(self._nodes.get(number, {}).items())
            if until_s > now_s
        ]

    def mask(self, numbers: Iterable[int], now_s: float) -> BoolArray | None:
        """Return (W,) the workers that some jobs avoid now, all together; None for none."""
        positions = {
            position
            for number in numbers
            for position, (_, until_s) in self._nodes.get(number, {}).items()
            if until_s > now_s
        }
        if not positions:
            return None
        result: BoolArray = np.isin(self._fleet.node_of, list(positions))
        return result

    def next_s(self, now_s: float) -> float:
        """Return when the next node is avoided no longer; infinity if none is."""
        ends = (u for nodes in self._nodes.values() for _, u in nodes.values() if u > now_s)
        return min(ends, default=math.inf)

    def dump(self) -> tuple[tuple[int, int, int, float], ...]:
        """Return (job number, position of the node, times, until when) of each, for a snapshot."""
        return tuple(
            (number, position, times, until_s)
            for number, nodes in self._nodes.items()
            for position, (times, until_s) in nodes.items()
        )

    def restore(self, stored: Sequence[tuple[int, int, int, float]]) -> None:
        """Take over what ``dump`` has returned."""
        for number, position, times, until_s in stored:
            self._nodes.setdefault(number, {})[position] = times, until_s
