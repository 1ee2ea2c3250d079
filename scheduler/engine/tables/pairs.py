"""The pair table: the jobs that share workers under X, and the credit of each pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.leases import PlannedLease


class PairTable:
    """Entries (two jobs, pair configuration); an index holds until the next ``replace``.

    Attributes:
        numbers: (Q, 2) job numbers of the members.
        index: (Q,) row of the configuration table's pairs.
        x: (Q,) time fraction; 0 for an entry that is only still running.
        credit_s: (Q,) seconds promised and not yet received.
    """

    def __init__(self) -> None:
        self.numbers: IntArray = np.empty((0, 2), dtype=np.int64)
        self.index: IntArray = np.empty(0, dtype=np.int64)
        self.x: FloatArray = np.empty(0)
        self.credit_s: FloatArray = np.empty(0)

    def __len__(self) -> int:
        return len(self.x)

    def copy(self) -> PairTable:
        """Return a copy that stays as it is."""
        other = PairTable()
        other.numbers, other.index = self.numbers.copy(), self.index.copy()
        other.x, other.credit_s = self.x.copy(), self.credit_s.copy()
        return other

    def replace(
        self,
        jobs: JobTable,
        planned: Collection[PlannedLease],
        numbers: IntArray,
        index: IntArray,
        x: FloatArray,
    ) -> None:
        """Take over a new allocation's pairs.

        Entries that run or are planned to run, and known credits, are kept.
        """
        waiting = [plan.pair for plan in planned]
        running = np.unique(np.concatenate([jobs.ints("pair"), np.array(waiting, dtype=np.int64)]))
        running = running[running != NONE]
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
        for plan in planned:
            plan.pair = int(moved[plan.pair])
        self.x = np.concatenate([x, np.zeros(len(extra))])
        self.credit_s = np.concatenate([credit, np.minimum(self.credit_s[extra], 0.0)])
        self.numbers = np.concatenate([numbers, self.numbers[extra]])
        self.index = np.concatenate([index, self.index[extra]])

    def renumber(self, old: ConfigurationTable, new: ConfigurationTable) -> None:
        """Move the pairs' rows to another configuration table; NONE for a row that is gone."""
        if not len(self):
            return
        row_of = {key: p for p, key in enumerate(_keys(new))}
        keys = _keys(old)
        moved = [NONE if p == NONE else row_of.get(keys[p], NONE) for p in self.index.tolist()]
        self.index = np.array(moved, dtype=np.int64)
        self.x = np.where(self.index == NONE, 0.0, self.x)


def _keys(table: ConfigurationTable) -> list[tuple[int, ...]]:
    rows = np.concatenate([table.pair_profiles, table.pair_demand], axis=1)
    return [tuple(row) for row in rows.tolist()]
