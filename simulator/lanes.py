"""Where leases are drawn: two jobs that share a worker get a lane each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simulator.result import LeaseSpan


def lanes(leases: Sequence[LeaseSpan]) -> Iterator[tuple[LeaseSpan, int, int]]:
    """Yield every lease on every worker that it holds, as (lease, worker, lane).

    The lane is the lowest number at which the lease overlaps no other on that worker: 0 where a
    job has the worker to itself. Each worker belongs to one job or one pair at a time, so lanes
    above 1 mean that the result is wrong; they are still drawn, so that the error is seen.

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
