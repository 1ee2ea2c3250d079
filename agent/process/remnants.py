"""What is left of a lease: finding its processes wherever they hide, and killing them.

A process of a lease is identified by any of these, and so are its descendants:

- it is in the lease's control group, or in a group below;
- it descends from the lease's supervisor, which adopts orphans (PR_SET_CHILD_SUBREAPER);
- it is in the session of one of the lease's first processes;
- the lease's folder is in its environment, unless the process is confined: then its PID namespace
  ends with the first process of its own lease, and it could name the folder of any lease;
- it was adopted by the agent itself, which gets the orphans of a dead supervisor.

A program that leaves its session, clears its environment, and kills supervisor and agent is
identified by its control group alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from agent.process.supervisor import PR_SET_CHILD_SUBREAPER, group_members, start_ticks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: The variable of a lease's processes, before the path of its folder.
MARK: Final = b"LEASEHOLD_LEASE_FOLDER="
#: How often the list of processes is read again for processes that started meanwhile.
RESCANS: Final = 5
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as the kernel shows it.

    Attributes:
        pid: its number.
        parent: its parent's.
        session: its session's.
        ticks: when it started, see ``start_ticks``.
        state: one letter: D is a sleep that no signal ends, Z has ended.
        lives: whether any of its threads has not ended.
    """

    pid: int
    parent: int
    session: int
    ticks: int
    state: str
    lives: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The traces that identify the processes of a lease.

    Attributes:
        folder: of the lease.
        supervisor: its pid while it lives; the search leaves it out.
        sessions: start by pid of the first processes, each of which leads a session.
        watched: whether this agent has seen the supervisor alive. If not, another process may have
            got the number of a session that has lost its leader.
        groups: folders of the control groups.
        since_ticks: no process of the lease is older.
    """

    folder: Path
    supervisor: int | None = None
    sessions: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    watched: bool = False
    groups: tuple[str, ...] = ()
    since_ticks: int = 0


def become_reaper() -> None:
    """Make this process adopt the orphans of supervisors that die."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def list_processes() -> dict[int, Process]:
    """Return every process, including those that were started during the read."""
    seen: set[int] = set()
    found: dict[int, Process] = {}
    for _ in range(RESCANS):
        new = {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()} - seen
        if not new:
            break
        seen |= new
        for pid in sorted(new):
            with contextlib.suppress(OSError):
                found[pid] = _read(pid)
    return found


def _read(pid: int) -> Process:
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    values = text.rpartition(")")[2].split()
    return Process(
        pid=pid,
        parent=int(values[1]),
        session=int(values[3]),
        ticks=int(values[19]),
        state=values[0],
        # If the first thread has ended and others run on, the kernel shows Z as well.
        lives=values[0] not in "ZX" or int(values[17]) > 1,
    )


def is_alive(pid: int, ticks: int) -> bool:
    """Return whether the process that started then has not ended."""
    try:
        found = _read(pid)
    except OSError:
        return False
    return found.lives and found.ticks == ticks


def lease_folders(pid: int) -> frozenset[str]:
    """Return the leases' folders in a process's environment.

    There are none if it cannot be read, or if the process is confined.
    """
    folder = _PROC / str(pid)
    data = _environment(folder)
    if not data:  # a kernel's thread, another user's process; or its first thread has ended
        with contextlib.suppress(OSError):
            data = b"\0".join(_environment(task) for task in (folder / "task").iterdir())
    values = [value for value in data.split(b"\0") if value.startswith(MARK)]
    if values and _is_confined(folder):
        return frozenset()
    return frozenset(os.fsdecode(value.removeprefix(MARK)) for value in values)


def _is_confined(folder: Path) -> bool:
    """Return whether a process is another user's, in a PID namespace of its own."""
    with contextlib.suppress(OSError):
        if (folder / "ns" / "pid").readlink() == (_PROC / "self" / "ns" / "pid").readlink():
            return False
        status = (folder / "status").read_text(errors="replace")
        uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()
        return int(uids[1]) != os.geteuid()
    return False


def _environment(folder: Path) -> bytes:
    with contextlib.suppress(OSError):
        return (folder / "environ").read_bytes()
    return b""


def find_processes(traces: Traces, table: Mapping[int, Process]) -> list[Process]:
    """Return the live processes of a lease beside its supervisor; takes some milliseconds.

    Args:
        traces: of the lease.
        table: every process.
    """
    roots = {p.pid for p in table.values() if p.pid != traces.supervisor and _known(p, traces)}
    roots |= set(group_members(list(traces.groups))) - {traces.supervisor}
    if traces.supervisor is not None:
        roots |= {p.pid for p in table.values() if p.parent == traces.supervisor}
    return _with_descendants(roots, table, spared={traces.supervisor or 0})


def _known(process: Process, traces: Traces) -> bool:
    if not process.lives or process.ticks < traces.since_ticks:
        return False
    if process.session in traces.sessions:
        with contextlib.suppress(OSError):
            if start_ticks(process.session) == traces.sessions[process.session]:
                return True
        if traces.watched and not (_PROC / str(process.session)).exists():
            return True
    return str(traces.folder) in lease_folders(process.pid)


def find_strays(
    leases_dir: Path, table: Mapping[int, Process], *, supervised: Collection[str]
) -> list[Process]:
    """Return the processes adopted from supervisors that have died, ended or not.

    Other processes that the agent starts stay in its session.

    Args:
        leases_dir: of the agent; the marks of another agent's leases spare a process.
        table: every process.
        supervised: folders of the leases with live supervisors.
    """
    own = os.getsid(0)
    roots = set()
    for process in table.values():
        if process.parent == os.getpid() and process.session != own:
            folders = lease_folders(process.pid)
            ours = all(Path(folder).parent == leases_dir for folder in folders)
            if ours and folders.isdisjoint(supervised):
                roots.add(process.pid)
    return _with_descendants(roots, table, spared=(), dead=True)


def find_unknown(
    leases_dir: Path, table: Mapping[int, Process], *, known: Collection[str]
) -> list[Process]:
    """Return the live processes of leases that are not known any more.

    Args:
        leases_dir: of the agent.
        table: every process.
        known: folders of the known leases.
    """
    roots = set()
    for pid in table:
        folders = {f for f in lease_folders(pid) if Path(f).parent == leases_dir}
        if folders and folders.isdisjoint(known):
            roots.add(pid)
    return _with_descendants(roots, table, spared=())


def _with_descendants(
    roots: Iterable[int],
    table: Mapping[int, Process],
    *,
    spared: Collection[int],
    dead: bool = False,
) -> list[Process]:
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found and pid not in spared and pid != os.getpid():
            found.add(pid)
            left += children.get(pid, ())
    whole = (table[pid] for pid in sorted(found) if pid in table)
    return [process for process in whole if process.lives or dead]


def kill_processes(found: Iterable[Process]) -> None:
    """Kill processes; a reused pid is spared."""
    for process in found:
        with contextlib.suppress(OSError):
            if start_ticks(process.pid) == process.ticks:
                os.kill(process.pid, signal.SIGKILL)


def reap_children(found: Iterable[Process]) -> None:
    """Reap those that have ended and are this process's children."""
    for process in found:
        if process.parent == os.getpid() and not process.lives:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


def in_words(found: Iterable[Process]) -> str:
    """Return processes that cannot be killed as text, and why."""
    parts = []
    for process in found:
        why = ", in a sleep that no signal ends" if process.state == "D" else ""
        with contextlib.suppress(OSError):
            uid = (_PROC / str(process.pid)).stat().st_uid
            if os.geteuid() not in {0, uid}:
                why = f", of user {uid}"
        parts.append(f"{process.pid} (state {process.state}{why})")
    return ", ".join(parts)
