"""Answer one allocation problem, in a process separate from the daemon.

A policy may be a plugin. If it fails or answers wrongly, the daemon still gets a ``SolveError``
that names the policy; otherwise it gets an allocation that fits the problem.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from policies.asking import ask
from policies.registry import make_policy
from scheduler.domain.answers import Failure, Question, Solved, TableOnce
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.problem import Entity, Problem
from scheduler.errors import LeaseholdError, PolicyFaultError, SolveError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

    from policies.base import Policy
    from scheduler.domain.answers import PolicyKey

_KEPT_POLICIES = 4


class PolicyAnswerer:
    """Policies by name and parameters. They are cached because some use their earlier answers.

    Implements ``scheduler.runtime.solver.Answerer``.
    """

    def __init__(self) -> None:
        self._policies: dict[PolicyKey, Policy] = {}

    def answer(self, key: PolicyKey, problem: Problem) -> Solved:
        """Ask a policy.

        Raises:
            SolveError: there is no such policy, it raised something, or its answer does not fit.
        """
        begin = time.perf_counter()
        try:
            allocation = ask(self._policy(key), problem)
        except PolicyFaultError as error:
            raise SolveError(str(error)) from error
        except LeaseholdError as error:
            raise SolveError(f"policy '{key[0]}': {error}") from error
        return Solved(allocation=allocation, solve_s=time.perf_counter() - begin)

    def warm(self, key: PolicyKey) -> Solved:
        """Load a policy and its solvers by asking it about a small problem.

        Raises:
            SolveError: as ``answer``.
        """
        return self.answer(key, small_problem())

    def time_dependent(self, name: str, parameters: Mapping[str, str]) -> bool:
        """Return whether a policy's answers change as time passes.

        Raises:
            UnknownPolicyError: no policy has that name.
            ParameterError: a parameter is unknown or wrong.
        """
        return make_policy(name, parameters).time_dependent

    def serve(self, connection: Connection) -> None:
        """Answer questions until the daemon ends. Runs in a separate process."""
        # The daemon stops us; an interrupt from the keyboard reaches it too.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_follow_parent, daemon=True).start()
        try:
            connection.send(True)  # ready
            tables = TableOnce()
            while True:
                connection.send(self._reply(tables.unpacked(*connection.recv())))
        except (EOFError, OSError):
            return

    def _reply(self, question: Question) -> Solved | Failure:
        try:
            return self.answer(question.policy, question.problem or small_problem())
        except SolveError as error:
            return Failure(reason=str(error))

    def _policy(self, key: PolicyKey) -> Policy:
        found = self._policies.pop(key, None)
        if found is None:
            found = make_policy(key[0], dict(key[1]))
            if len(self._policies) >= _KEPT_POLICIES:
                del self._policies[next(iter(self._policies))]
        self._policies[key] = found  # last is newest
        return found


def small_problem() -> Problem:
    """Return a problem of three jobs; solving it imports the solvers and compiles the kernels.

    Its gangs of two do not fill three workers, so the search for whole answers runs too.
    """
    count = (2, 2, 1)
    profile = [
        Profile(
            job_type=f"warm-{u}",
            scale_factor=count[u],
            configurations=(
                Configuration(demand=(count[u], 0), throughput=2.0 + u),
                Configuration(demand=(0, count[u]), throughput=1.0),
            ),
        )
        for u in range(3)
    ]
    ones = np.ones(3)
    return Problem(
        now_s=0.0,
        table=ConfigurationTable.build(("warm-a", "warm-b"), tuple(profile), ()),
        capacity=np.array([3.0, 1.0]),
        cost_usd_per_hour=np.ones(2),
        job_number=np.arange(3),
        profile=np.arange(3),
        scale_factor=np.array(count),
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


def _follow_parent() -> None:
    """End this process when the daemon ends, even if it was killed during a solve."""
    from multiprocessing import parent_process  # noqa: PLC0415 - policies need no processes

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
