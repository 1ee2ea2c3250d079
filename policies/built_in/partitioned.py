"""POP: split a large problem into parts, and solve each part separately."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  the parameter's type is read at run time
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from policies.base import Policy
from policies.greedy import under_quotas
from policies.parameters import parameter, parse
from policies.registry import make_policy
from scheduler.domain.allocation import Allocation
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.problem import Problem
    from scheduler.domain.quota import Caps

#: Fields of a problem that have one entry per job.
_PER_JOB = (
    "job_number",
    "profile",
    "scale_factor",
    "weight",
    "total_steps",
    "remaining_steps",
    "age_s",
    "time_left_s",
    "attained_worker_s",
    "entity",
    "held",
    "restart_s",
)


@dataclass(frozen=True, kw_only=True)
class Partitioned(Policy):
    """Answer k smaller problems, each with 1/k of the jobs and of every worker type.

    Program: that of the policy named by ``policy``, for each part by itself; the answers together
    are feasible, and near the optimum if every part is a fair sample of the jobs. Jobs are sorted
    by profile and dealt out in turn, so that the parts are alike. Their weights do not decide in
    which part they are: a job of more weight would come into another part, and might get less
    there. There are fewer than k parts if otherwise some gang would fit in none. A parameter of
    the inner policy is given as ``--param policy.NAME=VALUE``.

    Source: POP (Narayanan et al., SOSP 2021, section 3).
    """

    name: ClassVar[str] = "partitioned"

    policy: str = parameter("max_min_fairness", help="Name of the policy that answers each part.")
    k: int = parameter(4, ge=1, help="Number of parts.")
    params: Mapping[str, str] = parameter(
        MappingProxyType({}), help="Parameters of the inner policy, as name:text pairs."
    )

    def __post_init__(self) -> None:
        """Build the inner policies; stateful ones keep one state per part."""
        super().__post_init__()
        if self.policy == self.name:
            raise ParameterError(
                "policy 'partitioned': parameter 'policy' has the value 'partitioned'; it must "
                "name another policy"
            )
        inner = tuple(make_policy(self.policy, self.params) for _ in range(self.k))
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "time_dependent", inner[0].time_dependent)
        object.__setattr__(self, "usage_half_life_s", inner[0].half_life_s)

    @classmethod
    def from_text(cls, params: Mapping[str, str]) -> Self:
        """Build the policy; ``policy.NAME`` goes to the inner one."""
        prefix = "policy."
        inner = {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}
        own: dict[str, Any] = parse(
            cls, {n: v for n, v in params.items() if not n.startswith(prefix)}
        )
        listed: Mapping[str, str] = own.pop("params", {})
        return cls(**own, params=MappingProxyType({**listed, **inner}))

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        inner: tuple[Policy, ...] = self._inner  # type: ignore[attr-defined]  # set when built
        parts = split(problem, self.k)
        if len(parts) == 1:
            return inner[0].allocate(problem)
        answers = [policy.allocate(part) for policy, (_, part) in zip(inner, parts, strict=False)]
        return _merge(problem, [jobs for jobs, _ in parts], answers)


def split(problem: Problem, k: int) -> list[tuple[IntArray, Problem]]:
    """Split a problem into at most k parts that are alike.

    Returns:
        For each part the (n,) positions of its jobs, ascending, and its problem.
    """
    k = min(k, problem.jobs, _most_parts(problem))
    if k == 1:
        return [(np.arange(problem.jobs), problem)]
    dealt = np.lexsort((problem.job_number, problem.profile))
    parts = []
    for part in range(k):
        jobs = np.sort(dealt[part::k])
        figures = {name: getattr(problem, name)[jobs] for name in _PER_JOB}
        capacity = _part_of(problem.capacity, part, k)
        caps = _caps_of(problem.caps, jobs, part, k)
        restarts = None if problem.restarts is None else problem.restarts[jobs]
        parts.append(
            (jobs, replace(problem, capacity=capacity, caps=caps, restarts=restarts, **figures))
        )
    return parts


def _caps_of(caps: Caps | None, jobs: IntArray, part: int, k: int) -> Caps | None:
    """Return the quotas of a part's jobs."""
    if caps is None:
        return None
    return replace(caps.of_jobs(jobs), limit=_part_of(caps.limit, part, k))


def _part_of(capacity: FloatArray, part: int, k: int) -> FloatArray:
    """Return (K,) whole workers; the types' remainders go to different parts."""
    whole = np.floor(capacity / k)
    left = capacity - whole * k
    turn = (part - np.concatenate(([0.0], np.cumsum(left)[:-1]))) % k
    result: FloatArray = whole + np.clip(left - turn, 0.0, 1.0)
    return result


def _most_parts(problem: Problem) -> int:
    """Return the number of parts into which the workers can split so that every job fits."""
    profile, throughput, demands, capacity = under_quotas(problem)
    present = np.unique(profile)
    demand = demands[present].astype(float)
    room = np.floor(capacity / np.maximum(demand, 1.0))
    times = np.where(demand > 0, room, np.inf).min(axis=2, initial=np.inf)
    runs = (throughput[present] > 0) & (times >= 1) & (demand.max(axis=2) > 0)
    most = np.where(runs, times, 0.0).max(axis=1, initial=0.0)
    return int(most[most > 0].min(initial=problem.jobs))


def _merge(problem: Problem, parts: list[IntArray], answers: list[Allocation]) -> Allocation:
    x = np.zeros((problem.jobs, problem.table.throughput.shape[1]))
    rank = np.zeros(problem.jobs)
    no_backfill = np.zeros(problem.jobs, dtype=bool)
    for jobs, answer in zip(parts, answers, strict=True):
        x[jobs] = answer.x
        if answer.no_backfill is not None:
            no_backfill[jobs] = answer.no_backfill
        rank[jobs] = 0.0 if answer.rank is None else answer.rank
    ranked = all(answer.rank is not None for answer in answers)
    return Allocation(
        x=x,
        pair_jobs=np.concatenate(
            [jobs[answer.pair_jobs] for jobs, answer in zip(parts, answers, strict=True)]
        ),
        pair_index=np.concatenate([answer.pair_index for answer in answers]),
        pair_x=np.concatenate([answer.pair_x for answer in answers]),
        rank=rank if ranked else None,
        solver=f"{len(parts)} x {answers[0].solver}",
        warnings=tuple(dict.fromkeys(w for answer in answers for w in answer.warnings)),
        no_backfill=no_backfill if no_backfill.any() else None,
        may_use_remaining_work=all(answer.may_use_remaining_work for answer in answers),
        follow_exactly=any(answer.follow_exactly for answer in answers),
    )
