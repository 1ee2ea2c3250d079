"""Answers about jobs: themselves, their submission, attempts, reasons to wait."""

from typing import Any

from pydantic import BaseModel, Field

from api.schemas.answers import Problem
from api.schemas.values import form_of
from scheduler.control.facts.requests import Acted, Fit, FitConfiguration
from scheduler.domain.configuration import ANYWHERE
from scheduler.domain.rows import AttemptRow, JobRow
from scheduler.views.types import Explanation, JobAhead, LiveJob, QuotaInTheWay


@form_of(JobRow, without=("spec",))
@form_of(LiveJob, without=("status", "reason", "steps_done"))
class JobOut(BaseModel):
    """A job."""

    total_steps: float | None = Field(
        description="steps until it is complete; seconds if it has only a duration; "
        "null if neither is given"
    )
    ran_s: float = Field(description="seconds for which it has held workers, waits left out")
    since_s: float | None = Field(
        None, description="since when it has its status; null if it is too long ago to be known"
    )
    allocation: dict[str, float | None]  # null if not a number


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


@form_of(FitConfiguration)
class FitConfigurationOut(BaseModel):
    steps_per_s: float | None  # null if not a number
    # Earlier releases do not send these.
    locality: str = ANYWHERE
    plan: str = ""
    workers: dict[str, int] = Field(default_factory=dict)


@form_of(Fit)
class FitOut(BaseModel):
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


@form_of(Acted)
class ActedOut(BaseModel): ...


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


@form_of(AttemptRow, without=("token", "gpu_used_us", "gpu_measured_us", "gpu_told_s", "gpu_marks"))
class AttemptOut(BaseModel):
    end_reason: str | None
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


@form_of(QuotaInTheWay)
class QuotaInTheWayOut(BaseModel): ...


@form_of(JobAhead)
class JobAheadOut(BaseModel): ...


@form_of(Explanation)
class ExplanationOut(BaseModel): ...
