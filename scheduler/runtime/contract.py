"""The daemon's interface for the routes: one Protocol, and the frozen views that it returns.

Every method may raise ``NotLeadingError`` if it writes and this process does not lead,
``StoreUnavailableError`` if the database is away, and ``NotFoundError`` if a name is unknown. Times
are seconds since the Unix epoch. Actors are names of tokens' subjects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scheduler.logs.output import Outputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.control.facts.requests import (
        Acted,
        Fit,
        JobAction,
        NodeAction,
        PolicyChoice,
        ProjectLimits,
        Submission,
        Submitted,
    )
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.rows import JobRow
    from scheduler.domain.throughputs.throughput import SharingCost
    from scheduler.domain.throughputs.ways import Way
    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import NodeReport
    from scheduler.runtime.execs import Execs
    from scheduler.store.protocol import Store
    from scheduler.views.dues import DuesPage
    from scheduler.views.types import (
        AllocationView,
        ClusterView,
        ExpectedStarts,
        Explanation,
        Health,
        LeaseView,
        LiveJob,
        NodeView,
        PairView,
        PlanView,
        PolicyTrial,
        PolicyView,
        ProjectView,
        ReservedView,
        ThroughputView,
    )
    from scheduler.webhooks.messages import Template
    from scheduler.webhooks.webhooks import Posted, WebhookView


class Jobs(Protocol):
    """Jobs, for people."""

    async def submit(
        self, submissions: Sequence[Submission], *, actor: str
    ) -> tuple[Submitted, ...]:
        """Submit jobs; one that is refused does not affect the others. Durable on return."""
        ...

    async def fit(self, spec: JobSpec, *, owner: str = "", forecast: bool = False) -> Fit:
        """Return whether and where a job of a user could run; changes nothing.

        Args:
            spec: the job.
            owner: its user.
            forecast: whether a replay also says when it would start and complete.

        Raises:
            AdmissionError: its submission would be refused.
        """
        ...

    async def act(
        self,
        job_ids: Sequence[str],
        action: JobAction,
        *,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> tuple[Acted, ...]:
        """Cancel, hold, release or requeue jobs; one that fails does not affect the others.

        The history keeps the reason. A dry run returns the result for each job and changes nothing.
        """
        ...

    async def change(
        self,
        job_ids: Sequence[str],
        *,
        actor: str,
        weight: float | None = None,
        deadline_s: float | None = None,
        clear_deadline: bool = False,
    ) -> tuple[Acted, ...]:
        """Change weight or deadline of active jobs."""
        ...

    def live(self, job_ids: Sequence[str]) -> Mapping[str, LiveJob]:
        """Return the live state of active jobs; other jobs, and all on a standby, are left out."""
        ...

    async def explain(self, row: JobRow, *, forecast: bool = True) -> Explanation:
        """Return why a job has its status and, if asked, when it will start and end."""
        ...

    def starts(self, job_ids: Sequence[str]) -> ExpectedStarts:
        """Return when waiting jobs will start, by the last replay; it does not wait for one."""
        ...

    async def ways(self, row: JobRow) -> tuple[Way, ...]:
        """Return the ways in which a job could run, with their throughputs; none on a standby."""
        ...


class ClusterService(Protocol):
    """Nodes, policies, projects, throughputs."""

    def nodes(self) -> tuple[NodeView, ...]:
        """Return every node by name."""
        ...

    async def node_action(
        self, name: str, action: NodeAction, *, reason: str, actor: str
    ) -> NodeView:
        """Cordon, drain or uncordon a node."""
        ...

    async def approve_workers(
        self, name: str, workers: Mapping[str, int], *, actor: str, by: str = "operator"
    ) -> None:
        """Set the approved workers of a node, by worker type; it need not be known yet.

        Args:
            name: of the node.
            workers: worker type -> how many.
            actor: the user that approves them.
            by: ``operator``, ``enrolment`` or ``label``.
        """
        ...

    async def remove_node(self, name: str, *, actor: str) -> None:
        """Remove a node that is lost and holds no leases.

        Raises:
            ConflictError: the node holds leases, or still reports.
        """
        ...

    def leases(self) -> tuple[LeaseView, ...]:
        """Return the leases in force by id."""
        ...

    def plan(self) -> PlanView:
        """Return the plan of the next round."""
        ...

    def cluster(self) -> ClusterView:
        """Return the cluster in figures."""
        ...

    def allocation(self) -> AllocationView:
        """Return the allocation in force."""
        ...

    def jobs_behind(self, *, projects: frozenset[str], first: int, count: int) -> DuesPage:
        """Return a page of the jobs that have dues, those furthest behind first.

        Args:
            projects: only jobs of these; empty for all.
            first: position of the page's first job, from 0.
            count: jobs of the page.
        """
        ...

    def policy(self) -> PolicyView:
        """Return the policy in force."""
        ...

    async def set_policy(self, choice: PolicyChoice, *, actor: str) -> PolicyView:
        """Put a policy in force; it answers the next question.

        Raises:
            UnknownPolicyError: no policy has that name; the message lists all names.
            ParameterError: a parameter is unknown or wrong.
        """
        ...

    async def try_policy(self, choice: PolicyChoice) -> PolicyTrial:
        """Return what a policy would change in the next round; change nothing.

        Raises:
            UnknownPolicyError: no policy has that name; the message lists all names.
            ParameterError: a parameter is unknown or wrong.
            ConflictError: there are no replays here, or this one takes too long.
        """
        ...

    def projects(self) -> tuple[ProjectView, ...]:
        """Return every project that has limits or active jobs, by name."""
        ...

    async def set_project(self, limits: ProjectLimits, *, actor: str) -> ProjectView:
        """Set a project's limits."""
        ...

    def reservations(self) -> tuple[ReservedView, ...]:
        """Return every reservation, by the start of its window."""
        ...

    async def reserve(self, reservation: Reservation, *, actor: str) -> ReservedView:
        """Reserve workers for a time window.

        Raises:
            ConflictError: the name is in use, too many workers are reserved then, or the
                reservation's job has ended.
            InputError: the worker type is unknown, the window has passed, or the job belongs to
                another user.
            NotFoundError: there is no such job.
        """
        ...

    async def delete_reservation(self, name: str, *, actor: str) -> None:
        """Delete a reservation.

        Raises:
            NotFoundError: no reservation has that name.
        """
        ...

    def throughputs(self) -> tuple[ThroughputView, ...]:
        """Return the known throughputs, by job type, scale factor and worker type."""
        ...

    def sharing(self) -> tuple[PairView, ...]:
        """Return how much pairs of jobs slow down if they share workers, sorted."""
        ...

    async def declare_throughputs(
        self,
        figures: Sequence[tuple[str, int, str, float]],
        *,
        pairs: Sequence[SharingCost] = (),
        actor: str,
    ) -> int:
        """Declare throughputs; returns how many changed.

        Args:
            figures: (job type, scale factor, worker type, steps/s) of jobs alone.
            pairs: how much two jobs slow down if they share workers.
            actor: the user that declares them.
        """
        ...

    async def forget_throughputs(self, job_type: str, *, actor: str) -> int:
        """Forget declared and measured throughputs of a job type; returns how many there were.

        Raises:
            NotFoundError: no throughput of the job type is known.
        """
        ...


class Agents(Protocol):
    """The agents' side. ``node`` is the subject of the agent's token."""

    async def desired(
        self,
        node: str,
        *,
        after: tuple[int, int],
        wait_s: float,
        hindrance: str = "",
        instance: str = "",
    ) -> Desired:
        """Return the node's desired set, at once if newer than ``after``; see ``agent.link``.

        Args:
            node: the agent's.
            after: (term, revision) that the agent has.
            wait_s: how long to wait for a newer one.
            hindrance: why secret variables may not be sent on this connection; empty if they may.
            instance: the agent's name; see ``NodeReport.instance``.

        Raises:
            ConflictError: another agent serves the node.
        """
        ...

    async def desired_json(
        self,
        node: str,
        *,
        after: tuple[int, int],
        wait_s: float,
        hindrance: str = "",
        instance: str = "",
    ) -> bytes:
        """Return the same as JSON."""
        ...

    async def report(
        self, report: NodeReport, *, address: str, version: str, enrolled: bool = False
    ) -> None:
        """Take in a report; ends of leases are durable on return.

        Args:
            report: the agent's report.
            address: the address of rank 0 of its jobs; empty: the agent gives none.
            version: of the agent.
            enrolled: whether the workers of its first report are approved, and no more.
        """
        ...

    async def append_log(
        self,
        node: str,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool | None = None,
        nonce: str = "",
    ) -> int:
        """Store output of a lease on a node; returns the offset to continue from.

        A piece that does not follow the stored output is dropped; the answer is the offset to send
        from. ``end`` is True if nothing follows, False if a mark will follow, and None if it is not
        known. ``nonce`` is that of the lease, if the agent knows it.
        """
        ...


class Hooks(Protocol):
    """Webhooks; see ``scheduler.webhooks.delivery``."""

    async def all(self) -> tuple[WebhookView, ...]:
        """Return every webhook by name; on a standby as they are stored."""
        ...

    async def add(
        self,
        name: str,
        url: str,
        *,
        on: tuple[str, ...],
        project: str | None,
        template: Template,
        actor: str,
        counted: bool = False,
    ) -> tuple[WebhookView, str]:
        """Create a webhook; returns it and the secret of its signatures.

        Raises:
            InputError: the address cannot be used.
            AdmissionError: there are too many, or there is no key to seal with.
            ConflictError: the name is in use.
        """
        ...

    async def delete(self, name: str, *, actor: str) -> None:
        """Delete a webhook."""
        ...

    async def resume(self, name: str, *, actor: str, skip: bool = False) -> WebhookView:
        """Send again, at once; with ``skip`` only events from now on."""
        ...

    async def test(self, name: str, *, actor: str) -> Posted:
        """Send one message that is marked as a test."""
        ...


class SchedulerService(Jobs, Outputs, ClusterService, Agents, Protocol):
    """The whole service."""

    @property
    def store(self) -> Store:
        """The store, for reading rows and for tokens."""
        ...

    @property
    def execs(self) -> Execs:
        """Commands that run beside jobs."""
        ...

    @property
    def webhooks(self) -> Hooks:
        """The webhooks that receive events."""
        ...

    def health(self) -> Health:
        """Return the daemon's health."""
        ...

    async def until_calm(self) -> None:
        """Wait while a new round is due or stored, but not for long: readers slow it."""
        ...

    async def note(
        self, kind: str, subject_kind: str, subject: str, *, actor: str, data: Mapping[str, Any]
    ) -> None:
        """Append a line of history that belongs to no engine step (a token made, say)."""
        ...

    async def wait_for_history(self, after_id: int, *, wait_s: float) -> int:
        """Return the newest event id, as soon as it is above ``after_id`` or after ``wait_s``."""
        ...

    def metrics(self) -> bytes:
        """Return the figures in Prometheus' text format."""
        ...
