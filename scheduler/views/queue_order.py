"""The queue of waiting jobs: its order, and the jobs right before one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.tables.jobs import WAITING
from scheduler.views.types import JobAhead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.state.view import PublishedState
    from scheduler.domain.arrays import BoolArray

#: The most jobs before a waiting one that its explanation names.
MOST_AHEAD: Final = 10


def order_waiting_jobs(view: PublishedState) -> list[str]:
    """Return the ids of the jobs that wait for their turn.

    Jobs with workers in the next round come first, then those furthest behind their share.
    """
    jobs = view.engine.jobs
    if not len(jobs):
        return []
    waiting: BoolArray = (jobs["status"] == WAITING) & jobs.runnable(view.engine.now_s)
    behind = jobs.credit_s.max(axis=1)
    rows = np.flatnonzero(waiting)
    planned = np.isin(jobs["number"][rows], view.engine.planned)
    order = np.lexsort((jobs["number"][rows], -behind[rows], ~planned))
    numbers = jobs.ints("number")[rows][order]
    return [jobs.job_of[number].job_id for number in numbers.tolist()]


def describe_ahead(view: PublishedState, before: Sequence[str]) -> tuple[JobAhead, ...]:
    """Describe the last jobs of the queue before a job, at most ``MOST_AHEAD``.

    Args:
        view: of the leader.
        before: ids of all jobs before it, in the order of the queue.
    """
    jobs, planned = view.engine.jobs, view.engine.planned
    found = []
    for job_id in before[-MOST_AHEAD:]:
        number = jobs.number_of[job_id]
        found.append(
            JobAhead(
                job_id=job_id,
                project=view.jobs.by_id[job_id].project,
                is_planned=number in planned,
                lag_s=float(jobs.credit_s[jobs.row_of(number)].max()),
            )
        )
    return tuple(found)
