"""The ledger: how many worker-seconds were held under leases, by whom and on what.

Counted in whole microseconds, so that sums are the same in every order and by every grouping.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.domain.rows import AttemptRow, JobRow

DAY_S: Final = 86_400
#: Microseconds in a second.
US: Final = 1_000_000
#: Days of one query that asks for each day.
MOST_DAYS: Final = 400


class UsageKey(enum.StrEnum):
    """By what use is added up."""

    PROJECT = "project"
    OWNER = "owner"  #: who submitted the job
    JOB_TYPE = "job_type"
    WORKER_TYPE = "worker_type"  #: empty where a lease held workers of several types
    JOB = "job"  #: empty for jobs that have been forgotten
    DAY = "day"  #: of UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """What is to be added up.

    Attributes:
        from_s: begin of the window.
        to_s: its end; leases that have not ended count until then, so it must have come.
        by: keys, each once; none for one sum.
        projects: only these; None for all.

    Raises:
        InputError: the window is empty, or has more days than are told one by one.
    """

    from_s: float
    to_s: float
    by: tuple[UsageKey, ...] = ()
    projects: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be added up."""
        if not (math.isfinite(self.from_s) and math.isfinite(self.to_s)) or (
            self.from_s >= self.to_s
        ):
            raise InputError(
                f"the window from {self.from_s} to {self.to_s} is empty: 'from' must be before 'to'"
            )
        if len(set(self.by)) != len(self.by):
            raise InputError(f"'by' names a key twice: {', '.join(self.by)}")
        if UsageKey.DAY in self.by and self.to_s - self.from_s > MOST_DAYS * DAY_S:
            raise InputError(
                f"the window has more than {MOST_DAYS} days; ask for fewer, or not by day"
            )

    @property
    def windows(self) -> Iterator[tuple[int, int, int]]:
        """(day, begin, end) of each part that is added up by itself, in microseconds.

        The day is the number of days since 1970, -1 where days are not asked for.
        """
        begin, end = in_us(self.from_s), in_us(self.to_s)
        if UsageKey.DAY not in self.by:
            yield -1, begin, end
            return
        for day in range(begin // (DAY_S * US), -(-end // (DAY_S * US))):
            first = day * DAY_S * US
            yield day, max(begin, first), min(end, first + DAY_S * US)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """Use of one group; keys that were not asked for are None.

    Attributes:
        project: whose quota the jobs fall under.
        owner: who submitted them.
        job_type: theirs.
        worker_type: of the workers.
        job: its id.
        day_s: begin of the day.
        leases: how many held workers in the window; one that does so on two days counts on both.
        worker_us: microseconds, times the workers that were held. A worker that two jobs share is
            held by both.
    """

    project: str | None = None
    owner: str | None = None
    job_type: str | None = None
    worker_type: str | None = None
    job: str | None = None
    day_s: float | None = None
    leases: int
    worker_us: int

    @property
    def worker_s(self) -> float:
        """Worker-seconds."""
        return self.worker_us / US


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedRow:
    """Use of forgotten jobs on one day.

    Attributes:
        day: days since 1970.
        project: theirs.
        owner: theirs.
        job_type: theirs.
        worker_type: of the workers.
        leases: how many held workers on that day.
        worker_us: as ``UsageRow``'s.
    """

    day: int
    project: str
    owner: str
    job_type: str
    worker_type: str
    leases: int
    worker_us: int


def in_us(time_s: float) -> int:
    """Return a time in whole microseconds; the rest is cut off."""
    return math.floor(time_s * US)


def used_by(jobs: Mapping[str, JobRow], attempts: Iterable[AttemptRow]) -> list[UsedRow]:
    """Return the use of jobs by day, before they are forgotten.

    Args:
        jobs: job id -> job.
        attempts: leases of theirs, all of which have ended.
    """
    found: defaultdict[tuple[int, str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for attempt in attempts:
        job = jobs[attempt.job_id]
        for day, held in _by_day(attempt):
            sums = found[day, job.project, job.owner, job.job_type, attempt.worker_type]
            sums[0] += 1
            sums[1] += held
    return [
        UsedRow(
            day=day,
            project=project,
            owner=owner,
            job_type=job_type,
            worker_type=worker_type,
            leases=leases,
            worker_us=held,
        )
        for (day, project, owner, job_type, worker_type), (leases, held) in found.items()
    ]


def _by_day(attempt: AttemptRow) -> Iterator[tuple[int, int]]:
    """Yield (day, worker-microseconds) of a lease that has ended."""
    if attempt.ended_s is None:
        return
    begin, end = in_us(attempt.start_s), in_us(attempt.ended_s)
    while begin < end:
        day = begin // (DAY_S * US)
        until = min(end, (day + 1) * DAY_S * US)
        yield day, (until - begin) * len(attempt.workers)
        begin = until


def add_up(
    query: UsageQuery, found: Iterable[tuple[int, Mapping[UsageKey, str], int, int]]
) -> tuple[UsageRow, ...]:
    """Add up, by the keys of a query.

    Args:
        query: what is asked.
        found: (day or -1, the other keys, leases, worker-microseconds).

    Returns:
        The groups in the order of their keys.
    """
    sums: defaultdict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0])
    for day, keys, leases, held in found:
        sum_ = sums[tuple(day if key is UsageKey.DAY else keys[key] for key in query.by)]
        sum_[0] += leases
        sum_[1] += held
    rows = []
    for group, (leases, held) in sorted(sums.items()):
        named: dict[str, Any] = dict(zip(query.by, group, strict=True))
        if UsageKey.DAY in named:
            named["day_s"] = float(named.pop(UsageKey.DAY) * DAY_S)
        rows.append(UsageRow(**named, leases=leases, worker_us=held))
    return tuple(rows)
