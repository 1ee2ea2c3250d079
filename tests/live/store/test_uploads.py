"""Uploaded code in a store: kept by project and hash, within limits, as long as a job needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold_testing.stored import entry, job_row, lead
from scheduler.domain.jobs.job import JobStatus
from scheduler.errors import InputError
from scheduler.store.uploads import UploadLimits

if TYPE_CHECKING:
    from scheduler.store.protocol import Store

LIMITS = UploadLimits(max_bytes=10, max_project_bytes=15, max_total_bytes=20)
ONE, TWO = "1" * 64, "2" * 64


def keep(store: Store, project: str, digest: str, content: bytes, *, now_s: float = 1.0) -> bool:
    return store.keep_upload(project, digest, content, now_s=now_s, limits=LIMITS)


def test_a_tree_is_kept_once_and_belongs_to_its_project(store: Store) -> None:
    assert store.use_upload("p", ONE, now_s=1.0) is None
    assert keep(store, "p", ONE, b"\x00tree")
    assert not keep(store, "p", ONE, b"\x00tree")
    assert (store.use_upload("p", ONE, now_s=2.0), store.upload("p", ONE)) == (5, b"\x00tree")
    assert (store.use_upload("q", ONE, now_s=2.0), store.upload("q", ONE)) == (None, None)


def test_no_more_is_kept_than_is_allowed(store: Store) -> None:
    with pytest.raises(InputError, match="has 11 bytes, and at most 10 are taken"):
        keep(store, "p", ONE, b"x" * 11)
    assert keep(store, "p", ONE, b"x" * 10)
    with pytest.raises(InputError, match="project 'p' would have 20 bytes"):
        keep(store, "p", TWO, b"x" * 10)
    assert keep(store, "q", ONE, b"x" * 10)
    with pytest.raises(InputError, match="the scheduler would have 21 bytes"):
        keep(store, "r", ONE, b"x")
    assert store.upload("r", ONE) is None


@pytest.mark.parametrize("status", [JobStatus.WAITING, JobStatus.COMPLETED])
def test_what_no_job_needs_is_dropped_after_a_time(store: Store, status: JobStatus) -> None:
    row = job_row(1, project="p", status=status, spec={"upload": ONE})
    store.commit(entry(1, jobs=(row,)), token=lead(store))
    for project, digest in (("p", ONE), ("p", TWO), ("q", ONE)):
        keep(store, project, digest, b"x")
    assert store.drop_uploads(before_s=1.0, now_s=5.0) == 0  # nothing is older
    needed = status is JobStatus.WAITING
    assert store.drop_uploads(before_s=2.0, now_s=5.0) == (2 if needed else 3)
    assert (store.upload("p", ONE) is not None) == needed
    assert store.upload("p", TWO) is store.upload("q", ONE) is None
    assert store.drop_uploads(before_s=4.0, now_s=6.0) == 0  # it counts as asked for at 5
