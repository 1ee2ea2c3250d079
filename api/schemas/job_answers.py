"""Answers about jobs: themselves, their submission, attempts, reasons to wait."""

from typing import Any

from pydantic import BaseModel, Field

from api.schemas.answers import CauseOut, Problem
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.jobs.job import JobStatus


class JobOut(BaseModel):
    """A job."""

    job_id: str
    number: int = Field(description="order of submission")
    name: str
    project: str
    owner: str
    job_type: str
    status: JobStatus
    reason: str = Field(description="why it waits, failed or was refused; a code")
    entity: str
    scale_factor: int = Field(description="workers at once")
    weight: float
    total_steps: float | None = Field(
        description="of a job that has only a duration: its seconds; null if not given"
    )
    steps_done: float = Field(
        description="of a job that has only a duration and reports nothing: seconds of it done"
    )
    attempts: int
    failures: int
    submitted_s: float = Field(description="seconds since the Unix epoch, as all moments")
    started_s: float | None
    finished_s: float | None
    ran_s: float = Field(description="seconds for which it has held workers, waits left out")
    deadline_s: float | None
    updated_s: float
    labels: dict[str, str]
    lease_id: int | None
    worker_type: str = Field(description="of its workers, `a100 + v100` if on both; or empty")
    workers: int = Field(description="workers that it holds")
    nodes: list[str]
    lease_deadline_s: float | None
    allocation: dict[str, float | None] = Field(
        description="worker type -> fraction of time that the policy gives it"
    )
    share: float | None = Field(description="effective throughput over that of a 1/n share")
    rho: float | None = Field(
        description="finish-time fairness: the JCT that it heads for if the allocation stays, "
        "over its JCT on a 1/n share of the present jobs; null: not known"
    )
    gpu_use: float | None = Field(
        description="recent share of time in which its GPUs computed; null: not measured"
    )
    idle_since_s: float | None = Field(
        description="since when its GPUs hardly compute; null: they do, or it is not measured"
    )


class JobWithSpec(JobOut):
    """A job with its specification."""

    spec: dict[str, Any]


class JobPageOut(BaseModel):
    """A page of jobs."""

    jobs: list[JobOut]
    next_cursor: str | None = Field(description="give it as 'cursor' for the next page")


class SubmittedOut(BaseModel):
    """One job that was submitted."""

    job_id: str
    created: bool = Field(description="false if the client id was known already")


class SubmittedItem(BaseModel):
    """The result for one job of a batch or an array."""

    index: int = Field(description="position in the request")
    array_index: int | None = Field(description="position in its array")
    job_id: str
    created: bool
    error: Problem | None


class BatchOut(BaseModel):
    """The result of a batch or an array."""

    jobs: list[SubmittedItem]


class FitConfigurationOut(BaseModel):
    """One way in which a job could run."""

    worker_type: str
    count: int
    steps_per_s: float | None
    source: str
    workers_in_service: int
    workers_idle: int
    locality: str = Field("any", description="`consolidated` if it must lie on one node")
    plan: str = Field("", description="the plan of its launch, from a source of configurations")
    workers: dict[str, int] = Field(
        default_factory=dict, description="worker type -> workers of it; two of a mixed gang"
    )


class FitOut(BaseModel):
    """Whether a job could run, and on which nodes."""

    fits: bool
    reason: WaitReason | None
    message: str
    configurations: list[FitConfigurationOut]
    pod: dict[str, Any] | None = Field(
        None, description="the pod of rank 0, if the job says something about pods"
    )


class FitItem(BaseModel):
    """Whether one job of a batch could run."""

    index: int
    fit: FitOut | None
    error: Problem | None


class BatchFitOut(BaseModel):
    """Whether the jobs of a batch could run."""

    jobs: list[FitItem]


class ActedOut(BaseModel):
    """The result of an action on one job."""

    job_id: str
    changed: bool
    error: str = Field(description="why it could not be done; empty otherwise")
    code: str = Field(description="'not_found', 'conflict' or empty")


class BulkOut(BaseModel):
    """The result of an action on many jobs."""

    matched: int
    changed: int
    failed: int
    truncated: bool = Field(description="whether more jobs match than one request may act on")
    jobs: list[ActedOut]


class LaunchOut(BaseModel):
    """How a lease's pod was launched on a node."""

    node: str
    image_s: float | None = Field(description="seconds for its image, most of them the pull")
    launch_s: float | None = Field(description="seconds from its being placed to its start")
    ready_s: float | None = Field(description="seconds from its being placed until it was ready")
    devices: list[str] = Field(description="the node's names of its accelerators; may be empty")


class AttemptOut(BaseModel):
    """One lease of a job."""

    lease_id: int
    job_id: str
    attempt: int
    worker_type: str
    workers: list[int]
    nodes: list[str]
    start_s: float
    deadline_s: float
    ended_s: float | None
    end_reason: str | None
    steps_done: float
    exit_code: int | None
    message: str
    launches: list[LaunchOut] = Field(description="on nodes that measure it: those that run pods")


class AttemptsOut(BaseModel):
    """A job's leases, oldest first."""

    attempts: list[AttemptOut]


class AttemptPageOut(AttemptsOut):
    """A page of leases, newest first."""

    next_before: int | None = Field(
        description="give it as 'before' for the next page; null if this one is not full"
    )


class NodeAttemptsOut(AttemptPageOut):
    """A page of the leases that had workers of a node, newest first."""


class QuotaInTheWayOut(BaseModel):
    """A quota that keeps a job waiting."""

    project: str
    owner: str = Field(description="the user, if it is a quota of each; else empty")
    worker_type: str = Field(description="of the workers; empty for all")
    limit: int = Field(description="workers, as it was set")
    allowed: int = Field(description="workers that may be held now: the limit, and lent workers")
    shared: bool = Field(description="whether several projects share it")
    held: int = Field(description="workers held of it now")
    asks: int = Field(description="workers that the job asks for")
    missing: int = Field(description="by how much it is too small for the job to run now")
    gain_steps_per_s: float = Field(
        description="steps/s at which it could then run at once, on idle workers; 0 without any"
    )


class JobAheadOut(BaseModel):
    """A job before another one in the queue."""

    job_id: str = Field(description="empty if the caller may not see its project")
    project: str = Field(description="empty if the caller may not see it")
    is_planned: bool = Field(description="whether it has workers in the next round")
    lag_s: float = Field(
        description="seconds by which it lags behind its share; negative if it is ahead"
    )


class ExplanationOut(BaseModel):
    """The reasons for a job's state."""

    job_id: str
    status: JobStatus
    reason: WaitReason | None
    also: list[WaitReason]
    message: str
    unblocks: str
    trouble: Trouble | None = Field(
        description="the problem that keeps its pod from starting, or ended its last one"
    )
    position: int | None
    waiting: int
    ahead: list[JobAheadOut] = Field(
        description="up to ten jobs right before it in the queue, in the order of the queue"
    )
    starts_s: float | None
    completes_s: float | None
    forecast: str
    stderr_tail: str = Field(
        description="the last lines that a failed job wrote to its standard error, 20 "
        "and 4 kB at most; of its whole output if it ran in pods, which "
        "have one stream for both"
    )
    granted: CauseOut | None = Field(description="why it was given the lease that it holds")
    ended: CauseOut | None = Field(
        description="why its lease is coming to an end, or its last one has ended"
    )
    quotas: list[QuotaInTheWayOut] = Field(description="quotas that keep it waiting")
