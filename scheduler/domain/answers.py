"""Questions to policies and their answers, and whether an answer can be put to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from scheduler.domain.allocation import Allocation
from scheduler.domain.configuration import ConfigurationTable
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem

#: A policy by name and (name, text) of each parameter, sorted.
PolicyKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]

#: By how much an answer may break a bound: beyond solvers' noise, below a worker in a thousand.
_TOLERANCE = 1e-3
#: In place of a table that the other end has already.
_NO_TABLE = ConfigurationTable.build((), ())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """An answer.

    Attributes:
        allocation: it fits the problem that was asked.
        solve_s: seconds that the policy took.
    """

    allocation: Allocation
    solve_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A message to the process; if ``problem`` is None, it asks to get ready for that policy."""

    policy: PolicyKey
    problem: Problem | None


class TableOnce:
    """Sends a configuration table once over a connection with many questions in a row.

    Tables change far less often than questions are asked, and are most of what these weigh. Each
    end of the line has one; a new line needs new ones.
    """

    def __init__(self) -> None:
        self._table: ConfigurationTable | None = None

    def packed(self, question: Question) -> tuple[Question, bool]:
        """Return a question as it is to be sent, and whether its table is the last one."""
        problem = question.problem
        if problem is None:
            return question, False
        if problem.table is self._table:
            return replace(question, problem=replace(problem, table=_NO_TABLE)), True
        self._table = problem.table
        return question, False

    def unpacked(self, question: Question, again: bool) -> Question:
        """Return a question as it was asked; its table cannot be written to."""
        problem = question.problem
        if problem is None:
            return question
        if again and self._table is not None:
            return replace(question, problem=replace(problem, table=self._table))
        self._table = problem.table
        self._table.protect()
        return question


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reply if there is no answer."""

    reason: str


def check_answer(problem: Problem, answer: Allocation) -> None:
    """Make sure that an answer can be put to use.

    Raises:
        SolveError: it is no allocation, has another shape, or breaks a bound.
    """
    if not isinstance(answer, Allocation):
        raise SolveError(f"its answer is a {type(answer).__name__} and not an Allocation")
    for name in ("x", "pair_x"):
        if not isinstance(part := getattr(answer, name), np.ndarray):
            raise SolveError(f"the field {name} of its answer is a {type(part).__name__}, no array")
    if answer.x.shape != problem.throughput.shape:
        raise SolveError(
            f"its answer has the shape {answer.x.shape}; the problem asks for "
            f"{problem.throughput.shape}"
        )
    fractions = np.concatenate([answer.x.ravel(), answer.pair_x])
    if not np.isfinite(fractions).all():
        raise SolveError("its answer holds fractions that are not numbers")
    if fractions.min(initial=0.0) < -_TOLERANCE:
        raise SolveError(f"its answer holds the negative fraction {fractions.min()}")
    if answer.time_fraction().max(initial=0.0) > 1 + _TOLERANCE:
        raise SolveError(
            f"its answer gives a job {answer.time_fraction().max()} of the time, more than all"
        )
    over = answer.usage(problem) - problem.capacity * (1 + _TOLERANCE)
    if over.max(initial=0.0) > _TOLERANCE:
        k = int(over.argmax())
        raise SolveError(
            f"its answer uses {answer.usage(problem)[k]} workers of type "
            f"'{problem.table.worker_types[k]}', and {problem.capacity[k]} are in service"
        )
