"""The life of a lease: its phases, why it is revoked, and how it ends."""

from __future__ import annotations

import enum
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scheduler.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Mapping


class LeasePhase(enum.StrEnum):
    """A phase in the life of a lease. Agents report the last four."""

    PLANNED = "planned"  #: the next round has workers for the job, which others may still hold
    GRANTED = "granted"  #: the job holds the workers; no node has reported the lease
    STARTING = "starting"  #: a node launches the job's processes
    RUNNING = "running"  #: the job's processes run
    STOPPING = "stopping"  #: the lease is revoked or at its deadline; the processes must leave
    ENDED = "ended"  #: no process is left


#: Phase -> the phases that may follow. A phase may be passed between two looks at a lease.
TRANSITIONS: Final[Mapping[LeasePhase, frozenset[LeasePhase]]] = MappingProxyType(
    {
        LeasePhase.PLANNED: frozenset({LeasePhase.GRANTED, LeasePhase.ENDED}),
        LeasePhase.GRANTED: frozenset({LeasePhase.STARTING, LeasePhase.STOPPING, LeasePhase.ENDED}),
        LeasePhase.STARTING: frozenset({LeasePhase.RUNNING, LeasePhase.STOPPING, LeasePhase.ENDED}),
        LeasePhase.RUNNING: frozenset({LeasePhase.STOPPING, LeasePhase.ENDED}),
        LeasePhase.STOPPING: frozenset({LeasePhase.ENDED}),
        LeasePhase.ENDED: frozenset(),
    }
)


def may_become(before: LeasePhase, after: LeasePhase) -> bool:
    """Return whether a lease in one phase may be in another one later, or in the same."""
    return after is before or any(may_become(one, after) for one in TRANSITIONS[before])


class PhaseWatch:
    """Checks from look to look that leases only move on in ``TRANSITIONS``. For tests.

    A state that is loaded again needs a new watch, since leases that had ended may be in it.
    """

    def __init__(self) -> None:
        self._phases: dict[int, LeasePhase] = {}

    def check(self, phases: Mapping[int, LeasePhase]) -> None:
        """Look at the leases in force, by id; one that is gone has ended.

        Raises:
            InvariantError: a lease went back to a phase that it had left, or had ended.
        """
        for lease_id, phase in phases.items():
            before = self._phases.get(lease_id, LeasePhase.PLANNED)
            if not may_become(before, phase):
                raise InvariantError(f"lease {lease_id} was {before} and is now {phase}")
        self._phases = dict.fromkeys(self._phases, LeasePhase.ENDED) | dict(phases)


class EndReason(enum.StrEnum):
    """Why a lease ended. The engine counts OOM as FAILED."""

    COMPLETED = "completed"  #: the job has done all its steps
    RELEASED = "released"  #: preempted: by notice, at the deadline, or it left by itself
    FAILED = "failed"  #: the job itself failed
    LOST = "lost"  #: the processes vanished: reboot, a worker gone, a supervisor killed
    OOM = "oom"  #: out of memory, on the host or on the accelerator
    CANCELLED = "cancelled"  #: the lease was no longer wanted while it ran

    @property
    def is_failure(self) -> bool:
        """Whether the job's processes failed by themselves."""
        return self in {EndReason.FAILED, EndReason.OOM}

    @property
    def gravity(self) -> int:
        """Place in the order of grave ends: a gang ends as the member with the greatest.

        A member that was lost, or had to leave, ends its partners' processes too. So its end
        outweighs their failures.
        """
        return _BY_GRAVITY.index(self)

    def for_engine(self) -> EndReason:
        """Return the reason that the engine is told."""
        return EndReason.FAILED if self is EndReason.OOM else self


#: The message of an end by lack of memory that a job wrote itself: most such jobs lacked memory of
#: an accelerator. Of host memory, the kernel kills them.
MEMORY_ERROR: Final = "stderr ends with an out-of-memory error"

_BY_GRAVITY: Final = (
    EndReason.COMPLETED,
    EndReason.CANCELLED,
    EndReason.FAILED,
    EndReason.RELEASED,
    EndReason.OOM,
    EndReason.LOST,
)


class RevokeReason(enum.StrEnum):
    """Why a lease is revoked before its deadline."""

    OUTBID = "outbid"  #: others are to have the workers in the next round
    WORKER_LOST = "worker lost"  #: a worker under it was lost
    CANCEL = "cancel"  #: a user cancelled the job
    HOLD = "hold"  #: a user holds the job
    REQUEUE = "requeue"  #: a user requeued the job
    DRAIN = "drain"  #: its node is drained
    NOT_STARTED = "not started"  #: it did not run within its bound


#: Revocations that leave the job no time to checkpoint.
ABRUPT: Final = frozenset({RevokeReason.CANCEL, RevokeReason.WORKER_LOST})
#: Revocations that a user asked for; they count against no limit of retries.
ASKED_FOR: Final = frozenset({RevokeReason.CANCEL, RevokeReason.HOLD, RevokeReason.REQUEUE})


def words_of_code(code: int) -> str:
    """Return how a process ended: its exit code, or the signal -code that ended it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
