"""One lease as the process backend remembers it, in memory and over restarts of the agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.desired import LeaseEnd, LeaseReport, lease_from_dict
from agent.endings import classify
from agent.lease_record import LeaseRecord, tenant_of
from scheduler.errors import InputError

if TYPE_CHECKING:
    from agent.lease_files import LeaseFolder


@dataclass(kw_only=True)
class Record(LeaseRecord):
    """The state of one lease whose job runs as local processes; see ``LeaseRecord``.

    Attributes:
        folder: its files.
        started_s: seconds since the Unix epoch.
        supervisor_pid: while it is our child and not reaped.
    """

    folder: LeaseFolder
    started_s: float | None
    supervisor_pid: int | None = None

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
        leave_by_s = None if notice is None else notice["leave_by_s"]
        tenant = tenant_of(lease, data["secret"], leave_by_s=leave_by_s)
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
            self.advance(data.get("steps_live"), data.get("steps_done"))
        if self.lease.progress_file is not None:
            saved = last_number(Path(self.lease.working_dir, self.lease.progress_file))
            self.advance(saved, saved)

    def close(self) -> None:
        """Work out why the lease ended; its processes are gone."""
        ending = self.folder.read("exit.json")
        self.read_progress()
        if ending is not None:
            self.count_clean_exit(ending["code"])
        self.end, self.message = classify(
            ending,
            noticed=self.tenant.leave_by_s is not None,
            unwanted=self.unwanted,
            steps_done=self.tenant.steps_done,
            total_steps=self.lease.total_steps,
        )
        self.exit_code = None if ending is None or ending["error"] else ending["code"]
        if self.end is LeaseEnd.COMPLETED and self.lease.total_steps is not None:
            self.advance(self.lease.total_steps, self.lease.total_steps)

    def runs(self) -> bool:
        """Tell whether its supervisor has started the processes."""
        return (self.folder.path / "running.json").exists()


def last_number(path: Path) -> int | None:
    """Return the last whole number in the first 4 KB of a file; None if there is none."""
    try:
        with path.open("rb") as file:
            numbers = re.findall(rb"\d+", file.read(4096))
    except OSError:
        return None
    return int(numbers[-1]) if numbers else None
