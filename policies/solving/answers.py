"""Answers of the kernels over classes, and which classes count in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray

#: Most kinds of jobs that a warning names.
_MOST_KINDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyAnswer:
    """A checked answer over classes.

    Attributes:
        x: (M, J) fractions of one job of each class.
        pair_x: (P,) fractions summed over the job pairs of each class pair.
        value: the objective attained.
        bound: bound on the objective of every allocation, by weak duality.
        solver: name of the solver that gave the answer.
        warnings: messages for the user.
    """

    x: FloatArray
    pair_x: FloatArray
    value: float
    bound: float
    solver: str
    warnings: tuple[str, ...] = ()


def counted_classes(
    classes: ClassProblem, *coefficients: FloatArray
) -> tuple[BoolArray, tuple[str, ...]]:
    """Return (M,) which classes count in the objective, and warnings about the others."""
    counts = classes.runnable.copy()
    for coefficient in coefficients:
        counts &= np.isfinite(coefficient) & (coefficient > 0)
    if counts.all():
        return counts, ()
    out = ~counts[classes.class_of]
    profiles = (classes.problem.table.profiles[p] for p in np.unique(classes.problem.profile[out]))
    kinds = list(
        dict.fromkeys(f"'{p.job_type}' at scale factor {p.scale_factor}" for p in profiles)
    )
    shown = ", ".join(kinds[:_MOST_KINDS]) + (", ..." if len(kinds) > _MOST_KINDS else "")
    warning = (
        f"{out.sum()} jobs receive nothing, because no configuration that fits the workers in "
        f"service makes progress: of type {shown}"
    )
    return counts, (warning,)


def empty_answer(classes: ClassProblem, warnings: tuple[str, ...]) -> FamilyAnswer:
    """Return the answer for a problem in which no job can run."""
    return FamilyAnswer(
        x=np.zeros_like(classes.throughput),
        pair_x=np.zeros(len(classes.pair_index)),
        value=0.0,
        bound=0.0,
        solver="none",
        warnings=warnings,
    )
