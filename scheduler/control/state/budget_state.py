"""The use of projects in this month, for their budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


@dataclass(slots=True, kw_only=True)
class Budgets:
    """The counted use of projects in this month.

    Attributes:
        since_s: control counts from then on; None while no project has a budget.
        counted: whether ``used_us`` includes the ledger's figures of the month before that.
        month_s: start of the month.
        month_end_s: its end.
        used_us: (project, worker type) -> worker-microseconds until ``since_s``, and of leases that
            have ended since.
        told: project -> its budget's last event in this month: ``warned`` or ``spent``.
        due: whether the next decision must check budgets.
    """

    since_s: float | None = None
    counted: bool = False
    month_s: float = 0.0
    month_end_s: float = math.inf
    used_us: dict[tuple[str, str], int] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    due: bool = False

    def begin(self, now_s: float) -> None:
        """Start counting."""
        self.since_s = now_s
        self.month_s, self.month_end_s = month_of(now_s)

    def add(self, sums: Iterable[tuple[str, str, int]]) -> None:
        """Add the ledger's sums of the month: (project, worker type, microseconds)."""
        for project, worker_type, used_us in sums:
            key = project, worker_type
            self.used_us[key] = self.used_us.get(key, 0) + used_us
        self.counted = self.due = True

    def roll(self, now_s: float) -> None:
        """Start a new month if the old one has ended."""
        if now_s >= self.month_end_s:
            self.begin(month_of(now_s)[0])
            self.used_us = {}
            self.counted = self.due = True

    def copied(self) -> Self:
        """Return a copy."""
        return replace(self, used_us=dict(self.used_us), told=dict(self.told))


def month_of(now_s: float) -> tuple[float, float]:
    """Return start and end of a moment's calendar month in UTC."""
    month = np.datetime64(math.floor(now_s), "s").astype("datetime64[M]")
    following = month + np.timedelta64(1, "M")
    begin, end = (m.astype("datetime64[s]").astype(np.int64) for m in (month, following))
    return float(begin), float(end)
