"""The slices to draw for a run's leases: all of the time, with a bounded number of slices.

A saturated cluster with preemptions has a lease per worker and round, up to a million of them.
Consecutive slices of one job are joined. If there are still too many, those that are too short to
be seen are merged with their neighbours; long ones stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from simulator.report.lanes import assign_lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray
    from simulator.result import LeaseSpan

#: Initial length for merging, as a divisor of the run: about a pixel of a wide screen.
_FINEST: Final = 4096
#: Growth of the merging length until few enough slices are left.
_GROWTH: Final = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Leases of one job on the same workers that follow one another at once.

    Attributes:
        job_id: the job that held them.
        job_type: of that job.
        workers: worker indices held, ascending.
        shared: whether another job held the same workers as a pair.
        start_s: start of the first lease.
        end_s: end of the last.
        reason: why the last one ended.
        leases: number of leases.
    """

    job_id: str
    job_type: str
    workers: tuple[int, ...]
    shared: bool
    start_s: float
    end_s: float
    reason: str
    leases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One piece of one lane of a worker.

    Attributes:
        worker: index of the worker.
        lane: 0, or 1 for the other job of a pair.
        held: the stretch to draw; of several, the last of the job that held the worker for longest.
        start_s: its start.
        end_s: its end; merged slices include the gaps between theirs.
        held_s: seconds in which the lane was held; less than the length if gaps were merged.
        leases: number of leases in it.
        jobs: number of jobs; 1 unless slices were merged.
        shared: whether any of them shared the worker.
    """

    worker: int
    lane: int
    held: Stretch
    start_s: float
    end_s: float
    held_s: float
    leases: int
    jobs: int
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The slices to draw.

    Attributes:
        slices: in order of start.
        merged_below_s: slices shorter than this were merged with neighbours; 0 if no slices were.
    """

    slices: tuple[Slice, ...]
    merged_below_s: float


def draw_slices(leases: Sequence[LeaseSpan], *, limit: int) -> Drawing:
    """Return at most ``limit`` slices (or one per lane, if that is more) for all the leases.

    Args:
        leases: in order of start.
        limit: most slices that the viewer can show.
    """
    pieces = [
        _slice(stretch, worker, lane)
        for stretch, worker, lane in assign_lanes(list(_joined(leases)))
    ]
    if len(pieces) <= limit:
        return Drawing(slices=tuple(pieces), merged_below_s=0.0)
    pieces.sort(key=lambda piece: (piece.worker, piece.lane, piece.start_s))
    merged_below_s, heads = _heads(pieces, limit)
    at = [*np.flatnonzero(heads).tolist(), len(pieces)]
    slices = [_merged(pieces[a:b]) for a, b in pairwise(at)]
    slices.sort(key=lambda piece: (piece.start_s, piece.worker, piece.lane))
    return Drawing(slices=tuple(slices), merged_below_s=merged_below_s)


def _joined(leases: Sequence[LeaseSpan]) -> list[Stretch]:
    """Join leases of a job that follow one another at once on the same workers."""
    runs: list[list[LeaseSpan]] = []
    last: dict[str, list[LeaseSpan]] = {}
    for lease in leases:
        run = last.get(lease.job_id)
        if run is not None and _follows(run[-1], lease):
            run.append(lease)
        else:
            last[lease.job_id] = run = [lease]
            runs.append(run)
    return [
        Stretch(
            job_id=run[0].job_id,
            job_type=run[0].job_type,
            workers=run[0].workers,
            shared=run[0].shared,
            start_s=run[0].start_s,
            end_s=run[-1].end_s,
            reason=run[-1].reason,
            leases=len(run),
        )
        for run in runs
    ]


def _follows(one: LeaseSpan, other: LeaseSpan) -> bool:
    return (
        one.end_s == other.start_s and one.workers == other.workers and one.shared == other.shared
    )


def _slice(stretch: Stretch, worker: int, lane: int) -> Slice:
    return Slice(
        worker=worker,
        lane=lane,
        held=stretch,
        start_s=stretch.start_s,
        end_s=stretch.end_s,
        held_s=stretch.end_s - stretch.start_s,
        leases=stretch.leases,
        jobs=1,
        shared=stretch.shared,
    )


def _heads(pieces: Sequence[Slice], limit: int) -> tuple[float, BoolArray]:
    """Return the length below which pieces are merged, and which pieces begin a slice.

    Time is cut into cells of that length. Short pieces of a lane that begin in the same cell are
    one slice, so a lane has at most two slices per cell, and one once a cell is the whole run.

    Args:
        pieces: N of them, lane by lane, in order of start.
        limit: most slices.

    Returns:
        The length, and (N,) whether a piece begins a slice.
    """
    start_s = np.array([piece.start_s for piece in pieces])
    end_s = np.array([piece.end_s for piece in pieces])
    lane = np.array([(piece.worker, piece.lane) for piece in pieces])
    new_lane = np.any(np.diff(lane, axis=0) != 0, axis=1)
    whole_s = float(end_s.max() - start_s.min())
    below_s = whole_s / _FINEST
    while True:
        short = end_s - start_s < below_s
        new_cell = np.diff(np.floor((start_s - start_s.min()) / below_s)) != 0
        heads = np.append(True, new_lane | new_cell | ~short[1:] | ~short[:-1])
        if heads.sum() <= limit or below_s > whole_s:
            return below_s, heads
        below_s *= _GROWTH


def _merged(pieces: Sequence[Slice]) -> Slice:
    """Return pieces of one lane as one."""
    if len(pieces) == 1:
        return pieces[0]
    held_s: dict[str, float] = {}
    for piece in pieces:
        job_id = piece.held.job_id
        held_s[job_id] = held_s.get(job_id, 0.0) + piece.held_s
    longest = max(held_s, key=held_s.__getitem__)  # of equal ones the first
    return Slice(
        worker=pieces[0].worker,
        lane=pieces[0].lane,
        held=next(piece.held for piece in reversed(pieces) if piece.held.job_id == longest),
        start_s=pieces[0].start_s,
        end_s=pieces[-1].end_s,
        held_s=sum(held_s.values()),
        leases=sum(piece.leases for piece in pieces),
        jobs=len(held_s),
        shared=any(piece.shared for piece in pieces),
    )
