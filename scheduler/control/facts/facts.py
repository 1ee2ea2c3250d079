"""Facts: all that changes what control decides by, as frozen values.

What is random, hashed, stored or read comes with the fact, so that control needs no clock, no store
and no luck.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.requests import (
        JobAction,
        NodeAction,
        PolicyChoice,
        ProjectLimits,
        Submission,
    )
    from scheduler.domain.answers import Solved
    from scheduler.domain.facts.commands import ComputeAllocation
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.rows import IdempotencyRow, JobRow
    from scheduler.domain.throughputs.throughput import SharingCost
    from scheduler.protocol.reports import NodeReport


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobsSubmitted:
    """Somebody submits jobs; answered by a tuple of ``Submitted``.

    Attributes:
        submissions: each stands for itself.
        job_ids: the id that each is to have, where it names none itself.
        digests: hash of each specification; empty for one that can be neither stored nor told.
        keys: (owner, client id) -> what it stands for, as far as it is stored.
        rows: job id -> stored job that has ended, or that has a wanted id.
        actor: who submits them.
        documents: each specification as plain values, where somebody has written it out already.
    """

    submissions: tuple[Submission, ...]
    job_ids: tuple[str, ...]
    digests: tuple[str, ...]
    keys: Mapping[tuple[str, str], IdempotencyRow] = field(
        default_factory=lambda: MappingProxyType({})
    )
    rows: Mapping[str, JobRow] = field(default_factory=lambda: MappingProxyType({}))
    actor: str
    documents: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobActionAsked:
    """Somebody cancels, holds, releases or requeues jobs; answered by a tuple of ``Acted``.

    Attributes:
        job_ids: which; each stands for itself.
        action: what.
        rows: stored rows of those that have ended.
        actor: who asks for it.
        reason: why, in words for the history; empty: none was given.
    """

    job_ids: tuple[str, ...]
    action: JobAction
    rows: Mapping[str, JobRow] = field(default_factory=lambda: MappingProxyType({}))
    actor: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobChangeAsked:
    """Somebody changes weight or deadline of jobs; answered by a tuple of ``Acted``.

    Attributes:
        job_ids: which; each stands for itself.
        rows: stored rows of those that have ended.
        actor: who asks for it.
        weight: the new one; None: as it is.
        deadline_s: the new one; None: as it is.
        clear_deadline: whether there is to be none.
    """

    job_ids: tuple[str, ...]
    rows: Mapping[str, JobRow] = field(default_factory=lambda: MappingProxyType({}))
    actor: str
    weight: float | None = None
    deadline_s: float | None = None
    clear_deadline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeOrdered:
    """An operator cordons, drains or uncordons a node."""

    node: str
    action: NodeAction
    actor: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeRemoved:
    """An operator removes a node that is lost or drained."""

    node: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkersApproved:
    """Somebody says what a node may have; it need not be known yet.

    Attributes:
        node: which.
        workers: worker type -> how many.
        actor: who says so.
        by: ``enrolment``, ``label`` or ``operator``.
    """

    node: str
    workers: Mapping[str, int]
    actor: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicySet:
    """An operator puts a policy in force, which has been found usable.

    Attributes:
        choice: which.
        time_dependent: whether its answers change as time passes.
        actor: who chose it.
    """

    choice: PolicyChoice
    time_dependent: bool
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyAsked:
    """The policy in force is another one than the one that was asked last: it is asked anew."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProjectSet:
    """An operator sets a project's limits.

    Answered by the time until which the ledger is to say what projects have used in this month;
    None where that is known, or nobody has a budget.
    """

    limits: ProjectLimits
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UseCounted:
    """The ledger says what projects have used in this month before control counted.

    Attributes:
        until_s: until when; as ``ProjectSet`` was answered.
        sums: (project, worker type, worker-microseconds).
        actor: who set the first budget.
    """

    until_s: float
    sums: tuple[tuple[str, str, int], ...]
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReservationMade:
    """An operator reserves workers for a time window.

    Attributes:
        reservation: what is reserved.
        actor: who does.
        row: of the job that it is for, where it is for one that is not active; None for none.
    """

    reservation: Reservation
    actor: str
    row: JobRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReservationDeleted:
    """An operator gives up a reservation."""

    name: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThroughputsDeclared:
    """Throughputs were declared; answered by how many are news.

    Attributes:
        figures: (job type, scale factor, worker type, steps/s) of each.
        pairs: what sharing workers costs two jobs.
        actor: user who declares them.
    """

    figures: tuple[tuple[str, int, str, float], ...]
    pairs: tuple[SharingCost, ...] = ()
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThroughputsForgotten:
    """What is known of a job type is to be forgotten; answered by how many figures that was."""

    job_type: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeReported:
    """An agent says what it holds and how it is.

    Attributes:
        report: what it says.
        address: where its jobs' rank 0 can be reached; empty if it does not say.
        version: of the agent.
        enrolled: whether the agent shows a token of its node's own, so that the workers which it
            reports first are those that it may have.
    """

    report: NodeReport
    address: str
    version: str
    enrolled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodesHeard:
    """Agents have asked for their desired sets, and so are there: node -> when, last."""

    heard_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeaseUntold:
    """A node cannot be told of a lease, and why."""

    lease_id: int
    node: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationAnswered:
    """The policy has answered a question, or could not.

    Attributes:
        policy: who was asked.
        question: the question.
        answer: with the time that it took; None where there is none.
        failure: why there is none; else empty.
    """

    policy: PolicyChoice
    question: ComputeAllocation
    answer: Solved | None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BackupRestored:
    """An old backup was put in place: nodes may hold leases with so many higher numbers."""

    leases: int


Fact: TypeAlias = (
    JobsSubmitted
    | JobActionAsked
    | JobChangeAsked
    | NodeOrdered
    | NodeRemoved
    | WorkersApproved
    | PolicySet
    | PolicyAsked
    | ProjectSet
    | UseCounted
    | ReservationMade
    | ReservationDeleted
    | ThroughputsDeclared
    | ThroughputsForgotten
    | NodeReported
    | NodesHeard
    | LeaseUntold
    | AllocationAnswered
    | BackupRestored
)
