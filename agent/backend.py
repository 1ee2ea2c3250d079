"""What the agent's loop asks of whatever runs jobs: local processes, or pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from agent.reconcile import Action, Held
    from scheduler.protocol.desired import DesiredImage, LeaseReport, LeaseState


class WorkerView(Protocol):
    """One worker as it is reported."""

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
    def workers(self) -> Sequence[WorkerView]:
        """By local index."""
        ...

    def problems(self) -> dict[int, str]:
        """Return by local index why a worker cannot be used; called in a thread."""
        ...


class Backend(Protocol):
    """Holds leases. Nothing but ``open`` and ``run`` may take longer than milliseconds."""

    @property
    def logs_dir(self) -> Path:
        """A folder per lease with its output; see ``agent.log_files``."""
        ...

    async def open(self) -> tuple[Held, ...]:
        """Find out what an earlier agent left behind, and return every lease."""
        ...

    async def run(self) -> None:
        """Do what needs to be done in the background, if anything, until cancelled."""
        ...

    def held(self) -> tuple[Held, ...]:
        """Return every lease on this node, those that have ended included."""
        ...

    def reports(self) -> tuple[LeaseReport, ...]:
        """Return every lease for the scheduler, ascending by id."""
        ...

    def states(self) -> dict[int, LeaseState]:
        """Return where each lease's processes are."""
        ...

    def running(self) -> set[int]:
        """Return the leases that may still write output."""
        ...

    def mark_delivered(self, lease_ids: Collection[int]) -> None:
        """Note that the scheduler knows of these leases' ends."""
        ...

    def perform(self, action: Action) -> None:
        """Do, or begin to do, what the reconciliation asks for."""
        ...

    def prepare(self, images: tuple[DesiredImage, ...]) -> None:
        """Note which images the node may soon need; to bring them is no duty."""
        ...

    def problems(self, inventory: Mapping[int, str]) -> dict[int, str]:
        """Return by local index why a worker cannot be used, as this moment knows it.

        Args:
            inventory: what ``Workers.problems`` last said.
        """
        ...

    def remarks(self) -> tuple[str, ...]:
        """Return what a person should know of the node although its workers can be used."""
        ...
