"""What operators order: nodes, policies, projects, throughputs."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from scheduler.control.housekeeping import apply_order
from scheduler.control.requests import NodeAction, PolicyChoice
from scheduler.control.state import PolicyInForce
from scheduler.domain import events as ev
from scheduler.domain.problem import Entity
from scheduler.errors import ConflictError, NotFoundError, ParameterError, UnknownPolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.draft import Turn
    from scheduler.control.nodes import NodeState
    from scheduler.control.requests import ProjectLimits
    from scheduler.control.state import LiveState


def node_of(state: LiveState, name: str) -> NodeState:
    """Return a node.

    Raises:
        NotFoundError: there is none of that name.
    """
    node = state.nodes.by_name.get(name)
    if node is None:
        raise NotFoundError(f"there is no node '{name}'")
    return node


def order_node(
    state: LiveState, turn: Turn, name: str, action: NodeAction, *, reason: str, actor: str
) -> None:
    """Cordon, drain or uncordon a node; the order outlives restarts of both sides."""
    node = node_of(state, name)
    if action is NodeAction.UNCORDON:
        node.order, node.reason = None, ""
        turn.set(f"node/{name}", None, actor=actor)
    else:
        node.order, node.reason = action, reason
        turn.set(f"node/{name}", {"order": action.value, "reason": reason}, actor=actor)
    apply_order(turn, node)
    turn.note(f"node_{action.value}", "node", name, actor=actor, reason=reason)


def remove_node(state: LiveState, turn: Turn, name: str, *, actor: str) -> None:
    """Forget a node that is lost or drained.

    Raises:
        NotFoundError: there is none of that name.
        ConflictError: leases are on it, or it still reports.
    """
    node = node_of(state, name)
    if any(state.leases.held_by(name)):
        raise ConflictError(f"node '{name}' holds leases; drain it and wait until they have ended")
    if not node.lost and node.last_seen_s is not None:
        raise ConflictError(
            f"node '{name}' still reports; stop its agent, wait until it counts as lost "
            f"({state.settings.node_timeout_s:g} s), and try again"
        )
    turn.tell(ev.WorkersRetired(workers=node.workers))
    turn.set(f"node/{name}", None, actor=actor)
    turn.set(f"lost/{name}", None, actor=actor)
    turn.set(f"exclusive/{name}", None, actor=actor)
    turn.note("node_removed", "node", name, actor=actor)
    turn.after.append(lambda: state.nodes.remove(name))


def set_policy(state: LiveState, turn: Turn, choice: PolicyChoice, *, actor: str) -> None:
    """Put a policy in force from the next question on.

    Raises:
        UnknownPolicyError: there is none of that name.
        ParameterError: a parameter is unknown or wrong.
    """
    state.time_dependent(choice)  # raises where it cannot be used
    before = state.policy.choice
    state.policy = PolicyInForce(
        choice=choice,
        since_s=turn.now_s,
        actor=actor,
        newest_number=state.policy.newest_number,  # the allocation in force is still the old one
    )
    kind_of_table = choice.agnostic, choice.space_sharing
    state.table_due |= kind_of_table != (before.agnostic, before.space_sharing)
    turn.set("policy", policy_to_json(choice), actor=actor)
    ask_policy(state, turn)
    turn.note(
        "policy_changed",
        "policy",
        choice.name,
        actor=actor,
        before=before.name,
        parameters=dict(choice.parameters),
        agnostic=choice.agnostic,
        space_sharing=choice.space_sharing,
    )


def ask_policy(state: LiveState, turn: Turn) -> None:
    """Let the engine ask the policy in force, and note that this is the one that was asked.

    A stored policy may be a plugin that is gone; then every question fails and says so.
    """
    choice = state.policy.choice
    dependent = state.engine.time_dependent
    with contextlib.suppress(UnknownPolicyError, ParameterError):
        dependent = state.time_dependent(choice)
    turn.tell(ev.PolicyChanged(policy=choice.name, time_dependent=dependent, record=False))
    turn.set("asked", policy_to_json(choice))
    state.asked = choice


def policy_to_json(choice: PolicyChoice) -> dict[str, object]:
    """Return a choice as plain values; ``PolicyChoice(**values)`` is the way back."""
    return {
        "name": choice.name,
        "parameters": dict(choice.parameters),
        "agnostic": choice.agnostic,
        "space_sharing": choice.space_sharing,
    }


def set_project(state: LiveState, turn: Turn, limits: ProjectLimits, *, actor: str) -> None:
    """Set a project's limits; jobs that fit now are admitted in the next turn."""
    state.jobs.limits[limits.project] = limits
    state.jobs.recheck = True
    turn.set(f"project/{limits.project}", asdict(limits), actor=actor)
    entity = Entity(name=limits.project, weight=limits.weight, policy=limits.inner_policy)
    turn.tell(ev.EntityChanged(entity=entity))
    turn.note("project_changed", "project", limits.project, actor=actor, **_changes(limits))


def _changes(limits: ProjectLimits) -> dict[str, object]:
    return {name: value for name, value in asdict(limits).items() if name != "project"}


def declare_throughputs(
    state: LiveState, turn: Turn, figures: Sequence[tuple[str, int, str, float]], *, actor: str
) -> int:
    """Declare throughputs; returns how many are news.

    Raises:
        InputError: a figure is out of range; none was taken.
    """
    known = {
        (job_type, scale, worker_type): estimate.declared
        for job_type, scale, worker_type, estimate in state.knowledge.known()
    }
    changed = [f for f in figures if known.get((f[0], f[1], f[2])) != f[3]]
    for figure in changed:
        state.knowledge.declare(*figure)
    state.table_due |= bool(changed)
    state.estimates_due |= bool(changed)
    if changed:
        turn.note("throughputs_declared", "throughputs", "", actor=actor, figures=len(changed))
    return len(changed)
