"""The process backend: runs jobs as local processes, each lease under a supervisor of its own.

The state that must survive the agent lies in files (see ``lease_files``), and the supervisor
enforces the deadline. The agent may be killed at any moment and find everything again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent.process.supervisor
from agent.clock import lease_clock_s
from agent.disk import disk_problem, is_full
from agent.folders import boot_id, place_of
from agent.isolation import IsolatedBackend, restart_on_error
from agent.lease_record import tenant_of
from agent.logs.log_files import SENT, make_log_folder
from agent.logs.matching import Matching
from agent.process.beside import LocalCommand
from agent.process.cells.confinement import DOOR, discard_folder, path_for_agent
from agent.process.clearing import Clearing
from agent.process.control_groups import ControlGroups, LeaseGroup, remove_groups
from agent.process.environment import Places, process_environment
from agent.process.lease_files import LeaseFolder
from agent.process.master_port import find_port_conflict
from agent.process.record import Record
from agent.process.remnants import become_reaper
from agent.process.steps_file import StepsFile
from agent.process.supervisor import start_ticks
from agent.process.work_folders import WorkFolders
from agent.reconcile import Forget, Kill, Notice, Refuse, Renew, Start, Terminate
from scheduler.domain.lease_life import EndReason
from scheduler.errors import InputError
from scheduler.protocol.desired import to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from agent.backend import Command
    from agent.endpoint.endpoint import Endpoint
    from agent.gpus.inventory import Inventory
    from agent.process.cells.confinement import Confinement
    from agent.reconcile import Action, HeldLease, WantedLease
    from scheduler.domain.lease_life import LeasePhase
    from scheduler.protocol.desired import DesiredExec, DesiredImage, DesiredLease
    from scheduler.protocol.reports import LeaseReport

_log = logging.getLogger("leasehold.agent")

#: How long a supervisor may take to obey SIGKILL orders before the agent does it itself.
OBEY_S = 1.0


class ProcessBackend(IsolatedBackend[Record]):
    """Starts, stops and adopts the processes under leases.

    Args:
        state_dir: private folder of this agent; holds leases, logs and the socket.
        inventory: the node's workers.
        endpoint: the endpoint for jobs' reports.
        on_change: called when a lease's processes have ended.
        margin_s: from SIGKILL to the deadline.
        log_bytes: size at which a log file moves aside.
        log_backups: how many of those are kept.
        log_leases: the number of leases with kept logs; twice as many while the scheduler does not
            have them.
        groups: the place for control groups; by default none.
        confinement: how jobs are kept apart; by default not at all.
        start_most_s: how long the processes of a lease may take to appear.
        node: the node's name, for messages.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        inventory: Inventory,
        endpoint: Endpoint,
        on_change: Callable[[], None],
        margin_s: float = 1.0,
        log_bytes: int = 16 * 2**20,
        log_backups: int = 3,
        log_leases: int = 1000,
        groups: ControlGroups | None = None,
        confinement: Confinement | None = None,
        start_most_s: float = 120.0,
        node: str = "",
    ) -> None:
        self._state_dir, self._node = state_dir, node or platform.node()
        self._leases_dir, self.logs_dir = state_dir / "leases", state_dir / "logs"
        self._work = WorkFolders(state_dir)
        for folder in (self._leases_dir, self.logs_dir, self._work.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._inventory = inventory
        self._endpoint = endpoint
        self._on_change = on_change
        self._margin_s = margin_s
        self._log_bytes, self._log_backups, self._log_leases = log_bytes, log_backups, log_leases
        self._records: dict[int, Record] = {}
        self._zombies: set[int] = set()
        self._place = place_of(state_dir / "lock")
        self._groups = groups or ControlGroups()
        self._confinement = confinement
        door = state_dir / DOOR
        if confinement is not None:
            door.mkdir(exist_ok=True, mode=0o755)
        if door.is_dir():  # jobs that an earlier agent has confined run on
            endpoint.door = door
        self._clearing = Clearing(leases_dir=self._leases_dir, records=self._records)
        self._start_most_s = start_most_s
        self._matching = Matching(on_change=on_change)

    def adopt(self) -> tuple[HeldLease, ...]:
        """Adopt the leases that an earlier agent left, running or ended. Needs a running loop."""
        become_reaper()
        for path in sorted(self._leases_dir.iterdir()):
            record = Record.load(LeaseFolder(path))
            if record is None:
                shutil.rmtree(path, ignore_errors=True)
                continue
            self._records[record.lease.lease_id] = record
            self._endpoint.admit(record.tenant)
            self._look_for_steps(record)
            self._watch(record, (record.folder.read("running.json") or {}).get("pid"))
        kept = {record.lease.working_dir for record in self._records.values()}
        self._work.clear(kept)
        self._groups.clear(self._records)
        self._clearing.clear_unknown()
        return self.held()

    def place(self) -> str:
        """Return the place of the jobs' processes: this folder, in this boot of this machine."""
        return self._place

    async def open(self) -> tuple[HeldLease, ...]:
        """Do as ``adopt``."""
        return self.adopt()

    async def run(self) -> None:
        """Search output for steps; supervisors do the other background work."""
        await restart_on_error(self._matching.run)

    def prepare(self, images: tuple[DesiredImage, ...]) -> None:
        """Do nothing: local processes have no images."""

    async def run_beside(self, order: DesiredExec) -> Command:
        """Start a command beside a job's processes.

        Raises:
            InputError: the job does not run.
        """
        spec, record = self._inside(order), self._records[order.lease_id]
        return await LocalCommand.begin(spec, lambda: record.ending)

    def _inside(self, order: DesiredExec) -> Mapping[str, Any]:
        """Return how to become a process of a running job; see ``agent.process.inside``."""
        record = self._records.get(order.lease_id)
        leaders = None if record is None else (record.folder.read("running.json") or {})
        if record is None or record.end is not None or not leaders:
            raise InputError("the job does not run on this node now; try again when it does")
        if record.terminated_s is not None:
            raise InputError("the job is being stopped on this node")
        launch = record.folder.read("launch.json") or {}
        found = sorted(leaders["groups"].items(), key=lambda pair: int(pair[0]))
        pid, ticks = found[min(order.position, len(found) - 1)]
        return {
            "leader": int(pid),
            "ticks": ticks,
            "cell": launch.get("cell"),
            "groups": (launch.get("group") or {}).get("folders", []),
            "cwd": launch["cwd"],
            "command": list(order.command),
        }

    def remarks(self) -> tuple[str, ...]:
        """Return why limits cannot be set, if that is so."""
        return tuple(filter(None, (self._groups.problem, self._clearing.remark)))

    def problems(self, inventory: Mapping[int, str]) -> dict[int, str]:
        """Return by worker why it cannot be granted; also a process that cannot be killed."""
        return self._clearing.problems() | dict(inventory)

    def held(self) -> tuple[HeldLease, ...]:
        """Return every lease on this node, ended ones included."""
        for record in self._records.values():
            if record.end is None:
                self._look(record)
        self._clearing.clear_strays()
        for pid in tuple(self._zombies):
            self._reap(pid)
        return tuple(record.held() for _, record in sorted(self._records.items()))

    def owner_of(self, lease: DesiredLease) -> int | None:
        """Return the uid of a lease's job; None if jobs are not confined."""
        return None if self._confinement is None else lease.uid

    def reports(self) -> tuple[LeaseReport, ...]:
        """Return every lease for the scheduler, ascending by id."""
        return tuple(record.safe_report() for _, record in sorted(self._records.items()))

    def states(self) -> dict[int, LeasePhase]:
        """Return the state of each lease's processes."""
        return {lease_id: record.state() for lease_id, record in self._records.items()}

    def running(self) -> set[int]:
        """Return the leases under which there may still be processes."""
        return {lease_id for lease_id, record in self._records.items() if record.end is None}

    def mark_delivered(self, lease_ids: Collection[int], *, term: int) -> None:
        """Note that a report of a term has told the scheduler how these leases ended."""
        for lease_id in lease_ids:
            if lease_id in self._records:
                self._records[lease_id].delivered_term = term

    def _perform(self, action: Action) -> None:
        if isinstance(action, Start) and action.fault:
            self._refuse(action.wanted, EndReason.FAILED, action.fault)
        elif isinstance(action, Start):
            self._start(action.wanted)
        elif isinstance(action, Refuse):
            self._refuse(action.wanted, EndReason.RELEASED, action.message)
        elif isinstance(action, Forget):
            self._forget(action.lease_id)
        else:
            self._order(self._records[action.lease_id], action)

    def _order(self, record: Record, action: Renew | Notice | Terminate | Kill) -> None:
        if record.end is not None:
            return
        now_s = lease_clock_s()
        if isinstance(action, Notice):
            self._give_notice(record, action.by_s if action.on else None)
            return
        if isinstance(action, Renew):
            self._renew(record, action.deadline_s)
            return
        if isinstance(action, Terminate):
            record.terminated_s, record.unwanted = now_s, action.unwanted
            self._give_notice(record, now_s)
        elif record.kill_s is None:
            record.kill_s = now_s
        elif now_s - record.kill_s > OBEY_S:
            self._clear(record)  # a supervisor that does not obey
            return
        record.save(margin_s=self._margin_s)
        self._poke(record)

    def _renew(self, record: Record, deadline_s: float) -> None:
        """Pass a lease's new deadline to the supervisor; if that fails the lease runs down."""
        before, record.deadline_s = record.deadline_s, deadline_s
        try:
            record.save(margin_s=self._margin_s)
        except OSError as error:
            if not is_full(error):
                raise
            record.deadline_s = before  # tried again soon, while the lease is wanted
            return
        self._poke(record)

    def _give_notice(self, record: Record, leave_by_s: float | None) -> None:
        try:
            if leave_by_s is None:
                (record.folder.told().path / "notice.json").unlink(missing_ok=True)
            else:
                record.folder.told().write("notice.json", {"leave_by_s": leave_by_s})
        except OSError as error:  # a job that asks the endpoint still receives it
            if not is_full(error):
                raise
        self._endpoint.notify(record.lease.lease_id, leave_by_s)

    def _start(self, wanted: WantedLease) -> None:
        lease = wanted.lease
        try:
            devices = self._inventory.environment(lease.workers)
        except InputError as error:
            self._refuse(wanted, EndReason.LOST, str(error))
            return
        if conflict := find_port_conflict(lease):
            self._refuse(wanted, EndReason.LOST, conflict)
            return
        confinement = self._confinement
        if confinement is not None and (fault := confinement.fault(lease)):
            self._refuse(wanted, EndReason.FAILED, fault)
            return
        if confinement is not None and lease.uid is None:
            _log.warning(
                "lease %d runs as root: the scheduler, of an earlier release, gives it no uid",
                lease.lease_id,
            )
        uid = self.owner_of(lease)
        lease = self._work.settled(lease, uid)
        record = self._new_record(replace(wanted, lease=lease), started_s=time.time())
        folder, path, socket = record.folder, record.folder.path, self._endpoint.path
        places = Places(folder=path, socket=socket, told=path, own=path)
        cwd = lease.working_dir
        if confinement is not None and uid is not None:
            record.uid = uid
            places = confinement.furnish(path, uid, socket=socket.name)
            cwd = confinement.seen_work(lease)
        logs = self.logs_dir / str(lease.lease_id)
        processes = [
            {
                "env": process_environment(
                    lease,
                    position,
                    devices=devices,
                    places=places,
                    secret=record.tenant.secret,
                ),
                "stdout": str(logs / f"stdout.{lease.rank + position}.log"),
                "stderr": str(logs / f"stderr.{lease.rank + position}.log"),
            }
            for position in range(len(lease.local_ranks))
        ]
        launch: dict[str, object] = {
            "command": list(lease.command),
            "cwd": cwd,
            "checkpoint_dir": lease.checkpoint_dir,
            "processes": processes,
            "log_bytes": self._log_bytes,
            "log_backups": self._log_backups,
        }
        if confinement is not None and uid is not None:
            nodes = self._inventory.nodes(lease.workers)
            launch["cell"] = confinement.cell(lease, folder.path, nodes)
        group = self._make_group(lease)
        if group is not None:
            launch["group"] = group.to_dict()
        folder.write("launch.json", launch)
        self._watch(record, self._launch(record))
        self._look_for_steps(record)

    def _look_for_steps(self, record: Record) -> None:
        """Start to search the files for steps, besides the job's own reports."""
        lease = record.lease
        if record.end is not None:
            return
        if lease.progress_file is not None:
            loop = asyncio.get_running_loop()

            def settled() -> None:
                with contextlib.suppress(RuntimeError):  # the agent has ended
                    loop.call_soon_threadsafe(self._on_change)

            path = Path(lease.working_dir, lease.progress_file)
            work = Path(lease.working_dir)
            file = path_for_agent(record.uid, path, folder=record.folder.path, work=work)
            record.steps_file = StepsFile(file, on_settled=settled)
        if lease.progress_regex is not None:
            record.watch = self._matching.watch(
                lease.lease_id,
                expression=lease.progress_regex,
                files=tuple(log_files(self, lease).values()),
                state=record.folder.path / "output.json",
            )

    def _make_group(self, lease: DesiredLease) -> LeaseGroup | None:
        try:
            return self._groups.make(
                lease.lease_id, memory_bytes=lease.memory_bytes, cpus=lease.cpus
            )
        except OSError as error:
            _log.warning("lease %d runs without its limits: %s", lease.lease_id, error)
            return None

    def _launch(self, record: Record) -> int:
        """Start the supervisor, which takes the lock with it, and return its pid."""
        folder = record.folder
        lock = folder.open_lock()
        assert lock is not None, "the folder is new"
        self._write_identity(record, refused=None)
        command = [sys.executable, "-I", "-S", agent.process.supervisor.__file__, str(folder.path)]
        with (
            self._supervisor_log(record.lease.lease_id).open("ab") as log,
            _in_memory(record.lease.secret_env) as given,
        ):
            child = subprocess.Popen(  # noqa: S603 - our own program
                [*command, str(lock)],
                cwd="/",
                env={"LEASEHOLD_LEASE_FOLDER": str(folder.path)},
                stdin=given,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
            )
        os.close(lock)
        record.lease = replace(record.lease, secret_env={})  # needed no more
        child.returncode = 0  # we reap by pid: an adopted supervisor has no such object either
        record.supervisor_pid = child.pid
        record.watched, record.since_ticks = True, start_ticks(child.pid)
        return child.pid

    def _supervisor_log(self, lease_id: int) -> Path:
        """Return the file of a supervisor's errors; kept as long as its job's logs."""
        return self.logs_dir / str(lease_id) / "supervisor.log"

    def _refuse(self, wanted: WantedLease, reason: EndReason, message: str) -> None:
        record = self._remember(wanted)
        record.end, record.message = reason, message
        try:
            record.folder.path.mkdir(mode=0o700)
            record.save(margin_s=self._margin_s)
            self._write_identity(record, refused={"reason": reason.value, "message": message})
        except OSError as error:  # the next agent would learn again whether it is wanted
            if not is_full(error):
                raise
        self._on_change()

    def _new_record(self, wanted: WantedLease, *, started_s: float | None) -> Record:
        (self._leases_dir / str(wanted.lease.lease_id)).mkdir(mode=0o700)
        record = self._remember(wanted, started_s=started_s)
        record.save(margin_s=self._margin_s)
        return record

    def _remember(self, wanted: WantedLease, *, started_s: float | None = None) -> Record:
        lease = wanted.lease
        with contextlib.suppress(OSError):
            # Created for a refused lease, too: that nothing was written is reported like output.
            make_log_folder(self.logs_dir, lease.lease_id, lease.nonce)
        record = Record(
            folder=LeaseFolder(self._leases_dir / str(lease.lease_id)),
            lease=lease,
            tenant=tenant_of(lease, secrets.token_urlsafe(24)),
            boot=self._place,
            started_s=started_s,
            deadline_s=wanted.deadline_s,
        )
        self._records[lease.lease_id] = record
        self._endpoint.admit(record.tenant)
        return record

    def _write_identity(self, record: Record, *, refused: dict[str, str] | None) -> None:
        record.folder.write(
            "lease.json",
            {
                "lease": to_dict(record.lease),
                "secret": record.tenant.secret,
                "boot": record.boot,
                "started_s": record.started_s,
                "refused": refused,
            },
        )

    def _look(self, record: Record) -> None:
        """Find out whether a lease has ended; end one that the agent failed at."""
        if not record.failure:
            self._guarded(record, lambda: self._look_for_end(record))
        if not record.failure and record.end is None:
            self._guarded(record, lambda: self._look_for_start(record))
        if record.failure and record.end is None:
            self._abandon(record)

    def _abandon(self, record: Record) -> None:
        """Kill the processes of a lease that the agent failed at; it ends when none is left."""
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):  # it never began
            if self._clear(record):
                return  # the next check comes soon
        record.end, record.message = EndReason.LOST, record.failure
        record.blame_disk(disk_problem(self._state_dir))
        self._endpoint.dismiss(record.lease.lease_id)
        if record.supervisor_pid is not None:
            self._zombies.add(record.supervisor_pid)
        self._on_change()

    def _look_for_end(self, record: Record) -> None:
        folder = record.folder
        # Its last act is to write how the lease ended, and a job could write that too.
        if folder.supervised():
            record.watched = True
            return
        # If the folder was copied, the processes are another agent's.
        if record.boot in {self._place, boot_id()} and self._clear(record):
            return
        if not self._figures_in(record):
            return
        group = (folder.read("launch.json") or {}).get("group")
        if group is not None:
            remove_groups([Path(name) for name in group["folders"]])
        record.close()
        if record.end is EndReason.LOST and not record.overdue:
            log = self._supervisor_log(record.lease.lease_id)
            record.message = f"{record.message}; see {log} on node {self._node}"
        if record.end in {EndReason.LOST, EndReason.FAILED}:
            record.blame_disk(disk_problem(self._state_dir))
        self._matching.drop(record.lease.lease_id)
        self._endpoint.dismiss(record.lease.lease_id)
        if record.supervisor_pid is not None:
            self._zombies.add(record.supervisor_pid)

    def _look_for_start(self, record: Record) -> None:
        """Give up a lease if its processes do not appear in time: nothing else would end it."""
        if record.terminated_s is not None or record.runs():
            return
        now_s = lease_clock_s()
        if now_s - record.begun_s > self._start_most_s:
            record.overdue = f"its processes were not started within {self._start_most_s:g} s"
            record.terminated_s = record.kill_s = now_s
            record.save(margin_s=self._margin_s)
            self._clear(record)

    def _figures_in(self, record: Record) -> bool:
        """Return whether the last figures of a lease have come, or the wait for them is over."""
        if record.watch is not None:
            self._matching.finish(record.watch)
        if record.figures_in():
            return True
        if not record.patience_over():
            return False
        _log.warning("lease %d ends before all its figures are in", record.lease.lease_id)
        return True

    def _forget(self, lease_id: int) -> None:
        record = self._records.pop(lease_id)
        self._endpoint.dismiss(lease_id)
        self._matching.drop(lease_id)
        discard_folder(record.folder.path, self._state_dir / "rubbish")
        others = {record.lease.working_dir for record in self._records.values()}
        self._work.leave(Path(record.lease.working_dir), others)
        logs = (path for path in self.logs_dir.iterdir() if path.name.isdecimal())
        kept = sorted(logs, key=lambda path: int(path.name))
        for path in kept[: -self._log_leases]:
            if (path / SENT).exists() or len(kept) > 2 * self._log_leases:
                shutil.rmtree(path, ignore_errors=True)

    def _poke(self, record: Record) -> None:
        """Make the supervisor read its orders; one that is just starting reads them anyway."""
        pid = (record.folder.read("running.json") or {}).get("pid", record.supervisor_pid)
        if pid is not None and record.folder.supervised():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _clear(self, record: Record) -> bool:
        """Kill what is left of a lease without its supervisor; return whether anything was."""
        if not self._clearing.clear(record):
            return False
        with contextlib.suppress(RuntimeError):  # no loop runs any more
            asyncio.get_running_loop().call_later(self._clearing.pause_s(record), self._on_change)
        return True

    def _watch(self, record: Record, pid: int | None) -> None:
        """Call ``on_change`` when the supervisor ends."""
        if pid is None or record.end is not None:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, TypeError, OverflowError):
            return  # gone, or a kernel without pidfd: the next check finds it
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._on_change()

        loop.add_reader(descriptor, ended)

    def _reap(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                return
        self._zombies.discard(pid)


def log_files(backend: ProcessBackend, lease: DesiredLease) -> dict[str, Path]:
    """Return the files of a lease's output, by stream and rank such as ``stdout.0``."""
    folder = backend.logs_dir / str(lease.lease_id)
    return {
        f"{stream}.{lease.rank + position}": folder / f"{stream}.{lease.rank + position}.log"
        for position in range(len(lease.local_ranks))
        for stream in ("stdout", "stderr")
    }


@contextlib.contextmanager
def _in_memory(secret_env: Mapping[str, str]) -> Iterator[int]:
    """Yield a descriptor for reading secret variables; they lie in no file system.

    All are written before the first read, which a pipe could not hold.
    """
    descriptor = os.memfd_create("secret_env", os.MFD_CLOEXEC)
    try:
        data = memoryview(json.dumps(dict(secret_env)).encode())
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
