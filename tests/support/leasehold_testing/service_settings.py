"""Policy, projects, reservations and throughputs of the fake service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold_testing.output import FakeOutput
from leasehold_testing.service_values import ACTIVE
from policies.registry import make_policy
from scheduler.errors import ConflictError, NotFoundError
from scheduler.store.filters import JobFilter
from scheduler.store.queries import MAX_LIMIT, JobQuery
from scheduler.views.dues import Dues
from scheduler.views.types import (
    HoldingChange,
    PairView,
    PolicyTrial,
    PolicyView,
    ProjectView,
    ReservedView,
    ThroughputView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold_testing.memory_store import MemoryStore
    from scheduler.control.facts.requests import PolicyChoice, ProjectLimits
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.throughputs.throughput import ProfileKey, SharingCost
    from scheduler.views.types import LeaseView


class FakeSettings(FakeOutput):
    """The part of ``FakeService`` that is about what operators set."""

    now_s: float
    _store: MemoryStore
    _leases: dict[str, LeaseView]
    _policy: PolicyView

    def __init__(self) -> None:
        super().__init__()
        self._projects: dict[str, ProjectLimits] = {}
        self._reservations: dict[str, Reservation] = {}
        self._figures: dict[tuple[str, int, str], float] = {}
        self._pairs: dict[tuple[ProfileKey, ProfileKey, str], tuple[float, float]] = {}

    def _may_write(self) -> None:
        raise NotImplementedError

    def _note(
        self, kind: str, subject_kind: str, subject: str, actor: str, data: Mapping[str, Any]
    ) -> None:
        raise NotImplementedError

    def policy(self) -> PolicyView:
        """Return the policy in force."""
        return self._policy

    async def try_policy(self, choice: PolicyChoice) -> PolicyTrial:
        """Say that the first job with workers would lose them."""
        self._may_write()
        make_policy(choice.name, choice.parameters)
        leases = list(self._leases.values())
        changes = tuple(
            HoldingChange(
                job_id=one.job_id,
                project=one.project,
                before={one.worker_type: len(one.workers)},
                after={},
            )
            for one in leases[:1]
        )
        return PolicyTrial(changes=changes, same=max(len(leases) - 1, 0), note="")

    async def set_policy(self, choice: PolicyChoice, *, actor: str) -> PolicyView:
        """Put a policy in force that exists and takes these parameters."""
        self._may_write()
        make_policy(choice.name, choice.parameters)
        before = self._policy
        self._policy = PolicyView(
            name=choice.name,
            parameters=choice.parameters,
            agnostic=choice.agnostic,
            space_sharing=choice.space_sharing,
            since_s=self.now_s,
            actor=actor,
            last_solve_s=None,
            last_failure="",
        )
        data: dict[str, object] = {
            "before": before.name,
            "parameters": dict(choice.parameters),
            "agnostic": choice.agnostic,
            "space_sharing": choice.space_sharing,
        }
        if before.parameters:
            data["before_parameters"] = dict(before.parameters)
        if before.agnostic:
            data["before_agnostic"] = True
        if before.space_sharing:
            data["before_space_sharing"] = True
        self._note("policy_changed", "policy", choice.name, actor, data)
        return self._policy

    def projects(self) -> tuple[ProjectView, ...]:
        """Return the projects with limits."""
        return tuple(self._project(limits) for _, limits in sorted(self._projects.items()))

    def _project(self, limits: ProjectLimits) -> ProjectView:
        where = JobFilter(projects=(limits.project,), statuses=tuple(ACTIVE))
        found = self._store.jobs(JobQuery(where=where, limit=MAX_LIMIT)).rows
        running = [row for row in found if row.job_id in self._leases]
        workers = float(sum(row.scale_factor for row in running))
        dues = Dues(
            due_workers=workers,
            received_workers=workers,
            owed_worker_s=0.0,
            mean_rho=1.0,
            worst_rho=1.0,
        )
        return ProjectView(
            limits=limits,
            active_jobs=len(found),
            admitted_workers=sum(row.scale_factor for row in found),
            running_workers=sum(row.scale_factor for row in running),
            dues=dues if running else None,
        )

    async def set_project(self, limits: ProjectLimits, *, actor: str) -> ProjectView:
        """Set a project's limits."""
        self._may_write()
        self._projects[limits.project] = limits
        self._note("project_changed", "project", limits.project, actor, {})
        return self._project(limits)

    def reservations(self) -> tuple[ReservedView, ...]:
        """Return the reservations."""
        found = sorted(self._reservations.values(), key=lambda rule: rule.from_s)
        return tuple(
            ReservedView(
                reservation=rule,
                state="planned",
                assigned=rule.workers,
                used=0,
                nodes={"node-0": rule.workers},
            )
            for rule in found
        )

    async def reserve(self, reservation: Reservation, *, actor: str) -> ReservedView:
        """Reserve workers."""
        self._may_write()
        if reservation.name in self._reservations:
            raise ConflictError(f"reservation '{reservation.name}' exists already")
        row = self._store.job(reservation.job) if reservation.job else None
        if reservation.job and row is None:
            raise NotFoundError(f"there is no job '{reservation.job}'")
        if row is not None and row.status not in ACTIVE:
            raise ConflictError(f"job '{row.job_id}' has ended as {row.status.value}")
        self._reservations[reservation.name] = reservation
        self._note("reservation_made", "reservation", reservation.name, actor, {})
        return next(v for v in self.reservations() if v.reservation is reservation)

    async def delete_reservation(self, name: str, *, actor: str) -> None:
        """Give up a reservation."""
        self._may_write()
        if self._reservations.pop(name, None) is None:
            raise NotFoundError(f"there is no reservation '{name}'")
        self._note("reservation_deleted", "reservation", name, actor, {})

    def throughputs(self) -> tuple[ThroughputView, ...]:
        """Return the declared throughputs."""
        return tuple(
            ThroughputView(
                job_type=job_type,
                scale_factor=count,
                worker_type=worker_type,
                steps_per_s=figure,
                source="declared",
                declared=figure,
                measured=None,
                deviation=None,
                samples=0,
            )
            for (job_type, count, worker_type), figure in sorted(self._figures.items())
        )

    def sharing(self) -> tuple[PairView, ...]:
        """Return what sharing workers costs pairs of jobs, sorted."""
        return tuple(
            PairView(
                job_type=first[0],
                with_job_type=second[0],
                scale_factor=first[1],
                worker_type=worker_type,
                part=parts[0],
                with_part=parts[1],
            )
            for (first, second, worker_type), parts in sorted(self._pairs.items())
        )

    async def declare_throughputs(
        self,
        figures: Sequence[tuple[str, int, str, float]],
        *,
        pairs: Sequence[SharingCost] = (),
        actor: str,
    ) -> int:
        """Declare throughputs."""
        self._may_write()
        before: dict[Any, Any] = {**self._figures, **self._pairs}
        self._figures |= {(kind, count, worker): rate for kind, count, worker, rate in figures}
        self._pairs |= {(first, second, worker): parts for first, second, worker, parts in pairs}
        self._note("throughputs_declared", "throughputs", "", actor, {"count": len(figures)})
        after: dict[Any, Any] = {**self._figures, **self._pairs}
        return sum(before.get(key) != value for key, value in after.items())

    async def forget_throughputs(self, job_type: str, *, actor: str) -> int:
        """Forget throughputs."""
        self._may_write()
        left = {key: rate for key, rate in self._figures.items() if key[0] != job_type}
        figures = len(self._figures) - len(left)
        if not figures:
            raise NotFoundError(f"no throughput of job type '{job_type}' is known")
        self._figures = left
        note = {"figures": figures}
        self._note("throughputs_forgotten", "throughputs", job_type, actor, note)
        return figures
