"""Fairness between entities, and a rule inside each."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  the parameter's type is read at run time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.parameters import parameter
from policies.shares import equal_share_throughput, usage_factors, usage_half_life
from policies.solving.classes import ClassProblem
from policies.solving.max_min import hierarchical_fill

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Hierarchical(Policy):
    """Share the cluster among teams by weight, and each team's part among its jobs.

    Program: water filling of s_m thr(m, X) / thr(m, equal share). At each level an entity's weight
    is divided among its jobs that can still rise: by their weights if the entity is ``fairness``,
    and all to the first arrived if it is ``fifo``. The rest of an entity's share goes to the
    others.

    With a half-life, an entity that has recently used more than its share counts for less, see
    ``scheduler.domain.fair_share``.

    Entities are the jobs' ``entity``; weights and rules come with the problem (the daemon's or the
    trace's) unless a parameter gives others.

    Source: Gavel (Narayanan et al., OSDI 2020, section 4.3).
    """

    name: ClassVar[str] = "hierarchical"

    entity_weights: Mapping[str, float] = parameter(
        MappingProxyType({}), gt=0.0, help="Weights by entity, as in team-a:2,team-b:1."
    )
    entity_policies: Mapping[str, str] = parameter(
        MappingProxyType({}),
        choices=("fairness", "fifo"),
        help="Rules by entity, as in team-a:fifo.",
    )

    usage_half_life_s: float = usage_half_life()

    def __post_init__(self) -> None:
        """Make the policy time-dependent if past usage decays."""
        super().__post_init__()
        if self.usage_half_life_s:
            object.__setattr__(self, "time_dependent", True)

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        rules = [self.entity_policies.get(e.name, e.policy) for e in problem.entities]
        given = [self.entity_weights.get(e.name, e.weight) for e in problem.entities]
        weights = np.array(given, dtype=float) * usage_factors(problem, given)
        # Jobs that wait for each other are not interchangeable; other jobs of an entity may be.
        in_turn = np.array([rule == "fifo" for rule in rules])[problem.entity]
        turn = np.where(in_turn, problem.job_number, -1).astype(float)
        classes = ClassProblem.build(problem, (problem.entity.astype(float), turn))
        yardstick = equal_share_throughput(problem)
        answer = hierarchical_fill(
            classes,
            classes.of_jobs(problem.scale_factor / yardstick),
            entity=problem.entity[classes.representative],
            entity_weight=weights,
            entity_policy=rules,
            order=classes.of_jobs(problem.job_number.astype(float)),
            weight=classes.of_jobs(problem.weight),
        )
        return classes.expand(
            answer.x,
            answer.pair_x,
            objective=answer.value,
            solver=answer.solver,
            warnings=answer.warnings,
        )
