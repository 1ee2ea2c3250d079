"""Lanes of leases in a drawing: two jobs that share a worker get a lane each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class HeldWorkers(Protocol):
    """A stretch of time for which workers are held: a lease, or several that follow on."""

    @property
    def workers(self) -> tuple[int, ...]:
        """Worker indices held."""

    @property
    def start_s(self) -> float:
        """The start."""

    @property
    def end_s(self) -> float:
        """The end."""


HeldT = TypeVar("HeldT", bound=HeldWorkers)


def assign_lanes(leases: Sequence[HeldT]) -> Iterator[tuple[HeldT, int, int]]:
    """Yield every lease on every worker that it holds, as (lease, worker, lane).

    The lane is the lowest number at which the lease overlaps no other on that worker: 0 if the job
    does not share the worker. Each worker belongs to one job or one pair at a time, so lanes above
    1 mean that the result is wrong; they are drawn all the same, so that the error is visible.

    Args:
        leases: in order of start.
    """
    busy_until: dict[int, list[float]] = {}
    for lease in leases:
        for worker in lease.workers:
            ends = busy_until.setdefault(worker, [])
            lane = next((i for i, end in enumerate(ends) if end <= lease.start_s), len(ends))
            if lane == len(ends):
                ends.append(lease.end_s)
            else:
                ends[lane] = lease.end_s
            yield lease, worker, lane
