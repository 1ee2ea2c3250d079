"""Requests about nodes, policies, projects, throughputs and tokens."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from api.auth.roles import Role
from api.patterns import PRINTABLE
from api.schemas.fields import (
    Flag,
    Form,
    JobId,
    JobType,
    Name,
    NodeName,
    ProjectName,
    Reason,
    Subject,
    Weight,
    Workers,
    WorkerType,
)
from scheduler.control.facts.requests import PolicyChoice
from scheduler.domain.jobs.fields import LATEST_S, LONGEST_S
from scheduler.domain.quota import IdleQuota
from scheduler.protocol.bounds import MOST_WORKERS

#: Longest life of an enrolment: 30 days.
LONGEST_ENROLMENT_S = 30 * 86400.0


class NodeReasonIn(Form):
    """Why something is done to a node."""

    reason: Reason = Field("", description="in words; shown beside the node")


Moment = Annotated[float, Field(ge=0.0, le=LATEST_S)]
_Text = Annotated[str, Field(max_length=2000, pattern=PRINTABLE)]
_Number = Annotated[float, Field(strict=True, ge=-1e15, le=1e15)]
_Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]


class PolicyIn(Form):
    """A policy to put in force."""

    name: Name = Field(description="see GET /v1/policies")
    parameters: Annotated[dict[Name, Flag | _Whole | _Number | _Text], Field(max_length=64)] = (
        Field({}, description="as on the command line; numbers and booleans may be JSON's")
    )
    agnostic: Flag = Field(False, description="whether differences of worker types are ignored")
    space_sharing: Flag = Field(False, description="whether two jobs may share workers")

    def texts(self) -> dict[str, str]:
        """Return the parameters as text, as on the command line."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.parameters.items()
        }

    def choice(self) -> PolicyChoice:
        """Return the policy."""
        return PolicyChoice(
            name=self.name,
            parameters=self.texts(),
            agnostic=self.agnostic,
            space_sharing=self.space_sharing,
        )


#: Workers that a quota may be of.
_Most = Annotated[int, Field(strict=True, ge=0, le=10**9)]


class ReservationIn(Form):
    """Workers to reserve; at least one of project, user and job names the owner."""

    name: ProjectName = Field(description="unique among reservations")
    worker_type: WorkerType = Field(description="of the workers")
    workers: Annotated[int, Field(strict=True, ge=1, le=10**6)] = Field(description="how many")
    from_s: Moment = Field(description="when the window begins, Unix seconds")
    until_s: Moment = Field(description="when it ends, Unix seconds")
    project: ProjectName | None = Field(
        None, description="the project with the jobs that may use them"
    )
    user: Subject | None = Field(None, description="the user with the jobs that may use them")
    job: JobId | None = Field(None, description="the id of the only job that may use them")


class ProjectIn(Form):
    """A project's limits to set."""

    weight: Weight = Field(1.0, description="share relative to other projects")
    inner_policy: Literal["fairness", "fifo"] = Field("fairness", description="among its own jobs")
    max_workers: Annotated[int, Field(strict=True, ge=0, le=10**9)] | None = Field(
        None, description="workers that its jobs may hold at once; null for any number"
    )
    max_workers_of: Annotated[dict[WorkerType, _Most], Field(max_length=100)] = Field(
        {},
        description="worker type -> workers of it that its jobs may hold at once; if "
        "left out, it stays as set, like the next three",
    )
    max_workers_per_user: _Most | None = Field(
        None, description="workers that the jobs of each of its users may hold; null for any number"
    )
    max_workers_per_user_of: Annotated[dict[WorkerType, _Most], Field(max_length=100)] = Field(
        {}, description="worker type -> workers of it that the jobs of each of its users may hold"
    )
    idle_quota: IdleQuota = Field(
        IdleQuota.KEEP,
        description="use of the part of `max_workers` and `max_workers_of` that its "
        "jobs do not ask for: `keep` it idle; `lend` it to projects that "
        "share, until its jobs ask; or `share`: lend it, and use workers "
        "that others lend",
    )
    max_jobs: Annotated[int, Field(strict=True, ge=0, le=10**9)] | None = Field(
        None, description="jobs that have not ended; null for any number"
    )
    entities: Annotated[list[Subject], Field(max_length=100)] | None = Field(
        None,
        description="entities besides itself that its jobs may name; null for any; if "
        "left out, it stays as set",
    )
    job_types: Annotated[list[JobType], Field(max_length=100)] | None = Field(
        None,
        description="patterns of job types besides `PROJECT/*` that its jobs may name; "
        "null for any; if left out, it stays as set",
    )
    max_job_weight: Weight | None = Field(
        None,
        description="largest weight of one of its jobs; null for any; if left out, it stays as set",
    )
    budget_gpu_hours: Annotated[float, Field(strict=True, ge=0, le=1e12)] | None = Field(
        None,
        description="worker-hours that it may use in a calendar month of UTC; null for "
        "any; if left out, it stays as set",
    )
    budget_usd: Annotated[float, Field(strict=True, ge=0, le=1e12)] | None = Field(
        None,
        description="largest cost of these in USD; null for any; if left out, it stays as set",
    )
    budget_warning: Annotated[float, Field(strict=True, gt=0, le=1)] | None = Field(
        None,
        description="part of a budget from which on it is warned of; null for 0.8; if "
        "left out, it stays as set",
    )


class ThroughputIn(Form):
    """A declared throughput."""

    job_type: JobType
    scale_factor: Workers = Field(1, description="workers of the job")
    worker_type: WorkerType
    steps_per_s: Annotated[float, Field(strict=True, ge=0, le=1e12)] = Field(
        description="steps/s of the whole job; 0 if it does not run"
    )


_Part = Annotated[float, Field(strict=True, ge=0, le=1e3)]


class PairIn(Form):
    """The cost of sharing workers for two jobs."""

    job_type: JobType
    with_job_type: JobType
    scale_factor: Workers = Field(1, description="workers that the two jobs share")
    worker_type: WorkerType
    part: _Part = Field(
        description="speed of the job of `job_type` while they share, over its speed alone"
    )
    with_part: _Part = Field(description="the same figure for the job of `with_job_type`")


class ThroughputsIn(Form):
    """Throughputs to declare."""

    throughputs: Annotated[list[ThroughputIn], Field(max_length=10_000)] = Field(
        [], description="speeds of jobs alone"
    )
    pairs: Annotated[list[PairIn], Field(max_length=10_000)] = Field(
        [], description="costs of sharing workers"
    )

    @model_validator(mode="after")
    def _has_some(self) -> Self:
        if not self.throughputs and not self.pairs:
            raise ValueError("'throughputs' and 'pairs' are empty; give at least one figure")
        return self


class TokenIn(Form):
    """A token to make."""

    subject: Subject = Field(description="user, or node for role agent")
    role: Role
    projects: Annotated[list[ProjectName], Field(max_length=100)] = Field(
        [], description="projects that it is confined to; none for all"
    )
    ttl_s: Annotated[float, Field(strict=True, ge=1, le=LONGEST_S)] | None = Field(
        None, description="seconds until it expires; null for never"
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.role in {Role.AGENT, Role.METRICS} and self.projects:
            raise ValueError(f"a token of role {self.role} cannot be confined to projects")
        if self.projects and self.role in {Role.OPERATOR, Role.ADMIN}:
            # Such a token could do no more than a user's, which is not what its name says.
            raise ValueError(
                f"a token of role {self.role} cannot be confined to projects: nodes, policies and "
                "tokens belong to all of them; give role user, or name no projects"
            )
        return self


#: Workers of a node by their type.
NodeWorkers = Annotated[
    dict[WorkerType, Annotated[int, Field(strict=True, ge=1, le=MOST_WORKERS)]],
    Field(max_length=64),
]


class WorkersIn(Form):
    """The workers that a node may have."""

    workers: NodeWorkers = Field(description="how many of each worker type; no others")


class EnrolmentIn(Form):
    """A one-time secret to make, with which an agent obtains its token."""

    node: NodeName | None = Field(None, description="the only node that may use it; null for any")
    ttl_s: Annotated[float, Field(strict=True, ge=1, le=LONGEST_ENROLMENT_S)] = Field(
        3600.0, description="seconds for which it can be used"
    )
    workers: NodeWorkers | None = Field(
        None,
        description="how many workers of each type the node may have; null for those that it "
        "reports first",
    )
