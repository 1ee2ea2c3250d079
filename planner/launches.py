"""What it takes to start jobs: learned from the launches that nodes have timed."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_VERSION: Final = 1
#: Launches that are remembered of a job type, and of all together.
MEMORY: Final = 16
#: From so many on they count: the first one of a type often pulls its image and others do not.
LEAST: Final = 3


def robust_mean(seconds: Iterable[float]) -> float:
    """Return the mean of the middle half: one slow pull of an image does not move it.

    Args:
        seconds: at least one.
    """
    ordered = sorted(seconds)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


class Launches:
    """Learns how long starting takes. Deterministic; the newest launches decide.

    A job type has its own figure once ``LEAST`` of its launches were timed; until then that of
    all job types together is taken.
    """

    def __init__(self) -> None:
        #: job type -> seconds of its newest launches, oldest first.
        self._of_type: dict[str, deque[float]] = {}
        self._all: deque[float] = deque(maxlen=MEMORY)

    def take(self, job_type: str, seconds: float) -> None:
        """Note a launch, from its placing to the moment in which it was ready.

        Raises:
            InputError: the time is negative or not finite.
        """
        if not 0.0 <= seconds < math.inf:
            raise InputError(
                f"a launch of '{job_type}' is said to have taken {seconds!r} s; give a time >= 0"
            )
        self._of_type.setdefault(job_type, deque(maxlen=MEMORY)).append(seconds)
        self._all.append(seconds)

    def typical_s(self, job_type: str) -> float:
        """Return how long a launch of a job type takes; 0 where nobody knows."""
        own = self._of_type.get(job_type, ())
        known = own if len(own) >= LEAST else self._all
        return robust_mean(known) if len(known) >= LEAST else 0.0

    def dump(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        types = {name: list(seconds) for name, seconds in self._of_type.items()}
        return {"version": _VERSION, "types": types, "all": list(self._all)}

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Launches:
        """Return what ``dump`` was called on.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored launch times have version {data.get('version')!r}; this release reads "
                f"{_VERSION}; run the release that wrote them"
            )
        launches = cls()
        try:
            for name, seconds in data["types"].items():
                launches._of_type[name] = deque(map(float, seconds), maxlen=MEMORY)
            launches._all.extend(map(float, data["all"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"stored launch times are damaged: {error!r}") from error
        return launches
