"""Answering one allocation problem: the part that runs in a process of its own.

A policy may be a plugin. Whatever it does, the daemon gets an allocation that fits its question or
a ``SolveError`` that names the policy.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from policies.registry import make_policy
from scheduler.domain.allocation import Allocation
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.problem import Entity, Problem
from scheduler.errors import LeaseholdError, SolveError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from policies.base import Policy

#: A policy by name and (name, text) of each parameter, sorted.
PolicyKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]

#: By how much an answer may break a bound: beyond solvers' noise, below a worker in a thousand.
_TOLERANCE = 1e-3
_KEPT_POLICIES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """An answer.

    Attributes:
        allocation: it fits the problem that was asked.
        solve_s: seconds that the policy took.
    """

    allocation: Allocation
    solve_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """What is sent to the process; ``problem`` None asks to get ready for that policy."""

    policy: PolicyKey
    problem: Problem | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What comes back where there is no answer."""

    reason: str


class Answerer:
    """Policies by name and parameters. They are kept, as some remember their earlier answers."""

    def __init__(self) -> None:
        self._policies: dict[PolicyKey, Policy] = {}

    def answer(self, key: PolicyKey, problem: Problem) -> Solved:
        """Ask a policy.

        Raises:
            SolveError: there is no such policy, it raised something, or its answer does not fit.
        """
        begin = time.perf_counter()
        try:
            allocation = self._policy(key).allocate(problem)
            check_answer(problem, allocation)
        except LeaseholdError as error:
            raise SolveError(f"policy '{key[0]}': {error}") from error
        except Exception as error:  # a plugin may raise anything
            raise SolveError(
                f"policy '{key[0]}' failed with {type(error).__name__}: {error}; this is a fault "
                "of the policy"
            ) from error
        return Solved(allocation=allocation, solve_s=time.perf_counter() - begin)

    def _policy(self, key: PolicyKey) -> Policy:
        found = self._policies.pop(key, None)
        if found is None:
            found = make_policy(key[0], dict(key[1]))
            if len(self._policies) >= _KEPT_POLICIES:
                del self._policies[next(iter(self._policies))]
        self._policies[key] = found  # last is newest
        return found


def check_answer(problem: Problem, answer: Allocation) -> None:
    """Make sure that an answer can be put to use.

    Raises:
        SolveError: it is no allocation, has another shape, or breaks a bound.
    """
    if not isinstance(answer, Allocation):
        raise SolveError(f"its answer is a {type(answer).__name__} and not an Allocation")
    if answer.x.shape != problem.throughput.shape:
        raise SolveError(
            f"its answer has the shape {answer.x.shape}; the problem asks for "
            f"{problem.throughput.shape}"
        )
    fractions = np.concatenate([answer.x.ravel(), answer.pair_x])
    if not np.isfinite(fractions).all():
        raise SolveError("its answer holds fractions that are not numbers")
    if fractions.min(initial=0.0) < -_TOLERANCE:
        raise SolveError(f"its answer holds the negative fraction {fractions.min()}")
    if answer.time_fraction().max(initial=0.0) > 1 + _TOLERANCE:
        raise SolveError(
            f"its answer gives a job {answer.time_fraction().max()} of the time, more than all"
        )
    over = answer.usage(problem) - problem.capacity * (1 + _TOLERANCE)
    if over.max(initial=0.0) > _TOLERANCE:
        k = int(over.argmax())
        raise SolveError(
            f"its answer uses {answer.usage(problem)[k]} workers of type "
            f"'{problem.table.worker_types[k]}', and {problem.capacity[k]} are in service"
        )


def small_problem() -> Problem:
    """Return a problem of three jobs, on which solvers are imported and kernels compiled."""
    profile = [
        Profile(
            job_type=f"warm-{u}",
            scale_factor=1,
            configurations=(
                Configuration(demand=(1, 0), throughput=2.0 + u),
                Configuration(demand=(0, 1), throughput=1.0),
            ),
        )
        for u in range(3)
    ]
    ones = np.ones(3)
    return Problem(
        now_s=0.0,
        table=ConfigurationTable.build(("warm-a", "warm-b"), tuple(profile), ()),
        capacity=np.ones(2),
        cost_usd_per_hour=np.ones(2),
        job_number=np.arange(3),
        profile=np.arange(3),
        scale_factor=np.ones(3, dtype=np.int64),
        weight=ones,
        total_steps=ones * 1000,
        remaining_steps=ones * 500,
        age_s=ones,
        time_left_s=ones * np.inf,
        attained_worker_s=ones,
        entity=np.zeros(3, dtype=np.int64),
        entities=(Entity(name=""),),
        held=np.full(3, -1, dtype=np.int64),
        restart_s=np.zeros(3),
    )


def serve(connection: Connection) -> None:
    """Answer questions until the daemon is gone. Runs in a process of its own."""
    # The daemon stops us; an interrupt from the keyboard reaches it too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    answerer = Answerer()
    try:
        connection.send(True)  # ready
        while True:
            connection.send(_reply(answerer, connection.recv()))
    except (EOFError, OSError):
        return


def _reply(answerer: Answerer, question: Question) -> Solved | Failure:
    try:
        return answerer.answer(question.policy, question.problem or small_problem())
    except SolveError as error:
        return Failure(reason=str(error))


def _follow_parent() -> None:
    """End with the daemon, even if it was killed in the middle of a solve."""
    from multiprocessing import parent_process  # noqa: PLC0415

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
