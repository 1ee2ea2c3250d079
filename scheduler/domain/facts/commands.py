"""Commands: imperatives that the engine gives to its shell. Each names the fact that caused it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from scheduler.domain.facts.causes import Cause, FactKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.domain.arrays import IntArray
    from scheduler.domain.lease import Lease, Leases
    from scheduler.domain.lease_life import RevokeReason
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComputeAllocation:
    """Ask the policy; answer with ``AllocationComputed`` of the same generation."""

    generation: int
    problem: Problem
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLease:
    """Start the job on the lease's workers."""

    lease: Lease
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtendLeases:
    """Move the deadline of running leases; nothing restarts.

    Attributes:
        lease_ids: (n,) ascending.
        deadline_s: the new deadline of all of them.
        cause: of all of them.
    """

    lease_ids: IntArray
    deadline_s: float
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    """Give notice: checkpoint, and release the workers by ``by_s``.

    ``by_s`` is not later than the deadline that the lease already has, and may be now.
    """

    lease_id: int
    by_s: float
    reason: RevokeReason
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Send ``TimerFired(timer)`` at ``at_s``; a later command of the same name replaces it."""

    timer: str
    at_s: float
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent:
    """Write a line of the job's, node's or round's history.

    Attributes:
        kind: what happened, in snake case (``job_admitted``, ``job_completed``, ...).
        subject: the job's or node's name.
        at_s: when.
        cause: its cause.
        data: further figures.
    """

    kind: str
    subject: str
    at_s: float
    cause: Cause
    data: Mapping[str, float | int | str] = field(default_factory=lambda: MappingProxyType({}))


Command: TypeAlias = (
    ComputeAllocation | GrantLease | ExtendLeases | RevokeLease | SetTimer | RecordEvent
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GrantLeases:
    """Start jobs on the workers of their leases, as ``GrantLease`` for each.

    Attributes:
        leases: n leases.
        causes: n, each made when it is asked for.
    """

    leases: Leases
    causes: Sequence[Cause]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RevokeLeases:
    """Give notice to several leases, as ``RevokeLease`` for each.

    Attributes:
        lease_ids: (n,) ascending.
        by_s: as in ``RevokeLease``.
        reason: as in ``RevokeLease``.
        causes: n, each made when it is asked for.
    """

    lease_ids: IntArray
    by_s: float
    reason: RevokeReason
    causes: Sequence[Cause]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandOver:
    """Preempted jobs have given their workers back, and others start on them.

    Attributes:
        ended: (m,) leases that were revoked and are over.
        job_ids: m names of their jobs; each job's history gets a line that it was preempted.
        at_s: when.
        leases: n leases that are granted.
        waited_for: (n,) position in ``ended`` of the last lease that each of them waited for;
            ascending.
        causes: n of the grants, each made when it is asked for.
    """

    ended: IntArray
    job_ids: tuple[str, ...]
    at_s: float
    leases: Leases
    waited_for: IntArray
    causes: Sequence[Cause]


#: Many commands in one; ``one_by_one`` returns them one by one.
Batch: TypeAlias = GrantLeases | RevokeLeases | HandOver


def one_by_one(commands: Iterable[Command | Batch]) -> list[Command]:
    """Return commands with each batch replaced by the single commands that it stands for."""
    result: list[Command] = []
    for command in commands:
        match command:
            case GrantLeases():
                result += _grants(command.leases, command.causes)
            case RevokeLeases():
                result += [
                    RevokeLease(
                        lease_id=lease_id, by_s=command.by_s, reason=command.reason, cause=cause
                    )
                    for lease_id, cause in zip(
                        command.lease_ids.tolist(), command.causes, strict=True
                    )
                ]
            case HandOver():
                result += _handed_over(command)
            case _:
                result.append(command)
    return result


def _grants(leases: Leases, causes: Sequence[Cause]) -> list[GrantLease]:
    return [
        GrantLease(lease=lease, cause=cause) for lease, cause in zip(leases, causes, strict=True)
    ]


def _handed_over(command: HandOver) -> list[Command]:
    """Return each preempted job's line of history, and behind it the leases that waited for it."""
    grants = _grants(command.leases, command.causes)
    last = command.waited_for.searchsorted(range(len(command.ended)), side="right").tolist()
    result: list[Command] = []
    begin = 0
    for lease_id, job_id, end in zip(command.ended.tolist(), command.job_ids, last, strict=True):
        result.append(preempted(job_id, lease_id, command.at_s))
        result += grants[begin:end]
        begin = end
    return result


def preempted(job_id: str, lease_id: int, at_s: float) -> RecordEvent:
    """Return the line of history of a job with a lease that was revoked and is over."""
    return RecordEvent(
        kind="job_preempted",
        subject=job_id,
        at_s=at_s,
        cause=Cause(fact=FactKind.LEASE_ENDED, subject=job_id),
        data={"lease": lease_id},
    )
