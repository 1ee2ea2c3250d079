"""The disks of nodes: what outlives agents and reboots."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.domain.lease_life import EndReason
    from scheduler.protocol.desired import DesiredLease
    from seeded.nodes import SimulatedNode


@dataclass(kw_only=True)
class LeaseOnDisk:
    """The content of a lease's folder.

    Attributes:
        lease: as the scheduler sent it.
        boot: of the machine when it began.
        deadline_s: on the lease clock, as ordered last.
        terminated_s: when its processes were asked to end, by order.
        unwanted: since it was no longer desired.
        noticed_s: time by which they are to leave, if they had notice.
        kill: whether it is to be ended by force.
        refused: how it ended without having begun.
        ending: how its processes ended; None while they have not.
        live: steps as last reported.
        done: those that were checkpointed.
        ran: whether its processes began.
        trouble: what keeps it from beginning, for a while; empty: nothing.
        launch_s: how long that took.
    """

    lease: DesiredLease
    boot: int
    deadline_s: float
    terminated_s: float | None = None
    unwanted: bool = False
    noticed_s: float | None = None
    kill: bool = False
    refused: tuple[EndReason, str] | None = None
    ending: dict[str, object] | None = None
    live: int = 0
    done: int = 0
    ran: bool = False
    trouble: str = ""
    launch_s: float | None = None


@dataclass(kw_only=True)
class Disk:
    """What outlives an agent, and a reboot.

    Attributes:
        files: name -> content.
        leases: lease id -> its folder.
        serial: 1 for the machine's first disk.
    """

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    leases: dict[int, LeaseOnDisk] = field(default_factory=dict)
    serial: int = 1


class DiskMemory:
    """The contract of ``agent.machine.Memory`` on a node's disk."""

    def __init__(self, node: SimulatedNode, path: Path) -> None:
        self._node, self.path = node, path

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a file's object."""
        return copy.deepcopy(self._node.disk.files.get(name))

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replace a file."""
        if self._node.full:
            raise OSError(28, "No space left on device")
        self._node.disk.files[name] = copy.deepcopy(value)

    def open_lock(self) -> int | None:
        """Take the lock; the kernel lets go of it where its holder is dead."""
        holder = self._node.lock
        if holder is not None and holder.alive:
            return None
        self._node.lock = self._node.agent
        return 0

    def close_lock(self, _descriptor: int) -> None:
        """Let go of it."""
        self._node.lock = None
