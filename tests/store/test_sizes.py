"""A hundred thousand finished jobs do not slow the lists down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from scheduler.domain.job import JobStatus
from scheduler.store.queries import JobFilter, JobOrder, JobQuery
from scheduler.testing.stored import entry, job_row, lead

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.store.sql import SqlStore

ENDED = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


@pytest.mark.slow
def test_lists_of_a_hundred_thousand_finished_jobs_take_under_50_ms(
    url: str, open_store: Callable[[str], SqlStore]
) -> None:
    store = open_store(url)
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
    for where in (
        JobFilter(),
        JobFilter(statuses=ENDED),
        JobFilter(projects=("vision", "text")),
        JobFilter(projects=("speech",), statuses=(JobStatus.FAILED,)),
        JobFilter(labels={"team": "team7"}),
        JobFilter(statuses=(JobStatus.RUNNING,)),
    ):
        for order in (JobOrder.SUBMITTED, JobOrder.FINISHED):
            taken = []
            cursor = None
            for _ in range(5):
                began = time.perf_counter()
                page = store.jobs(JobQuery(where=where, order=order, cursor=cursor))
                taken.append(time.perf_counter() - began)
                cursor = page.next_cursor
            assert sorted(taken)[2] < 0.05, (where, order)
