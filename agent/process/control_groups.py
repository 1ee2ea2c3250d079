"""Control groups of leases: limits of memory, processors and processes, and how a lease ended.

Version 2 needs a group that was delegated to the agent (systemd: ``Delegate=yes`` and
``DelegateSubgroup=agent``, or an agent that is alone in its group). Every lease then has a group of
its own below it, which also ends it reliably (``cgroup.kill``). Version 1 needs a group that the
agent may write to; there only leases with limits get groups, one per controller.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent.process.inheritance import MOST_PROCESSES
from agent.process.supervisor import kill_members

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_log = logging.getLogger("leasehold.agent")

#: The group of the agent itself within the one that was delegated to it.
LEAF = "agent"
#: The period in microseconds of processor quotas.
PERIOD_US = 100_000
#: The kernel's mount of its groups.
MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGroup:
    """The control groups of one lease, in a form for the supervisor.

    Attributes:
        folders: of the groups; one, or one per controller.
        kill: the file that ends everything in the group; None if the kernel has none.
        events: the file that counts kills for lack of memory; None if memory is not controlled.
    """

    folders: tuple[Path, ...]
    kill: Path | None = None
    events: Path | None = None

    def to_dict(self) -> dict[str, object]:
        """Return it as a part of ``launch.json``."""
        return {
            "folders": [str(folder) for folder in self.folders],
            "kill": None if self.kill is None else str(self.kill),
            "events": None if self.events is None else str(self.events),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroups:
    """The place for this agent's groups.

    Attributes:
        roots: folder by controller (``memory``, ``cpu``); empty if the agent may make no groups.
        version: 1 or 2; 0 if the agent may make no groups.
        prefix: of the names of this agent's groups.
        problem: why limits are not enforced; empty if they are.
    """

    roots: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0
    prefix: str = ""
    problem: str = ""

    def make(
        self, lease_id: int, *, memory_bytes: int | None, cpus: float | None
    ) -> LeaseGroup | None:
        """Create a lease's groups; None if the agent makes no groups, or the lease needs none.

        Raises:
            OSError: the kernel refuses; nothing is left behind.
        """
        wanted = {"memory": memory_bytes is not None, "cpu": cpus is not None}
        names = [c for c in self.roots if self.version == 2 or wanted[c]]
        if not names:
            return None
        folders = {name: self.roots[name] / f"{self.prefix}{lease_id}" for name in names}
        unlike = tuple(dict.fromkeys(folders.values()))
        try:
            for folder in unlike:
                folder.mkdir(exist_ok=True)
            self._limit(folders, memory_bytes, cpus)
        except OSError:
            remove_groups(unlike)
            raise
        memory = folders.get("memory")
        return LeaseGroup(
            folders=unlike,
            kill=unlike[0] / "cgroup.kill" if (unlike[0] / "cgroup.kill").exists() else None,
            events=None if memory is None else memory / _EVENTS[self.version],
        )

    def _limit(
        self, folders: Mapping[str, Path], memory_bytes: int | None, cpus: float | None
    ) -> None:
        if "memory" in folders and memory_bytes is not None:
            first, swap = _MEMORY_FILES[self.version]
            (folders["memory"] / first).write_text(str(memory_bytes))
            with contextlib.suppress(OSError):  # a kernel that does not count swap
                (folders["memory"] / swap).write_text(
                    "0" if self.version == 2 else str(memory_bytes)
                )
        if "memory" in folders and self.version == 2:
            if (folders["memory"] / "pids.max").exists():  # the controller may not be delegated
                (folders["memory"] / "pids.max").write_text(str(MOST_PROCESSES))
            with contextlib.suppress(OSError):  # half a job is of no use
                (folders["memory"] / "memory.oom.group").write_text("1")
        if "cpu" in folders and cpus is not None:
            quota_us = max(int(cpus * PERIOD_US), 1000)
            if self.version == 2:
                (folders["cpu"] / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
            else:
                (folders["cpu"] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folders["cpu"] / "cpu.cfs_quota_us").write_text(str(quota_us))

    def clear(self, known: Collection[int]) -> None:
        """End and remove groups of leases that are not known any more."""
        for root in set(self.roots.values()):
            for folder in root.glob(f"{self.prefix}*"):
                number = folder.name.removeprefix(self.prefix)
                if number.isdecimal() and int(number) not in known:
                    kill_members([str(folder)])
                    remove_groups([folder])


_EVENTS = {1: "memory.oom_control", 2: "memory.events"}
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    2: ("memory.max", "memory.swap.max"),
}


def find_groups(
    state_dir: Path, *, membership: str | None = None, mount: Path = MOUNT
) -> ControlGroups:
    """Find the place for groups; moves this process into a leaf if version 2 needs it.

    Args:
        state_dir: of the agent; distinguishes its groups from those of another agent.
        membership: the text of /proc/self/cgroup; read by default.
        mount: the kernel's mount of its groups.
    """
    text = Path("/proc/self/cgroup").read_text() if membership is None else membership
    own = dict(line.split(":", 2)[1:] for line in text.splitlines())
    prefix = f"leasehold-{hashlib.sha256(str(state_dir).encode()).hexdigest()[:8]}-"
    problem = "no controller of memory is in sight"
    try:
        if any("memory" in names.split(",") for names in own):
            return ControlGroups(roots=_version_1(own, mount), version=1, prefix=prefix)
        if "" in own:
            root = _version_2(_folder(mount, own[""]))
            roots = MappingProxyType({"memory": root, "cpu": root})
            return ControlGroups(roots=roots, version=2, prefix=prefix)
    except OSError as error:
        problem = str(error)
    return ControlGroups(problem=f"limits of memory and processors are not enforced: {problem}")


def remove_groups(folders: Collection[Path]) -> None:
    """Remove groups and those below; a dead process leaves its group only after a moment."""
    for folder in (Path(name) for f in folders for name, _, _ in os.walk(f, topdown=False)):
        for _ in range(20):
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.002)
                continue
            break


def _version_1(own: Mapping[str, str], mount: Path) -> Mapping[str, Path]:
    roots: dict[str, Path] = {}
    for wanted in ("memory", "cpu"):
        for names, path in own.items():
            if wanted in names.split(","):
                root = _folder(mount / names, path, mount / wanted)
                _need_writable(root)
                roots[wanted] = root
    return MappingProxyType(roots)


def _version_2(own: Path) -> Path:
    """Return the group that was delegated to us, ready for groups below it."""
    controllers = (own / "cgroup.controllers").read_text().split()
    if own.name == LEAF:
        root = own.parent
    else:
        root = own
        _need_writable(root)
        if root.name.endswith(".service"):
            # systemd could not start the next agent there once there are groups below it.
            raise PermissionError(f"{root} is systemd's; use DelegateSubgroup={LEAF}")
        others = set((root / "cgroup.procs").read_text().split()) - {str(os.getpid())}
        if others:
            raise PermissionError(
                f"{root} holds other processes than the agent; give it a group of its own"
            )
    if "memory" not in controllers:
        raise FileNotFoundError(f"{own} has no controller of memory; use Delegate=yes")
    _need_writable(root)
    if root == own:
        (root / LEAF).mkdir(exist_ok=True)
        (root / LEAF / "cgroup.procs").write_text(str(os.getpid()))
    switches = root / "cgroup.subtree_control"
    for name in ("memory", "cpu", "pids"):
        if name in controllers and name not in switches.read_text().split():
            switches.write_text(f"+{name}")
    return root


def _folder(mount: Path, path: str, other: Path | None = None) -> Path:
    """Return a group's folder; in a container the group may be mounted as the root."""
    for base in (mount, other or mount):
        whole = base / path.lstrip("/")
        if whole.is_dir():
            return whole
    return mount if mount.is_dir() or other is None else other


def _need_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} may not be written by this user; use Delegate=yes")
