"""Facts: every input that changes control's state, as frozen values.

A fact carries all random, hashed, stored or read values that control needs. So control needs no
clock, no store and no random source.
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
    """A user submits jobs; answered by a tuple of ``Submitted``.

    Attributes:
        submissions: the jobs; one that is refused does not affect the others.
        job_ids: the id for each job that names none itself.
        digests: hash of each specification; empty if it can be neither stored nor sent to an agent.
        keys: (owner, client id) -> the stored job with that key, if there is one.
        rows: job id -> stored job that has ended, or that has a wanted id.
        actor: the submitting user.
        documents: each specification as plain values, if the caller has them already.
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
    """A user cancels, holds, releases or requeues jobs; answered by a tuple of ``Acted``.

    Attributes:
        job_ids: the jobs; one that fails does not affect the others.
        action: the action.
        rows: stored rows of the jobs that have ended.
        actor: the requesting user.
        reason: a text for the history; empty if none was given.
    """

    job_ids: tuple[str, ...]
    action: JobAction
    rows: Mapping[str, JobRow] = field(default_factory=lambda: MappingProxyType({}))
    actor: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobChangeAsked:
    """A user changes weight or deadline of jobs; answered by a tuple of ``Acted``.

    Attributes:
        job_ids: the jobs; one that fails does not affect the others.
        rows: stored rows of the jobs that have ended.
        actor: the requesting user.
        weight: the new weight; None leaves it unchanged.
        deadline_s: the new deadline; None leaves it unchanged.
        clear_deadline: whether to remove the deadline.
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
    """An operator removes a node that is lost."""

    node: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkersApproved:
    """The workers of a node are approved; the node need not be known yet.

    Attributes:
        node: its name.
        workers: worker type -> how many.
        actor: the approving user.
        by: ``enrolment``, ``label`` or ``operator``.
    """

    node: str
    workers: Mapping[str, int]
    actor: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicySet:
    """An operator puts a policy in force that has been checked.

    Attributes:
        choice: the policy.
        time_dependent: whether its answers change as time passes.
        actor: the operator.
    """

    choice: PolicyChoice
    time_dependent: bool
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyAsked:
    """The policy in force differs from the one asked last, so the engine asks again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProjectSet:
    """An operator sets a project's limits.

    Answered by the time until which the ledger must report the month's use of projects; None if
    that is known, or if no project has a budget.
    """

    limits: ProjectLimits
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UseCounted:
    """The ledger reports the month's use of projects before control began to count.

    Attributes:
        until_s: the end of that time; the answer to ``ProjectSet``.
        sums: (project, worker type, worker-microseconds).
        actor: the operator that set the first budget.
    """

    until_s: float
    sums: tuple[tuple[str, str, int], ...]
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReservationMade:
    """An operator reserves workers for a time window.

    Attributes:
        reservation: the reservation.
        actor: the operator.
        row: of the reservation's job, if that job is not active; None if there is no such row.
    """

    reservation: Reservation
    actor: str
    row: JobRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReservationDeleted:
    """An operator deletes a reservation."""

    name: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThroughputsDeclared:
    """Throughputs were declared; answered by how many of them changed anything.

    Attributes:
        figures: (job type, scale factor, worker type, steps/s) of each.
        pairs: how much two jobs slow down if they share workers.
        actor: the declaring user.
    """

    figures: tuple[tuple[str, int, str, float], ...]
    pairs: tuple[SharingCost, ...] = ()
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThroughputsForgotten:
    """Throughputs of a job type are to be forgotten; answered by how many there were."""

    job_type: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeReported:
    """An agent reports its leases and its state.

    Attributes:
        report: the report.
        address: the address of rank 0 of its jobs; empty if the agent gives none.
        version: of the agent.
        enrolled: whether the agent shows its node's own token; then the workers in its first report
            are approved.
    """

    report: NodeReport
    address: str
    version: str
    enrolled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodesHeard:
    """Agents asked for their desired sets, which shows that they live: node -> last time."""

    heard_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeaseUntold:
    """A lease cannot be sent to a node, and why."""

    lease_id: int
    node: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationAnswered:
    """The policy has answered a question, or failed to.

    Attributes:
        policy: the policy that was asked.
        question: the question.
        answer: with the time that it took; None if the policy failed.
        failure: why it failed; else empty.
    """

    policy: PolicyChoice
    question: ComputeAllocation
    answer: Solved | None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BackupRestored:
    """An old backup was restored: nodes may hold leases with up to so many higher numbers."""

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
