"""Launch constraints of configurations beyond their workers: one node, or a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import CONSOLIDATED

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.configuration import ConfigurationTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchConstraints:
    """The constraints of a table. Letters as in ``ConfigurationTable``.

    Attributes:
        consolidated: (U, J) whether it must not span nodes.
        planned: (U, J) whether the launch follows a plan.
        any_consolidated: whether any must not span nodes.
    """

    consolidated: BoolArray
    planned: BoolArray
    any_consolidated: bool

    @classmethod
    def of(cls, table: ConfigurationTable) -> LaunchConstraints:
        """Read the constraints from a table."""
        consolidated = np.zeros(table.throughput.shape, dtype=bool)
        planned = np.zeros(table.throughput.shape, dtype=bool)
        for u, profile in enumerate(table.profiles):
            for j, way in enumerate(profile.configurations):
                consolidated[u, j] = way.locality == CONSOLIDATED
                planned[u, j] = bool(way.plan)
        return cls(
            consolidated=consolidated,
            planned=planned,
            any_consolidated=bool(consolidated.any()),
        )
