"""A solver without processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.runtime.solver import policy_key

if TYPE_CHECKING:
    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.domain.answers import Solved
    from scheduler.domain.problem import Problem
    from scheduler.runtime.solver import Answerer


class InlineSolver:
    """Answers in the calling thread: the same answers at the same moments."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    def time_dependent(self, policy: PolicyChoice) -> bool:
        """Ask the answerer."""
        return self._answerer.time_dependent(policy.name, policy.parameters)

    async def warm(self, policy: PolicyChoice) -> None:
        """Load a policy."""
        self._answerer.warm(policy_key(policy))

    async def solve(self, policy: PolicyChoice, problem: Problem) -> Solved:
        """Answer a problem at once."""
        return self._answerer.answer(policy_key(policy), problem)

    async def close(self) -> None:
        """Do nothing."""
