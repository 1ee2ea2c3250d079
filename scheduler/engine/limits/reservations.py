"""The reservations that the engine knows, and the workers of each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.reservation import Reservation

#: What is recorded of a reservation whose only job has ended.
RELEASED: Final = "reservation_released"


class Reservations:
    """The reservations that are known, and the workers of each. Part of the engine's state."""

    def __init__(self) -> None:
        #: in the order in which their windows begin.
        self.rules: tuple[Reservation, ...] = ()
        #: name -> ids of the jobs that may use its workers; some may not be known, or no more.
        self.members: dict[str, set[str]] = {}
        #: (name, job) of those that were given up in the call that is being handled.
        self.given_up: set[tuple[str, str]] = set()
        #: name -> its workers, ascending; fewer than it asks for where there are no more.
        self.workers: dict[str, tuple[int, ...]] = {}
        #: those whose workers are set aside now.
        self.in_force: tuple[Reservation, ...] = ()
        #: (W,) workers that could be granted when workers were chosen last; None before.
        self.seen: BoolArray | None = None
        #: when the next window begins or ends.
        self.next_s = math.inf

    def __bool__(self) -> bool:
        """Return whether there is anything to heed; most of the time there is not."""
        return bool(self.rules)

    def lacking(self, rule: Reservation) -> int:
        """Return how many workers a reservation is short of."""
        return rule.workers - len(self.workers.get(rule.name, ()))

    def may_use(self, rule: Reservation, job_id: str) -> bool:
        """Tell whether a job may use a reservation's workers."""
        return job_id in self.members.get(rule.name, ())

    def forget(self, job_id: str) -> None:
        """Drop a job that has ended."""
        for members in self.members.values():
            members.discard(job_id)

    def dump(self) -> Mapping[str, Any]:
        """Return it as values for a snapshot."""
        return {
            "rules": self.rules,
            "members": {name: tuple(sorted(jobs)) for name, jobs in self.members.items()},
            "workers": dict(self.workers),
            "in_force": tuple(rule.name for rule in self.in_force),
            "seen": None if self.seen is None else self.seen.copy(),
            "next_s": self.next_s,
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what ``dump`` has returned; nothing of a release that knew none."""
        if not stored:
            return
        self.rules = tuple(stored["rules"])
        self.members = {name: set(jobs) for name, jobs in stored["members"].items()}
        self.workers = {name: tuple(workers) for name, workers in stored["workers"].items()}
        self.in_force = tuple(rule for rule in self.rules if rule.name in stored["in_force"])
        self.seen, self.next_s = stored["seen"], stored["next_s"]
