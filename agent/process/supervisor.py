"""The small process between the agent and a job; it outlives the agent. Standard library only.

Run as a script: ``python -I -S supervisor.py FOLDER LOCK_FD``. It starts the processes of one lease
in sessions of their own, copies their output into rotated files, and writes how they ended, so that
an agent that was away still learns it. It also holds the deadline: it reads it from a file that the
agent renews, and sends SIGTERM and SIGKILL in time even if the agent is dead. It keeps the lock
``LOCK_FD`` for as long as it lives; a process that can take that lock knows that it is gone.

It is the reaper of everything that the job leaves behind (PR_SET_CHILD_SUBREAPER), so a grandchild
that has left the process group is found and killed too. It ends only when nothing is left: as long
as it lives, it identifies its descendants.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # run with -I -S, Python finds no packages
    sys.path.append(str(Path(__file__).parents[2]))

from agent.logs.job_output import (
    ORDERS_BYTES,
    SPOILT,
    RotatedLog,
    Stream,
    read_regular,
    write_json,
)
from agent.process.inheritance import become_plain

if TYPE_CHECKING:
    from agent.process.cells.cell import Cell

#: The longest sleep, since sleeping does not count the time that the machine is suspended.
LONGEST_SLEEP_S = 1.0
#: After this long without an end, the rest of the output is not waited for.
DRAIN_S = 2.0
#: After this long a process that cannot be killed is reported to the agent, and checks are rarer.
STUCK_S = 5.0
#: The exit code of a job that left early and wants to run again.
LEFT_EARLY = 75
#: The file of processes that it cannot kill.
REMNANTS = "remnants.json"
#: Signs on stderr of a job that ran out of memory and did not get a signal for it.
MEMORY_ERRORS = re.compile(
    rb"(?:CUDA|HIP|XPU|MPS backend) out of memory|OutOfMemoryError|[A-Z]_ERROR_OUT_OF_\w*MEMORY"
    rb"|(?<![A-Za-z])(?i:(?:cuda|hip)\w{0,40}(?:\(\))?(?: \w+){0,2}[ _]"
    rb"(?:error|failure|failed)\b[^a-z\n]{0,10}(?: \d+)?[^a-z\n]{0,10}out of memory)"
    rb"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|rocblas_status_memory_error"
    rb"|[A-Z]_(?:STATUS_)?ALLOC_FAILED|ResourceExhaustedError|OOM when allocating"
    rb"|RESOURCE_EXHAUSTED: (?:Out of memory|OOM|Failed to allocate)"
    rb"|^MemoryError|ArrayMemoryError|std::bad_alloc|can't allocate memory"
    rb"|(?i:cannot allocate memory)(?! in static TLS)|runtime: out of memory"
    rb"|memory allocation of \d+ bytes failed",
    re.MULTILINE,
)

_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def now_s() -> float:
    """Return the clock that leases are measured on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def oom_kills(events: str | None = None) -> int | None:
    """Return how many processes the kernel has killed for memory; None if it does not count.

    Args:
        events: the file in which the lease's own control group counts; otherwise our group is read,
            and if that does not count, the whole machine.
    """
    if events is not None:
        return _count(Path(events))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, group = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        root = "/sys/fs/cgroup" if number == "0" else "/sys/fs/cgroup/memory"
        name = "memory.events" if number == "0" else "memory.oom_control"
        for folder in (root + group, root):  # in a container the group may be mounted as the root
            found = _count(Path(folder, name))
            if found is not None:
                return found
    return _count(Path("/proc/vmstat"))


def _count(file: Path) -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
        return None if found is None else int(found[1])
    return None


def group_members(folders: list[str]) -> list[int]:
    """Return the processes in control groups, and in groups that a job has made below them."""
    found = []
    for folder in folders:
        for below, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in Path(below, "cgroup.procs").read_text().split()]
    return found


def kill_members(folders: list[str], kill: str | None = None) -> bool:
    """Kill everything in control groups; return whether there was anything.

    Args:
        folders: of the groups.
        kill: the file that does it at once, if the kernel has one.
    """
    found = group_members(folders)
    if found and kill is not None:
        with contextlib.suppress(OSError):
            Path(kill).write_text("1")
            return True
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot: identifies a reused pid.

    Raises:
        OSError: there is no such process.
    """
    line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(line.rpartition(")")[2].split()[19])


@dataclass(kw_only=True)
class SupervisorOrders:
    """The agent's orders for this lease, read from the file that it renews."""

    path: Path
    deadline_s: float = 0.0
    grace_s: float = 0.0
    margin_s: float = 0.0
    terminate: bool = False
    kill: bool = False

    def read(self) -> None:
        """Read the newest orders. If a job has damaged the file, the last ones hold."""
        with contextlib.suppress(*SPOILT):
            data = json.loads(read_regular(self.path, ORDERS_BYTES))
            times = [float(data[name]) for name in ("deadline_s", "grace_s", "margin_s")]
            self.terminate, self.kill = bool(data["terminate"]), bool(data["kill"])
            self.deadline_s, self.grace_s, self.margin_s = times


@dataclass(kw_only=True)
class Supervisor:
    """The processes of one lease and their state."""

    folder: Path
    launch: dict[str, Any]
    secret_env: dict[str, str] = field(default_factory=dict)
    control: SupervisorOrders
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    streams: list[Stream] = field(default_factory=list)
    together: dict[str, RotatedLog] = field(default_factory=dict)  # by stream, of several processes
    leaders: list[int] = field(default_factory=list)  # each leads a session and a process group
    codes: dict[int, int] = field(default_factory=dict)  # of the leaders that have ended
    first_failure: int | None = None
    terminated_s: float | None = None  # SIGTERM was sent because the lease ends
    mates_told_s: float | None = None  # SIGTERM was sent because another process failed
    killed: bool = False
    expired: bool = False

    @property
    def group(self) -> dict[str, Any]:
        """The lease's control groups; see ``agent.process.control_groups``."""
        return self.launch.get("group") or {"folders": [], "kill": None, "events": None}

    def start(self) -> str:
        """Start every process; return what went wrong, else an empty text."""
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        cell, folder = self._cell(), self.launch["cwd"]

        def prepare() -> None:
            """Run in the child: it must not outlive us, and belongs to the lease's groups."""
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for group in self.group["folders"]:
                with contextlib.suppress(OSError):
                    Path(group, "cgroup.procs").write_text("0")

        def enter() -> None:
            """Run in the child that becomes a process of the job."""
            prepare()
            become_plain(own_user=cell is not None)
            if cell is not None:
                cell.enter(folder)

        if cell is None:
            self._make_checkpoint_folder()
        elif fault := cell.open(prepare) or cell.look(folder, self.launch["checkpoint_dir"]):
            return fault
        for process in self.launch["processes"]:
            try:
                with contextlib.nullcontext() if cell is None else cell.bearing():
                    child = subprocess.Popen(  # noqa: S603 - exec form, and no shell
                        self.launch["command"],
                        cwd=folder if cell is None else "/",
                        env=self.secret_env | process["env"],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        bufsize=0,
                        start_new_session=True,
                        preexec_fn=enter,  # noqa: PLW1509 - nothing else runs here
                    )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                return _why_not_started(self.launch["command"][0], folder, error)
            child.returncode = 0  # we reap by ourselves
            self.leaders.append(child.pid)
            for pipe, name in ((child.stdout, "stdout"), (child.stderr, "stderr")):
                self._watch(pipe, Path(process[name]), name)
        self.secret_env = {}
        return ""

    def _cell(self) -> Cell | None:
        """Return the namespaces of the job, if it has any; see ``agent.process.cells``."""
        told = self.launch.get("cell")
        if told is None:
            return None
        from agent.process.cells import cell  # noqa: PLC0415 - most have none

        return cell.Cell.of(told)

    def _make_checkpoint_folder(self) -> None:
        """Create it if the folder above it exists; otherwise the job may handle that."""
        folder = self.launch.get("checkpoint_dir")
        try:
            if folder is not None:
                Path(folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            sys.stderr.write(f"the folder for checkpoints {folder} cannot be made: {error}\n")

    def _watch(self, pipe: Any, path: Path, name: str) -> None:
        os.set_blocking(pipe.fileno(), False)
        stream = Stream(pipe=pipe, log=self._log(path))
        if len(self.launch["processes"]) > 1:
            stream.together = self.together.setdefault(
                name, self._log(path.with_name(f"{name}.log"))
            )
            stream.prefix = b"[%s] " % path.name.split(".")[1].encode()
        self.streams.append(stream)
        self.selector.register(pipe, selectors.EVENT_READ, stream)

    def _log(self, path: Path) -> RotatedLog:
        return RotatedLog(
            path=path, max_bytes=self.launch["log_bytes"], backups=self.launch["log_backups"]
        )

    def run(self, wake_fd: int) -> None:
        """Copy output and hold the deadline until every process has ended."""
        self.selector.register(wake_fd, selectors.EVENT_READ, None)
        while len(self.codes) < len(self.leaders):
            self._pump(self._sleep_s(), wake_fd)
            self.reap()
            self._act()
        self.selector.unregister(wake_fd)

    def finish(self) -> None:
        """Kill all leftover processes, and copy the rest of the output.

        However long it takes: once this process is gone, the workers may be given away.
        """
        since_s, told = now_s(), False
        until = since_s + DRAIN_S
        self.signal_all(signal.SIGKILL)
        while left := self._sweep():
            stuck = now_s() > since_s + STUCK_S
            if stuck and not told:
                write_json(self.folder / REMNANTS, {"pids": left})
                told = True
            self._pump(0.5 if stuck else 0.005, -1)
        while self.selector.get_map() and now_s() < until:
            if not self._pump(0.05, -1):
                break  # nothing came: an invisible process holds the pipe open

    def reap(self) -> bool:
        """Reap the children that have ended, ours and adopted ones; return whether any live.

        Every descendant is a child, or has one among its ancestors.
        """
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid in self.leaders:
                    code = os.waitstatus_to_exitcode(status)
                    self.codes[pid] = code
                    if code not in {0, LEFT_EARLY} and self.first_failure is None:
                        self.first_failure = code
        return False

    def exit_code(self) -> int:
        """Return the code of the first that failed, else 75 if one left early, else 0."""
        if self.first_failure is not None:
            return self.first_failure
        return max(self.codes.values(), default=0)

    def signal_all(self, number: int) -> None:
        """Send a signal to every process group."""
        for pid in self.leaders:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
        if number == signal.SIGKILL:
            kill_members(self.group["folders"], self.group["kill"])

    def _act(self) -> None:
        if self.control.kill or now_s() >= self._kill_at():
            self.expired |= now_s() >= self.control.deadline_s - self.control.margin_s
            self.killed = True
            self.signal_all(signal.SIGKILL)
        elif self.terminated_s is None and (self.control.terminate or now_s() >= self._term_at()):
            self.control.read()  # the agent may have renewed it a moment ago
            if self.control.terminate or now_s() >= self._term_at():
                self.terminated_s = now_s()
                self.signal_all(signal.SIGTERM)
        elif self.first_failure is not None and self.mates_told_s is None:
            self.mates_told_s = now_s()
            self.signal_all(signal.SIGTERM)

    def _term_at(self) -> float:
        control = self.control
        return control.deadline_s - control.margin_s - control.grace_s

    def _kill_at(self) -> float:
        told = [t for t in (self.terminated_s, self.mates_told_s) if t is not None]
        last = self.control.deadline_s - self.control.margin_s
        return min([last, *(t + self.control.grace_s for t in told)])

    def _sleep_s(self) -> float:
        times = [self._kill_at()]
        if self.terminated_s is None:
            times.append(self._term_at())
        return min(max(min(times) - now_s(), 0.01), LONGEST_SLEEP_S)

    def _pump(self, timeout_s: float, wake_fd: int) -> bool:
        """Wait for output or a signal; return whether there was any."""
        ready = self.selector.select(timeout_s)
        for key, _ in ready:
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_fd, 4096)
                self.control.read()
            elif not key.data.pump():
                self.selector.unregister(key.fileobj)
        return bool(ready)

    def _sweep(self) -> list[int]:
        """Kill every child that is left, and the control groups; return what there was.

        The children of a killed child become ours, and are found the next time.
        """
        folders = self.group["folders"]
        kill_members(folders, self.group["kill"])
        found = _children() if self.reap() else []
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        alive = self.reap()
        # A child that came after the list was read has no number here yet, and still counts.
        return sorted({*(found or _children() or [0] if alive else []), *group_members(folders)})

    def dissolve(self) -> None:
        """Remove the control groups; the agent removes later those that are not empty yet."""
        for folder in self.group["folders"]:
            for below, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    Path(below).rmdir()


def _children() -> list[int]:
    """Return the children of this process."""
    found, own = [], str(os.getpid())
    for entry in Path("/proc").iterdir():  # not every kernel has the list of children
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                stat = (entry / "stat").read_text(errors="replace")
                if stat.rpartition(")")[2].split()[1] == own:
                    found.append(int(entry.name))
    return found


def _why_not_started(program: str, folder: str, error: Exception) -> str:
    """Return why a process could not be started: its folder, or its program, cannot be used."""
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "filename", None) != folder:
        if isinstance(error, PermissionError) and "/" not in program:
            # What the system says of one closed folder of PATH, also if no folder has the program.
            why = "no folder of PATH that the job may read has such a program"
        return f"cannot start {program!r}: {why}"
    if isinstance(error, FileNotFoundError):
        return f"working_dir {folder} is not there; name a folder of the node (-C)"
    return f"working_dir {folder} cannot be used: {why}"


def main(folder: Path, lock_fd: int) -> int:
    """Run one lease from start to end; the exit code is always 0."""
    os.set_inheritable(lock_fd, False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    launch = json.loads((folder / "launch.json").read_text())
    events = (launch.get("group") or {}).get("events")
    before = oom_kills(events)
    control = SupervisorOrders(path=folder / "control.json")
    control.read()
    supervisor = Supervisor(
        folder=folder, launch=launch, secret_env=_read_secrets(), control=control
    )
    wake_fd = _wake_on_signals(control)
    error = supervisor.start()
    if error:
        supervisor.signal_all(signal.SIGKILL)
    else:
        groups = {str(pid): start_ticks(pid) for pid in supervisor.leaders}
        write_json(folder / "running.json", {"pid": os.getpid(), "groups": groups})
        supervisor.run(wake_fd)
    supervisor.finish()
    after = oom_kills(events)
    supervisor.dissolve()
    tails = [s.tail for s in supervisor.streams if s.log.path.name.startswith("stderr")]
    write_json(
        folder / "exit.json",
        {
            "error": error,
            "code": 127 if error else supervisor.exit_code(),
            "terminated": supervisor.terminated_s is not None,
            "killed": supervisor.killed,
            "expired": supervisor.expired,
            "oom_kills": None if before is None or after is None else after - before,
            "oom_own": events is not None,
            "memory_error": any(MEMORY_ERRORS.search(tail) for tail in tails),
            "ended_s": time.time(),
        },
    )
    return 0


def _read_secrets() -> dict[str, str]:
    """Return the secret variables of the job, which the agent passes in memory as our input."""
    with os.fdopen(os.dup(0), "rb") as given:
        text = given.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return dict(json.loads(text)) if text else {}


def _wake_on_signals(control: SupervisorOrders) -> int:
    """Let signals end a sleep. SIGCONT means new orders; without a handler it does no harm."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGCONT, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _order_termination(control))  # the machine shuts down
    return reading


def _order_termination(control: SupervisorOrders) -> None:
    data = json.loads(read_regular(control.path, ORDERS_BYTES))
    write_json(control.path, data | {"terminate": True})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
