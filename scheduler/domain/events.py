"""Events: past facts that the engine is told. Batches are arrays, so that a round costs no loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.job import Job
    from scheduler.domain.lease import EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationsChanged:
    """The planner knows more profiles, or better throughputs. Old rows keep their index."""

    table: ConfigurationTable


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """Somebody submitted a job; ``profile`` is its row of the configuration table."""

    job: Job
    profile: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """Somebody cancelled a job."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld:
    """Somebody asked to keep a job from running until it is released."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """Somebody released a held job."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChanged:
    """Somebody changed a job's weight."""

    job_id: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersLost:
    """Workers went out of service; the leases on them are over."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReturned:
    """Workers came (back) into service."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgressReported:
    """Steps done so far, as absolute counts, so that a repeated report changes nothing.

    Attributes:
        lease_ids: (n,) ascending.
        steps_done: (n,) of the jobs under those leases, since the jobs' first start.
    """

    lease_ids: IntArray
    steps_done: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded:
    """A lease is over and its workers are free (or lost).

    Attributes:
        lease_id: which.
        reason: why.
        steps_done: the job's steps that are safe (checkpointed), since its first start.
    """

    lease_id: int
    reason: EndReason
    steps_done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer that the engine asked for came due."""

    timer: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationComputed:
    """A policy answered; ``job_number`` (N,) names the rows of the allocation."""

    generation: int
    job_number: IntArray
    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFailed:
    """No answer could be had; the last good allocation stays in force."""

    generation: int
    reason: str


Event: TypeAlias = (
    ConfigurationsChanged
    | JobSubmitted
    | JobCancelled
    | JobHeld
    | JobReleased
    | WeightChanged
    | WorkersLost
    | WorkersReturned
    | ProgressReported
    | LeaseEnded
    | TimerFired
    | AllocationComputed
    | AllocationFailed
)
