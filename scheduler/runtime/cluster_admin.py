"""The cluster's part of the service: views of it, and operators' changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.facts import (
    NodeOrdered,
    NodeRemoved,
    PolicySet,
    ProjectSet,
    ReservationDeleted,
    ReservationMade,
    ThroughputsDeclared,
    ThroughputsForgotten,
    UseCounted,
    WorkersApproved,
)
from scheduler.control.operator_orders import node_of
from scheduler.errors import ConflictError
from scheduler.runtime.driver.spending import use_of_month
from scheduler.views import state_views
from scheduler.views.dues import jobs_behind
from scheduler.views.next_round import plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.control.facts.facts import Fact
    from scheduler.control.facts.requests import NodeAction, PolicyChoice, ProjectLimits
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.throughputs.throughput import SharingCost
    from scheduler.runtime.driver.driver import Driver
    from scheduler.runtime.forecaster import Forecaster
    from scheduler.runtime.planning import Planning
    from scheduler.runtime.solver import Solver
    from scheduler.store.protocol import Store
    from scheduler.views.dues import DuesPage
    from scheduler.views.explain import WaitingJobs
    from scheduler.views.types import (
        AllocationView,
        ClusterView,
        LeaseView,
        NodeView,
        PairView,
        PlanView,
        PolicyTrial,
        PolicyView,
        ProjectView,
        ReservedView,
        ThroughputView,
    )


class ClusterAdmin:
    """The cluster's part of ``contract.SchedulerService``; ``LiveService`` is the rest."""

    _store: Store
    _clock: Clock
    _solver: Solver
    _forecaster: Forecaster | None
    _planning: Planning

    @property
    def driver(self) -> Driver:
        """The driver of a leading process."""
        raise NotImplementedError

    @property
    def _view(self) -> PublishedState:
        raise NotImplementedError

    def _look(self, view: PublishedState) -> WaitingJobs:
        raise NotImplementedError

    async def _tell(self, fact: Fact, *, patient: int = 0) -> Any:
        raise NotImplementedError

    def nodes(self) -> tuple[NodeView, ...]:
        """Return every node by name."""
        return state_views.node_views(self._view)

    async def node_action(
        self, name: str, action: NodeAction, *, reason: str, actor: str
    ) -> NodeView:
        """Cordon, drain or uncordon a node."""
        await self._tell(NodeOrdered(node=name, action=action, reason=reason, actor=actor))
        return state_views.node_view(self._view, node_of(self._view, name))

    async def approve_workers(
        self, name: str, workers: Mapping[str, int], *, actor: str, by: str = "operator"
    ) -> None:
        """Set the approved workers of a node, by worker type; it need not be known yet."""
        await self._tell(WorkersApproved(node=name, workers=dict(workers), actor=actor, by=by))

    async def remove_node(self, name: str, *, actor: str) -> None:
        """Remove a node that is lost and holds no leases."""
        await self._planning.for_node(name, ())
        await self._tell(NodeRemoved(node=name, actor=actor))

    def leases(self) -> tuple[LeaseView, ...]:
        """Return the leases in force by id."""
        return state_views.lease_views(self._view, now_s=self._clock.now_s())

    def plan(self) -> PlanView:
        """Return the plan of the next round."""
        return plan_of(self._view, now_s=self._clock.now_s())

    def cluster(self) -> ClusterView:
        """Return the cluster in figures."""
        view = self._view
        return state_views.cluster_view(view, self._look(view), now_s=self._clock.now_s())

    def allocation(self) -> AllocationView:
        """Return the allocation in force."""
        return state_views.allocation_view(self._view)

    def jobs_behind(self, *, projects: frozenset[str], first: int, count: int) -> DuesPage:
        """Return a page of the jobs that have dues, those furthest behind first."""
        return jobs_behind(self._view, projects=projects, first=first, count=count)

    def policy(self) -> PolicyView:
        """Return the policy in force."""
        return state_views.policy_view(self._view)

    async def set_policy(self, choice: PolicyChoice, *, actor: str) -> PolicyView:
        """Put a policy in force; it answers the next question."""
        dependent = self._solver.time_dependent(choice)  # raises if it cannot be used
        await self._tell(PolicySet(choice=choice, time_dependent=dependent, actor=actor))
        return self.policy()

    async def try_policy(self, choice: PolicyChoice) -> PolicyTrial:
        """Return what a policy would change in the next round; change nothing."""
        dependent = self._solver.time_dependent(choice)  # raises if it cannot be used
        copied = self.driver.copied
        if self._forecaster is None:
            raise ConflictError("this scheduler makes no replays, so it cannot try a policy")
        return await self._forecaster.try_policy(copied, choice, time_dependent=dependent)

    def projects(self) -> tuple[ProjectView, ...]:
        """Return every project that has limits or active jobs, by name."""
        view = self._view
        return state_views.project_views(view, self._look(view), now_s=self._clock.now_s())

    async def set_project(self, limits: ProjectLimits, *, actor: str) -> ProjectView:
        """Set a project's limits."""
        until_s: float | None = await self._tell(ProjectSet(limits=limits, actor=actor))
        if until_s is not None:  # it is the first budget
            sums = await asyncio.to_thread(use_of_month, self._store, until_s)
            await self._tell(UseCounted(until_s=until_s, sums=sums, actor=actor))
        return next(view for view in self.projects() if view.limits.project == limits.project)

    def reservations(self) -> tuple[ReservedView, ...]:
        """Return every reservation, by the start of its window."""
        return state_views.reservation_views(self._view)

    async def reserve(self, reservation: Reservation, *, actor: str) -> ReservedView:
        """Reserve workers for a time window."""
        row, job_id = None, reservation.job
        if job_id and job_id not in self._view.jobs.by_id:
            row = await asyncio.to_thread(self._store.job, job_id)
        await self._tell(ReservationMade(reservation=reservation, actor=actor, row=row))
        name = reservation.name
        made = next((v for v in self.reservations() if v.reservation.name == name), None)
        if made is None:
            raise ConflictError(f"reservation '{name}' is given up already: its job has ended")
        return made

    async def delete_reservation(self, name: str, *, actor: str) -> None:
        """Delete a reservation."""
        await self._tell(ReservationDeleted(name=name, actor=actor))

    def throughputs(self) -> tuple[ThroughputView, ...]:
        """Return the known throughputs, by job type, scale factor and worker type."""
        return state_views.throughput_views(self._view)

    def sharing(self) -> tuple[PairView, ...]:
        """Return how much pairs of jobs slow down if they share workers, sorted."""
        return state_views.pair_views(self._view)

    async def declare_throughputs(
        self,
        figures: Sequence[tuple[str, int, str, float]],
        *,
        pairs: Sequence[SharingCost] = (),
        actor: str,
    ) -> int:
        """Declare throughputs; returns how many changed."""
        news: int = await self._tell(
            ThroughputsDeclared(figures=tuple(figures), pairs=tuple(pairs), actor=actor)
        )
        return news

    async def forget_throughputs(self, job_type: str, *, actor: str) -> int:
        """Forget the throughputs of a job type; returns how many there were."""
        figures: int = await self._tell(ThroughputsForgotten(job_type=job_type, actor=actor))
        return figures
