"""Commands: imperatives that the engine gives to its shell."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import IntArray
    from scheduler.domain.lease import Lease, RevokeReason
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComputeAllocation:
    """Ask the policy; answer with ``AllocationComputed`` of the same generation."""

    generation: int
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLease:
    """Start the job on the lease's workers."""

    lease: Lease


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtendLeases:
    """Move the deadline of running leases; nothing restarts.

    Attributes:
        lease_ids: (n,) ascending.
        deadline_s: the new deadline of all of them.
    """

    lease_ids: IntArray
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    """Give notice: checkpoint, and release the workers by ``by_s``.

    ``by_s`` is not later than the deadline that the lease already has, and may be now.
    """

    lease_id: int
    by_s: float
    reason: RevokeReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Send ``TimerFired(timer)`` at ``at_s``; a later command of the same name replaces it."""

    timer: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent:
    """Write a line of the job's, node's or round's history.

    Attributes:
        kind: what happened, in snake case (``job_admitted``, ``job_completed``, ...).
        subject: the job's or node's name.
        at_s: when.
        data: further figures.
    """

    kind: str
    subject: str
    at_s: float
    data: Mapping[str, float | int | str] = field(default_factory=lambda: MappingProxyType({}))


Command: TypeAlias = (
    ComputeAllocation | GrantLease | ExtendLeases | RevokeLease | SetTimer | RecordEvent
)
