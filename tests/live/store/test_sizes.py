"""A hundred thousand finished jobs do not slow the lists down."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from leasehold_testing.stored import entry, job_row, lead
from scheduler.domain.jobs.job import JobStatus
from scheduler.store.filters import JobFilter
from scheduler.store.queries import JobOrder, JobQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy.engine import Connection

    from scheduler.store.sql.store import SqlStore

ENDED = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)

#: The most that a page of 50 may take, in thousands of SQLite's steps. A look at all jobs takes
#: 1,500.
MOST = 150


@contextmanager
def effort(store: SqlStore) -> Iterator[list[int]]:
    """Count the steps that SQLite takes for the queries inside."""
    done = [0]
    engine = store._engine

    def before(connection: Connection, *_: Any) -> None:
        raw = connection.connection.dbapi_connection
        raw.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1), 1000)

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield done
    finally:
        event.remove(engine, "before_cursor_execute", before)


@pytest.mark.long
def test_lists_do_not_look_at_a_hundred_thousand_finished_jobs(
    tmp_path: Path, open_store: Callable[[str], SqlStore]
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    token = lead(store)
    for sequence in range(1, 21):
        jobs = tuple(
            job_row(
                n,
                project=("vision", "speech", "text")[n % 3],
                status=ENDED[n % 3],
                finished_s=float(n),
                updated_s=float(n * 7919 % 100_003),
                labels={"team": f"team{n % 40}"},
            )
            for n in range(sequence * 5000, sequence * 5000 + 5000)
        )
        store.commit(entry(sequence, jobs=jobs), token=token)
    # A project's jobs by the time of their end are sorted each time; everything else is read off
    # an index.
    for where, orders in (
        (JobFilter(), tuple(JobOrder)),
        (JobFilter(statuses=ENDED), tuple(JobOrder)),
        (JobFilter(statuses=(JobStatus.RUNNING,)), tuple(JobOrder)),
        (JobFilter(labels={"team": "team7"}), (JobOrder.SUBMITTED, JobOrder.FINISHED)),
        (JobFilter(projects=("vision", "text")), (JobOrder.SUBMITTED,)),
        (JobFilter(projects=("speech",), statuses=(JobStatus.FAILED,)), (JobOrder.SUBMITTED,)),
    ):
        for order in orders:
            cursor = None
            for _ in range(5):
                with effort(store) as done:
                    page = store.jobs(JobQuery(where=where, order=order, cursor=cursor, limit=50))
                assert done[0] <= MOST, (where, order)
                cursor = page.next_cursor
