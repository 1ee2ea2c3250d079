"""The reservations that the engine knows, and the workers of each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.reservation import Reservation

#: Kind of the record that a reservation was released because its only job has ended.
RELEASED: Final = "reservation_released"


class Reservations:
    """Reservations and the workers of each. Part of the engine's state."""

    def __init__(self) -> None:
        #: in the order in which their windows begin.
        self.rules: tuple[Reservation, ...] = ()
        #: name -> ids of the jobs that may use its workers; some jobs may be unknown or have ended.
        self.members: dict[str, set[str]] = {}
        #: (name, job) of the uses that were given up in the current call.
        self.given_up: set[tuple[str, str]] = set()
        #: name -> its workers, ascending; fewer than it asks for if there are no more.
        self.workers: dict[str, tuple[int, ...]] = {}
        #: reservations with workers that are set aside now.
        self.in_force: tuple[Reservation, ...] = ()
        #: (W,) workers that could be granted at the last choice of workers; None before the first.
        self.seen: BoolArray | None = None
        #: when the next window begins or ends.
        self.next_s = math.inf

    def __bool__(self) -> bool:
        """Return whether there are any reservations; usually there is no reservation."""
        return bool(self.rules)

    def lacking(self, rule: Reservation) -> int:
        """Return how many workers a reservation lacks."""
        return rule.workers - len(self.workers.get(rule.name, ()))

    def may_use(self, rule: Reservation, job_id: str) -> bool:
        """Return whether a job may use a reservation's workers."""
        return job_id in self.members.get(rule.name, ())

    def forget(self, job_id: str) -> None:
        """Drop a job that has ended."""
        for members in self.members.values():
            members.discard(job_id)

    def dump(self) -> Mapping[str, Any]:
        """Return the reservations as values for a snapshot."""
        return {
            "rules": self.rules,
            "members": {name: tuple(sorted(jobs)) for name, jobs in self.members.items()},
            "workers": dict(self.workers),
            "in_force": tuple(rule.name for rule in self.in_force),
            "seen": None if self.seen is None else self.seen.copy(),
            "next_s": self.next_s,
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Restore the value of ``dump``; an empty one comes from a release without reservations."""
        if not stored:
            return
        self.rules = tuple(stored["rules"])
        self.members = {name: set(jobs) for name, jobs in stored["members"].items()}
        self.workers = {name: tuple(workers) for name, workers in stored["workers"].items()}
        self.in_force = tuple(rule for rule in self.rules if rule.name in stored["in_force"])
        self.seen, self.next_s = stored["seen"], stored["next_s"]
