"""The terms of a program: the figures and expressions that an objective may use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.greedy import best_throughput
from policies.shares import equal_share_throughput, isolated_throughput
from policies.solving.classes import ClassProblem
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.solving.layout import Layout
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.problem import Entity, Problem

#: Figures per job that a policy must declare in ``reads``. Jobs that differ in a declared figure
#: are in different classes.
OPTIONAL = (
    "remaining_steps",
    "total_steps",
    "age_s",
    "time_left_s",
    "attained_worker_s",
    "entity",
    "job_number",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """Figures and cvxpy expressions over classes of interchangeable jobs.

    Letters: N jobs, M classes of jobs that can run, K worker types. An array or expression of
    shape (M,) describes one job of each class; ``count`` says how many jobs the class has.

    Attributes:
        classes: the classes.
        reads: the optional figures that the policy declared (its classes differ in them).
        policy: its name, for messages.
        rows: (M,) classes that the terms cover.
        figures: values by name of a plugin that still defines ``figures``; removed in the release
            after 0.3.0.
    """

    classes: ClassProblem
    policy: str
    reads: tuple[str, ...] = ()
    rows: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    figures: Mapping[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def build(cls, problem: Problem, *, reads: tuple[str, ...], policy: str) -> Terms:
        """Group the jobs by the figures that the policy reads; the terms cover all classes."""
        unknown = sorted(set(reads) - set(OPTIONAL))
        if unknown:
            raise SolveError(
                f"policy '{policy}' declares that it reads '{unknown[0]}', which no problem "
                f"has; there are: {', '.join(OPTIONAL)}"
            )
        classes = ClassProblem.build(problem, tuple(getattr(problem, name) for name in reads))
        rows = np.arange(classes.size)
        return cls(classes=classes, policy=policy, reads=reads, rows=rows)

    def runnable(self) -> Terms:
        """Return the terms of only those classes that can run alone."""
        rows = np.flatnonzero(self.classes.usable.any(axis=1))
        return Terms(classes=self.classes, policy=self.policy, reads=self.reads, rows=rows)

    def with_figures(self, figures: Mapping[str, Any]) -> Terms:
        """Return these terms with the figures that a policy computed.

        Raises:
            SolveError: a figure is not a number, or not finite.
        """
        made: dict[str, FloatArray] = {}
        for name, value in figures.items():
            try:
                made[name] = np.asarray(value, dtype=float)
            except (TypeError, ValueError):
                made[name] = np.array(np.nan)
            if not np.isfinite(made[name]).all():
                raise SolveError(
                    f"policy '{self.policy}': its figure '{name}' must be finite numbers, not "
                    f"{value!r}"
                )
        return replace(self, figures=made)

    # Figures that every policy may read.

    @property
    def count(self) -> FloatArray:
        """(M,) jobs in each class."""
        return self.classes.count[self.rows]

    @cached_property
    def weight(self) -> FloatArray:
        """(M,) importance."""
        return self._of_jobs("weight")

    @cached_property
    def scale_factor(self) -> FloatArray:
        """(M,) workers per job."""
        return self._of_jobs("scale_factor")

    @cached_property
    def equal_share_throughput(self) -> FloatArray:
        """(M,) steps/s on an equal share of the worker types; nan if nothing can run the job."""
        return equal_share_throughput(self.classes.problem)[self._jobs]

    @cached_property
    def isolated_throughput(self) -> FloatArray:
        """(M,) steps/s on the workers that 1/N of the cluster buys; nan if nothing can run."""
        return isolated_throughput(self.classes.problem)[self._jobs]

    @cached_property
    def best_throughput(self) -> FloatArray:
        """(M,) steps/s in the fastest configuration that fits the cluster; 0 without any.

        Quotas do not count, as in the other references: a quota does not raise a job's worth.
        """
        return best_throughput(self.classes.problem)[self._jobs]

    # Figures that a policy must declare in ``reads``.

    @cached_property
    def remaining_steps(self) -> FloatArray:
        """(M,) remaining steps."""
        return self._declared("remaining_steps")

    @cached_property
    def total_steps(self) -> FloatArray:
        """(M,) steps in all."""
        return self._declared("total_steps")

    @cached_property
    def age_s(self) -> FloatArray:
        """(M,) seconds since arrival."""
        return self._declared("age_s")

    @cached_property
    def time_left_s(self) -> FloatArray:
        """(M,) seconds to the deadline; inf without one."""
        return self._declared("time_left_s")

    @cached_property
    def deadline_s(self) -> FloatArray:
        """(M,) absolute deadline; inf without one. Declared as ``time_left_s``."""
        return self._declared("time_left_s") + self.classes.problem.now_s

    @cached_property
    def attained_worker_s(self) -> FloatArray:
        """(M,) worker-seconds received so far."""
        return self._declared("attained_worker_s")

    @cached_property
    def job_number(self) -> FloatArray:
        """(M,) the jobs' running numbers, in order of arrival."""
        return self._declared("job_number")

    @cached_property
    def entity(self) -> FloatArray:
        """(M,) index into ``entities``."""
        return self._declared("entity")

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that have jobs, or are configured."""
        return self.classes.problem.entities

    @property
    def cost_usd_per_hour(self) -> FloatArray:
        """(K,) price of one worker of each type."""
        return self.classes.problem.cost_usd_per_hour

    # For plugins that still define ``figures``; removed in the release after 0.3.0.

    def figure(self, name: str) -> Any:
        """Return a figure that the policy computed.

        Raises:
            SolveError: no figure has that name.
        """
        if name not in self.figures:
            raise SolveError(
                f"policy '{self.policy}': its 'figures' make no '{name}'; there are: "
                f"{', '.join(sorted(self.figures)) or 'none'}"
            )
        return self.figures[name]

    def scaled_throughput(self, name: str) -> Any:
        """Return (M,) throughput times a figure of shape (M,) or ()."""
        import cvxpy as cp  # noqa: PLC0415  takes a second to import

        return cp.multiply(self.figure(name), self.throughput)

    def variable(self, expression: Any) -> Any:
        """Return an affine expression as it is."""
        return expression

    # Expressions: only the cvxpy program touches these.

    @cached_property
    def layout(self) -> Layout:
        """The decision variables and their matrices."""
        from policies.solving.layout import Layout  # noqa: PLC0415  cvxpy takes a second to import

        return Layout.build(self.classes, self.rows)

    @property
    def throughput(self) -> Any:
        """(M,) expression: effective throughput of one job of each class, steps/s."""
        return self.layout.throughput

    @property
    def time_fraction(self) -> Any:
        """(M,) expression: the fraction of time in which one job of each class runs."""
        return self.layout.time_fraction

    @property
    def workers(self) -> Any:
        """(K,) expression: workers of each type in use on average."""
        return self.layout.workers

    @property
    def cost(self) -> Any:
        """Scalar expression: USD per hour of the workers in use."""
        return self.cost_usd_per_hour @ self.layout.workers

    @cached_property
    def _jobs(self) -> IntArray:
        return self.classes.representative[self.rows]

    def _of_jobs(self, name: str) -> FloatArray:
        values: FloatArray = getattr(self.classes.problem, name)[self._jobs].astype(float)
        return values

    def _declared(self, name: str) -> FloatArray:
        if name not in self.reads:
            raise SolveError(
                f"policy '{self.policy}' reads '{name}' without declaring it, so that unlike jobs "
                f"would be treated alike; set reads = {(*self.reads, name)!r} in its class"
            )
        return self._of_jobs(name)
