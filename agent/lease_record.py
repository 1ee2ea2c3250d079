"""The record of a lease that both backends share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.clock import lease_clock_s
from agent.endpoint.endpoint import Tenant
from agent.reconcile import HeldLease
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol import bounds
from scheduler.protocol.desired import LEFT_EARLY
from scheduler.protocol.reports import LeaseReport

if TYPE_CHECKING:
    from agent.logs.matching import Watch
    from scheduler.protocol.desired import DesiredLease

#: How long to wait for the last figures of a lease once none of its processes runs: at most, and at
#: least if its deadline is near.
LAST_FIGURES_S: Final = 10.0
LAST_FIGURES_LEAST_S: Final = 0.5

_log = logging.getLogger("leasehold.agent")


@dataclass(kw_only=True)
class LeaseRecord(ABC):
    """The state of one lease.

    Attributes:
        lease: as the scheduler sent it.
        tenant: its entry at the endpoint, with the steps.
        boot: the boot that the times are measured in; for processes the agent's place, which
            contains it (agents of the previous release stored the boot alone).
        deadline_s: on the lease clock.
        terminated_s: when it was ordered to end, on the lease clock.
        unwanted: since it was no longer desired.
        kill_s: when it was first to be ended by force, on the lease clock.
        end: why it ended; None while it has not.
        exit_code: see LeaseReport.
        message: see LeaseReport.
        delivered_term: term of the report that told the scheduler of the end; None before.
        absurd: whether the job has reported an impossible number of steps.
        failure: the agent's own error at this lease, which ends it; empty if there was none.
        watch: the figures from its output; None if it has no expression, or is not searched.
        over_s: when none of its processes ran any more, on the lease clock.
        left_unasked: whether its processes left early although nothing had asked them to.
    """

    lease: DesiredLease
    tenant: Tenant
    boot: str
    deadline_s: float
    terminated_s: float | None = None
    unwanted: bool = False
    kill_s: float | None = None
    end: EndReason | None = None
    exit_code: int | None = None
    message: str = ""
    delivered_term: int | None = None
    absurd: bool = False
    failure: str = ""
    watch: Watch | None = None
    over_s: float | None = None
    left_unasked: bool = False

    @abstractmethod
    def runs(self) -> bool:
        """Return whether its processes have been seen to run."""

    def state(self) -> LeasePhase:
        """Return the state of its processes."""
        if self.end is not None:
            return LeasePhase.ENDED
        if self.terminated_s is not None or self.tenant.leave_by_s is not None:
            return LeasePhase.STOPPING
        return LeasePhase.RUNNING if self.runs() else LeasePhase.STARTING

    @abstractmethod
    def report(self) -> LeaseReport:
        """Return the report for the scheduler."""

    def fail(self, error: Exception) -> None:
        """Note an error of the agent at this lease; it must end, and no other lease."""
        if not self.failure:
            _log.error("lease %d ends: the agent failed at it", self.lease.lease_id, exc_info=error)
            what = bounds.clean_text(f"{type(error).__name__}: {error}", 1000)
            self.failure = f"the agent failed at this lease ({what}); see its log"

    def safe_report(self) -> LeaseReport:
        """Return ``report``, or a minimal report if that fails."""
        try:
            return self.report()
        except Exception as error:  # noqa: BLE001 - a report is about other leases too
            self.fail(error)
        return LeaseReport(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            state=self.state(),
            reason=self.end,
            steps_done=self.tenant.steps_done,
            steps_live=max(self.tenant.steps_live, self.tenant.steps_done),
            message=self.message,
            nonce=self.lease.nonce,
            job_id=self.lease.job_id,
        )

    def held(self) -> HeldLease:
        """Return the lease's state for the reconciliation."""
        return HeldLease(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            job_id=self.lease.job_id,
            attempt=self.lease.attempt,
            nonce=self.lease.nonce,
            workers=self.lease.workers,
            deadline_s=self.deadline_s,
            notice_s=self.lease.notice_s,
            grace_s=self.lease.grace_s,
            noticed=self.tenant.leave_by_s is not None,
            terminated_s=self.terminated_s,
            ended=self.end is not None,
            delivered_term=self.delivered_term,
        )

    def count_clean_exit(self, code: object) -> None:
        """Count the steps from the output as checkpointed if a program left by itself.

        So it is for a program that only prints its progress and leaves when it is asked.
        """
        only_live = self.watch is not None and self.watch.tells_saved is False
        if code in {0, LEFT_EARLY} and only_live and self.lease.progress_file is None:
            self.advance(None, self.tenant.steps_live)

    def note_leaving(self, code: object, *, asked: bool) -> None:
        """Note whether its processes left early by themselves, now that its end is known.

        Args:
            code: their exit code, if it is known.
            asked: whether anybody or anything had asked them to leave.
        """
        tenant = self.tenant
        asked = asked or self.unwanted or tenant.was_noticed or tenant.leave_by_s is not None
        if self.end is EndReason.RELEASED and code == LEFT_EARLY and not asked:
            self.left_unasked = True
            self.message = f"it left with exit code {LEFT_EARLY} although nothing had asked it to"

    def take_watched(self) -> None:
        """Take in the figures from the output."""
        if self.watch is not None:
            self.advance(self.watch.steps, self.watch.saved)

    def patience_over(self) -> bool:
        """Return whether the wait for late figures is over, now that no process runs.

        The end must be reported before the deadline is past, if there is time for it at all.
        """
        now_s = lease_clock_s()
        self.over_s = now_s if self.over_s is None else self.over_s
        left_s = self.deadline_s - self.over_s
        return now_s - self.over_s >= min(max(left_s / 2, LAST_FIGURES_LEAST_S), LAST_FIGURES_S)

    def advance(self, live: object, done: object) -> None:
        """Take in numbers of steps that are within bounds; they never shrink."""
        self.tenant.advance(bounds.step_count(live), bounds.step_count(done))
        told = [n for n in (live, done) if isinstance(n, int) and bounds.step_count(n) is None]
        if told and not self.absurd:
            self.absurd = True
            _log.warning(
                "lease %d reports a number of steps below 0 or above %d; the number is ignored",
                self.lease.lease_id,
                bounds.MOST_COUNT,
            )


def tenant_of(lease: DesiredLease, secret: str, *, leave_by_s: float | None = None) -> Tenant:
    """Return a lease's new entry at the endpoint."""
    return Tenant(
        lease_id=lease.lease_id,
        secret=secret,
        steps_live=lease.steps_done,
        steps_done=lease.steps_done,
        leave_by_s=leave_by_s,
    )
