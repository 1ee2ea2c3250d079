"""One lease as the process backend remembers it, in memory and over restarts of the agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.desired import DesiredLease, LeaseEnd, LeaseReport, LeaseState, lease_from_dict
from agent.endings import classify
from agent.endpoint import Tenant
from agent.reconcile import Held
from agent.supervisor import LEFT_EARLY
from scheduler.errors import InputError

if TYPE_CHECKING:
    from agent.lease_files import LeaseFolder


@dataclass(kw_only=True)
class Record:
    """The state of one lease.

    Attributes:
        folder: its files.
        lease: as the scheduler sent it.
        tenant: its entry at the endpoint, with the steps.
        boot: the boot under which it was started.
        started_s: seconds since the Unix epoch.
        deadline_s: on the lease clock.
        terminated_s: when SIGTERM was ordered, on the lease clock.
        unwanted: SIGTERM was ordered because the lease was no longer desired.
        kill_s: when SIGKILL was first ordered, on the lease clock.
        supervisor_pid: while it is our child and not reaped.
        end: why it ended; None while it has not.
        exit_code: see LeaseReport.
        message: see LeaseReport.
        delivered: the end has reached the scheduler.
    """

    folder: LeaseFolder
    lease: DesiredLease
    tenant: Tenant
    boot: str
    started_s: float | None
    deadline_s: float
    terminated_s: float | None = None
    unwanted: bool = False
    kill_s: float | None = None
    supervisor_pid: int | None = None
    end: LeaseEnd | None = None
    exit_code: int | None = None
    message: str = ""
    delivered: bool = False

    @classmethod
    def load(cls, folder: LeaseFolder) -> Record | None:
        """Read a record back; None if the agent died before it was complete."""
        data, control = folder.read("lease.json"), folder.read("control.json")
        if data is None or control is None:
            return None
        try:
            lease = lease_from_dict(data["lease"])
        except InputError:
            return None  # written by another version: nothing runs under it that we could manage
        notice = folder.read("notice.json")
        tenant = Tenant(
            lease_id=lease.lease_id,
            secret=data["secret"],
            steps_live=lease.steps_done,
            steps_done=lease.steps_done,
            leave_by_s=None if notice is None else notice["leave_by_s"],
        )
        refused = data.get("refused")
        return cls(
            folder=folder,
            lease=lease,
            tenant=tenant,
            boot=data["boot"],
            started_s=data["started_s"],
            deadline_s=control["deadline_s"],
            terminated_s=control["terminated_s"],
            unwanted=control["unwanted"],
            end=None if refused is None else LeaseEnd(refused["reason"]),
            message="" if refused is None else refused["message"],
        )

    def save(self, *, margin_s: float) -> None:
        """Write the orders for the supervisor."""
        self.folder.write(
            "control.json",
            {
                "deadline_s": self.deadline_s,
                "grace_s": self.lease.grace_s,
                "margin_s": margin_s,
                "terminate": self.terminated_s is not None,
                "kill": self.kill_s is not None,
                "terminated_s": self.terminated_s,
                "unwanted": self.unwanted,
            },
        )

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

    def report(self) -> LeaseReport:
        """Return what the scheduler needs to know."""
        if self.end is None:
            self.read_progress()
        return LeaseReport(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            state=self.state(),
            reason=self.end,
            exit_code=self.exit_code,
            steps_done=self.tenant.steps_done,
            steps_live=max(self.tenant.steps_live, self.tenant.steps_done),
            started_s=self.started_s,
            message=self.message,
        )

    def read_progress(self) -> None:
        """Take in the steps that lie in files. Counts never shrink."""
        for name in ("output.json", "progress.json"):
            data = self.folder.read(name) or {}
            self._advance(data.get("steps_live"), data.get("steps_done"))
        if self.lease.progress_file is not None:
            saved = last_number(Path(self.lease.working_dir, self.lease.progress_file))
            self._advance(saved, saved)

    def close(self) -> None:
        """Work out why the lease ended; its processes are gone."""
        ending = self.folder.read("exit.json")
        self.read_progress()
        if ending is not None and self._left_cleanly(ending["code"]):
            self.tenant.steps_done = max(self.tenant.steps_done, self.tenant.steps_live)
        self.end, self.message = classify(
            ending,
            noticed=self.tenant.leave_by_s is not None,
            unwanted=self.unwanted,
            steps_done=self.tenant.steps_done,
            total_steps=self.lease.total_steps,
        )
        self.exit_code = None if ending is None or ending["error"] else ending["code"]
        if self.end is LeaseEnd.COMPLETED and self.lease.total_steps is not None:
            self._advance(self.lease.total_steps, self.lease.total_steps)

    def _left_cleanly(self, code: object) -> bool:
        """Tell whether the steps seen in the output may be taken as checkpointed.

        So it is for a program that only prints how far it is and leaves by itself when asked.
        """
        pattern = self.lease.progress_regex
        silent = pattern is None or "saved" in re.compile(pattern).groupindex
        return code in {0, LEFT_EARLY} and not silent and self.lease.progress_file is None

    def _advance(self, live: object, done: object) -> None:
        if isinstance(live, int):
            self.tenant.steps_live = max(self.tenant.steps_live, live)
        if isinstance(done, int):
            self.tenant.steps_done = max(self.tenant.steps_done, done)

    def state(self) -> LeaseState:
        """Return where its processes are."""
        if self.end is not None:
            return LeaseState.ENDED
        if self.terminated_s is not None or self.tenant.leave_by_s is not None:
            return LeaseState.STOPPING
        if (self.folder.path / "running.json").exists():
            return LeaseState.RUNNING
        return LeaseState.STARTING


def last_number(path: Path) -> int | None:
    """Return the last whole number in the first 4 KB of a file; None if there is none."""
    try:
        with path.open("rb") as file:
            numbers = re.findall(rb"\d+", file.read(4096))
    except OSError:
        return None
    return int(numbers[-1]) if numbers else None
