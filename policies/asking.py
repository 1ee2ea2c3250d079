"""Ask a policy one question, whether in a replay or for the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.quotas import within_quotas
from scheduler.domain.allocation import Allocation
from scheduler.domain.answers import check_answer
from scheduler.errors import LeaseholdError, PolicyFaultError

if TYPE_CHECKING:
    from policies.base import Policy
    from scheduler.domain.problem import Problem


def ask(policy: Policy, problem: Problem) -> Allocation:
    """Return a policy's answer, scaled down to the quotas and held against the bounds.

    Raises:
        SolveError: the policy has no answer to this question, or one that cannot be used.
        PolicyFaultError: it raised something else; a plugin may raise anything.
    """
    try:
        answer = policy.allocate(problem)
        if isinstance(answer, Allocation):  # a plugin may answer anything
            answer = within_quotas(problem, answer)
        check_answer(problem, answer)
    except LeaseholdError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyFaultError.of(policy.name, error) from error
    return answer
