"""The pair table: which jobs X lets share workers, and how far each pair lags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.engine.jobs import JobTable


class PairTable:
    """Entries (two jobs, pair configuration); an entry's index is valid until the next ``replace``.

    Attributes:
        numbers: (Q, 2) job numbers of the members.
        index: (Q,) row of the configuration table's pairs.
        x: (Q,) time fraction; 0 for an entry that only still runs.
        credit_s: (Q,) seconds promised and not yet received.
    """

    def __init__(self) -> None:
        self.numbers: IntArray = np.empty((0, 2), dtype=np.int64)
        self.index: IntArray = np.empty(0, dtype=np.int64)
        self.x: FloatArray = np.empty(0)
        self.credit_s: FloatArray = np.empty(0)

    def __len__(self) -> int:
        return len(self.x)

    def replace(self, jobs: JobTable, numbers: IntArray, index: IntArray, x: FloatArray) -> None:
        """Take over a new allocation's pairs; running entries and known credits are kept."""
        if not len(self) and not len(x):
            return
        running = np.unique(jobs["pair"])
        running = running[running != NONE].astype(np.int64)
        old = {
            (int(a), int(b), int(p)): q
            for q, ((a, b), p) in enumerate(zip(self.numbers, self.index, strict=True))
        }
        keys = [(int(a), int(b), int(p)) for (a, b), p in zip(numbers, index, strict=True)]
        credit = [self.credit_s[old[key]] if key in old else 0.0 for key in keys]
        position = {key: q for q, key in enumerate(keys)}
        moved = np.full(len(self) + 1, NONE, dtype=np.int64)
        extra: list[int] = []
        for q in running:
            key = (int(self.numbers[q, 0]), int(self.numbers[q, 1]), int(self.index[q]))
            if key not in position:
                position[key] = len(keys) + len(extra)
                extra.append(int(q))
            moved[q] = position[key]
        jobs["pair"][:] = moved[jobs["pair"]]
        self.x = np.concatenate([x, np.zeros(len(extra))])
        self.credit_s = np.concatenate([credit, np.minimum(self.credit_s[extra], 0.0)])
        self.numbers = np.concatenate([numbers, self.numbers[extra]])
        self.index = np.concatenate([index, self.index[extra]])
