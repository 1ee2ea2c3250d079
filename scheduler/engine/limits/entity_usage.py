"""Decayed usage of entities, counted if the policy asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.fair_share import faded

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray
    from scheduler.engine.tables.jobs import JobTable


class Usage:
    """Worker-seconds by entity, which decay; nothing is counted without a half-life.

    Two jobs that share a worker hold half of it each.

    Attributes:
        half_life_s: time in which the usage halves; 0 if nothing is counted.
        by_entity: (E',) worker-seconds until the engine's time, E' <= E: entities without an entry
            have used nothing.
    """

    def __init__(self, half_life_s: float = 0.0) -> None:
        self.half_life_s = half_life_s
        self.by_entity: FloatArray = np.zeros(0)

    def begin(self, half_life_s: float) -> None:
        """Count with another half-life from now on; 0 drops the usage counted so far."""
        self.half_life_s = half_life_s
        if not half_life_s:
            self.by_entity = np.zeros(0)

    def advance(self, jobs: JobTable, elapsed_s: float, entities: int) -> None:
        """Count the workers that jobs have held since the last call.

        Args:
            jobs: their state since then.
            elapsed_s: the time since then.
            entities: E, the number of entities.
        """
        held = np.bincount(jobs["entity"], weights=jobs["workers_held"], minlength=entities)
        self.by_entity = faded(
            self.of(entities),
            held.astype(float),  # without jobs bincount returns integers
            elapsed_s=elapsed_s,
            half_life_s=self.half_life_s,
        )

    def of(self, entities: int) -> FloatArray:
        """Return (E,) worker-seconds by entity."""
        missing = entities - len(self.by_entity)
        return np.pad(self.by_entity, (0, missing)) if missing > 0 else self.by_entity
