"""The ledger: worker-seconds held under leases, by user, project, type and day.

Counted in whole microseconds, so that sums are the same in every order and by every grouping. The
GPU use is counted beside, if nodes measure it: as if a lease had computed evenly from its start to
its end, or to its last report. So parts of a window add up here too.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.domain.rows import AttemptRow, JobRow

DAY_S: Final = 86_400
#: Microseconds in a second.
US: Final = 1_000_000
#: The most days of a query by day.
MOST_DAYS: Final = 400


class UsageKey(enum.StrEnum):
    """By what use is added up."""

    PROJECT = "project"
    OWNER = "owner"  #: the user that submitted the job
    JOB_TYPE = "job_type"
    WORKER_TYPE = "worker_type"  #: empty if a lease held workers of several types
    JOB = "job"  #: empty for deleted jobs
    DAY = "day"  #: of UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """A query of the ledger.

    Attributes:
        from_s: start of the window.
        to_s: its end; leases that have not ended count until then, so it must be past.
        by: keys, each once; empty for one sum.
        projects: only these; None for all.

    Raises:
        InputError: the window is empty, or has more days than a query may list.
    """

    from_s: float
    to_s: float
    by: tuple[UsageKey, ...] = ()
    projects: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Refuse a window or keys that cannot be added up."""
        if not (math.isfinite(self.from_s) and math.isfinite(self.to_s)):
            raise InputError(
                f"since_s is {self.from_s} and until_s {self.to_s}; both must be times"
            )
        if self.from_s >= self.to_s:
            raise InputError(
                f"since_s is {self.from_s:.17g}, which is not before until_s, {self.to_s:.17g}"
            )
        if len(set(self.by)) != len(self.by):
            raise InputError(f"'by' names a key twice: {', '.join(self.by)}")
        if UsageKey.DAY in self.by and self.to_s - self.from_s > MOST_DAYS * DAY_S:
            raise InputError(
                f"the window has more than {MOST_DAYS} days; ask for fewer, or not by day"
            )

    @property
    def windows(self) -> Iterator[tuple[int, int, int]]:
        """(day, begin, end) of each part that is added up separately, in microseconds.

        The day is the number of days since 1970, -1 if the query is not by day.
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
    """Use of one group; keys outside the query are None.

    Attributes:
        project: the project of the jobs.
        owner: the owner of the jobs.
        job_type: the type of the jobs.
        worker_type: the type of the workers.
        job: the id of the job.
        day_s: the start of the day of UTC.
        leases: how many held workers in the window; one that does so on two days counts on both.
        worker_us: microseconds, times the workers held. A worker that two jobs share counts for
            both.
        gpu_used_us: microseconds of computing, as utilisation times time, over all GPUs.
        gpu_measured_us: microseconds for which they were measured; 0: the use is not known.
    """

    project: str | None = None
    owner: str | None = None
    job_type: str | None = None
    worker_type: str | None = None
    job: str | None = None
    day_s: float | None = None
    leases: int
    worker_us: int
    gpu_used_us: int = 0
    gpu_measured_us: int = 0

    @property
    def worker_s(self) -> float:
        """Worker-seconds."""
        return self.worker_us / US

    @property
    def gpu_used_s(self) -> float | None:
        """GPU-seconds that were used; None if they were not measured."""
        return self.gpu_used_us / US if self.gpu_measured_us else None


class Sums(NamedTuple):
    """The figures of ``UsageRow`` that are added up."""

    leases: int
    worker_us: int
    gpu_used_us: int = 0
    gpu_measured_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedRow:
    """Use of deleted jobs on one day.

    Attributes:
        day: days since 1970.
        project: of the jobs.
        owner: of the jobs.
        job_type: of the jobs.
        worker_type: of the workers.
        leases: how many held workers on that day.
        worker_us: as ``UsageRow``'s.
        gpu_used_us: as ``UsageRow``'s.
        gpu_measured_us: as ``UsageRow``'s.
    """

    day: int
    project: str
    owner: str
    job_type: str
    worker_type: str
    leases: int
    worker_us: int
    gpu_used_us: int = 0
    gpu_measured_us: int = 0

    @property
    def sums(self) -> Sums:
        """The figures that are added up."""
        return Sums(self.leases, self.worker_us, self.gpu_used_us, self.gpu_measured_us)


def in_us(time_s: float) -> int:
    """Return a time in whole microseconds, rounded down."""
    return math.floor(time_s * US)


def used_by(jobs: Mapping[str, JobRow], attempts: Iterable[AttemptRow]) -> list[UsedRow]:
    """Return the use of jobs by day, before they are deleted.

    Args:
        jobs: job id -> job.
        attempts: their leases, all of which have ended.
    """
    found: defaultdict[tuple[int, str, str, str, str], Sums] = defaultdict(_nothing)
    for attempt in attempts:
        job = jobs[attempt.job_id]
        for day, sums in _by_day(attempt):
            key = day, job.project, job.owner, job.job_type, attempt.worker_type
            found[key] = _plus(found[key], sums)
    return [
        UsedRow(
            day=day,
            project=project,
            owner=owner,
            job_type=job_type,
            worker_type=worker_type,
            **sums._asdict(),
        )
        for (day, project, owner, job_type, worker_type), sums in found.items()
    ]


def _nothing() -> Sums:
    return Sums(0, 0)


def _plus(one: Sums, other: Sums) -> Sums:
    return Sums(*(a + b for a, b in zip(one, other, strict=True)))


def gpu_use_within(attempt: AttemptRow, begin: int, end: int) -> tuple[int, int]:
    """Return the GPU use of a lease in a window, and the measured part of that time.

    Args:
        attempt: the lease.
        begin: start of the window, in microseconds.
        end: its end, in microseconds.

    Returns:
        GPU-microseconds of each. Those of windows that follow one another add up exactly.
    """
    if not attempt.gpu_measured_us or attempt.gpu_told_s is None:
        return 0, 0
    first = in_us(attempt.start_s)
    # A node may report use from just before the lease's end was noted.
    last = in_us(attempt.gpu_told_s if attempt.ended_s is None else attempt.ended_s)
    span = max(last - first, 1)
    since, until = (min(max(time - first, 0), span) for time in (begin, end))
    used, measured = (
        whole * until // span - whole * since // span
        for whole in (attempt.gpu_used_us, attempt.gpu_measured_us)
    )
    return used, measured


def _by_day(attempt: AttemptRow) -> Iterator[tuple[int, Sums]]:
    """Yield (day, use) of a lease that has ended."""
    if attempt.ended_s is None:
        return
    begin, end = in_us(attempt.start_s), in_us(attempt.ended_s)
    while begin < end:
        day = begin // (DAY_S * US)
        until = min(end, (day + 1) * DAY_S * US)
        held = (until - begin) * len(attempt.workers)
        yield day, Sums(1, held, *gpu_use_within(attempt, begin, until))
        begin = until


def add_up(
    query: UsageQuery, found: Iterable[tuple[int, Mapping[UsageKey, str], Sums]]
) -> tuple[UsageRow, ...]:
    """Add up the use, by the keys of a query.

    Args:
        query: the query.
        found: (day or -1, the other keys, the use).

    Returns:
        The groups in the order of their keys.
    """
    sums: defaultdict[tuple[object, ...], Sums] = defaultdict(_nothing)
    for day, keys, used in found:
        group = tuple(day if key is UsageKey.DAY else keys[key] for key in query.by)
        sums[group] = _plus(sums[group], used)
    rows = []
    for values, used in sorted(sums.items()):
        named: dict[str, Any] = dict(zip(query.by, values, strict=True))
        if UsageKey.DAY in named:
            named["day_s"] = float(named.pop(UsageKey.DAY) * DAY_S)
        rows.append(UsageRow(**named, **used._asdict()))
    return tuple(rows)
