"""Events at times that are known from the start."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")


class Agenda(Generic[_T]):
    """Entries by time; entries of one time stay in the given order."""

    def __init__(self, entries: Iterable[tuple[float, _T]]) -> None:
        #: remaining entries, the next one last.
        self._left = sorted(entries, key=itemgetter(0))[::-1]

    @property
    def next_s(self) -> float:
        """When the next entry is due; inf without entries."""
        return self._left[-1][0] if self._left else math.inf

    def take(self, now_s: float) -> list[_T]:
        """Remove and return the entries that are due."""
        due = []
        while self._left and self._left[-1][0] <= now_s:
            due.append(self._left.pop()[1])
        return due
