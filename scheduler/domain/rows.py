"""The record of decisions that people query: frozen rows, one class per table.

Times are seconds since the Unix epoch, so UTC. What one of the databases cannot hold no store
takes (``UnstorableError``): texts with NUL or halves of characters, integers of more than 64 bits,
numbers that are not finite. The API and the bounds of the agents' protocol refuse them beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.facts.causes import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.jobs.job import JobStatus
    from scheduler.domain.lease_life import EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as people see it.

    Attributes:
        job_id: unique.
        number: the order of submission; unique, never reused.
        name: the name that the user gave it.
        project: its project, for quota and permissions.
        owner: its owner.
        job_type: key into the throughput table.
        status: its state.
        reason: why it waits, failed or was refused; a code.
        entity: the entity that its share is accounted to.
        scale_factor: workers that it holds at once.
        weight: its importance.
        total_steps: steps until it is complete; seconds if the job has only a duration.
        steps_done: steps that are safe; of a job that has only a duration and reports nothing, the
            seconds of it that are done.
        attempts: leases that it has had.
        failures: failures of its own.
        submitted_s: when it was submitted, in seconds since the Unix epoch like all times.
        started_s: when it first ran; None before.
        finished_s: when it ended; None before.
        deadline_s: by when it should be complete; None if it has no deadline.
        updated_s: when it last changed.
        labels: free key-value pairs.
        spec: the whole specification as submitted; plain JSON values.
    """

    job_id: str
    number: int
    name: str
    project: str
    owner: str
    job_type: str
    status: JobStatus
    reason: str = ""
    entity: str = ""
    scale_factor: int = 1
    weight: float = 1.0
    total_steps: float
    steps_done: float = 0.0
    attempts: int = 0
    failures: int = 0
    submitted_s: float
    started_s: float | None = None
    finished_s: float | None = None
    deadline_s: float | None = None
    updated_s: float
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spec: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The part of a job's row that changes while it lives; the attributes are ``JobRow``'s."""

    job_id: str
    status: JobStatus
    reason: str = ""
    weight: float
    steps_done: float
    attempts: int
    failures: int = 0
    started_s: float | None = None
    finished_s: float | None = None
    deadline_s: float | None = None
    updated_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One lease of a job.

    Attributes:
        lease_id: unique.
        job_id: its job.
        attempt: 1 for the job's first lease.
        token: the lease's fencing token.
        worker_type: the type of its workers; empty if they are of several types.
        workers: worker indices.
        nodes: names of the nodes that they are on.
        start_s: when it was granted.
        deadline_s: until when it holds.
        ended_s: when it ended; None while it holds.
        end_reason: why it ended; None while it holds.
        steps_done: the job's safe steps when it ended.
        exit_code: the exit code of the job's process; None if it has not exited.
        message: what the agent said about the end.
        gpu_used_us: see ``LeaseUse``.
        gpu_measured_us: see ``LeaseUse``; 0 if not measured.
        gpu_told_s: see ``LeaseUse``; None if not measured.
        gpu_marks: see ``LeaseUse``.
    """

    lease_id: int
    job_id: str
    attempt: int
    token: int
    worker_type: str = ""
    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    start_s: float
    deadline_s: float
    ended_s: float | None = None
    end_reason: EndReason | None = None
    steps_done: float = 0.0
    exit_code: int | None = None
    message: str = ""
    gpu_used_us: int = 0
    gpu_measured_us: int = 0
    gpu_told_s: float | None = None
    gpu_marks: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExtension:
    """A later deadline of many leases. Leases that have ended keep theirs."""

    lease_ids: tuple[int, ...]
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """How much the GPUs of a lease have computed so far, in whole microseconds.

    Attributes:
        lease_id: its lease.
        gpu_used_us: utilisation times time, over all its GPUs.
        gpu_measured_us: time in which they were looked at, over all its GPUs.
        gpu_told_s: when a node reported it last.
        gpu_marks: (rank, used, measured) from the last report of each agent of the gang. The next
            report counts from there, also for a restarted scheduler.
    """

    lease_id: int
    gpu_used_us: int = 0
    gpu_measured_us: int = 0
    gpu_told_s: float | None = None
    gpu_marks: tuple[tuple[int, int, int], ...] = ()


#: The name under which a line's data hold its cause.
CAUSE: Final = "cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One line of history.

    Attributes:
        event_id: given by the store; grows in the order in which lines become visible.
        at_s: when it happened.
        kind: what happened, in snake case.
        subject_kind: ``job``, ``node``, ``policy``, ``token`` and others.
        subject: the job's, node's or policy's name.
        actor: the user that did it; empty for the scheduler itself.
        data: further figures; plain JSON values.
    """

    event_id: int = 0
    at_s: float
    kind: str
    subject_kind: str
    subject: str
    actor: str = ""
    data: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def cause(self) -> Cause | None:
        """Its cause, which is in the data; None if an earlier or a newer release wrote the line."""
        return Cause.of_data(self.data.get(CAUSE))

    @property
    def figures(self) -> Mapping[str, Any]:
        """The data without the cause."""
        if not isinstance(self.data.get(CAUSE), dict):
            return self.data
        return {name: value for name, value in self.data.items() if name != CAUSE}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A value that an operator set: the policy in force, a cordoned node, a project's quota.

    Attributes:
        key: dotted name, as in ``policy`` or ``node.alpha.cordon``.
        value: plain JSON value; None removes the setting.
        updated_s: when it was set.
        actor: the user that set it.
    """

    key: str
    value: Any
    updated_s: float
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRow:
    """A client's own key of a submission, so that a repeated one is recognised.

    Attributes:
        scope: of these keys (the owner, for example); keys are unique within it.
        key: the client's key.
        job_id: the job that the key stands for.
        digest: of the request, to distinguish a repetition from another request under the same key.
        created_s: when it was first used.
    """

    scope: str
    key: str
    job_id: str
    digest: str = ""
    created_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Projections:
    """Rows that change with a journal entry, applied in the order of the fields.

    Attributes:
        jobs: new jobs, or whole rows that replace those of the same ``job_id``.
        idempotency: clients' keys of new jobs.
        states: changes of jobs that exist; at most one per job.
        attempts: new attempts, or rows that replace those of the same ``lease_id``.
        extensions: later deadlines.
        uses: how much GPUs of leases have computed. Leases that are not stored are left out.
        settings: settings made, replaced or (value None) removed.
        history: lines to append; the store numbers them.
    """

    jobs: tuple[JobRow, ...] = ()
    idempotency: tuple[IdempotencyRow, ...] = ()
    states: tuple[JobState, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    extensions: tuple[LeaseExtension, ...] = ()
    uses: tuple[LeaseUse, ...] = ()
    settings: tuple[SettingRow, ...] = ()
    history: tuple[HistoryRow, ...] = ()
