"""Finding and killing processes of a lease whose supervisor is gone or does not answer."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from agent.supervisor import start_ticks

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_remnants(folder: Path) -> list[int]:
    """Return the processes that were started with this lease's folder in their environment.

    Looks at every process of this user; takes some milliseconds.
    """
    mark = f"LEASEHOLD_LEASE_FOLDER={folder}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # gone, or another user's
            if mark in (entry / "environ").read_bytes() + b"\0":
                found.append(int(entry.name))
    return found


def kill_remnants(folder: Path, groups: Mapping[str, int]) -> None:
    """Kill what is left of a lease.

    Args:
        folder: the lease's folder.
        groups: process group by its leader's pid, with the leader's start time: a pid that now
            belongs to somebody else is spared.
    """
    for leader, ticks in groups.items():
        with contextlib.suppress(OSError):
            if start_ticks(int(leader)) == ticks:
                os.killpg(int(leader), signal.SIGKILL)
    for pid in find_remnants(folder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
