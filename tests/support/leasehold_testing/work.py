"""A fact that runs a test's function: to spoil a decision, or to look into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from scheduler.control import control

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.control.facts.facts import Fact
    from scheduler.control.state.transaction import Transaction


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    work: Callable[[Transaction], object]
    actor: str = "test"  # the person that gets the decision


def work(does: Callable[[Transaction], object]) -> Fact:
    """Return a fact at which control calls a function, and answers what that returns."""
    return cast("Fact", _Work(does))


cast("dict[type, Any]", control._TAKE)[_Work] = lambda _state, transaction, fact: fact.work(
    transaction
)
