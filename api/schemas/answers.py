"""The forms of answers. They document; answers are written from the values themselves."""

from pydantic import BaseModel, Field

from api.auth.roles import Principal
from api.problems import FieldProblem
from api.schemas.values import form_of
from policies.parameters import ParameterInfo
from scheduler.control.facts.requests import ProjectLimits
from scheduler.domain.facts.causes import Cause
from scheduler.domain.reservation import Reservation
from scheduler.domain.rows import HistoryRow
from scheduler.store.rows import EnrolmentRow, TokenRow
from scheduler.store.usage import UsageRow
from scheduler.views.dues import Dues
from scheduler.views.types import (
    AllocationView,
    BudgetView,
    ClusterView,
    HoldingChange,
    LeaseView,
    NodeView,
    PairView,
    PlannedLeaseView,
    PlanView,
    PolicyTrial,
    PolicyView,
    ProjectView,
    ReservedView,
    RoundView,
    ThroughputView,
    WorkerView,
)


@form_of(FieldProblem)
class FieldProblemOut(BaseModel): ...


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


@form_of(Cause, without=("round_number", "project", "rival_project"))
class CauseOut(BaseModel):
    round: int = Field(description="the round in which it was decided; 0 if that does not matter")
    text: str = Field(description="the same in words; may be empty")


@form_of(HistoryRow)
class EventOut(BaseModel):
    cause: CauseOut | None = Field(description="null if an earlier release wrote the line")


class EventPageOut(BaseModel):
    """Lines of history."""

    events: list[EventOut]
    last_event_id: int = Field(description="how far was read: give it as 'after' (or 'before')")


@form_of(WorkerView)
class WorkerOut(BaseModel): ...


@form_of(NodeView)
class NodeOut(BaseModel): ...


class NodesOut(BaseModel):
    """Every node."""

    nodes: list[NodeOut]


@form_of(LeaseView)
class LeaseOut(BaseModel): ...


class LeasesOut(BaseModel):
    """The leases in force."""

    leases: list[LeaseOut]


@form_of(PlannedLeaseView)
class PlannedLeaseOut(BaseModel): ...


@form_of(PlanView)
class PlannedRoundOut(BaseModel): ...


@form_of(AllocationView)
class AllocationOut(BaseModel):
    shares: dict[str, dict[str, float | None]]  # null if not a number
    received: dict[str, dict[str, float | None]]


@form_of(ClusterView)
class ClusterOut(BaseModel): ...


@form_of(ParameterInfo)
class PolicyParameterOut(BaseModel): ...


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


@form_of(RoundView)
class RoundOut(BaseModel): ...


@form_of(PolicyView)
class PolicyOut(BaseModel): ...


@form_of(HoldingChange)
class HoldingChangeOut(BaseModel): ...


@form_of(PolicyTrial)
class PolicyTrialOut(BaseModel): ...


@form_of(Reservation)
class ReservationRuleOut(BaseModel): ...


@form_of(ReservedView)
class ReservationOut(BaseModel): ...


class ReservationsOut(BaseModel):
    """Reservations."""

    reservations: list[ReservationOut]


@form_of(ProjectLimits)
class ProjectLimitsOut(BaseModel): ...


@form_of(BudgetView)
class BudgetOut(BaseModel): ...


@form_of(Dues)
class DuesOut(BaseModel): ...


@form_of(ProjectView)
class ProjectOut(BaseModel):
    dues: DuesOut | None = None  # earlier releases do not send it


class ProjectsOut(BaseModel):
    """Projects."""

    projects: list[ProjectOut]


@form_of(UsageRow, without=("gpu_used_us", "gpu_measured_us"))
class UsageOfGroup(BaseModel):
    worker_s: float = Field(description="`worker_us` in seconds")
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


@form_of(ThroughputView)
class ThroughputOut(BaseModel):
    steps_per_s: float | None  # null if not a number


@form_of(PairView)
class PairOut(BaseModel): ...


class ThroughputsOut(BaseModel):
    """The known throughputs."""

    throughputs: list[ThroughputOut]
    pairs: list[PairOut]


class ChangedOut(BaseModel):
    """How many figures changed."""

    changed: int


@form_of(
    TokenRow,
    only=(
        *("token_id", "subject", "role", "projects", "created_s", "expires_s", "revoked_s"),
        *("last_used_s", "replaces", "replaced_s"),
    ),
)
class TokenOut(BaseModel): ...


class TokensOut(BaseModel):
    """Every token."""

    tokens: list[TokenOut]


class NewTokenOut(TokenOut):
    """A new token with its secret, which is shown this once."""

    token: str


@form_of(EnrolmentRow, only=("node", "created_s", "expires_s", "workers"))
class EnrolmentOut(BaseModel):
    """A one-time secret for an agent, which is shown this once."""

    secret: str


@form_of(Principal, only=("subject", "role", "projects", "token_id", "expires_s"))
class WhoAmI(BaseModel):
    """The owner of the token and its rights."""

    role: str
    projects: list[str]


class SignInCodeOut(BaseModel):
    """A one-time code for the page."""

    path: str = Field(description="path and query to open below the scheduler's address")
    valid_s: float = Field(description="seconds for which it is valid; 0 without tokens")


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
    problems: list[str] = Field(
        description="problems; callers without a token see why it is not ready, without details"
    )
