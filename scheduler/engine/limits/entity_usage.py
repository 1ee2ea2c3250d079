"""What entities have used of late, where the policy asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.fair_share import faded

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray
    from scheduler.engine.tables.jobs import JobTable


class Usage:
    """Worker-seconds by entity that fade away; nothing is counted without a half-life.

    Two jobs that share a worker hold half of it each.

    Attributes:
        half_life_s: in which half of it is forgotten; 0 where nothing is counted.
        by_entity: (E',) worker-seconds until the engine's time, E' <= E: those without an entry
            have used nothing.
    """

    def __init__(self, half_life_s: float = 0.0) -> None:
        self.half_life_s = half_life_s
        self.by_entity: FloatArray = np.zeros(0)

    def begin(self, half_life_s: float) -> None:
        """Count with another half-life from now on; without one, what was counted is forgotten."""
        self.half_life_s = half_life_s
        if not half_life_s:
            self.by_entity = np.zeros(0)

    def advance(self, jobs: JobTable, elapsed_s: float, entities: int) -> None:
        """Count what jobs have held since the last call.

        Args:
            jobs: as they have been since then.
            elapsed_s: for how long.
            entities: E, how many there are.
        """
        held = np.bincount(jobs["entity"], weights=jobs["workers_held"], minlength=entities)
        self.by_entity = faded(
            self.of(entities),
            held.astype(float),  # without jobs they are integers
            elapsed_s=elapsed_s,
            half_life_s=self.half_life_s,
        )

    def of(self, entities: int) -> FloatArray:
        """Return (E,) worker-seconds by entity."""
        missing = entities - len(self.by_entity)
        return np.pad(self.by_entity, (0, missing)) if missing > 0 else self.by_entity
