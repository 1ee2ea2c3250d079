"""One lease in the process backend, in memory and over restarts of the agent."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.clock import lease_clock_s
from agent.disk import DISK_FULL
from agent.lease_record import LeaseRecord, tenant_of
from agent.process.endings import classify_ending
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError
from scheduler.protocol.bounds import clean_text
from scheduler.protocol.desired import LEFT_UNASKED, lease_from_dict
from scheduler.protocol.reading import Reader
from scheduler.protocol.reports import LeaseReport

if TYPE_CHECKING:
    from agent.process.lease_files import LeaseFolder
    from agent.process.steps_file import StepsFile

_log = logging.getLogger("leasehold.agent")


@dataclass(kw_only=True)
class Record(LeaseRecord):
    """The state of one lease with a job in local processes; see ``LeaseRecord``.

    Attributes:
        folder: its files.
        started_s: seconds since the Unix epoch.
        supervisor_pid: while it is our child and not reaped.
        watched: whether this agent has seen its supervisor alive.
        since_ticks: no process under it is older, see ``start_ticks``.
        clearing_s: since when its supervisor's leftovers are being killed, on the lease clock.
        looked_s: when they were last searched for.
        left: the leftovers that were last seen alive, as text.
        begun_s: since when this agent has waited for its processes, on the lease clock.
        overdue: why they were given up; empty if they were not.
        disk_problem: why the agent could not write when it ended badly; empty if it could.
        steps_file: the file of its steps, if it names one.
        uid: user of its processes; None: the agent's.
    """

    folder: LeaseFolder
    started_s: float | None
    supervisor_pid: int | None = None
    watched: bool = False
    since_ticks: int = 0
    clearing_s: float | None = None
    looked_s: float = 0.0
    left: str = ""
    begun_s: float = field(default_factory=lease_clock_s)
    overdue: str = ""
    disk_problem: str = ""
    steps_file: StepsFile | None = None
    uid: int | None = None

    @classmethod
    def load(cls, folder: LeaseFolder) -> Record | None:
        """Read a record back; None if the agent died before it was complete."""
        data, control = folder.read("lease.json"), folder.read("control.json")
        if data is None or control is None:
            return None
        try:
            return cls._read(folder, Reader(data), Reader(control))
        except InputError as error:
            # Written by another version, or by the job: nothing in it can be managed.
            _log.warning("the lease in %s cannot be read and ends: %s", folder.path, error)
            return None

    @classmethod
    def _read(cls, folder: LeaseFolder, data: Reader, control: Reader) -> Record:
        lease = lease_from_dict(data.data.get("lease"))
        notice = Reader(folder.told().read("notice.json") or {})
        leave_by_s = notice.optional("leave_by_s", notice.number)
        tenant = tenant_of(lease, data.text("secret"), leave_by_s=leave_by_s)
        refused = Reader(data.json("refused"))
        reason = refused.optional("reason", refused.text)
        return cls(
            folder=folder,
            lease=lease,
            tenant=tenant,
            boot=data.text("boot"),
            started_s=data.optional("started_s", data.number),
            deadline_s=control.number("deadline_s"),
            terminated_s=control.optional("terminated_s", control.number),
            unwanted=control.flag("unwanted"),
            end=EndReason(reason) if reason in set(EndReason) else None,
            message=clean_text(refused.data.get("message", "")),
            uid=lease.uid if (folder.path / "own").is_dir() else None,
        )

    def save(self, *, margin_s: float) -> None:
        """Write the orders for the supervisor; on a full disk overwrite the previous ones."""
        self.folder.write_over(
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

    def state(self) -> LeasePhase:
        """Return the state of its processes; those being killed count as stopping."""
        if self.end is None and self.clearing_s is not None:
            return LeasePhase.STOPPING
        return super().state()

    def report(self) -> LeaseReport:
        """Return the report for the scheduler."""
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
            learning=self.tenant.learning,
            started_s=self.started_s,
            message=self.message,
            reason_code=self._reason_code(),
            progress_problem=self.progress_problem(),
            nonce=self.lease.nonce,
            job_id=self.lease.job_id,
        )

    def _reason_code(self) -> str:
        if self.overdue and self.end is EndReason.LOST:
            return "NotStarted"
        if self.disk_problem:
            return DISK_FULL
        return LEFT_UNASKED if self.left_unasked else ""

    def read_progress(self) -> None:
        """Take in the steps from files and from the search. Counts never shrink."""
        for data in (self.folder.read("output.json"), self.folder.read_own(self.uid)):
            if data is not None:
                self.advance(data.get("steps_live"), data.get("steps_done"))
        self.take_watched()
        if self.steps_file is not None:
            self.steps_file.look()
            self.advance(self.steps_file.number, self.steps_file.number)

    def figures_in(self) -> bool:
        """Return whether all steps have been read, now that no process runs."""
        if self.steps_file is not None:
            self.steps_file.look_last()
            if not self.steps_file.settled:
                return False
        return self.watch is None or self.watch.finished

    def progress_problem(self) -> str:
        """Return why steps cannot be read; empty if they can, or may yet be."""
        found = [part.problem for part in (self.watch, self.steps_file) if part is not None]
        return "; ".join(filter(None, found))

    def blame_disk(self, problem: str) -> None:
        """Note for a lease that was lost or has failed that the agent could not write then.

        Args:
            problem: see ``agent.disk``; empty if there was none.
        """
        if problem and self.end in {EndReason.LOST, EndReason.FAILED}:
            self.disk_problem = problem
            self.message = "; ".join(filter(None, (self.message, problem)))

    def close(self) -> None:
        """Find out why the lease ended; its processes are gone."""
        ending = self.folder.read("exit.json")
        self.read_progress()
        if ending is not None:
            self.count_clean_exit(ending["code"])
        self.end, self.message = classify_ending(
            ending,
            noticed=self.tenant.leave_by_s is not None,
            unwanted=self.unwanted,
            steps_done=self.tenant.steps_done,
            total_steps=self.lease.total_steps,
        )
        if self.overdue and self.end is not EndReason.COMPLETED:
            self.end, self.message = EndReason.LOST, self.overdue
        if ending is not None:
            asked = bool(ending["terminated"] or ending["expired"])
            self.note_leaving(ending["code"], asked=asked)
        self.exit_code = None if ending is None or ending["error"] else ending["code"]
        if self.end is EndReason.COMPLETED and self.lease.total_steps is not None:
            self.advance(self.lease.total_steps, self.lease.total_steps)

    @property
    def ending(self) -> bool:
        """Whether it is being stopped, or has ended."""
        return not (self.end is None and self.terminated_s is None and self.kill_s is None)

    def runs(self) -> bool:
        """Return whether its supervisor has started the processes."""
        return (self.folder.path / "running.json").exists()
