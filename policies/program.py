"""Policies stated as convex programs over configurations, with checked answers.

A program is stated in cvxpy over ``Terms``. If its objective belongs to a known family, the
family's direct kernel solves it, and the cvxpy program is the reference and the fallback.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from policies.base import Policy
from policies.solving.discipline import UnprovenError
from policies.solving.family import solve_family
from policies.terms import Terms
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.families import Family
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem

#: Largest relative error of an answer's objective and constraints when numpy recomputes them.
TOLERANCE = 1e-5
#: How much worse than the best known bound, relatively, a fallback answer of cvxpy may be.
#: Without this check an answer 190,000 times the optimum was accepted.
FALLBACK_GAP = 1e-2


@dataclass(frozen=True, kw_only=True)
class ProgramPolicy(Policy):
    """Base of the policies that solve a program.

    A subclass needs only ``objective``. The objective must be concave (to be maximised) and must
    not depend on the order of the jobs, so that interchangeable jobs can receive the same.

    Attributes:
        reads: figures of jobs that the program reads beside their throughputs, weight and scale
            factor; see ``policies.terms.OPTIONAL``. Jobs that differ in them are in other classes.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Warn of a method that the next release removes."""
        super().__init_subclass__()
        if "figures" in vars(cls):
            warnings.warn(
                f"policy {cls.__name__}: the method 'figures' goes with the next release; read "
                "the terms in 'objective' and 'constraints' instead",
                DeprecationWarning,
                stacklevel=3,  # past the metaclass
            )

    @abstractmethod
    def objective(self, terms: Terms) -> Any:
        """State the objective in cvxpy.

        Args:
            terms: figures and expressions over the classes that can run.

        Returns:
            ``cvxpy.Maximize``, ``cvxpy.Minimize``, or an expression to be maximised.
        """

    def constraints(self, terms: Terms) -> Sequence[Any]:  # noqa: ARG002  a hook
        """State constraints beside those that every allocation satisfies."""
        return ()

    def family(self, terms: Terms) -> Family | None:  # noqa: ARG002  a hook
        """Return the family that the objective belongs to, or None.

        Args:
            terms: figures over all classes, nan if a job cannot run. Do not use its expressions.
        """
        return None

    def reported(self, value: float) -> float:
        """Turn the optimum of the family into the figure that the policy reports."""
        return value

    def allocate(self, problem: Problem) -> Allocation:
        """Solve the problem with the family's kernel, or else with cvxpy.

        An answer of cvxpy that is more than 1 % worse than the kernel's bound is rejected.

        Raises:
            SolveError: no solver gave an answer that passed its checks.
        """
        terms = Terms.build(problem, reads=self.reads, policy=self.name)
        family = None
        try:
            family = self.family(terms)
            if family is None:
                return self.allocate_by_cvxpy(terms)
            answer = solve_family(family, terms.classes)
        except SolveError as error:
            bound = error.bound if isinstance(error, UnprovenError) else np.nan
            return self.allocate_by_cvxpy(terms, because=str(error), family=family, bound=bound)
        return terms.classes.expand(
            answer.x,
            answer.pair_x,
            objective=self.reported(answer.value),
            solver=answer.solver,
            warnings=answer.warnings,
        )

    def allocate_by_cvxpy(
        self,
        terms: Terms,
        *,
        because: str = "",
        family: Family | None = None,
        bound: float = float("nan"),
    ) -> Allocation:
        """Answer with the cvxpy program: the reference that the kernels are tested against.

        Args:
            terms: over all classes.
            because: why the kernel did not answer, for the allocation's warnings.
            family: the answer is checked against the bound of this family; None for no check.
            bound: bound on the objective, in the family's units; nan if unknown.

        Raises:
            SolveError: no solver gave an answer that passed its checks.
        """
        able = terms.runnable()
        notes: tuple[str, ...] = (f"solved by cvxpy because {because}",) if because else ()
        if not len(able.rows):
            zeros = np.zeros_like(terms.classes.throughput)
            return terms.classes.expand(zeros, solver="none", warnings=notes)
        worse = None if family is None else partial(_worse, family, terms, bound)
        figures = getattr(self, "figures", None)
        if figures is not None:
            able = able.with_figures(figures(able))
        objective, constraints = self.objective(able), self.constraints(able)
        value, solver = solve(able, objective, constraints, worse)
        x, pair_x = able.layout.fractions()
        return terms.classes.expand(x, pair_x, objective=value, solver=solver, warnings=notes)


def _worse(family: Family, terms: Terms, bound: float, x: FloatArray, pair_x: FloatArray) -> str:
    """Return a complaint if an answer misses the family's bound by too much, else an empty text."""
    from policies.solving.excess import relative_excess  # noqa: PLC0415  needed only when a kernel has failed

    more = relative_excess(family, terms.classes, bound, x, pair_x)
    return f"it is {100 * more:.3g} % worse than the bound" if more > FALLBACK_GAP else ""


def solve(
    terms: Terms,
    objective: Any,
    constraints: Sequence[Any] = (),
    worse: Callable[[FloatArray, FloatArray], str] | None = None,
) -> tuple[float, str]:
    """Solve a cvxpy program over terms, and leave the answer in the terms' variables.

    Args:
        terms: the program uses their expressions.
        objective: ``Maximize``, ``Minimize``, or an expression to be maximised.
        constraints: beside those that every allocation satisfies.
        worse: a further check of the fractions; returns a complaint, or an empty text.

    Returns:
        The objective, recomputed at the repaired answer, and the solver that gave it.

    Raises:
        SolveError: the program is not convex, has no answer, or no solver's answer passed.
    """
    import cvxpy as cp  # noqa: PLC0415  takes a second to import

    if not isinstance(objective, cp.problems.objective.Objective):
        objective = cp.Maximize(_scalar(objective, terms.policy))
    program = cp.Problem(objective, [*terms.layout.constraints, *constraints])
    if not program.is_dcp():
        raise SolveError(
            f"policy '{terms.policy}': cvxpy does not accept the program as convex; write the "
            f"objective by cvxpy's rules (https://www.cvxpy.org/tutorial/dcp): {program.objective}"
        )
    failures: list[str] = []
    for solver, options in _solvers(program):
        failure = _attempt(program, terms, solver, options)
        if not failure and worse is not None:
            failure = worse(*terms.layout.fractions())
        if not failure:
            return float(program.objective.value), solver.lower()
        failures.append(f"{solver}: {failure}")
    raise SolveError(
        f"policy '{terms.policy}': no solver answered its program of {terms.classes.size} classes: "
        f"{'; '.join(failures)}; check its constraints against each other, and the problem for "
        "extreme weights or throughputs"
    )


def _scalar(objective: Any, policy: str) -> Any:
    """Return a policy's objective if cvxpy can maximise it.

    Raises:
        SolveError: it is missing, or has more than one value.
    """
    if objective is None:
        raise SolveError(
            f"policy '{policy}': its method 'objective' returns nothing; return an expression to "
            "be maximised, cvxpy.Maximize or cvxpy.Minimize"
        )
    shape = np.shape(objective)
    if int(np.prod(shape)) != 1:
        raise SolveError(
            f"policy '{policy}': its objective has the shape {shape}, a value for each class of "
            "jobs; it must be one number, such as cvxpy.sum(...) or cvxpy.min(...) of them"
        )
    return objective


def _solvers(program: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the solvers to try in turn, with options that make answers repeatable."""
    highs = ("HIGHS", {"threads": 1})
    # Clarabel's defaults stop at gaps of 1e-8; kernels are compared to 1e-6.
    tight = {f"tol_{name}": 1e-10 for name in ("gap_abs", "gap_rel", "feas")}
    clarabel = ("CLARABEL", {"max_threads": 1} | tight)
    if program.is_mixed_integer():
        return [highs]
    if program.is_lp():
        return [highs, clarabel]
    return [clarabel, ("CLARABEL", {"max_threads": 1}), ("SCS", {"eps": 1e-8, "max_iters": 20000})]


def _attempt(program: Any, terms: Terms, solver: str, options: dict[str, Any]) -> str:
    """Solve with one solver; return a complaint about the answer, or an empty text."""
    import cvxpy as cp  # noqa: PLC0415 - slow to import, seldom needed

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "inaccurate" shows in the status and is checked below
            program.solve(solver=solver, warm_start=False, **options)
    except (cp.error.SolverError, ValueError, ArithmeticError) as error:
        return str(error).split("\n", maxsplit=1)[0]
    # SCS, a first-order method, may be far off if it stops early; an interior-point method is near.
    enough = {cp.OPTIMAL} if solver == "SCS" else {cp.OPTIMAL, cp.OPTIMAL_INACCURATE}
    if program.status not in enough:
        return f"status {program.status}"
    claimed = float(program.value)
    raw = terms.layout.fractions()
    # Noise is clipped, unless the clipped answer fails the checks and the unclipped one passes.
    return _check(program, terms, claimed, raw, np.zeros(terms.classes.size)) and _check(
        program, terms, claimed, raw, None
    )


def _check(
    program: Any,
    terms: Terms,
    claimed: float,
    raw: tuple[FloatArray, FloatArray],
    need: FloatArray | None,
) -> str:
    """Repair the answer; return a complaint about it, or an empty text.

    Args:
        program: as stated.
        terms: their variables are set.
        claimed: the objective that the solver gives.
        raw: fractions as the solver gives them.
        need: see ``ClassProblem.repair``.
    """
    layout = terms.layout
    layout.assign(*terms.classes.repair(*raw, need))
    with np.errstate(divide="ignore"):
        reached = float(program.objective.value)
    if not (np.isfinite(reached) and np.isfinite(claimed)):
        return f"the objective is {reached!r}"
    if abs(reached - claimed) > TOLERANCE * max(abs(claimed), abs(reached), TOLERANCE):
        return f"it claims {claimed:.9g}, but its allocation reaches {reached:.9g}"
    broken = max(_violation(constraint) for constraint in program.constraints)
    if broken > TOLERANCE:
        return f"a constraint is missed by {broken:.3g}"
    return ""


def _violation(constraint: Any) -> float:
    """Return by how much a constraint is missed, relative to its figures if they exceed 1."""
    sizes = [float(np.max(np.abs(argument.value), initial=1.0)) for argument in constraint.args]
    return float(np.max(constraint.violation(), initial=0.0)) / max(sizes)


def __getattr__(name: str) -> Any:
    """Return a constant of 0.2.0 that limited the method ``figures``."""
    if name != "MOST_CLASSES":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    warnings.warn(
        "MOST_CLASSES limits nothing now, and goes with the release after 0.3.0",
        DeprecationWarning,
        stacklevel=2,
    )
    return 2048
