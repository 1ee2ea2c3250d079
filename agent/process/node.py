"""Jobs of a node as local processes."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.backend import NodeBackend, NodeJobs
from agent.gpus.inventory import declare_workers, discover_gpus
from agent.gpus.known_gpus import FILE, keep_indices
from agent.process.backend import ProcessBackend
from agent.process.cells.confinement import OFF, find_confinement
from agent.process.control_groups import find_groups

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from agent.backend import Backend, MakeBackend, NodeSetup
    from agent.endpoint.endpoint import Endpoint
    from agent.gpus.inventory import Inventory
    from agent.process.cells.confinement import Confinement
    from agent.process.control_groups import ControlGroups

_log = logging.getLogger("leasehold.agent")


@dataclass(frozen=True, kw_only=True)
class ProcessJobs(NodeBackend):
    """Runs jobs as processes of this machine, on workers that are declared or found by NVML.

    Attributes:
        isolation: whether owners are kept apart; one of ``agent.process.cells.confinement.MODES``.
        devices: device nodes that every job sees then, besides its workers.
        groups: groups of every job then, by name or number.
        namespaces: whether jobs may make user namespaces then.
    """

    isolation: str = OFF
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    namespaces: bool = False

    @contextlib.asynccontextmanager
    async def open(self, setup: NodeSetup) -> AsyncIterator[NodeJobs]:
        """Find the workers, and the place for control groups."""
        found = find_workers(setup.workers, setup.worker_names)
        inventory = keep_indices(found, setup.state_dir / FILE)
        for problem in inventory.missing.values():
            _log.warning("%s", problem)
        confinement = find_confinement(
            self.isolation,
            setup.state_dir,
            devices=self.devices,
            groups=self.groups,
            namespaces=self.namespaces,
        )
        groups = find_groups(setup.state_dir)
        if groups.problem:
            _log.warning("%s", groups.problem)
        types = ", ".join(worker.worker_type for worker in inventory.workers)
        yield NodeJobs(
            inventory=inventory,
            make_backend=process_backend(setup, inventory, groups=groups, confinement=confinement),
            says=f"workers: {types}",
        )


def process_backend(
    setup: NodeSetup,
    inventory: Inventory,
    *,
    groups: ControlGroups | None = None,
    confinement: Confinement | None = None,
) -> MakeBackend:
    """Return the factory of the process backend.

    Args:
        setup: of the node.
        inventory: its workers.
        groups: the place for control groups; None: there is none.
        confinement: how jobs are kept apart; None: not at all.
    """

    def make_backend(endpoint: Endpoint, on_change: Callable[[], None]) -> Backend:
        return ProcessBackend(
            state_dir=setup.state_dir,
            inventory=inventory,
            endpoint=endpoint,
            on_change=on_change,
            margin_s=setup.margin_s,
            groups=groups,
            confinement=confinement,
            start_most_s=setup.start_most_s,
            node=setup.node,
        )

    return make_backend


def find_workers(workers: Sequence[str], names: Mapping[str, str]) -> Inventory:
    """Return the declared workers, else those that NVML finds.

    Args:
        workers: declarations such as ``v100:4``.
        names: NVML's product name -> worker type.

    Raises:
        ClusterError: a declaration is malformed, or NVML finds no GPU.
    """
    if workers:
        return declare_workers(",".join(workers))
    return discover_gpus(names=names)
