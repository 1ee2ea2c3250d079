"""What both backends remember of a lease, whatever runs under it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.desired import LeaseState
from agent.endpoint import Tenant
from agent.reconcile import Held
from agent.supervisor import LEFT_EARLY

if TYPE_CHECKING:
    from agent.desired import DesiredLease, LeaseEnd


@dataclass(kw_only=True)
class LeaseRecord:
    """The state of one lease.

    Attributes:
        lease: as the scheduler sent it.
        tenant: its entry at the endpoint, with the steps.
        boot: the boot to whose clock the times belong.
        deadline_s: on the lease clock.
        terminated_s: when it was told to end, on the lease clock.
        unwanted: since it was no longer desired.
        kill_s: when it was first to be ended by force, on the lease clock.
        end: why it ended; None while it has not.
        exit_code: see LeaseReport.
        message: see LeaseReport.
        delivered: the end has reached the scheduler.
    """

    lease: DesiredLease
    tenant: Tenant
    boot: str
    deadline_s: float
    terminated_s: float | None = None
    unwanted: bool = False
    kill_s: float | None = None
    end: LeaseEnd | None = None
    exit_code: int | None = None
    message: str = ""
    delivered: bool = False

    def runs(self) -> bool:
        """Tell whether what runs under it has been seen to run."""
        raise NotImplementedError

    def state(self) -> LeaseState:
        """Return where what runs under it is."""
        if self.end is not None:
            return LeaseState.ENDED
        if self.terminated_s is not None or self.tenant.leave_by_s is not None:
            return LeaseState.STOPPING
        return LeaseState.RUNNING if self.runs() else LeaseState.STARTING

    def held(self) -> Held:
        """Return what the reconciliation needs to know."""
        return Held(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            job_id=self.lease.job_id,
            workers=self.lease.workers,
            deadline_s=self.deadline_s,
            notice_s=self.lease.notice_s,
            grace_s=self.lease.grace_s,
            noticed=self.tenant.leave_by_s is not None,
            terminated_s=self.terminated_s,
            ended=self.end is not None,
            delivered=self.delivered,
        )

    def count_clean_exit(self, code: object) -> None:
        """Take the steps seen in the output for checkpointed, where a program left by itself.

        So it is for one that only prints how far it is and leaves when it is asked.
        """
        pattern = self.lease.progress_regex
        silent = pattern is None or "saved" in re.compile(pattern).groupindex
        if code in {0, LEFT_EARLY} and not silent and self.lease.progress_file is None:
            self.advance(None, self.tenant.steps_live)

    def advance(self, live: object, done: object) -> None:
        """Take in numbers of steps, as far as they are numbers; they never shrink."""
        if isinstance(live, int):
            self.tenant.steps_live = max(self.tenant.steps_live, live)
        if isinstance(done, int):
            self.tenant.steps_done = max(self.tenant.steps_done, done)


def tenant_of(lease: DesiredLease, secret: str, *, leave_by_s: float | None = None) -> Tenant:
    """Return a lease's entry at the endpoint, as it begins."""
    return Tenant(
        lease_id=lease.lease_id,
        secret=secret,
        steps_live=lease.steps_done,
        steps_done=lease.steps_done,
        leave_by_s=leave_by_s,
    )
