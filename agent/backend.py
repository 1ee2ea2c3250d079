"""The interface between the agent's loop and a backend that runs jobs: processes, or pods."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from agent.endpoint.endpoint import Endpoint
    from agent.link.port import Link
    from agent.reconcile import Action, HeldLease
    from scheduler.domain.lease_life import LeasePhase
    from scheduler.protocol.desired import DesiredExec, DesiredImage, DesiredLease
    from scheduler.protocol.reports import LeaseReport


class ReportedWorker(Protocol):
    """One worker, as it is reported."""

    @property
    def index(self) -> int:
        """Local index."""
        ...

    @property
    def worker_type(self) -> str:
        """Hardware class."""
        ...

    @property
    def sharing(self) -> str:
        """How two jobs can hold it; see ``WorkerReport``."""
        ...


class Workers(Protocol):
    """The workers of a node."""

    @property
    def workers(self) -> Sequence[ReportedWorker]:
        """By local index."""
        ...

    def problems(self) -> dict[int, str]:
        """Return by local index why a worker cannot be used; called in a thread."""
        ...


class Backend(Protocol):
    """Holds leases. Nothing but ``open`` and ``run`` may take longer than milliseconds."""

    @property
    def logs_dir(self) -> Path:
        """A folder per lease with its output; see ``agent.logs.log_files``."""
        ...

    def bring_code(self, link: Link) -> bool:
        """Learn how to fetch uploaded code; called once, before ``open``.

        Args:
            link: to the scheduler.

        Returns:
            whether the backend brings the code to its jobs itself. If not, such a lease is started
            once its code lies unpacked in the agent's folder.
        """
        ...

    def owner_of(self, lease: DesiredLease) -> int | None:
        """Return the uid that uploaded code is given to; None: it stays the agent's."""
        ...

    def place(self) -> str:
        """Return where the jobs run; see ``NodeReport.place``."""
        ...

    async def open(self) -> tuple[HeldLease, ...]:
        """Find the leases that an earlier agent left, and return every lease."""
        ...

    async def run(self) -> None:
        """Do background work, if there is any, until cancelled."""
        ...

    def held(self) -> tuple[HeldLease, ...]:
        """Return every lease on this node, ended ones included."""
        ...

    def reports(self) -> tuple[LeaseReport, ...]:
        """Return every lease for the scheduler, ascending by id."""
        ...

    def states(self) -> dict[int, LeasePhase]:
        """Return the state of each lease's processes."""
        ...

    def running(self) -> set[int]:
        """Return the leases that may still write output."""
        ...

    def mark_delivered(self, lease_ids: Collection[int], *, term: int) -> None:
        """Note that a report of a term has told the scheduler how these leases ended."""
        ...

    def perform(self, action: Action) -> None:
        """Perform, or begin, an action of the reconciliation."""
        ...

    def prepare(self, images: tuple[DesiredImage, ...]) -> None:
        """Note images that the node may soon need; the backend need not fetch them."""
        ...

    def problems(self, inventory: Mapping[int, str]) -> dict[int, str]:
        """Return by local index why a worker cannot be used now.

        Args:
            inventory: the last result of ``Workers.problems``.
        """
        ...

    async def run_beside(self, order: DesiredExec) -> Command:
        """Start a command beside a job's processes.

        Raises:
            InputError: the job does not run here, or the command is not permitted.
            OSError: it could not be started.
        """
        ...

    def remarks(self) -> tuple[str, ...]:
        """Return texts for people on the node although its workers can be used."""
        ...


#: The problem of a command after its job ended, or was stopped.
ENDED_WITH_JOB: Final = "the job ended or was stopped on this node, and the command with it"


class CommandOutput(Protocol):
    """The output of a command on one of its streams."""

    async def read(self, most: int, /) -> bytes:
        """Return the next bytes, at most so many; none at the end."""
        ...


class Command(Protocol):
    """A command that runs beside a job.

    Attributes:
        outputs: name of a stream (out, err) -> its output.
    """

    outputs: Mapping[str, CommandOutput]

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the number of the signal that ended it, below zero; None: it runs."""
        ...

    async def feed(self, data: bytes) -> None:
        """Send its whole standard input."""
        ...

    async def wait(self) -> int:
        """Wait until it has ended; returns its exit code."""
        ...

    async def end(self) -> None:
        """End it."""
        ...

    async def cut_short(self) -> str:
        """Return why it was ended from outside, with the job; empty if it ended by itself."""
        ...


#: Makes the backend from the job-facing endpoint and a callback for news.
MakeBackend: TypeAlias = "Callable[[Endpoint, Callable[[], None]], Backend]"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """The node's settings for a backend.

    Attributes:
        node: the node's name.
        state_dir: the agent's private folder, kept over restarts.
        workers: declared workers such as ``v100:4``; empty: the backend finds out.
        worker_names: product name -> worker type.
        margin_s: from SIGKILL to a lease's deadline.
        start_most_s: how long processes of a lease may take to appear.
    """

    node: str
    state_dir: Path
    workers: tuple[str, ...] = ()
    worker_names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    margin_s: float
    start_most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJobs:
    """A backend that is ready for its node.

    Attributes:
        inventory: the node's workers.
        make_backend: makes the backend; called once, by the loop.
        listen: (host, port) where jobs reach the agent besides its socket; None for the socket
            alone.
        says: a text for the log on the node's workers.
    """

    inventory: Workers
    make_backend: MakeBackend
    listen: tuple[str, int] | None = None
    says: str


class NodeBackend(ABC):
    """A way to run the jobs of a node, as the configuration names one.

    Attributes:
        node: the node's name as the backend knows it; empty if it does not.
        address: the node's address for other nodes, as the backend knows it; empty if it does not.
        health_most_s: longest time between two checks of the workers.
    """

    node: str = ""
    address: str = ""
    health_most_s: float = math.inf

    @abstractmethod
    def open(self, setup: NodeSetup) -> AbstractAsyncContextManager[NodeJobs]:
        """Prepare, before the agent connects to the scheduler; undone when the agent has ended.

        Raises:
            InputError: a setting cannot be used.
            ClusterError: there are no workers here.
        """
