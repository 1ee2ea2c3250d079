"""The forms of answers. They document; answers are written from the values themselves."""

from typing import Any

from pydantic import BaseModel, Field

from scheduler.domain.facts.causes import FactKind, Ground
from scheduler.domain.quota import IdleQuota


class FieldProblemOut(BaseModel):
    """A problem with one field."""

    field: str = Field(description="path, as in 'scale_factor.0'; empty for the whole request")
    value: Any = Field(description="the given value, shortened")
    problem: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="urn:leasehold:problem:CODE")
    title: str
    status: int
    detail: str = Field(description="the problem, the value, and the remedy")
    instance: str = Field(description="path of the request")
    errors: list[FieldProblemOut] = Field(description="every bad field")


class UploadOut(BaseModel):
    """Code that is kept for a project's jobs."""

    project: str
    digest: str = Field(description="the value of a job's 'upload'")
    size_bytes: int = Field(description="packed")
    created: bool = Field(description="whether it was not there before")


class CauseOut(BaseModel):
    """A cause: a fact, and the deciding ground if jobs were compared."""

    fact: FactKind = Field(description="the kind of fact")
    subject: str = Field(description="the job, node, policy or person that it is about, if any")
    round: int = Field(description="in which it was decided; 0 if that does not matter")
    ground: Ground | None = Field(description="the reason of the choice among jobs")
    rival: str = Field(description="the job that gets the workers, if the caller may see it")
    lag_s: float | None = Field(
        description="seconds by which the job lagged behind its share; of a job that has to wait, "
        "by which the other one lagged further"
    )
    gain: float | None = Field(description="how many times as fast a job that moves will be")
    worker_type: str = Field(description="to which a job moves; empty for one that does not")
    text: str = Field(description="the same in words; may be empty")


class EventOut(BaseModel):
    """A line of history."""

    event_id: int
    at_s: float
    kind: str
    subject_kind: str
    subject: str
    actor: str
    data: dict[str, Any]
    cause: CauseOut | None = Field(description="null if an earlier release wrote the line")


class EventPageOut(BaseModel):
    """Lines of history."""

    events: list[EventOut]
    last_event_id: int = Field(description="how far was read: give it as 'after' (or 'before')")


class WorkerOut(BaseModel):
    """A worker."""

    index: int
    local_index: int
    worker_type: str
    in_service: bool
    problem: str
    shareable: bool = Field(description="whether two jobs could hold it, as far as its node goes")
    jobs: list[str]


class NodeOut(BaseModel):
    """A node."""

    name: str
    state: str
    reason: str
    last_seen_s: float | None
    address: str
    version: str
    workers: list[WorkerOut]
    approved: dict[str, int] | None
    refused: dict[str, int]


class NodesOut(BaseModel):
    """Every node."""

    nodes: list[NodeOut]


class LeaseOut(BaseModel):
    """A lease in force."""

    lease_id: int
    job_id: str
    project: str
    attempt: int
    worker_type: str = Field(description="of the workers, `a100 + v100` if of both")
    workers: list[int]
    nodes: list[str]
    start_s: float
    deadline_s: float
    state: str
    steps_done: float
    owner: str
    gpu_use: float | None = Field(
        description="recent share of time in which its GPUs computed; null: not measured"
    )
    idle_since_s: float | None = Field(
        description="since when its GPUs hardly compute; null: they do, or it is not measured"
    )


class LeasesOut(BaseModel):
    """The leases in force."""

    leases: list[LeaseOut]


class PlannedLeaseOut(BaseModel):
    """A lease of the next round."""

    job_id: str
    project: str
    worker_type: str = Field(description="empty if the workers are of several types")
    workers: list[int]
    nodes: list[str]
    begins_s: float = Field(description="latest time at which its workers are free")
    ends_s: float = Field(description="when it ends unless it is extended")
    goes_on: bool = Field(description="whether the job keeps workers that it holds now")


class PlannedRoundOut(BaseModel):
    """The plan of the next round."""

    round_number: int | None = Field(description="of the next round; null until it is planned")
    begins_s: float | None = Field(description="start of that round; null until it is planned")
    ends_s: float | None = Field(description="end of the last planned round")
    leases: list[PlannedLeaseOut]


class AllocationOut(BaseModel):
    """The allocation in force."""

    policy: str
    computed_s: float | None
    solve_s: float | None
    shares: dict[str, dict[str, float | None]]
    received: dict[str, dict[str, float | None]]


class ClusterOut(BaseModel):
    """The cluster in figures."""

    round_number: int
    round_ends_s: float | None
    round_length_s: float
    workers: dict[str, int]
    in_service: dict[str, int]
    busy: dict[str, int]
    utilisation: float
    jobs: dict[str, int]
    waiting: dict[str, int]


class PolicyParameterOut(BaseModel):
    """A parameter of a policy."""

    name: str
    type: str
    default: Any
    range: str
    help: str


class PolicySummary(BaseModel):
    """A policy that could be put in force."""

    name: str
    summary: str
    time_dependent: bool
    origin: str
    parameters: list[PolicyParameterOut]


class PolicyDetails(PolicySummary):
    """A policy with its program."""

    description: str


class PoliciesOut(BaseModel):
    """Every policy."""

    policies: list[PolicySummary]


class RoundOut(BaseModel):
    """How good the last planned round was."""

    gap: float | None
    fluid_gap: float | None
    behind_rounds: float
    off_rounds: float
    candidates: int


class PolicyOut(BaseModel):
    """The policy in force."""

    name: str
    parameters: dict[str, str]
    agnostic: bool
    space_sharing: bool
    since_s: float
    actor: str
    last_solve_s: float | None
    last_failure: str
    last_round: RoundOut | None


class ReservationRuleOut(BaseModel):
    """The reserved workers, window and owner."""

    name: str
    worker_type: str
    workers: int
    from_s: float
    until_s: float
    project: str
    user: str
    job: str


class ReservationOut(BaseModel):
    """A reservation, its state (planned, in force, over), and its workers."""

    reservation: ReservationRuleOut
    state: str
    assigned: int
    used: int
    nodes: dict[str, int]


class ReservationsOut(BaseModel):
    """Reservations."""

    reservations: list[ReservationOut]


class ProjectLimitsOut(BaseModel):
    """A project's limits."""

    project: str
    weight: float
    inner_policy: str
    max_workers: int | None
    max_jobs: int | None
    entities: list[str] | None
    job_types: list[str] | None
    max_job_weight: float | None
    max_workers_of: dict[str, int]
    max_workers_per_user: int | None
    max_workers_per_user_of: dict[str, int]
    idle_quota: IdleQuota
    budget_gpu_hours: float | None
    budget_usd: float | None
    budget_warning: float | None


class BudgetOut(BaseModel):
    """A project's use of its budget of this month."""

    used_gpu_hours: float
    used_usd: float
    part: float
    state: str
    month_end_s: float


class DuesOut(BaseModel):
    """The workers that a project's jobs are due together, without workers that two jobs share."""

    due_workers: float = Field(description="workers on average that the allocation gives them")
    received_workers: float | None = Field(
        description="workers on average that they have had since the allocation came in force; "
        "null: no time has passed"
    )
    owed_worker_s: float | None = Field(
        description="worker-seconds that they were due since then, less those they have had"
    )
    mean_rho: float | None = Field(description="mean `rho` of its jobs; null: not known")
    worst_rho: float | None = Field(description="the largest of them")


class ProjectOut(BaseModel):
    """A project with its limits and its use."""

    limits: ProjectLimitsOut
    active_jobs: int
    admitted_workers: int
    running_workers: int
    usage_worker_s: float | None
    effective_weight: float | None
    budget: BudgetOut | None
    dues: DuesOut | None = Field(None, description="null: no job of it waits for or holds workers")


class ProjectsOut(BaseModel):
    """Projects."""

    projects: list[ProjectOut]


class UsageOfGroup(BaseModel):
    """The use of one group; keys that were not asked for are null."""

    project: str | None
    owner: str | None
    job_type: str | None
    worker_type: str | None
    job: str | None
    day_s: float | None
    leases: int
    worker_s: float
    worker_us: int
    gpu_used_s: float | None = Field(
        description="GPU-seconds of computing: utilisation times time; null if not measured"
    )
    gpu_measured_s: float = Field(description="GPU-seconds that were measured")


class UsageOut(BaseModel):
    """The use in a window."""

    since_s: float
    until_s: float
    worker_s: float
    gpu_used_s: float | None
    gpu_measured_s: float
    usage: list[UsageOfGroup]


class ThroughputOut(BaseModel):
    """The known throughput of a job type on a worker type."""

    job_type: str
    scale_factor: int
    worker_type: str
    steps_per_s: float | None
    source: str
    declared: float | None
    measured: float | None
    deviation: float | None
    samples: int


class PairOut(BaseModel):
    """The cost of sharing workers for two jobs."""

    job_type: str
    with_job_type: str
    scale_factor: int
    worker_type: str
    part: float = Field(description="speed while they share, over the speed alone")
    with_part: float = Field(description="the same figure for the other job")


class ThroughputsOut(BaseModel):
    """The known throughputs."""

    throughputs: list[ThroughputOut]
    pairs: list[PairOut]


class ChangedOut(BaseModel):
    """How many figures changed."""

    changed: int


class TokenOut(BaseModel):
    """A token, without its secret."""

    token_id: str
    subject: str
    role: str
    projects: list[str]
    created_s: float
    expires_s: float | None
    revoked_s: float | None
    last_used_s: float | None
    replaces: str
    replaced_s: float | None


class TokensOut(BaseModel):
    """Every token."""

    tokens: list[TokenOut]


class NewTokenOut(TokenOut):
    """A new token with its secret, which is shown this once."""

    token: str


class EnrolmentOut(BaseModel):
    """A one-time secret for an agent, which is shown this once."""

    secret: str
    node: str
    created_s: float
    expires_s: float
    workers: dict[str, int] | None


class WhoAmI(BaseModel):
    """The owner of the token and its rights."""

    subject: str
    role: str
    projects: list[str]
    token_id: str
    expires_s: float | None


class VersionOut(BaseModel):
    """The program's version."""

    version: str
    api: str


class Alive(BaseModel):
    """The process answers."""

    status: str


class Ready(BaseModel):
    """Whether requests can be served."""

    ready: bool
    leading: bool
    version: str
    problems: list[str] = Field(description="problems; only callers with a token see them")
