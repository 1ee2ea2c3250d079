"""Every job where its steps are cheapest, under deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from policies.base import Policy
from policies.families import WeightedSum
from policies.greedy import best_throughput
from policies.parameters import parameter
from policies.program import solve
from policies.solving.classes import NOISE, ClassProblem
from policies.solving.family import solve_family
from policies.terms import Terms

if TYPE_CHECKING:
    from policies.solving.answers import FamilyAnswer
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import BoolArray, FloatArray
    from scheduler.domain.problem import Problem

#: A free worker counts as this share of the dearest, so that progress per dollar stays finite.
FREE = 1e-3
#: Gavel's ratio is taken this much below its optimum, so that everything that attains it runs.
SLACK = 1e-6
#: How much more than the job's cheapest, relatively, a step may cost and still count as cheapest.
#: Within it the weights decide which job comes first.
ALIKE = 1e-6
#: Dinkelbach's method converges superlinearly; 5 to 8 steps are usual.
STEPS = 50


@dataclass(frozen=True, kw_only=True)
class MinCost(Policy):
    """Run every job where its steps cost least, and keep deadlines.

    Program: let c_m be the least that a step of job m costs by itself in any configuration that
    fits the cluster and its quotas, and saving(X) = sum over m of c_m thr(m, X) - lambda * (USD per
    hour for workers in use): the cost of the same steps at their cheapest, less their actual cost.
    Maximise the saving, and among the allocations that attain it the sum over m of
    (1 + w_m / max w) c_m thr(m, X), with thr(m, X) >= remaining_m / time left for jobs with a
    deadline. The two are one linear program. Its second part counts a millionth: a configuration in
    which a step costs so little more counts as cheapest. lambda is 1; if jobs may share workers, it
    is the most that (sum over m of c_m thr(m, X)) / (USD per hour) can be, at least 1.

    So a job without a deadline runs on its cheapest workers, as far as there is room: weights
    settle the order there, not whether a worker is used. A job runs elsewhere only for a deadline,
    its own or that of a job it makes room for, at the least extra cost. If jobs may share
    workers, those run that do most per dollar together, and the others when these are done. Workers
    idle only where using them would make steps dearer. These stay idle, and cost nothing: they
    serve no waiting job, unless nothing has a price, the job's deadline is missed already, or
    (without pairs) the job costs the same everywhere. The objective reported is the worth of all
    steps at their cheapest per dollar spent: 1 if all jobs run there, more if sharing saves, less
    if deadlines cost.

    ``normaliser=none`` adds up steps of unlike jobs and maximises them per dollar, as Gavel does:
    (sum over m of w_m thr(m, X)) / (USD per hour), a linear-fractional program solved exactly
    (Dinkelbach 1967). Then only the jobs with the most steps per dollar run until they are done,
    and those with deadlines.

    Deadlines are aimed at two rounds (and a restart) ahead of time if possible, since the time a
    job receives may be so far behind X. They are elastic: those that cannot be met together fall
    short by the least sum over m of w_m (1 - thr(m, X) / what the deadline needs), and a warning
    names each such job. Only what that leaves serves to be ahead of time. Prices of 0
    count as 1/1000 of the dearest; if all are 0, every worker counts as 1 USD per hour, and a
    warning says so.

    Source: the constraints and the ratio are Gavel's (Narayanan et al., OSDI 2020, section 4.2,
    minimising cost under SLOs). A ratio of sums starves jobs without the best ratio; for the
    objective used instead, see docs/adr/0023-cheapest-is-meant-job-by-job.md.
    """

    name: ClassVar[str] = "min_cost"
    time_dependent: ClassVar[bool] = True

    normaliser: str = parameter(
        "cost",
        choices=("cost", "none"),
        help="'cost' runs each job on its cheapest workers; 'none' maximises all steps per dollar.",
    )
    slack: float = parameter(
        0.0,
        ge=0.0,
        lt=1.0,
        help="By which share less progress per dollar still counts as cheapest.",
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
        weight = classes.of_jobs(problem.weight)
        if self.normaliser == "none":
            ratio, answer = _Fraction(classes, costs, floor, weight).best(self.slack)
        else:
            ratio, answer = _Saving(classes, costs, floor, weight).best(self.slack)
        content = _content(problem, classes, missed, bool(late))
        if self.normaliser == "cost" and not len(classes.pair_index):
            content &= ~costs.same_everywhere(self.slack)[classes.class_of]
        return classes.expand(
            answer.x,
            answer.pair_x,
            objective=ratio,
            solver=answer.solver,
            warnings=(*notes, *late, *short, *answer.warnings),
            no_backfill=None if notes or not content.any() else content,
        )


class _Costs:
    """USD per hour of single and pair configurations.

    Attributes:
        classes: the classes.
        single: (M, J) of one job in each configuration; 1 in the padding.
        pair: (P,) of one job pair.
        step: (M,) USD per hour for a step/s at the class's cheapest; 0 if nothing runs it.
    """

    def __init__(self, classes: ClassProblem, price: FloatArray) -> None:
        self.classes = classes
        held = classes.demand[:, :, : classes.types] @ price
        self.single = np.where(held > 0, held, 1.0)
        self.pair = classes.pair_demand[:, : classes.types] @ price
        per_usd = np.where(classes.usable, classes.throughput / self.single, 0.0)
        best = per_usd.max(axis=1, initial=0.0)
        self.step = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0)
        self._per_usd = per_usd * self.step[:, None]

    def of(self, answer: FamilyAnswer) -> float:
        """Return USD per hour of an allocation."""
        singles = float(self.classes.count @ (self.single * answer.x).sum(axis=1))
        return singles + float(self.pair @ answer.pair_x)

    def per_usd(self, worth: FloatArray, answer: FamilyAnswer) -> float:
        """Return the worth per dollar, given (M,) the worth of a step/s; 0 if nothing runs."""
        thr = self.classes.effective_throughput(answer.x, answer.pair_x)
        cost = self.of(answer)
        return float((worth * self.classes.count) @ thr) / cost if cost > 0 else 0.0

    def same_everywhere(self, slack: float) -> BoolArray:
        """Return (M,) whether a step costs the same in all configurations of the class alone."""
        enough = self._per_usd >= (1.0 - slack) * (1.0 - ALIKE)
        same: BoolArray = np.all(enough | ~self.classes.usable, axis=1, keepdims=True)[:, 0]
        return same


@dataclass(frozen=True, slots=True, eq=False)
class _Saving:
    """The worth of all steps at their cheapest, less their cost.

    Attributes:
        classes: the classes.
        costs: of their configurations.
        floor: (M,) steps/s that a job must reach, or 0.
        weight: (M,) importance, which settles the order.
    """

    classes: ClassProblem
    costs: _Costs
    floor: FloatArray
    weight: FloatArray

    def best(self, slack: float) -> tuple[float, FamilyAnswer]:
        """Maximise the saving, then the weighted progress; return worth per dollar and answer."""
        # Half of the second part rewards running itself, so that even a job of tiny weight counts.
        first = (1.0 + self.weight / max(float(self.weight.max(initial=0.0)), 1e-300)) / 2.0
        price = 1.0 - slack
        if len(self.classes.pair_index):
            ratio = _Fraction(self.classes, self.costs, self.floor, self.costs.step).best(0.0)[0]
            price *= max(ratio * (1.0 - SLACK), 1.0)
        family = WeightedSum(
            coefficient=self.costs.step * (1.0 + ALIKE * first),
            cost=price * self.costs.single,
            pair_cost=price * self.costs.pair,
            required=self.floor,
        )
        answer = solve_family(family, self.classes)
        return self.costs.per_usd(self.costs.step, answer), answer


@dataclass(frozen=True, slots=True, eq=False)
class _Fraction:
    """The worth of steps over their cost.

    Attributes:
        classes: the classes.
        costs: the denominator.
        floor: (M,) steps/s that a job must reach, or 0.
        worth: (M,) what a step/s of a class counts.
    """

    classes: ClassProblem
    costs: _Costs
    floor: FloatArray
    worth: FloatArray

    def best(self, slack: float) -> tuple[float, FamilyAnswer]:
        """Maximise the ratio; return it and an allocation within ``slack`` of it."""
        ratio = 0.0
        for _ in range(STEPS):
            answer = self._best_at(ratio * (1.0 - SLACK))
            reached = self.costs.per_usd(self.worth, answer)
            if reached - ratio <= SLACK * reached:
                break
            ratio = reached
        ratio = max(ratio, reached)
        if slack > 0:
            answer = self._best_at(ratio * (1.0 - slack))
            ratio = self.costs.per_usd(self.worth, answer)
        return ratio, answer

    def _best_at(self, ratio: float) -> FamilyAnswer:
        """Maximise progress - ratio * cost."""
        family = WeightedSum(
            coefficient=self.worth,
            cost=ratio * self.costs.single,
            pair_cost=ratio * self.costs.pair,
            required=self.floor,
        )
        return solve_family(family, self.classes)


def _prices(problem: Problem) -> tuple[FloatArray, tuple[str, ...]]:
    """Return (K,) prices > 0, and warnings about assumed prices."""
    price = problem.cost_usd_per_hour.astype(float)
    dearest = float(price.max(initial=0.0))
    if dearest > 0:
        return np.maximum(price, FREE * dearest), ()
    note = (
        "no worker type has a price: every worker counts as 1 USD per hour; set cost_usd_per_hour"
    )
    return np.ones(len(price)), (note,)


def _required(problem: Problem) -> tuple[FloatArray, tuple[str, ...]]:
    """Return (N,) steps/s that meet the deadlines, 0 without one, and the jobs past theirs."""
    left = problem.time_left_s
    ahead = np.isfinite(left) & (left > 0)
    required = np.where(ahead, problem.remaining_steps / np.where(ahead, left, 1.0), 0.0)
    past = problem.job_number[left <= 0]
    warnings = tuple(f"job {n}: its deadline has passed" for n in past)
    return required, warnings


def _required_early(problem: Problem) -> FloatArray:
    """Return (N,) steps/s that meet the deadlines even if rounds are behind X."""
    left = problem.time_left_s
    margin = 2.0 * problem.round_length_s + problem.restart_s
    fastest = np.minimum(problem.remaining_steps / best_throughput(problem).clip(min=1e-300), left)
    aim = np.maximum(left - margin, fastest)
    ahead = np.isfinite(left) & (left > 0)
    return np.where(ahead, problem.remaining_steps / np.where(ahead, aim, 1.0), 0.0)


def _attainable(
    terms: Terms, required: FloatArray, early: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return (M,) floors that can be met together, and (M,) whether a deadline cannot be met.

    Args:
        terms: over all classes.
        required: (M,) steps/s that meet the deadlines; 0 without one.
        early: (M,) target steps/s, at least ``required``.
    """
    able = terms.classes.usable.any(axis=1)
    asked, aimed = np.where(able, required, 0.0), np.where(able, early, 0.0)
    if not (asked > 0).any():
        return asked, np.zeros(len(asked), dtype=bool)
    reached = _least_shortfall(terms, aimed)
    missed = reached < asked * (1.0 - SLACK)
    if missed.any():  # finishing early must not cost another job its deadline
        exact = np.minimum(asked, _least_shortfall(terms, asked))
        missed = exact < asked * (1.0 - SLACK)
        reached = _least_shortfall(terms, aimed, least=exact * (1.0 - SLACK))
    return np.minimum(aimed, reached) * (1.0 - SLACK), missed


def _warnings(
    classes: ClassProblem, required: FloatArray, reached: FloatArray, missed: BoolArray
) -> tuple[str, ...]:
    """Return warnings that name the jobs that cannot meet their deadlines."""
    return tuple(
        f"job {n}: its deadline cannot be met; it needs {required[m]:.6g} steps/s and can have "
        f"{reached[m]:.6g}"
        for m in np.flatnonzero(missed)
        for n in classes.problem.job_number[classes.class_of == m]
    )


def _content(problem: Problem, classes: ClassProblem, missed: BoolArray, passed: bool) -> BoolArray:
    """Return (N,) the jobs for which X is enough: all except those that miss their deadline."""
    content: BoolArray = ~missed[classes.class_of]
    return content & (problem.time_left_s > 0) if passed else content


def _least_shortfall(
    terms: Terms, asked: FloatArray, *, least: FloatArray | None = None
) -> FloatArray:
    """Return (M,) steps/s with the least sum of weighted relative shortfalls.

    Args:
        terms: over all classes.
        asked: (M,) steps/s against which shortfalls are measured.
        least: (M,) steps/s that each class must reach; None for no minimum.
    """
    import cvxpy as cp  # noqa: PLC0415  takes a second to import

    need = asked / np.where(asked > 0, terms.classes.fastest, 1.0)
    rows = np.flatnonzero(need > NOISE)  # a smaller need can always be met
    if not len(rows):
        return asked
    due = Terms(classes=terms.classes, policy=terms.policy, rows=rows)
    missing = cp.Variable(len(rows), nonneg=True)
    relative = cp.multiply(1.0 / asked[rows], due.throughput)
    kept: list[Any] = [relative + missing >= 1.0]
    if least is not None:
        kept.append(relative >= least[rows] / asked[rows])
    solve(due, cp.Minimize((due.weight * due.count) @ missing), kept)
    reached = np.where(need > NOISE, 0.0, asked)
    reached[rows] = due.throughput.value
    return reached
