"""Orders of operators: nodes, policies, projects, throughputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scheduler.control.facts.requests import NodeAction, PolicyChoice
from scheduler.control.nodes.health import drop_evidence
from scheduler.control.nodes.silence import apply_order
from scheduler.control.projects.budgets import has_budget
from scheduler.control.projects.rules import limits_to_json
from scheduler.control.state.state import PolicyInForce
from scheduler.domain.facts import events as ev
from scheduler.domain.problem import Entity
from scheduler.domain.throughputs.knowledge import Part
from scheduler.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from scheduler.control.facts.facts import (
        NodeOrdered,
        NodeRemoved,
        PolicySet,
        ProjectSet,
        ThroughputsDeclared,
        ThroughputsForgotten,
    )
    from scheduler.control.facts.requests import ProjectLimits
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState

#: The policy parameter that asks for the recent use of entities.
HALF_LIFE: Final = "usage_half_life_s"


def node_of(state: ControlState | PublishedState, name: str) -> NodeState:
    """Return a node.

    Raises:
        NotFoundError: no node has that name.
    """
    node = state.nodes.by_name.get(name)
    if node is None:
        raise NotFoundError(f"there is no node '{name}'")
    return node


def order_node(state: ControlState, transaction: Transaction, fact: NodeOrdered) -> None:
    """Cordon, drain or uncordon a node; the order survives restarts of control and agent."""
    name, action, reason, actor = fact.node, fact.action, fact.reason, fact.actor
    node = node_of(state, name)
    state.nodes.touch(name)
    if action is NodeAction.UNCORDON:
        node.order, node.reason = None, ""
        drop_evidence(state, transaction, node, actor=actor)
        transaction.set(f"node/{name}", None, actor=actor)
    else:
        reason = reason or node.reason  # of the order before
        node.order, node.reason, node.drained = action, reason, False
        transaction.set(f"node/{name}", node.order_to_data(), actor=actor)
    apply_order(transaction, node)
    transaction.record_event(f"node_{action.value}", "node", name, actor=actor, reason=reason)


def note_drained(state: ControlState, transaction: Transaction) -> None:
    """Record that the last lease of a drained node is over; once for each order."""
    for node in state.nodes.by_name.values():
        if (
            node.order is not NodeAction.DRAIN
            or node.drained
            or any(state.leases.held_by(node.name))
        ):
            continue
        node.drained = True
        state.nodes.touch(node.name)
        transaction.set(f"node/{node.name}", node.order_to_data())
        transaction.record_event("node_drained", "node", node.name, reason=node.reason)


def remove_node(state: ControlState, transaction: Transaction, fact: NodeRemoved) -> None:
    """Remove a node that is lost and holds no leases.

    Raises:
        NotFoundError: no node has that name.
        ConflictError: the node holds leases, or still reports.
    """
    name, actor = fact.node, fact.actor
    node = node_of(state, name)
    if any(state.leases.held_by(name)):
        raise ConflictError(f"node '{name}' holds leases; drain it and wait until they have ended")
    if not node.lost and node.last_seen_s is not None:
        raise ConflictError(
            f"node '{name}' still reports; stop its agent, wait until it counts as lost "
            f"({state.settings.node_timeout_s:g} s), and try again"
        )
    transaction.emit(ev.WorkersRetired(workers=node.workers))
    transaction.set(f"node/{name}", None, actor=actor)
    transaction.set(f"lost/{name}", None, actor=actor)
    transaction.set(f"exclusive/{name}", None, actor=actor)
    transaction.set(f"agent/{name}", None, actor=actor)
    transaction.set(f"doubt/{name}", None, actor=actor)
    transaction.set(f"indices/{name}", None, actor=actor)  # approved workers stay approved
    transaction.record_event("node_removed", "node", name, actor=actor)
    transaction.removed.append(name)


def set_policy(state: ControlState, transaction: Transaction, fact: PolicySet) -> None:
    """Put a policy in force; it answers the next question."""
    choice, actor = fact.choice, fact.actor
    state.time_dependent = fact.time_dependent
    before = state.policy.choice
    state.policy = PolicyInForce(
        choice=choice,
        since_s=transaction.now_s,
        actor=actor,
        newest_number=state.policy.newest_number,  # the allocation in force is still the old one
    )
    kind_of_table = choice.agnostic, choice.space_sharing
    state.table_due |= kind_of_table != (before.agnostic, before.space_sharing)
    transaction.set("policy", policy_to_json(choice), actor=actor)
    ask_policy(state, transaction)
    transaction.record_event(
        "policy_changed",
        "policy",
        choice.name,
        actor=actor,
        before=before.name,
        parameters=dict(choice.parameters),
        agnostic=choice.agnostic,
        space_sharing=choice.space_sharing,
        **_options_before(before),
    )


def _options_before(before: PolicyChoice) -> dict[str, object]:
    """Return the options of the previous policy that are neither empty nor false."""
    options = policy_to_json(before)
    del options["name"]
    return {f"before_{name}": value for name, value in options.items() if value}


def ask_policy(state: ControlState, transaction: Transaction) -> None:
    """Let the engine ask the policy in force, and store that policy as the one last asked."""
    choice = state.policy.choice
    dependent = state.time_dependent
    if dependent is None:  # the stored policy may be a missing plugin; every question fails
        dependent = state.engine.time_dependent
    transaction.emit(
        ev.PolicyChanged(
            policy=choice.name,
            time_dependent=dependent,
            record=False,
            usage_half_life_s=half_life_of(choice),
        )
    )
    transaction.set("asked", policy_to_json(choice))
    state.asked = choice


def half_life_of(choice: PolicyChoice) -> float:
    """Return the half-life of the recorded use of entities; 0 if the policy sets none.

    The policy sets it by a parameter of this name, its own or one of a policy inside it.
    """
    for name, text in choice.parameters.items():
        if name.rpartition(".")[2] == HALF_LIFE:
            try:
                half_life_s = float(text)
            except ValueError:  # a stored choice that the policy itself refuses
                return 0.0
            return half_life_s if math.isfinite(half_life_s) and half_life_s > 0 else 0.0
    return 0.0


def policy_to_json(choice: PolicyChoice) -> dict[str, object]:
    """Return a choice as plain values; ``PolicyChoice(**values)`` reverses it."""
    return {
        "name": choice.name,
        "parameters": dict(choice.parameters),
        "agnostic": choice.agnostic,
        "space_sharing": choice.space_sharing,
    }


def set_project(state: ControlState, transaction: Transaction, fact: ProjectSet) -> float | None:
    """Set a project's limits; the engine receives its quotas with the next decision.

    Returns:
        See ``ProjectSet``.
    """
    limits, actor = fact.limits, fact.actor
    state.jobs.limits[limits.project] = limits
    state.jobs.recheck = True
    transaction.set(f"project/{limits.project}", limits_to_json(limits), actor=actor)
    entity = Entity(name=limits.project, weight=limits.weight, policy=limits.inner_policy)
    transaction.emit(ev.EntityChanged(entity=entity))
    transaction.record_event(
        "project_changed", "project", limits.project, actor=actor, **_changes(limits)
    )
    budgets = state.budgets
    if has_budget(limits) and budgets.since_s is None:
        budgets.begin(max(transaction.now_s, state.engine.now_s))
    budgets.due = budgets.since_s is not None
    return None if budgets.counted else budgets.since_s


def _changes(limits: ProjectLimits) -> dict[str, object]:
    return {name: value for name, value in limits_to_json(limits).items() if name != "project"}


def declare_throughputs(
    state: ControlState, transaction: Transaction, fact: ThroughputsDeclared
) -> int:
    """Declare throughputs; returns how many of them changed anything.

    Raises:
        InputError: a figure is out of range; none was stored.
    """
    changed = sum(state.knowledge.declare(*figure, keep=True) for figure in fact.figures)
    state.estimates_due |= changed > 0
    pairs = sum(state.knowledge.declare_sharing(*pair) for pair in fact.pairs)
    if pairs:
        transaction.set(Part.SHARING.value, state.knowledge.dump(Part.SHARING))
    news = changed + pairs
    state.table_due |= news > 0
    if news:
        transaction.record_event(
            "throughputs_declared", "throughputs", "", actor=fact.actor, figures=news
        )
    return news


def forget_throughputs(
    state: ControlState, transaction: Transaction, fact: ThroughputsForgotten
) -> int:
    """Forget the throughputs of a job type; returns how many there were.

    Raises:
        NotFoundError: no throughput of the job type is known.
    """
    figures = state.knowledge.forget(fact.job_type)
    if not figures:
        raise NotFoundError(f"no throughput of job type '{fact.job_type}' is known")
    state.table_due = state.estimates_due = state.batches_due = state.mixed_due = True
    transaction.set(Part.PLANS.value, state.knowledge.dump(Part.PLANS))
    transaction.record_event(
        "throughputs_forgotten", "throughputs", fact.job_type, actor=fact.actor, figures=figures
    )
    return figures
