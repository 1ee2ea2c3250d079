"""Categories of lease ends, and how many of each a job may have.

The engine counts a job's own failures, out of memory among them (``max_failures``). The other
categories are unlimited unless the job sets a limit; those limits are counted here.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import ASKED_FOR, EndReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.domain.jobs.spec import JobSpec


class Category(enum.StrEnum):
    """Why a lease ended before its job was complete."""

    USER_ERROR = "user_error"  #: the job itself failed
    OUT_OF_MEMORY = "out_of_memory"
    IMAGE = "image"  #: its image could not be pulled
    NODE_FAULT = "node_fault"  #: its node, or software on the node, failed or fell silent
    PREEMPTION = "preemption"  #: it was made to leave


#: The job field that limits each category; the engine counts ``max_failures``.
BUDGETS: Final[Mapping[Category, str]] = MappingProxyType(
    {
        Category.OUT_OF_MEMORY: "max_out_of_memory",
        Category.IMAGE: "max_image_failures",
        Category.NODE_FAULT: "max_node_faults",
        Category.PREEMPTION: "max_preemptions",
    }
)
_IMAGE: Final = frozenset({Trouble.IMAGE, Trouble.IMAGE_NAME})


def category_of(reason: EndReason, trouble: Trouble | None) -> Category | None:
    """Return the category of a lease's end; None if its job was complete, cancelled, or just left.

    Args:
        reason: how its processes ended.
        trouble: the trouble with its pod or its node, if it is known.
    """
    if reason in {EndReason.COMPLETED, EndReason.CANCELLED}:
        return None
    if reason is EndReason.OOM or trouble is Trouble.OUT_OF_MEMORY:
        return Category.OUT_OF_MEMORY
    if trouble in _IMAGE:
        return Category.IMAGE
    if reason is EndReason.RELEASED:
        return None if trouble is Trouble.LEFT_UNASKED else Category.PREEMPTION
    return Category.USER_ERROR if reason is EndReason.FAILED else Category.NODE_FAULT


def budget_of(spec: JobSpec, category: Category) -> int | None:
    """Return how many ends of a category a job may have; None if this module sets no limit."""
    name = BUDGETS.get(category)
    found: int | None = None if name is None else getattr(spec, name)
    return found


def spend_retry(
    state: ControlState,
    transaction: Transaction,
    record: JobRecord,
    category: Category | None,
    *,
    revoked: str = "",
) -> None:
    """Count an end of a lease against the job's limit; one too many ends the job as failed."""
    if category is None or revoked in ASKED_FOR or record.forced_end is not None:
        return
    most = budget_of(record.spec, category)
    if most is None:
        return
    spent = record.spent.get(category.value, 0) + 1
    record.spent = {**record.spent, category.value: spent}  # a new one: copies share the old
    transaction.set(f"spent/{record.job_id}", dict(record.spent))
    state.jobs.changed.add(record.job_id)
    if spent > most:
        record.forced_end = (JobStatus.FAILED, f"too_many_{category.value}")
        cause = Cause(fact=FactKind.RETRIES_SPENT, subject=record.job_id)
        transaction.give_reason(cause, job=record.job_id)
        transaction.emit(ev.JobCancelled(job_id=record.job_id))


def retries_in_words(record: JobRecord) -> str:
    """Return the used part of a job's retry limits as text; empty if none is used."""
    counts = ((Category(name), count) for name, count in record.spent.items())
    said = [
        f"{category.value.replace('_', ' ')} {count} of {budget_of(record.spec, category)}"
        for category, count in counts
    ]
    return f"; retries used: {', '.join(said)}" if said else ""
