"""Least remaining work first, as far as it costs little progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.families import WeightedSum
from policies.greedy import best_throughput, usual_way
from policies.parameters import parameter
from policies.shares import isolated_throughput
from policies.solving.answers import counted_classes
from policies.solving.classes import ClassProblem
from policies.solving.family import solve_family
from policies.solving.integral import solve_whole

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem

HOUR_S = 3600.0
#: Share of a configuration's throughput that a restart leaves at least.
LEAST_LEFT = 0.1


@dataclass(frozen=True, kw_only=True)
class LeastRemainingWork(Policy):
    """Make as much progress as possible, and lean towards the jobs that are nearly done.

    Program: maximise the sum over m of

        w_m s_m (s_m t_m) ** -shortness * max(1, rho_m / patience) * thr(m, X) / best_m

    with w_m the weight, s_m the scale factor, best_m the throughput on the job's fastest workers
    and t_m = remaining steps / best_m. thr / best is the progress of a job in the units of its
    own fastest time; times s_m it counts the workers that it keeps as busy as the fastest would,
    so that a gang is worth what its workers could do for others. s_m t_m is the remaining work.
    For an elastic job s_m is the fastest efficient count (see ``usual_way``) and best_m the
    throughput there, so that no count is worth more than its workers do.
    A shortness of 0 is the most work per second, and at 1 the shortest is served at any cost;
    between them lies the least mean completion time.

    rho_m = (age + t_m) * isolated throughput / total steps is what the finish-time fairness of the
    job will be at best; here t_m is the time on the fastest workers, at any count. A job that is
    about to fare worse than ``patience`` times its isolated share counts more, in proportion, so
    that none starves.

    With ``whole`` X is 0 or 1: a job that runs goes on until the next arrival or completion. The
    rounds then realise X exactly, with gangs too; fractions of gangs often cannot be packed.

    A move of a job costs its restart; it counts as if the job stayed for ``horizon_s``.

    Source: on one machine weights 1 / t are Smith's rule (1956) and its preemptive form, Schrage's
    shortest remaining time (1968), minimises the mean time in the system; on unlike machines under
    load, progress per machine matters as much (the c-mu rule generalised by van Mieghem, 1995, and
    Mandelbaum and Stolyar, 2004). Programs over configurations, pairs among them: Gavel
    (Narayanan et al., OSDI 2020).
    """

    name: ClassVar[str] = "least_remaining_work"

    shortness: float = parameter(
        0.15, ge=0.0, help="How much jobs with little work left are preferred; 0 not at all."
    )
    patience: float | None = parameter(
        0.5, gt=0.0, help="Finish-time fairness rho from which on a job counts more; none: never."
    )
    whole: bool = parameter(True, help="Whether a job runs all the time or not at all.")
    horizon_s: float = parameter(
        3600.0, gt=0.0, help="Seconds over which the restart of a moved job must pay."
    )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        classes = ClassProblem.build(problem, (problem.job_number.astype(float),))
        value = self._value(problem)
        worth, pair_worth = self._worth(classes, value)
        workers = np.maximum(problem.demand.sum(axis=2), 1)
        rank = -(worth / workers).max(axis=1, initial=0.0)
        if self.whole:
            answer = solve_whole(classes, worth, pair_worth)
            _, warnings = counted_classes(classes)
            return classes.expand(
                answer.x,
                answer.pair_x,
                rank=rank,
                objective=answer.value,
                solver=answer.solver,
                warnings=warnings,
            )
        family = WeightedSum(
            coefficient=value,
            cost=value[:, None] * classes.throughput - worth,
            pair_cost=(value[classes.pair_classes] * classes.pair_throughput).sum(1) - pair_worth,
        )
        shares = solve_family(family, classes)
        return classes.expand(
            shares.x,
            shares.pair_x,
            rank=rank,
            objective=shares.value,
            solver=shares.solver,
            warnings=shares.warnings,
        )

    def _value(self, problem: Problem) -> FloatArray:
        """Return (N,) the worth of a step/s of each job; 0 if it cannot run alone."""
        best = best_throughput(problem)
        able = best > 0
        time_s = problem.remaining_steps / np.where(able, best, 1.0)
        rate, workers = usual_way(problem)
        value: FloatArray = problem.weight * workers / np.where(able, rate, np.inf)
        usual_s = problem.remaining_steps / np.where(able, rate, 1.0)
        value = value * (workers * usual_s / HOUR_S) ** -self.shortness
        if self.patience is None:
            return value
        isolated = np.where(able, isolated_throughput(problem), 0.0)
        rho = (problem.age_s + time_s) * isolated / problem.total_steps
        result: FloatArray = value * np.maximum(1.0, rho / self.patience)
        return result

    def _worth(self, classes: ClassProblem, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (N, J) and (P,) the worth of a job's and of a pair's time, after restarts."""
        problem = classes.problem
        moved = np.maximum(1.0 - problem.restart_s / self.horizon_s, LEAST_LEFT)
        stays = np.arange(classes.throughput.shape[1]) == problem.held[:, None]
        worth = value[:, None] * classes.throughput * np.where(stays, 1.0, moved[:, None])
        shared = (value * moved)[classes.pair_classes] * classes.pair_throughput
        return worth, shared.sum(axis=1)
