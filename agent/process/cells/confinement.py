"""Keeping the jobs of a node apart: the user of each lease, and the files that it sees.

Folders in a confined lease's folder:

| folder | owner | holds |
|---|---|---|
| ``told`` | root's; the job reads it | ``notice.json`` |
| ``own`` | the job's | ``progress.json`` |
| ``tmp``, ``var-tmp`` | the job's | its /tmp and /var/tmp |

The job finds the first two in ``/run/leasehold``; it cannot see the agent's other files.
"""

from __future__ import annotations

import grp
import logging
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from agent.process.acting import Reach
from agent.process.cells import system_calls
from agent.process.environment import Places
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.protocol.desired import DesiredLease

_log = logging.getLogger("leasehold.agent")

#: The modes: if possible, always, or never.
AUTO, REQUIRED, OFF = MODES = "auto", "required", "off"
#: Private folders of each lease, by their names on the disk.
PRIVATE: Final = {"tmp": "/tmp", "var-tmp": "/var/tmp"}  # noqa: S108 - they are private
#: Folder in the agent's with the socket for confined jobs: the socket changes with a restart of the
#: agent.
DOOR: Final = "door"
#: The folder that a job shares with the agent, and its default working directory. The job sees
#: nothing of the agent's own folder, which may lie anywhere.
ROOM: Final = Path("/run/leasehold")
#: Device nodes that NVIDIA's driver needs besides those of the devices themselves.
DRIVER_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
#: How long the first try may take.
TRY_MOST_S: Final = 30.0
#: New namespaces for processes and System V memory; the network is shared.
_SPACES: Final = (
    *("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL"),
    *("--bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How leases are confined on this node.

    Attributes:
        bwrap: bubblewrap.
        state_dir: of the agent; jobs cannot see it.
        required: whether a lease that cannot be confined must not run.
        devices: device nodes, and folders of such, that every job sees.
        groups: groups of every job.
        namespaces: whether jobs may make user namespaces.
        calls_refused: whether the system calls of ``system_calls`` are refused to jobs.
    """

    bwrap: str
    state_dir: Path
    required: bool = False
    devices: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    namespaces: bool = False
    calls_refused: bool = False

    @property
    def door(self) -> Path:
        """The folder with the socket."""
        return self.state_dir / DOOR

    def fault(self, lease: DesiredLease) -> str:
        """Return why a lease must not run; empty if it may."""
        if lease.uid is None:
            why = "the scheduler gives it no uid (it is of an earlier release)"
            return f"{why}, and isolation is required" if self.required else ""
        for name in ("working_dir", "checkpoint_dir"):
            if Path(getattr(lease, name) or "/").is_relative_to(self.state_dir):
                return f"{name} {getattr(lease, name)} lies in the agent's own folder"
            for private in PRIVATE.values():
                path = os.path.normpath(getattr(lease, name) or "/")
                if PurePosixPath(path).is_relative_to(private):
                    return (
                        f"{name} {path} lies in {private}, and each lease has a {private} of its "
                        "own on this node; name a folder elsewhere"
                    )
        return ""

    def furnish(self, folder: Path, uid: int, *, socket: str) -> Places:
        """Create the files of a confined lease in its folder, and return its job's places.

        Args:
            folder: of the lease.
            uid: of the job.
            socket: name of the endpoint's socket.
        """
        (folder / "told").mkdir(mode=0o755)
        for name in ("own", *PRIVATE):
            (folder / name).mkdir(mode=0o700)
            os.chown(folder / name, uid, uid)
        for name, line in (
            ("passwd", f"{user_name(uid)}:x:{uid}:{uid}::/tmp:/bin/sh"),
            ("group", f"{user_name(uid)}:x:{uid}:"),
        ):
            there = Path("/etc", name)
            if there.is_file() and not there.is_symlink():
                (folder / name).write_text(f"{there.read_text().rstrip()}\n{line}\n")
                (folder / name).chmod(0o644)
        return Places(
            folder=folder,
            socket=ROOM / DOOR / socket,
            told=ROOM / "told",
            own=ROOM / "own",
            user=user_name(uid),
        )

    def cell(self, lease: DesiredLease, folder: Path, nodes: Iterable[str]) -> dict[str, object]:
        """Return the cell for the supervisor; see ``agent.process.cells.cell``.

        Args:
            lease: with a uid.
            folder: of the lease.
            nodes: device nodes of its workers.
        """
        seen = [self.bwrap, *_SPACES]
        for node in (*nodes, *DRIVER_NODES, *self.devices):
            seen += ["--dev-bind-try", node, node]
        seen += ["--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - its own
        for name, private in PRIVATE.items():
            seen += ["--bind", str(folder / name), private]
        seen += ["--tmpfs", str(self.state_dir), "--tmpfs", str(ROOM)]
        seen += ["--ro-bind", str(self.door), str(ROOM / DOOR)]
        seen += ["--ro-bind", str(folder / "told"), str(ROOM / "told")]
        seen += ["--bind", str(folder / "own"), str(ROOM / "own")]
        if self._is_our_work(lease):
            seen += ["--bind", lease.working_dir, str(ROOM / "work")]
        for name in ("passwd", "group"):
            if (folder / name).exists():
                seen += ["--ro-bind", str(folder / name), f"/etc/{name}"]
        return {
            "command": seen,
            "uid": lease.uid,
            "groups": list(self.groups),
            "whose": f"'{lease.owner}' in project '{lease.project}'",
            "namespaces": self.namespaces,
            "calls_refused": self.calls_refused,
        }

    def seen_work(self, lease: DesiredLease) -> str:
        """Return a confined job's path of its working directory."""
        return str(ROOM / "work") if self._is_our_work(lease) else lease.working_dir

    def _is_our_work(self, lease: DesiredLease) -> bool:
        return Path(lease.working_dir).parent == self.state_dir / "work"


def path_for_agent(uid: int | None, path: Path, *, folder: Path, work: Path) -> Reach:
    """Return how the agent reaches a path of a job.

    Args:
        uid: of the job; None if it is not confined.
        path: absolute, as the job sees it.
        folder: of the lease.
        work: the job's working directory, made by the agent or named by the job.
    """
    if uid is None:
        return Reach(uid=None, base=None, name=path)
    made = {private: folder / name for name, private in PRIVATE.items()}
    made[str(ROOM / "own")] = folder / "own"
    if work.parent == folder.parents[1] / "work":
        made |= {str(work): work, str(ROOM / "work"): work}
    plain = PurePosixPath(os.path.normpath(path))
    for seen, base in made.items():
        if str(plain) != seen and plain.is_relative_to(seen):
            return Reach(uid=uid, base=base, name=Path(plain.relative_to(seen)))
    return Reach(uid=uid, base=None, name=path)


def discard_folder(folder: Path, rubbish: Path) -> None:
    """Remove a folder of a job, which may take long: in a thread of its own.

    Args:
        folder: the folder.
        rubbish: it is moved here first, on the same disk, or else removed where it lies; older
            contents are removed too.
    """
    left = rubbish / f"{folder.name}-{token_hex(4)}"  # there may be one of that name from before
    try:
        rubbish.mkdir(exist_ok=True, mode=0o700)
        folder.rename(left)
    except OSError:
        left = folder
    threading.Thread(target=_empty, args=(rubbish, left), daemon=True).start()


def _empty(rubbish: Path, left: Path) -> None:
    older = list(rubbish.iterdir()) if rubbish.is_dir() else []
    for path in dict.fromkeys((left, *older)):
        # Not by shutil.rmtree, which calls itself for each folder within a folder: a job may make
        # more of them than Python takes.
        command = ["rm", "-rf", "--", str(path)]
        try:
            subprocess.run(command, capture_output=True, check=False)  # noqa: S603  a path of ours
        except OSError:
            shutil.rmtree(path, ignore_errors=True)


def user_name(uid: int) -> str:
    """Return the name of a job's user on nodes."""
    return f"leasehold-{uid}"


def find_confinement(
    mode: str,
    state_dir: Path,
    *,
    devices: Sequence[str] = (),
    groups: Sequence[str] = (),
    namespaces: bool = False,
) -> Confinement | None:
    """Return the confinement of jobs, if it is possible here; log in one line if it is not.

    Args:
        mode: one of ``MODES``.
        state_dir: of the agent.
        devices: device nodes that every job sees besides its workers.
        groups: names or numbers of groups of every job.
        namespaces: whether jobs may make user namespaces.

    Raises:
        InputError: there is no such mode; confinement is required and not possible; or a group is
            unknown, or is root's.
    """
    if mode not in MODES:
        raise InputError(f"isolation is '{mode}'; it must be {', '.join(MODES)}")
    numbers = tuple(_group(name) for name in groups)
    problem = "isolation is off" if mode == OFF else _obstacle()
    if problem:
        if mode == REQUIRED:
            raise InputError(f"isolation is required, and jobs cannot be kept apart: {problem}")
        level = logging.INFO if mode == OFF else logging.WARNING
        _log.log(level, "jobs on this node trust one another, and the agent them: %s", problem)
        return None
    os.setgroups([])  # files read as a job's user must not be read by root's groups
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    if obstacle := system_calls.find_obstacle():
        _log.warning("no system calls are refused to jobs on this node: %s", obstacle)
    return Confinement(
        bwrap=bwrap,
        state_dir=state_dir,
        required=mode == REQUIRED,
        devices=tuple(devices),
        groups=numbers,
        namespaces=namespaces,
        calls_refused=not obstacle,
    )


def _obstacle() -> str:
    """Return why jobs cannot be kept apart here; empty if they can."""
    if os.geteuid() != 0:
        return "the agent does not run as root"
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap is not installed; apt-get install bubblewrap"
    try:
        tried = subprocess.run(  # noqa: S603 - our own command
            [bwrap, *_SPACES, "--", "/bin/true"],
            capture_output=True, text=True, errors="replace", timeout=TRY_MOST_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run here: {error}"
    if tried.returncode:
        return f"bubblewrap cannot make namespaces here: {tried.stderr.strip()}"
    return ""


def _group(name: str) -> int:
    try:
        number = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise InputError(f"job_groups: there is no group '{name}' here") from error
    if number == 0:
        raise InputError(f"job_groups: '{name}' is root's group; jobs must not be in it")
    return number
