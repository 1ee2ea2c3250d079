"""The most progress per dollar, under deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from policies.base import Policy
from policies.families import FamilyAnswer, WeightedSum
from policies.greedy import best_throughput
from policies.parameters import parameter
from policies.program import solve
from policies.solving.classes import NOISE, ClassProblem
from policies.solving.family import solve_family
from policies.terms import Terms

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import BoolArray, FloatArray
    from scheduler.domain.problem import Problem

#: A free worker counts as this share of the dearest, so that progress per dollar stays finite.
FREE = 1e-3
#: The ratio is taken this much below its optimum, so that everything that attains it runs.
SLACK = 1e-6
#: Dinkelbach's method converges superlinearly; 5 to 8 steps are usual.
STEPS = 50


@dataclass(frozen=True, kw_only=True)
class MinCost(Policy):
    """Make the most progress per dollar, and keep deadlines.

    Program: maximise (sum over m of w_m thr(m, X) / n_m) / (sum over k of price_k * workers of type
    k in use), where thr(m, X) >= remaining_m / time left for jobs with a deadline. The
    linear-fractional program is solved exactly (Dinkelbach 1967); among its optima the one that
    does the most work is taken, so that workers idle only where using them would lower the ratio.
    These stay idle, and cost nothing: they serve no waiting job, unless nothing has a price or the
    job's deadline is missed already.

    ``normaliser=cost`` divides a job's throughput by its best throughput per dollar: each job then
    runs where it is cheapest, and elsewhere only for its deadline. ``none`` adds up steps of
    unlike jobs as Gavel does; then only the jobs with the most steps per dollar run until they are
    done.

    Deadlines are aimed at two rounds (and a restart) ahead of time where that can be, since what a
    job receives may be so far behind X. They are elastic: those that cannot be met together fall
    short by the least sum of relative shortfalls, and a warning names each such job. Prices of 0
    count as 1/1000 of the dearest; if all are 0, every worker counts as 1 USD per hour, and a
    warning says so.

    Source: Gavel (Narayanan et al., OSDI 2020, section 4.2, minimising cost under SLOs).
    """

    name: ClassVar[str] = "min_cost"
    time_dependent: ClassVar[bool] = True

    normaliser: str = parameter(
        "cost",
        choices=("cost", "none"),
        help="What a job's throughput is divided by: its best steps per dollar, or nothing.",
    )
    slack: float = parameter(
        0.0,
        ge=0.0,
        lt=1.0,
        help="Share of the best ratio that may be given up to keep more workers busy.",
    )
    deadlines: bool = parameter(True, help="Whether jobs' deadlines constrain the allocation.")

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        price, notes = _prices(problem)
        required, late = _required(problem)
        early = _required_early(problem)
        if not self.deadlines:
            required, early, late = np.zeros(problem.jobs), np.zeros(problem.jobs), ()
        classes = ClassProblem.build(problem, (required, early))
        terms = Terms(classes=classes, policy=self.name, rows=np.arange(classes.size))
        floor, missed = _attainable(terms, classes.of_jobs(required), classes.of_jobs(early))
        short = _warnings(classes, classes.of_jobs(required), floor / (1.0 - SLACK), missed)
        costs = _Costs(classes, price)
        fraction = _Fraction(
            coefficient=self._coefficient(classes, costs), costs=costs, floor=floor
        )
        ratio, answer = fraction.best()
        if self.slack > 0:
            answer = fraction.best_at(ratio * (1.0 - self.slack))
            ratio = fraction.value(answer)
        return classes.expand(
            answer.x,
            answer.pair_x,
            objective=ratio,
            solver=answer.solver,
            warnings=(*notes, *late, *short, *answer.warnings),
            x_only=None if notes else _content(problem, classes, missed, bool(late)),
        )

    def _coefficient(self, classes: ClassProblem, costs: _Costs) -> FloatArray:
        """Return (M,) what a step/s of a class counts in the numerator."""
        weight = classes.of_jobs(classes.problem.weight)
        if self.normaliser == "none":
            return weight
        per_usd = np.where(classes.usable, classes.throughput / costs.single, 0.0)
        best = per_usd.max(axis=1, initial=0.0)
        return weight / np.where(best > 0, best, np.inf)


class _Costs:
    """USD per hour of single and pair configurations.

    Attributes:
        classes: the classes.
        single: (M, J) of one job in each configuration; 1 in the padding.
        pair: (P,) of one job pair.
    """

    def __init__(self, classes: ClassProblem, price: FloatArray) -> None:
        self.classes = classes
        held = classes.demand[:, :, : classes.types] @ price
        self.single = np.where(held > 0, held, 1.0)
        self.pair = classes.pair_demand[:, : classes.types] @ price

    def of(self, answer: FamilyAnswer) -> float:
        """Return USD per hour of an allocation."""
        singles = float(self.classes.count @ (self.single * answer.x).sum(axis=1))
        return singles + float(self.pair @ answer.pair_x)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fraction:
    """Progress over cost.

    Attributes:
        coefficient: (M,) what a step/s of one job counts.
        costs: the denominator.
        floor: (M,) steps/s that a job must reach, or 0.
    """

    coefficient: FloatArray
    costs: _Costs
    floor: FloatArray

    def best(self) -> tuple[float, FamilyAnswer]:
        """Maximise the ratio; return it and an allocation that attains it."""
        ratio = 0.0
        for _ in range(STEPS):
            answer = self.best_at(ratio * (1.0 - SLACK))
            reached = self.value(answer)
            if reached - ratio <= SLACK * reached:
                break
            ratio = reached
        return max(ratio, reached), answer

    def best_at(self, ratio: float) -> FamilyAnswer:
        """Maximise progress - ratio * cost."""
        family = WeightedSum(
            coefficient=self.coefficient,
            cost=ratio * self.costs.single,
            pair_cost=ratio * self.costs.pair,
            required=self.floor,
        )
        return solve_family(family, self.costs.classes)

    def value(self, answer: FamilyAnswer) -> float:
        """Return progress over cost; 0 where nothing can run."""
        classes = self.costs.classes
        thr = classes.effective_throughput(answer.x, answer.pair_x)
        cost = self.costs.of(answer)
        return float((self.coefficient * classes.count) @ thr) / cost if cost > 0 else 0.0


def _prices(problem: Problem) -> tuple[FloatArray, tuple[str, ...]]:
    """Return (K,) prices > 0, and what had to be assumed."""
    price = problem.cost_usd_per_hour.astype(float)
    dearest = float(price.max(initial=0.0))
    if dearest > 0:
        return np.maximum(price, FREE * dearest), ()
    note = (
        "no worker type has a price: every worker counts as 1 USD per hour; set cost_usd_per_hour"
    )
    return np.ones(len(price)), (note,)


def _required(problem: Problem) -> tuple[FloatArray, tuple[str, ...]]:
    """Return (N,) steps/s that meet the deadlines, 0 without one, and which are past."""
    left = problem.time_left_s
    ahead = np.isfinite(left) & (left > 0)
    required = np.where(ahead, problem.remaining_steps / np.where(ahead, left, 1.0), 0.0)
    past = problem.job_number[left <= 0]
    warnings = tuple(f"job {n}: its deadline has passed" for n in past)
    return required, warnings


def _required_early(problem: Problem) -> FloatArray:
    """Return (N,) steps/s that meet the deadlines in spite of what rounds may be behind X."""
    left = problem.time_left_s
    margin = 2.0 * problem.round_length_s + problem.restart_s
    fastest = np.minimum(problem.remaining_steps / best_throughput(problem).clip(min=1e-300), left)
    aim = np.maximum(left - margin, fastest)
    ahead = np.isfinite(left) & (left > 0)
    return np.where(ahead, problem.remaining_steps / np.where(ahead, aim, 1.0), 0.0)


def _attainable(
    terms: Terms, required: FloatArray, early: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return (M,) floors that can be met together, and (M,) whose deadlines cannot.

    Args:
        terms: over all classes.
        required: (M,) steps/s that meet the deadlines; 0 without one.
        early: (M,) steps/s to aim at, at least as much.
    """
    able = terms.classes.usable.any(axis=1)
    asked, aimed = np.where(able, required, 0.0), np.where(able, early, 0.0)
    if not (asked > 0).any():
        return asked, np.zeros(len(asked), dtype=bool)
    reached = _least_shortfall(terms, aimed)
    missed = reached < asked * (1.0 - SLACK)
    if missed.any():
        exact = _least_shortfall(terms, asked)
        hopeless = exact < asked * (1.0 - SLACK)
        if (missed & ~hopeless).any():  # who aims early takes it from them
            reached, aimed, missed = exact, asked, hopeless
    return np.minimum(aimed, reached) * (1.0 - SLACK), missed


def _warnings(
    classes: ClassProblem, required: FloatArray, reached: FloatArray, missed: BoolArray
) -> tuple[str, ...]:
    """Name the jobs whose deadlines cannot be met."""
    return tuple(
        f"job {n}: its deadline cannot be met; it needs {required[m]:.6g} steps/s and can have "
        f"{reached[m]:.6g}"
        for m in np.flatnonzero(missed)
        for n in classes.problem.job_number[classes.class_of == m]
    )


def _content(problem: Problem, classes: ClassProblem, missed: BoolArray, passed: bool) -> BoolArray:
    """Return (N,) the jobs for which X is enough: all but those that miss their deadline."""
    content: BoolArray = ~missed[classes.class_of]
    return content & (problem.time_left_s > 0) if passed else content


def _least_shortfall(terms: Terms, asked: FloatArray) -> FloatArray:
    """Return (M,) steps/s when the sum of weighted relative shortfalls is least."""
    import cvxpy as cp  # noqa: PLC0415  takes a second to import

    need = asked / np.where(asked > 0, terms.classes.fastest, 1.0)
    rows = np.flatnonzero(need > NOISE)  # whoever needs less can always have it
    if not len(rows):
        return asked
    due = Terms(classes=terms.classes, policy=terms.policy, rows=rows)
    missing = cp.Variable(len(rows), nonneg=True)
    kept: Any = cp.multiply(1.0 / asked[rows], due.throughput) + missing >= 1.0
    solve(due, cp.Minimize((due.weight * due.count) @ missing), [kept])
    reached = np.where(need > NOISE, 0.0, asked)
    reached[rows] = due.throughput.value
    return reached
