"""A copy of control's state at one moment, for shells that forecast.

The law: a control made from a copy decides the same on the same further facts as the original. Left
out: values that are only shown, clients' keys for repeated requests, and how often nodes have
changed their workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scheduler.control.state.jobs import JobBook
from scheduler.control.state.leases import LiveLeases
from scheduler.control.state.nodes import NodeBook
from scheduler.control.state.record_copies import job_twin, lease_twin
from scheduler.control.state.state import ControlState
from scheduler.domain.throughputs.knowledge import Part
from scheduler.engine.snapshot import dump, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.requests import PolicyChoice, ProjectLimits
    from scheduler.control.state.budget_state import Budgets
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.node_evidence import NodeHealth
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.owners import Owners
    from scheduler.control.state.settings import ControlSettings
    from scheduler.control.state.state import PolicyInForce
    from scheduler.domain.facts.commands import ComputeAllocation
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.throughputs.knowledge import Knowledge
    from scheduler.engine.snapshot import EngineState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ControlCopy:
    """Control's state at one moment; later decisions do not change it.

    Attributes:
        engine: its part.
        leases: in force, by id.
        timers: the engine's.
        question: the engine's open question, or None.
        jobs: the active ones, in the order of the book.
        recheck: whether a parked job may now be fit to run.
        next_number: of the next job.
        limits: project -> its limits.
        nodes: the known ones.
        approved: node -> worker type -> how many it may have.
        knowledge: part -> its dump.
        policy: in force, without its answer.
        asked: the policy that gave the answer in force, or that is asked.
        time_dependent: whether the policy's answers change as time passes.
        settings: of decisions.
        term: the leader's fencing token.
        progress: lease id -> steps that the engine has not received yet.
        due: (table, estimates, launches, batches, mixed gangs): the parts to renew.
        health: the evidence against nodes.
        next_look_s: when leases, nodes and limits are checked next.
        owners: the uid of each owner's jobs.
        budgets: the use of projects in this month.
        stopped: projects that have used up their budgets.
        reservations: by name.
    """

    engine: EngineState
    leases: tuple[LiveLease, ...]
    timers: Mapping[str, float]
    question: ComputeAllocation | None
    jobs: tuple[JobRecord, ...]
    recheck: bool
    next_number: int
    limits: Mapping[str, ProjectLimits]
    nodes: tuple[NodeState, ...]
    approved: Mapping[str, Mapping[str, int]]
    knowledge: Mapping[str, Any]
    policy: PolicyInForce
    asked: PolicyChoice | None
    time_dependent: bool | None
    settings: ControlSettings
    term: int
    progress: Mapping[int, float]
    due: tuple[bool, bool, bool, bool, bool]
    next_look_s: float
    health: NodeHealth
    owners: Owners
    budgets: Budgets
    stopped: frozenset[str]
    reservations: Mapping[str, Reservation]


def copy_of(state: ControlState) -> ControlCopy:
    """Copy control's state between two decisions. Quick: values that never change are shared."""
    jobs = state.jobs
    return ControlCopy(
        engine=dump(state.engine),
        leases=tuple(lease_twin(live) for live in state.leases.by_id.values()),
        timers=dict(state.leases.timers),
        question=state.leases.question,
        jobs=tuple(job_twin(record) for record in jobs.by_id.values()),
        recheck=jobs.recheck,
        next_number=jobs.newest_number + 1,
        limits=dict(jobs.limits),
        nodes=tuple(_node(node) for node in state.nodes.by_name.values()),
        approved=state.nodes.approved,
        knowledge={part: state.knowledge.dump(part) for part in Part},
        policy=replace(state.policy, answer=None, question=None, baseline=None),
        asked=state.asked,
        time_dependent=state.time_dependent,
        settings=state.settings,
        term=state.term,
        progress=dict(state.progress),
        due=(
            *(state.table_due, state.estimates_due, state.launches_due),
            *(state.batches_due, state.mixed_due),
        ),
        next_look_s=state.next_look_s,
        health=state.health.copied(),
        owners=replace(state.owners),
        budgets=state.budgets.copied(),
        stopped=jobs.stopped,
        reservations=state.reservations,
    )


def state_of(copied: ControlCopy, knowledge: Knowledge) -> ControlState:
    """Return the state of a control that continues from a copy, which may be used again.

    Args:
        copied: the result of ``copy_of``.
        knowledge: made from the copy's dump of it.
    """
    table_due, estimates_due, launches_due, batches_due, mixed_due = copied.due
    state = ControlState(
        engine=restore(copied.engine, copied.settings.engine),
        leases=LiveLeases(timers=dict(copied.timers), question=copied.question),
        jobs=JobBook(),
        nodes=NodeBook(),
        knowledge=knowledge,
        policy=replace(copied.policy),
        time_dependent=copied.time_dependent,
        settings=copied.settings,
        term=copied.term,
        progress=dict(copied.progress),
        table_due=table_due,
        estimates_due=estimates_due,
        launches_due=launches_due,
        batches_due=batches_due,
        mixed_due=mixed_due,
        asked=copied.asked,
        next_look_s=copied.next_look_s,
        health=copied.health.copied(),
        owners=replace(copied.owners),
        budgets=copied.budgets.copied(),
        reservations=copied.reservations,
    )
    state.nodes.follow(state.engine.cluster, now_s=copied.engine.now_s)
    state.nodes.by_name = {node.name: _node(node) for node in copied.nodes}
    state.nodes.approved = copied.approved
    for live in copied.leases:
        state.leases.grant(lease_twin(live))
    state.leases.changed.clear()
    _fill(state.jobs, copied)
    for record in copied.jobs:
        if record.spec.model:  # the dump has digests of models alone
            knowledge.profile_of(record.spec, record.job_id)
    return state


def _fill(jobs: JobBook, copied: ControlCopy) -> None:
    jobs.limits.update(copied.limits)
    jobs.stopped = copied.stopped
    jobs.start_numbers_at(copied.next_number)
    for record in copied.jobs:
        jobs.add(job_twin(record))
    jobs.recheck = copied.recheck
    jobs.touched.clear()


def _node(node: NodeState) -> NodeState:
    return replace(node, suspects=list(node.suspects), problems=dict(node.problems))
