"""Programs that are translated for the solver once, and then asked again with other figures.

Two thirds of what cvxpy costs is the translation of a program. A program whose figures are
parameters, and which keeps to cvxpy's rules for them (DPP, "disciplined parametrized programming"),
is translated once per shape. So that jobs may come and go without a translation, a shape has room
for more classes than there are: the rest stand for no job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import cvxpy as cp
import numpy as np

from policies.terms import Terms
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.problem import Entity

#: Room is made in steps of an eighth to a quarter of the classes, and for four at least.
STEPS = 4
#: Programs that are kept.
KEPT = 8


def room_for(classes: int) -> int:
    """Return how many classes a program is made for: 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ..."""
    step = 1
    while classes > 2 * STEPS * step:
        step *= 2
    return max(-(-classes // step) * step, STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What problems have in common that one translation answers.

    Attributes:
        classes: M, with room.
        configurations: J.
        holders: per worker type and binding quota, the configurations that hold any of it.
        types: how many of these are worker types.
        barred: configurations that some class cannot use.
        figures: name, shape and sign of each figure: 1, -1, or 0 where it has both.
    """

    classes: int
    configurations: int
    holders: tuple[tuple[int, ...], ...]
    types: int
    barred: tuple[int, ...]
    figures: tuple[tuple[str, tuple[int, ...], int], ...]

    @classmethod
    def of(cls, terms: Terms) -> Self:
        """Return the shape of terms that have room."""
        held: BoolArray = np.any(terms.classes.demand[terms.rows] > 0, axis=0)
        return cls(
            classes=len(terms.rows),
            configurations=held.shape[0],
            holders=tuple(tuple(np.flatnonzero(column).tolist()) for column in held.T),
            types=terms.classes.types,
            barred=tuple(np.flatnonzero(~terms.classes.usable[terms.rows].all(axis=0)).tolist()),
            figures=tuple(
                (name, np.shape(value), int(np.all(value >= 0)) - int(np.all(value < 0)))
                for name, value in sorted(terms.figures.items())
            ),
        )


class StatedLayout:
    """Variables and parameters of a program that is stated once; see ``layout.Layout``.

    Attributes:
        shape: of its problems.
        figures: parameters, by name.
        time_fraction: (M,) expression, of one job.
        workers: (K,) expression, in use on average.
        cost: scalar expression, USD per hour of the workers in use.
        constraints: what every allocation satisfies.
        defined: variables that stand for expressions, in the order in which they were made.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        m, j, k, types = shape.classes, shape.configurations, len(shape.holders), shape.types
        self._x = x = cp.Variable((m, j), nonneg=True, name="fraction")
        self._rate = cp.Parameter((m, j), nonneg=True)
        self._most = cp.Parameter((m, len(shape.barred)), nonneg=True) if shape.barred else None
        self._full, self._limit = (cp.Parameter(k, nonneg=True) for _ in range(2))
        self._price = cp.Parameter(types, nonneg=True)
        self._held = [cp.Parameter((m, len(of)), nonneg=True) for of in shape.holders if of]
        self.figures = {
            name: cp.Parameter(size, nonneg=sign > 0, nonpos=sign < 0, name=name)
            for name, size, sign in shape.figures
        }
        self.defined: list[tuple[Any, Any]] = []
        self._scaled: dict[str, Any] = {}
        self.time_fraction = cp.sum(x, axis=1)
        held = iter(self._held)
        shares = [
            cp.sum(cp.multiply(next(held), x[:, list(of)])) if of else cp.Constant(0.0)
            for of in shape.holders
        ]
        used = self.define(cp.hstack(shares))
        self.workers = cp.multiply(self._full[:types], used[:types])
        self.cost = self._price @ used[:types]
        self.constraints = [self.time_fraction <= 1, used <= self._limit]
        if self._most is not None:
            self.constraints.append(x[:, list(shape.barred)] <= self._most)

    def define(self, expression: Any) -> Any:
        """Return a variable that equals an expression."""
        variable = cp.Variable(expression.shape)
        self.defined.append((variable, expression))
        return variable

    @cached_property
    def throughput(self) -> Any:
        """(M,) variable, steps/s of one job."""
        return self.define(cp.sum(cp.multiply(self._rate, self._x), axis=1))

    def scaled(self, name: str) -> Any:
        """Return (M,) variable: throughput times a figure, which it takes no variable more for."""
        self._scaled[name] = factor = cp.Parameter(self._x.shape)
        return self.define(cp.sum(cp.multiply(factor, self._x), axis=1))

    def ask(self, terms: Terms) -> None:
        """Set the parameters to a problem's figures."""
        classes, rows = terms.classes, terms.rows
        self._jobs, self._size = rows[: len(rows) - terms.room], classes.usable.shape
        usable = classes.usable[rows]
        self._rate.value = rate = np.where(usable, classes.throughput[rows], 0.0)
        for name, factor in self._scaled.items():
            factor.value = rate * np.reshape(terms.figures[name], (-1, 1))
        if self._most is not None:
            self._most.value = usable[:, list(self.shape.barred)].astype(float)
        full = np.maximum(classes.capacity, 1.0)  # rows of order 1: solver tolerances are absolute
        self._full.value, self._limit.value = full, classes.capacity / full
        self._price.value = classes.problem.cost_usd_per_hour * full[: self.shape.types]
        demand = classes.demand[rows] * (terms.count[:, None] / full)[:, None, :]
        holders = [(k, of) for k, of in enumerate(self.shape.holders) if of]
        for parameter, (k, of) in zip(self._held, holders, strict=True):
            parameter.value = demand[:, list(of), k]
        for name, value in terms.figures.items():
            self.figures[name].value = value

    def fractions(self) -> tuple[FloatArray, FloatArray]:
        """Return (M, J) and (0,) the values of the variables."""
        x = np.zeros(self._size)
        x[self._jobs] = self._x.value[: len(self._jobs)]
        return x, np.zeros(0)

    def assign(self, x: FloatArray, _pair_x: FloatArray) -> None:
        """Set the variables, so that expressions can be evaluated there."""
        value = np.array(self._x.value)
        value[: len(self._jobs)] = x[self._jobs]
        self._x.value = np.clip(value, 0.0, 1.0)
        for variable, expression in self.defined:
            variable.value = expression.value


class StatedTerms(Terms):
    """The terms in which a program is stated once: they have no figures of one problem."""

    def figure(self, name: str) -> Any:
        """Return the parameter of a figure."""
        return self._known({} if self.stated is None else self.stated.figures, name)

    def scaled_throughput(self, name: str) -> Any:
        """Return a variable that equals the product."""
        self.figure(name)
        return None if self.stated is None else self.stated.scaled(name)

    def variable(self, expression: Any) -> Any:
        """Return a variable that equals the expression."""
        return expression if self.stated is None else self.stated.define(expression)

    @property
    def cost(self) -> Any:
        """Scalar expression: USD per hour of the workers in use."""
        return None if self.stated is None else self.stated.cost

    @property
    def count(self) -> FloatArray:
        """Not to be read here."""
        raise self._no_figures()

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Not to be read here."""
        raise self._no_figures()

    @property
    def cost_usd_per_hour(self) -> FloatArray:
        """Not to be read here."""
        raise self._no_figures()

    @property
    def _jobs(self) -> IntArray:
        raise self._no_figures()

    def _no_figures(self) -> SolveError:
        return SolveError(
            f"policy '{self.policy}' reads figures of jobs in its objective or constraints, which "
            "are stated once for many problems because it has 'figures'; read them there, and "
            "use terms.figure(NAME) in the objective"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedProgram:
    """A program that is stated once.

    Attributes:
        program: in cvxpy.
        layout: its variables and parameters.
        problem: why cvxpy translates it each time nevertheless; empty where it does not.
    """

    program: Any
    layout: StatedLayout
    problem: str


class StatedPrograms:
    """The programs of a policy, by the shape of what they answer; the last few are kept."""

    def __init__(self) -> None:
        self._kept: dict[Shape, StatedProgram] = {}

    def ask(self, terms: Terms, state: Callable[[Terms], Any]) -> tuple[Terms, StatedProgram]:
        """Return the program for a problem, its parameters set.

        Args:
            terms: of the problem, with room and figures.
            state: states the program in cvxpy.

        Returns:
            The terms with the program's variables, and the program.
        """
        shape = Shape.of(terms)
        found = self._kept.pop(shape, None) or self._state(terms, shape, state)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[shape] = found  # last is newest
        found.layout.ask(terms)
        return replace(terms, stated=found.layout), found

    def _state(self, terms: Terms, shape: Shape, state: Callable[[Terms], Any]) -> StatedProgram:
        layout = StatedLayout(shape)
        stated = StatedTerms(
            classes=terms.classes, policy=terms.policy, reads=terms.reads, stated=layout
        )
        program = state(stated)
        program = cp.Problem(
            program.objective,
            [*program.constraints, *(variable == value for variable, value in layout.defined)],
        )
        slow = program.is_dcp() and not program.is_dcp(dpp=True)
        problem = (
            f"cvxpy translates the program of '{terms.policy}' for each answer: it multiplies a "
            "figure by an expression that has a figure; use terms.variable(EXPRESSION) there"
        )
        return StatedProgram(program=program, layout=layout, problem=problem if slow else "")
