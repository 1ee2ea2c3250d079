"""The inventory of a node: its approved workers; it refuses other workers that it reports.

The approved workers come from an enrolment, from an operator, or else from the first report of an
enrolled agent. Of each type a report adds as many workers as are approved, in the order of their
local indices. The others are neither numbered nor granted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler.errors import InputError
from scheduler.protocol.bounds import LONGEST_WORD, MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.facts import NodeReported, WorkersApproved
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState

#: The most worker types that a message names.
MOST_TOLD: Final = 16
#: The name for all further types.
OTHERS: Final = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedWorkers:
    """The accepted workers of a node's report.

    Attributes:
        types: (n,) their worker types.
        indices: (n,) their local indices on the node; empty if these are 0, 1, ..., n - 1.
        refused: worker type -> how many are refused.
    """

    types: tuple[str, ...]
    indices: tuple[int, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)


def inventory_of(state: ControlState | PublishedState, fact: NodeReported) -> AcceptedWorkers:
    """Return the accepted workers of a report."""
    workers = fact.report.workers
    approved = state.nodes.approved.get(fact.report.node)
    if approved is None:
        return AcceptedWorkers(types=tuple(worker.worker_type for worker in workers))
    left, taken = dict(approved), []
    refused: Counter[str] = Counter()
    for worker in workers:
        if left.get(worker.worker_type, 0) > 0:
            left[worker.worker_type] -= 1
            taken.append(worker)
        else:
            refused[worker.worker_type] += 1
    indices = tuple(worker.index for worker in taken)
    return AcceptedWorkers(
        types=tuple(worker.worker_type for worker in taken),
        indices=() if indices == tuple(range(len(indices))) else indices,
        refused=_few(refused),
    )


def check_inventory(
    state: ControlState, transaction: Transaction, fact: NodeReported, inventory: AcceptedWorkers
) -> None:
    """Approve the first report of an enrolled agent, and report refused workers.

    Called once the report has passed all checks.
    """
    name = fact.report.node
    node = state.nodes.by_name.get(name)
    before = () if node is None else node.indices
    if inventory.indices != before:
        transaction.set(f"indices/{name}", list(inventory.indices) or None)
    first = Counter(inventory.types)
    if fact.enrolled and first and name not in state.nodes.approved:
        _approve(state, transaction, name, first)
        transaction.record_event(
            "workers_approved", "node", name, approved=_few(first), by="first_report"
        )
    told = {} if node is None else node.refused
    if (
        inventory.refused
        and inventory.refused != told
        and state.nodes.may_tell(name, transaction.now_s)
    ):
        approved = state.nodes.approved[name]
        transaction.record_event(
            "workers_refused", "node", name, refused=inventory.refused, approved=_few(approved)
        )
        transaction.warnings.append(
            f"node '{name}' reports workers beyond those that are approved: "
            f"{in_words(inventory.refused)}; they are refused, and `leasehold approve {name}` "
            "takes them"
        )


def approve_workers(state: ControlState, transaction: Transaction, fact: WorkersApproved) -> None:
    """Set the approved workers of a node; its next report is checked against them.

    Raises:
        InputError: a count or a type is out of range.
    """
    for worker_type, count in fact.workers.items():
        if not 0 < len(worker_type) <= LONGEST_WORD or not 0 <= count <= MOST_WORKERS:
            raise InputError(
                f"{count} workers of type '{worker_type}' cannot be approved; give a type and a "
                f"count from 0 to {MOST_WORKERS}"
            )
    approved = {name: count for name, count in sorted(fact.workers.items()) if count}
    if state.nodes.approved.get(fact.node) == approved:
        return
    _approve(state, transaction, fact.node, approved, actor=fact.actor)
    transaction.record_event(
        "workers_approved", "node", fact.node, actor=fact.actor, approved=approved, by=fact.by
    )


def in_words(workers: Mapping[str, int]) -> str:
    """Return worker types and counts as text."""
    return " ".join(f"{name}:{count}" for name, count in workers.items()) or "none"


def _approve(
    state: ControlState,
    transaction: Transaction,
    name: str,
    approved: Mapping[str, int],
    *,
    actor: str = "",
) -> None:
    # A new mapping each time: the view shares it.
    state.nodes.approved = {**state.nodes.approved, name: dict(approved)}
    transaction.set(f"approved/{name}", dict(approved), actor=actor)
    state.nodes.forget_told(name)
    state.nodes.touch(name)


def _few(workers: Mapping[str, int]) -> dict[str, int]:
    """Return counts by type; types after the first ``MOST_TOLD`` are counted together."""
    named = dict(list(workers.items())[:MOST_TOLD])
    others = sum(workers.values()) - sum(named.values())
    return named | ({OTHERS: others} if others else {})
