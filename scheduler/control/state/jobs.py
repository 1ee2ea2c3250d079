"""Active jobs: those that have not ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.specs import spec_from_json, spec_to_json, steps_of
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import JobRow, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.control.facts.requests import ProjectLimits
    from scheduler.domain.facts.causes import Cause
    from scheduler.domain.jobs.spec import JobSpec

ENDED = frozenset({JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.FAILED, JobStatus.REFUSED})
ACTIVE = tuple(status for status in JobStatus if status not in ENDED)


@dataclass(slots=True, kw_only=True)
class JobRecord:
    """An active job. Attributes that are not described here are ``JobRow``'s.

    Attributes:
        blocked_on: why the engine does not know it yet; None once it does.
        profile: row of the configuration table.
        waits_for: jobs that it depends on and that have not completed.
        forced_end: (status, reason) to end it with, if these differ from the engine's.
        time_limit: whether it is being cancelled because it reached its time limit.
        admitted_by: why the engine received it after its submission, for explanations; not stored.
        new: whether there is no stored row yet.
        spent: category -> how often its leases ended so, for categories that it limits.
    """

    job_id: str
    number: int
    spec: JobSpec
    owner: str
    submitted_s: float
    profile: int
    status: JobStatus = JobStatus.WAITING
    reason: str = ""
    weight: float = 1.0
    deadline_s: float | None = None
    steps_done: float = 0.0
    attempts: int = 0
    failures: int = 0
    started_s: float | None = None
    finished_s: float | None = None
    updated_s: float = 0.0
    blocked_on: WaitReason | None = None
    waits_for: frozenset[str] = frozenset()
    forced_end: tuple[JobStatus, str] | None = None
    time_limit: bool = False
    admitted_by: Cause | None = field(default=None, compare=False)
    new: bool = True
    spent: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: JobRow, *, profile: int) -> JobRecord:
        """Return the record of a stored job."""
        return cls(
            job_id=row.job_id,
            number=row.number,
            spec=spec_from_json(row.spec),
            owner=row.owner,
            submitted_s=row.submitted_s,
            profile=profile,
            status=row.status,
            reason=row.reason,
            weight=row.weight,
            deadline_s=row.deadline_s,
            steps_done=row.steps_done,
            attempts=row.attempts,
            failures=row.failures,
            started_s=row.started_s,
            finished_s=row.finished_s,
            updated_s=row.updated_s,
            new=False,
        )

    @property
    def project(self) -> str:
        """The project that it belongs to."""
        return self.spec.project

    def to_row(self, document: Mapping[str, Any] | None = None) -> JobRow:
        """Return the whole row."""
        spec = self.spec
        return JobRow(
            job_id=self.job_id,
            number=self.number,
            name=spec.name,
            project=spec.project,
            owner=self.owner,
            job_type=spec.type_key,
            status=self.status,
            reason=self.reason,
            entity=spec.account,
            scale_factor=spec.scale_factor,
            weight=self.weight,
            total_steps=steps_of(spec),
            steps_done=self.steps_done,
            attempts=self.attempts,
            failures=self.failures,
            submitted_s=self.submitted_s,
            started_s=self.started_s,
            finished_s=self.finished_s,
            deadline_s=self.deadline_s,
            updated_s=self.updated_s,
            labels=spec.labels,
            spec=spec_to_json(spec) if document is None else document,
        )

    def to_state(self) -> JobState:
        """Return the part of the row that changes."""
        return JobState(
            job_id=self.job_id,
            status=self.status,
            reason=self.reason,
            weight=self.weight,
            steps_done=self.steps_done,
            attempts=self.attempts,
            failures=self.failures,
            started_s=self.started_s,
            finished_s=self.finished_s,
            deadline_s=self.deadline_s,
            updated_s=self.updated_s,
        )


class JobBook:
    """Active jobs, the jobs they wait for outside the engine, and limits of projects."""

    def __init__(self) -> None:
        self.by_id: dict[str, JobRecord] = {}
        #: project -> its limits, if it has any.
        self.limits: dict[str, ProjectLimits] = {}
        #: projects that have used up their budgets.
        self.stopped: frozenset[str] = frozenset()
        #: project -> number of active jobs.
        self.active: dict[str, int] = {}
        #: project -> workers that its admitted jobs ask for.
        self.admitted: dict[str, int] = {}
        #: jobs with outdated stored rows.
        self.touched: dict[str, JobRecord] = {}
        #: ids of jobs that have changed, in their rows or outside them, since this was last
        #: emptied.
        self.changed: set[str] = set()
        #: ids of jobs that have a time limit.
        self.limited: set[str] = set()
        #: whether a parked job may now be fit to run.
        self.recheck = False
        #: jobs that the engine does not know yet, by id.
        self._parked: dict[str, JobRecord] = {}
        #: job -> jobs that wait for it.
        self._dependents: dict[str, set[str]] = {}
        self._next_number = 1

    def __len__(self) -> int:
        return len(self.by_id)

    def next_number(self) -> int:
        """Return the number of the next submission."""
        self._next_number += 1
        return self._next_number - 1

    @property
    def newest_number(self) -> int:
        """Number of the newest submission; 0 before the first."""
        return self._next_number - 1

    def start_numbers_at(self, number: int) -> None:
        """Give no number below this one."""
        self._next_number = max(self._next_number, number)

    def add(self, record: JobRecord) -> None:
        """Add a job, parked or admitted as its record says."""
        self.by_id[record.job_id] = record
        self.changed.add(record.job_id)
        if record.spec.max_run_time_s is not None:
            self.limited.add(record.job_id)
        if record.new:
            self.touched[record.job_id] = record
        project = record.project
        self.active[project] = self.active.get(project, 0) + 1
        if record.blocked_on is not None:
            self._parked[record.job_id] = record
            for other in record.waits_for:
                self._dependents.setdefault(other, set()).add(record.job_id)
        else:
            self._count(record, 1)

    def park(self, record: JobRecord) -> None:
        """Park a job that was added as admitted but that the engine does not know."""
        record.waits_for = frozenset(o for o in record.spec.depends_on if o in self.by_id)
        self._count(record, -1)
        # A job that the previous release kept out for its quota is admitted with the first
        # decision.
        record.blocked_on = self.parked_reason(record) or WaitReason.QUOTA
        self._parked[record.job_id] = record
        for other in record.waits_for:
            self._dependents.setdefault(other, set()).add(record.job_id)

    def admit(self, record: JobRecord) -> None:
        """Mark a parked job as known to the engine."""
        del self._parked[record.job_id]
        record.blocked_on = None
        record.reason = ""
        self.touched[record.job_id] = record
        self.changed.add(record.job_id)
        self._count(record, 1)

    def touch(self, record: JobRecord, now_s: float) -> None:
        """Mark a job's row to be written with this decision."""
        record.updated_s = now_s
        self.touched[record.job_id] = record
        self.changed.add(record.job_id)

    def remove(self, job_id: str) -> JobRecord:
        """Remove a job that has ended."""
        record = self.by_id.pop(job_id)
        self.changed.add(job_id)
        self.limited.discard(job_id)
        self.active[record.project] -= 1
        self.recheck = bool(self._parked)
        if record.blocked_on is not None:
            del self._parked[job_id]
        else:
            self._count(record, -1)
        return record

    def too_many_jobs(self, project: str, more: int = 1) -> str:
        """Return why a project may not have that many more jobs; empty if it may."""
        limits, active = self.limits.get(project), self.active.get(project, 0)
        if limits is None or limits.max_jobs is None or active + more <= limits.max_jobs:
            return ""
        return (
            f"project '{project}' has {active + more - 1} jobs that have not ended, and may have "
            f"{limits.max_jobs}; wait, cancel some, or ask for more"
        )

    def parked_reason(self, record: JobRecord) -> WaitReason | None:
        """Return why a job may not go to the engine now; None if it may."""
        if record.status is JobStatus.HELD:
            return WaitReason.HELD
        if record.waits_for:
            return WaitReason.DEPENDENCY
        return WaitReason.BUDGET if record.project in self.stopped else None

    def parked(self) -> Iterator[JobRecord]:
        """Yield the jobs that the engine does not know, by number."""
        yield from sorted(self._parked.values(), key=lambda record: record.number)

    def dependents(self, job_id: str) -> Iterable[JobRecord]:
        """Return the parked jobs that wait for a job, and drop that dependency."""
        waiting = self._dependents.pop(job_id, set())
        self.recheck |= bool(waiting)
        return [self._parked[other] for other in sorted(waiting) if other in self._parked]

    def _count(self, record: JobRecord, sign: int) -> None:
        used = self.admitted.get(record.project, 0) + sign * record.spec.scale_factor
        self.admitted[record.project] = used
