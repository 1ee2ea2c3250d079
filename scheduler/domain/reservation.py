"""Reservations: workers of a type that are kept for an owner during a time window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Workers of a type that only its owner's jobs may use from one time to another.

    Its owner is given by ``project``, ``user`` and ``job``: all that are not empty must match.

    Attributes:
        name: unique.
        worker_type: the type of the workers.
        workers: how many workers.
        from_s: when the window begins.
        until_s: when the window ends.
        project: the project with the jobs that may use them; empty for any.
        user: the user with these jobs; empty for any.
        job: the only job; empty for any.
    """

    name: str
    worker_type: str
    workers: int
    from_s: float
    until_s: float
    project: str = ""
    user: str = ""
    job: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming field and value."""
        if self.workers < 1:
            raise InputError(f"reservation '{self.name}': workers is {self.workers}; at least 1")
        if not (math.isfinite(self.from_s) and math.isfinite(self.until_s)):
            raise InputError(
                f"reservation '{self.name}': from_s is {self.from_s} and until_s {self.until_s}; "
                "both must be times"
            )
        if self.until_s <= self.from_s:
            raise InputError(
                f"reservation '{self.name}': until_s is {self.until_s:.17g}, which is not after "
                f"from_s, {self.from_s:.17g}"
            )
        if not (self.project or self.user or self.job):
            raise InputError(
                f"reservation '{self.name}': project, user and job are empty; name at least one of "
                "them"
            )

    def admits(self, *, project: str, user: str, job: str) -> bool:
        """Return whether a job may use the workers."""
        return self.project in {"", project} and self.user in {"", user} and self.job in {"", job}

    def overlaps(self, other: Reservation) -> bool:
        """Return whether both are in force at some moment."""
        return self.from_s < other.until_s and other.from_s < self.until_s

    @property
    def owner(self) -> str:
        """Its owner, in words."""
        named = (("project", self.project), ("user", self.user), ("job", self.job))
        return ", ".join(f"{kind} '{name}'" for kind, name in named if name)


def most_reserved(
    new: Reservation, others: Iterable[Reservation]
) -> tuple[int, tuple[Reservation, ...]]:
    """Return how many workers others reserve at most during a reservation, and those reservations.

    Only those of the same worker type count, and none of the same name.
    """
    beside = [
        other
        for other in others
        if other.worker_type == new.worker_type and other.name != new.name and other.overlaps(new)
    ]
    most = 0
    who: tuple[Reservation, ...] = ()
    # The sum of the reserved workers rises only when one of them begins.
    for moment_s in sorted({new.from_s, *(max(o.from_s, new.from_s) for o in beside)}):
        then = tuple(o for o in beside if o.from_s <= moment_s < o.until_s)
        count = sum(o.workers for o in then)
        if count > most:
            most, who = count, then
    return most, who
