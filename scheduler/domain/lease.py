"""Leases: the right to hold workers until a deadline."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EndReason(enum.StrEnum):
    """Why a lease ended."""

    COMPLETED = "completed"  #: the job has done all its steps
    RELEASED = "released"  #: given back after a revocation or at the deadline
    FAILED = "failed"  #: the job itself failed
    LOST = "lost"  #: a worker under it was lost
    CANCELLED = "cancelled"  #: the job was cancelled or held


class RevokeReason(enum.StrEnum):
    """Why a lease is revoked before its deadline."""

    OUTBID = "outbid"  #: others are to have the workers in the next round
    WORKER_LOST = "worker lost"  #: a worker under it was lost
    CANCEL = "cancel"  #: somebody cancelled the job
    HOLD = "hold"  #: somebody holds the job
    REQUEUE = "requeue"  #: somebody wants the job to wait anew
    DRAIN = "drain"  #: its node is drained
    NOT_STARTED = "not started"  #: it did not run within its bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one attempt of a job to hold concrete workers until a deadline.

    Two leases may name the same workers only where their jobs share them as a pair.

    Attributes:
        lease_id: running number, never reused.
        attempt: 1 for the job's first lease, and so on.
        job_number: the engine's number of the job.
        job_id: the job's name.
        profile: row of the configuration table.
        configuration: single configuration of that profile, -1 while it shares workers.
        workers: worker indices held, ascending.
        token: fencing token; grows with every lease on any worker.
        start_s: when it was granted.
        deadline_s: until when it holds unless extended.
    """

    lease_id: int
    attempt: int
    job_number: int
    job_id: str
    profile: int
    configuration: int
    workers: tuple[int, ...]
    token: int
    start_s: float
    deadline_s: float
