"""Launch times: learned from the launches that nodes timed and from first steps of jobs."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Job type, worker count and worker type; 0 and empty in times that release 0.2 stored.
LaunchKey: TypeAlias = tuple[str, int, str]

_VERSION: Final = 2
#: Launches that are kept for a job type on a count of a worker type, and for all job types.
MEMORY: Final = 16
#: Least launches that count: the first one of a type often pulls its image, later ones do not.
LEAST: Final = 3


def robust_mean(seconds: Iterable[float]) -> float:
    """Return the mean of the middle half, so that one slow image pull has no effect.

    Args:
        seconds: at least one.
    """
    ordered = sorted(seconds)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


class Launches:
    """Learns how long launches take. Deterministic; the newest launches decide.

    The time until a job's first step counts before the time until its pod was ready: it includes
    the job's own loading. Times on the same workers count before times of the job type elsewhere,
    and these before times of all job types. Fewer than ``LEAST`` launches do not count.
    """

    def __init__(self) -> None:
        #: (key, whether timed until the first step) -> seconds of its newest launches, oldest
        #: first.
        self._seen: dict[tuple[LaunchKey, bool], deque[float]] = {}
        #: whether timed until the first step -> seconds of the newest launches of all job types.
        self._all = {steps: deque[float](maxlen=MEMORY) for steps in (True, False)}

    def take(self, key: LaunchKey, seconds: float, *, first_step: bool) -> None:
        """Add a launch.

        Args:
            key: job type, worker count and worker type.
            seconds: its duration.
            first_step: whether it is timed until the job's first step; if not, until it was ready.

        Raises:
            InputError: the time is negative or not finite.
        """
        if not 0.0 <= seconds < math.inf:
            raise InputError(
                f"a launch of '{key[0]}' is said to have taken {seconds!r} s; give a time >= 0"
            )
        self._seen.setdefault((key, first_step), deque(maxlen=MEMORY)).append(seconds)
        self._all[first_step].append(seconds)

    def typical_s(self, job_type: str) -> float:
        """Return how long a launch of a job type takes; 0 if too few were timed."""
        own = (self._pooled(job_type, first_step=steps) for steps in (True, False))
        for known in (*own, *self._all.values()):
            if len(known) >= LEAST:
                return robust_mean(known)
        return 0.0

    def on_workers(self, job_type: str) -> dict[str, float]:
        """Return how long launches of a job type take on workers with enough timed launches.

        Returns:
            Worker type and count (``v100:8``) -> seconds.
        """
        best = len(self._pooled(job_type, first_step=True)) >= LEAST
        return {
            f"{worker_type}:{count}": robust_mean(seconds)
            for ((name, count, worker_type), steps), seconds in self._seen.items()
            if name == job_type and steps is best and worker_type and len(seconds) >= LEAST
        }

    def _pooled(self, job_type: str, *, first_step: bool) -> list[float]:
        """Return the times of a job type on all workers."""
        return [
            one
            for ((name, *_), steps), seconds in self._seen.items()
            if name == job_type and steps is first_step
            for one in seconds
        ]

    def dump(self) -> dict[str, Any]:
        """Return all times as plain JSON values."""
        seen = [[*key, steps, list(seconds)] for (key, steps), seconds in self._seen.items()]
        newest = [[steps, list(seconds)] for steps, seconds in self._all.items()]
        return {"version": _VERSION, "seen": seen, "all": newest}

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Launches:
        """Return the value that ``dump`` stored, in this release or in 0.2.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        version = data.get("version")
        if version not in {1, _VERSION}:
            raise InputError(
                f"stored launch times have version {version!r}; this release reads 1 and "
                f"{_VERSION}; run the release that wrote them"
            )
        launches = cls()
        try:
            if version == 1:  # it knew only job types, and no first steps
                rows = [(name, 0, "", False, times) for name, times in data["types"].items()]
                newest = [(False, data["all"])]
            else:
                rows, newest = data["seen"], data["all"]
            for job_type, count, worker_type, first_step, seconds in rows:
                key = str(job_type), int(count), str(worker_type)
                kept = deque(map(float, seconds), maxlen=MEMORY)
                launches._seen[key, bool(first_step)] = kept
            for first_step, seconds in newest:
                launches._all[first_step].extend(map(float, seconds))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"stored launch times are damaged: {error!r}") from error
        return launches
