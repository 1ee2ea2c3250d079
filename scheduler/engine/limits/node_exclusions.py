"""Nodes that a job avoids for a while, because it failed or could not start there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.domain.arrays import BoolArray
    from scheduler.engine.tables.fleet import Fleet

#: Longest time for which a node is avoided, as a multiple of the first one.
LONGEST: Final = 16.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exclusions:
    """Configurations that jobs cannot have now, since they avoid nodes or must lie on one node.

    Attributes:
        configuration: (N, J) single configurations for which too few workers are left, or that must
            lie on one node and find none with enough workers.
        row: (N,) jobs that avoid nodes or reserved workers, or may start within a share only.
    """

    configuration: BoolArray
    row: BoolArray


class NodeExclusions:
    """Nodes that each job avoids, and until when. Other jobs still run on these nodes.

    Args:
        fleet: the workers.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        #: job number -> position of a node -> (times in a row, until when the job avoids it).
        #: Expired entries stay, so that the next time is longer.
        self._nodes: dict[int, dict[int, tuple[int, float]]] = {}

    def __bool__(self) -> bool:
        """Return whether any job has avoided a node; usually no job has."""
        return bool(self._nodes)

    def avoid(
        self, number: int, workers: Iterable[int], *, now_s: float, first_s: float
    ) -> list[tuple[str, int, float]]:
        """Let a job avoid the nodes of some workers, each time twice as long (up to ``LONGEST``).

        Returns:
            For each node its name, the times in a row, and the seconds.
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
        """Clear the nodes of some workers for a job that has started there."""
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
        """Return (W,) the workers that at least one of some jobs avoids now; None if empty."""
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
        """Return when the next node is no longer avoided; infinity if no node is avoided."""
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
        """Restore the value of ``dump``."""
        for number, position, times, until_s in stored:
            self._nodes.setdefault(number, {})[position] = times, until_s
