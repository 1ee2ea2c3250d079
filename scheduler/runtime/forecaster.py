"""The port to replays of the live state: the future of jobs, and the effect of a policy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.control.facts.facts import JobsSubmitted
    from scheduler.control.facts.requests import Fit, PolicyChoice
    from scheduler.control.state.control_copy import ControlCopy
    from scheduler.views.types import ExpectedStarts, Explanation, PolicyTrial


class Forecaster(Protocol):
    """Replays the live state."""

    async def add_times(
        self,
        copied: Callable[[], Awaitable[ControlCopy]],
        explanation: Explanation,
        *,
        changed_s: float = -math.inf,
    ) -> Explanation:
        """Return the explanation with expected times, or with the reason why they are missing.

        Args:
            copied: copies control as it is published, once no decision is being stored.
            explanation: without times.
            changed_s: the time of the last change by a user, which the times must cover.
        """
        ...

    def starts(
        self, copied: Callable[[], Awaitable[ControlCopy]], job_ids: Sequence[str]
    ) -> ExpectedStarts:
        """Return when jobs will start, by the last replay; do not wait for one.

        If the last replay is old, another one begins, and answers the next question.

        Args:
            copied: as for ``add_times``.
            job_ids: jobs that wait.
        """
        ...

    async def try_job(
        self, copied: Callable[[], Awaitable[ControlCopy]], fact: JobsSubmitted, fit: Fit
    ) -> Fit:
        """Return a fit with expected times, or with the reason why there are none.

        Args:
            copied: as for ``add_times``.
            fact: the submission of one job.
            fit: of that job.
        """
        ...

    async def try_policy(
        self,
        copied: Callable[[], Awaitable[ControlCopy]],
        choice: PolicyChoice,
        *,
        time_dependent: bool,
    ) -> PolicyTrial:
        """Return what a policy would change in the next round.

        Args:
            copied: as for ``add_times``.
            choice: a policy that can be used.
            time_dependent: whether its answers change as time passes.

        Raises:
            ConflictError: the replay takes too long, or died.
        """
        ...
