"""A replay without rounds: every job gets the time that X gives it, until the next event.

Rounds follow X within a few rounds, so over hours they complete jobs at the same times. A replay
asks the policy once per arrival and completion instead of planning a hundred rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.base import Policy
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.problem import Problem

#: Remaining part of a job's steps at which it counts as done.
_DONE: Final = 1e-9
#: Share of the time from which on a job counts as running in a configuration without pause.
_ALWAYS: Final = 0.5
#: Columns of a job that do not change; they exist in ``Arrivals`` and in ``Problem``.
_OWN: Final = ("profile", "scale_factor", "total_steps", "weight", "entity")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """Arriving jobs, in order of arrival.

    Attributes:
        arrival_s: (A,) arrival times.
        profile: (A,) row of the configuration table.
        scale_factor: (A,) workers per job, their reference count.
        total_steps: (A,) steps.
        weight: (A,) importance.
        entity: (A,) index into the problem's entities.
    """

    arrival_s: FloatArray
    profile: IntArray
    scale_factor: IntArray
    total_steps: FloatArray
    weight: FloatArray
    entity: IntArray

    def __len__(self) -> int:
        """A, the number of jobs."""
        return len(self.arrival_s)

    def again(self, chosen: IntArray, arrival_s: FloatArray) -> Arrivals:
        """Return chosen jobs with other arrival times."""
        columns = {name: getattr(self, name)[chosen] for name in _OWN}
        return Arrivals(arrival_s=arrival_s, **columns)

    def part(self, begin: int, end: int) -> Arrivals:
        """Return the jobs from position ``begin`` to before ``end``."""
        chosen = np.arange(begin, end)
        return self.again(chosen, self.arrival_s[chosen])


def completion_s(
    problem: Problem,
    policy: Policy,
    number: int,
    arrivals: Iterator[Arrivals],
    *,
    most_questions: int,
) -> float | None:
    """Return when a job completes; None if the replay does not reach it.

    Args:
        problem: the active jobs, including this one; quotas are ignored.
        policy: the policy.
        number: of the job, as in ``problem.job_number``.
        arrivals: jobs that come later, in consecutive blocks.
        most_questions: most questions to the policy.

    Raises:
        SolveError: the policy cannot answer.
        PolicyFaultError: the policy's code failed.
    """
    problem = replace(problem, caps=None, restarts=None)
    queue = _Queue(arrivals)
    for _ in range(most_questions):
        allocation = ask(policy, problem)
        rate = allocation.effective_throughput(problem)
        left_s = np.full(problem.jobs, np.inf)
        np.divide(problem.remaining_steps, rate, out=left_s, where=rate > 0)
        ends_s = problem.now_s + float(left_s.min(initial=np.inf))
        now = min(ends_s, queue.next_s)
        if math.isinf(now):
            return None
        elapsed_s = now - problem.now_s
        remaining = problem.remaining_steps - rate * elapsed_s
        done = remaining <= _DONE * problem.total_steps
        if now == ends_s:
            done |= left_s <= left_s.min()
        if done[problem.job_number == number].any():
            return now
        problem = _later(
            problem,
            now,
            stays=~done,
            remaining=remaining,
            attained=problem.attained_worker_s + _workers(problem, allocation) * elapsed_s,
            runs=np.where(allocation.x.max(axis=1) > _ALWAYS, allocation.x.argmax(axis=1), -1),
            new=queue.until(now),
        )
    return None


class _Queue:
    """Blocks of arrivals, drawn one at a time."""

    def __init__(self, blocks: Iterator[Arrivals]) -> None:
        self._blocks = blocks
        self._block = next(blocks, None)

    @property
    def next_s(self) -> float:
        """When the next job comes; inf if there is no further job."""
        while self._block is not None and not len(self._block):
            self._block = next(self._blocks, None)
        return math.inf if self._block is None else float(self._block.arrival_s[0])

    def until(self, now: float) -> Arrivals | None:
        """Remove and return the jobs of the block that have come by ``now``; None without any."""
        if self.next_s > now or self._block is None:
            return None
        many = int(np.searchsorted(self._block.arrival_s, now, side="right"))
        come, self._block = self._block.part(0, many), self._block.part(many, len(self._block))
        return come


def _workers(problem: Problem, allocation: Allocation) -> FloatArray:
    """Return (N,) workers that each job holds on average."""
    workers: FloatArray = np.einsum("nj,njk->n", allocation.x, problem.demand).astype(float)
    if len(allocation.pair_x):
        demand = problem.table.pair_demand[allocation.pair_index].sum(axis=1)
        np.add.at(workers, allocation.pair_jobs[:, 0], demand * allocation.pair_x)
        np.add.at(workers, allocation.pair_jobs[:, 1], demand * allocation.pair_x)
    return workers


def _later(
    problem: Problem,
    now: float,
    *,
    stays: BoolArray,
    remaining: FloatArray,
    attained: FloatArray,
    runs: IntArray,
    new: Arrivals | None,
) -> Problem:
    """Return the problem at a later time, with the jobs that stay and those that have come."""
    more = 0 if new is None else len(new)
    first = int(problem.job_number.max(initial=0)) + 1

    def joined(old: Any, added: Any) -> Any:
        return old[stays] if new is None else np.concatenate((old[stays], added))

    def column(name: str) -> Any:
        return joined(getattr(problem, name), getattr(new, name, None))

    elapsed_s = now - problem.now_s
    return replace(
        problem,
        now_s=now,
        **{name: column(name) for name in _OWN},
        job_number=joined(problem.job_number, first + np.arange(more)),
        remaining_steps=joined(remaining, getattr(new, "total_steps", None)),
        age_s=joined(problem.age_s + elapsed_s, np.zeros(more)),
        time_left_s=joined(problem.time_left_s - elapsed_s, np.full(more, np.inf)),
        attained_worker_s=joined(attained, np.zeros(more)),
        held=joined(runs, np.full(more, -1)),
        restart_s=joined(problem.restart_s, np.zeros(more)),
    )
