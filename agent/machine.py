"""The machine under the agent's loop: clocks, chance and its folder."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent.clock import lease_clock_s
from agent.disk import disk_problem
from agent.endpoint.endpoint import Endpoint
from agent.process.lease_files import LeaseFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Memory(Protocol):
    """The stored state for the next agent on this node; ``LeaseFolder`` is one."""

    @property
    def path(self) -> Path:
        """The folder."""
        ...

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a file's object; None if it is not there or not whole."""
        ...

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replace a file in one step; raises OSError if that fails."""
        ...

    def open_lock(self) -> int | None:
        """Take the lock and return its descriptor; None while another agent has it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine under an agent; by default the real one.

    Attributes:
        lease_clock_s: the clock that leases are measured on, in seconds.
        wall_s: seconds since the Unix epoch.
        chance: spreads the work of many agents over time; guards nothing.
        memory: makes the memory, from the state folder.
        close_lock: releases the lock of ``Memory.open_lock``.
        endpoint: makes the job-facing endpoint, with the arguments of ``Endpoint``.
        disk_problem: tries to write in a folder; see ``agent.disk``.
    """

    lease_clock_s: Callable[[], float] = lease_clock_s
    wall_s: Callable[[], float] = time.time
    chance: random.Random = field(default_factory=random.Random)
    memory: Callable[[Path], Memory] = LeaseFolder
    close_lock: Callable[[int], None] = os.close
    endpoint: Callable[..., Endpoint] = Endpoint
    disk_problem: Callable[..., str] = disk_problem
