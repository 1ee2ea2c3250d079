"""Rows and journal entries for tests of stores and of modules above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain.facts.events import ProgressReported, TimerFired
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import (
    AttemptRow,
    HistoryRow,
    IdempotencyRow,
    JobRow,
    JobState,
    Projections,
)
from scheduler.store.protocol import Entry

if TYPE_CHECKING:
    from scheduler.domain.facts.events import Event
    from scheduler.store.protocol import Store


def job_row(number: int, /, **changes: Any) -> JobRow:
    """Return a waiting job ``job-<number>``, submitted at that second."""
    values: dict[str, Any] = {
        "job_id": f"job-{number}",
        "number": number,
        "name": f"train {number}",
        "project": "vision",
        "owner": "ada",
        "job_type": "resnet",
        "status": JobStatus.WAITING,
        "total_steps": 100.0,
        "submitted_s": float(number),
        "updated_s": float(number),
    }
    return JobRow(**values | changes)


def job_state(number: int, /, **changes: Any) -> JobState:
    """Return the state of ``job-<number>``, running for the first time."""
    values: dict[str, Any] = {
        "job_id": f"job-{number}",
        "status": JobStatus.RUNNING,
        "weight": 1.0,
        "steps_done": 1.5,
        "attempts": 1,
        "started_s": 10.0,
        "updated_s": 11.0,
    }
    return JobState(**values | changes)


def attempt_row(lease_id: int, number: int, **changes: Any) -> AttemptRow:
    """Return a lease of ``job-<number>`` on two workers of two nodes."""
    values: dict[str, Any] = {
        "lease_id": lease_id,
        "job_id": f"job-{number}",
        "attempt": 1,
        "token": lease_id,
        "worker_type": "v100",
        "workers": (0, 4),
        "nodes": ("alpha", "beta"),
        "start_s": 10.0,
        "deadline_s": 70.0,
    }
    return AttemptRow(**values | changes)


def history_row(subject: str, kind: str = "job_admitted", **changes: Any) -> HistoryRow:
    """Return a line of a job's history."""
    values: dict[str, Any] = {"at_s": 1.0, "kind": kind, "subject_kind": "job", "subject": subject}
    return HistoryRow(**values | changes)


def entry(sequence: int, *events: Event, **projections: Any) -> Entry:
    """Return a journal entry at second ``sequence``; a timer fires if no event is given."""
    return Entry(
        sequence=sequence,
        now_s=float(sequence),
        events=events or (TimerFired(timer="plan"),),
        projections=Projections(**projections),
    )


def full_entry(sequence: int) -> Entry:
    """Return an entry that writes every table: a job comes, runs and leaves a trace."""
    job_id = f"job-{sequence}"
    return entry(
        sequence,
        ProgressReported(lease_ids=np.arange(3), steps_done=np.array([1.0, 2.5, np.inf])),
        TimerFired(timer="plan"),
        jobs=(job_row(sequence, labels={"team": "a", "run": str(sequence)}),),
        idempotency=(IdempotencyRow(scope="ada", key=job_id, job_id=job_id, created_s=1.0),),
        states=(job_state(sequence),),
        attempts=(attempt_row(sequence, sequence),),
        history=(history_row(job_id), history_row(job_id, "job_started")),
    )


def lead(store: Store) -> int:
    """Become the leader for a long time and return the fencing token."""
    taken = store.acquire_leadership("test", now_s=0.0, ttl_s=1e9)
    assert taken is not None
    return taken.token
