"""Values of the fake service: views and digests of jobs."""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.views.types import LiveJob

if TYPE_CHECKING:
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.rows import JobRow
    from scheduler.views.types import LeaseView


#: Statuses of jobs that have not ended.
ACTIVE = frozenset({JobStatus.WAITING, JobStatus.RUNNING, JobStatus.HELD})


def live_job(row: JobRow, lease: LeaseView | None) -> LiveJob:
    """Return the view of an active job."""
    return LiveJob(
        status=row.status,
        reason=wait_reason(row),
        steps_done=max(row.steps_done, 0.0 if lease is None else lease.steps_done),
        lease_id=None if lease is None else lease.lease_id,
        worker_type="" if lease is None else lease.worker_type,
        workers=0 if lease is None else len(lease.workers),
        nodes=() if lease is None else lease.nodes,
        lease_deadline_s=None if lease is None else lease.deadline_s,
        lease_start_s=None if lease is None else lease.start_s,
        allocation=MappingProxyType({} if lease is None else {"v100": 1.0}),
        share=None if lease is None else 1.0,
        rho=None if lease is None else 1.0,
    )


def wait_reason(row: JobRow) -> WaitReason | None:
    """Return why a job waits: for its turn, or for its release."""
    reasons = {JobStatus.WAITING: WaitReason.TURN, JobStatus.HELD: WaitReason.HELD}
    return reasons.get(row.status)


def plain_spec(spec: JobSpec) -> dict[str, Any]:
    """Return a specification as plain JSON values."""
    plain = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
    for name, value in plain.items():
        if isinstance(value, MappingProxyType):
            plain[name] = dict(value)
        elif isinstance(value, tuple):
            plain[name] = list(value)
    return plain


def spec_digest(spec: JobSpec) -> str:
    """Return the fields that distinguish one request from another."""
    return hashlib.sha256(repr(sorted(plain_spec(spec).items())).encode()).hexdigest()
