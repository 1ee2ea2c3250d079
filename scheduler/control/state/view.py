"""The view for agents and people: control's decisions, as far as they are stored.

The view holds its own copies. Control changes its state at once; ``bring_forward`` copies the
changes when the decision is committed. Between two such calls a view does not change. Its
attributes have the names of ``ControlState``'s, so that readers accept either.

Not copied: learned throughputs, which are no decision.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scheduler.control.state.budget_state import Budgets
from scheduler.control.state.jobs import JobBook
from scheduler.control.state.leases import LiveLeases
from scheduler.control.state.nodes import NodeBook
from scheduler.control.state.owners import Owners
from scheduler.control.state.record_copies import job_twin, lease_twin, node_twin
from scheduler.engine.view import EngineView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.settings import ControlSettings
    from scheduler.control.state.state import ControlState, PolicyInForce
    from scheduler.domain.jobs.job import JobStatus
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.throughputs.knowledge import Knowledge
    from scheduler.protocol.desired import DesiredImage


@dataclass(slots=True, kw_only=True)
class PublishedState:
    """The published state; the attributes are those of ``ControlState``.

    Attributes:
        engine: as of the newest stored decision.
        leases: as of the newest stored decision.
        jobs: the active ones, as of the newest stored decision.
        nodes: as of the newest stored decision.
        knowledge: the ways in which jobs can run, and their throughputs.
        policy: the policy in force.
        settings: an operator's settings of decisions.
        term: the leader's fencing token.
        images: node -> images that it may soon need.
        owners: the uid of each owner's jobs.
        budgets: the use of projects in this month, if one has a budget.
        reservations: by name.
        statuses: how many jobs have each status.
        outside: ids of the jobs that the engine does not know, in no meaningful order.
    """

    engine: EngineView
    leases: LiveLeases
    jobs: JobBook
    nodes: NodeBook
    knowledge: Knowledge
    policy: PolicyInForce
    settings: ControlSettings
    term: int
    images: Mapping[str, tuple[DesiredImage, ...]] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    budgets: Budgets = field(default_factory=Budgets)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    statuses: Counter[JobStatus] = field(default_factory=Counter)
    outside: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, state: ControlState) -> PublishedState:
        """Return a view of the whole state."""
        view = cls(
            engine=EngineView.of(state.engine),
            leases=LiveLeases(),
            jobs=JobBook(),
            nodes=NodeBook(),
            knowledge=state.knowledge,
            policy=copy.copy(state.policy),
            settings=state.settings,
            term=state.term,
            images=state.images,
            owners=replace(state.owners),
        )
        state.jobs.changed.update(state.jobs.by_id)
        state.leases.touched.update(state.leases.by_id)
        state.nodes.touched.update(state.nodes.by_name)
        view.bring_forward(state)
        return view

    def bring_forward(self, state: ControlState, *, engine: bool = True) -> None:
        """Copy what has changed since the last call.

        Args:
            state: control's state; its notes of changes are emptied.
            engine: whether the engine has been called since.
        """
        if engine:
            self.engine = EngineView.of(state.engine, self.engine)
        self.policy, self.images = copy.copy(state.policy), state.images
        self.owners = replace(state.owners)
        if state.budgets.since_s is not None:
            self.budgets = state.budgets.copied()
        self.reservations = state.reservations
        self._copy_jobs(state.jobs)
        self._copy_leases(state.leases)
        self.nodes.approved = state.nodes.approved
        for name in state.nodes.touched:
            node = state.nodes.by_name.get(name)
            if node is None:
                self.nodes.by_name.pop(name, None)
            else:
                self.nodes.by_name[name] = node_twin(node)
        state.nodes.touched.clear()

    def _copy_jobs(self, jobs: JobBook) -> None:
        for job_id in jobs.changed:
            record, before = jobs.by_id.get(job_id), self.jobs.by_id.get(job_id)
            if before is not None:
                self.statuses[before.status] -= 1
            if record is None:
                self.jobs.by_id.pop(job_id, None)
            else:
                self.jobs.by_id[job_id] = job_twin(record)
                self.statuses[record.status] += 1
            if record is not None and record.blocked_on is not None:
                self.outside[job_id] = None
            else:
                self.outside.pop(job_id, None)
        jobs.changed.clear()
        self.jobs.limits, self.jobs.active = dict(jobs.limits), dict(jobs.active)
        self.jobs.admitted, self.jobs.stopped = dict(jobs.admitted), jobs.stopped

    def _copy_leases(self, leases: LiveLeases) -> None:
        for lease_id in leases.touched:
            live = leases.by_id.get(lease_id)
            if live is None:
                self.leases.end(lease_id)
                continue
            twin = lease_twin(live)
            self.leases.note_use(twin)
            if lease_id in self.leases.by_id:
                self.leases.by_id[lease_id] = twin
            else:
                self.leases.grant(twin)
        for lease_id in leases.extended - leases.touched:
            live, seen = leases.by_id.get(lease_id), self.leases.by_id.get(lease_id)
            if live is not None and seen is not None:
                seen.deadline_s, seen.promised_s = live.deadline_s, live.promised_s
        for lease_id in leases.stepped - leases.touched:
            live, seen = leases.by_id.get(lease_id), self.leases.by_id.get(lease_id)
            if live is not None and seen is not None:
                self.leases.follow_steps(live, seen)
        for noted in (leases.touched, leases.extended, leases.stepped):
            noted.clear()
        self.leases.touched.clear()
        self.leases.changed.clear()
