"""Jobs of a node as pods."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent.backend import NodeBackend, NodeJobs
from agent.client_settings import ClientSettings
from agent.gpus.inventory import declare_workers
from agent.kubernetes.backend import KubernetesBackend
from agent.kubernetes.client import connect_client
from agent.kubernetes.node.workers import NodeInventory
from agent.kubernetes.pods.ends import StartBounds
from agent.kubernetes.pods.pods import PodSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from agent.backend import Backend, NodeSetup
    from agent.endpoint.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class PodJobs(NodeBackend):
    """Runs jobs as pods of one node of a cluster, on the workers that Kubernetes reports for it.

    Attributes:
        node: the node's name, from the agent's own pod.
        address: the node's address, from the agent's own pod.
        health_most_s: longest time between two checks of the workers, which are in memory.
        pods: of the pods.
        kubeconfig: the file that describes the cluster; None: the account of the agent's own pod.
        context: the context of that file.
        listen: address on which pods reach the agent; empty: all of IPv4 and IPv6.
        sharing: worker type -> how jobs share it.
        bounds: how long the steps of a pod's launch may take.
        force_after_s: how long a pod may survive its deletion; see ``KubernetesBackend``.
        client: times of the client.
    """

    node: str = ""
    address: str = ""
    health_most_s: float = 5.0
    pods: PodSettings = field(default_factory=PodSettings)
    kubeconfig: Path | None = None
    context: str = ""
    listen: str = ""
    sharing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    bounds: StartBounds = field(default_factory=StartBounds)
    force_after_s: float = 300.0
    client: ClientSettings = field(default_factory=ClientSettings)

    @contextlib.asynccontextmanager
    async def open(self, setup: NodeSetup) -> AsyncIterator[NodeJobs]:
        """Connect to the cluster with the account found."""
        plain = declare_workers(",".join(setup.workers)).workers if setup.workers else ()
        inventory = NodeInventory(
            instance=self.pods.instance,
            tolerations=self.pods.tolerations,
            names=setup.worker_names,
            sharing=self.sharing,
            plain=tuple(worker.worker_type for worker in plain),
        )
        client = await connect_client(
            kubeconfig=self.kubeconfig, context=self.context, settings=self.client
        )

        def make_backend(endpoint: Endpoint, on_change: Callable[[], None]) -> Backend:
            return KubernetesBackend(
                node=setup.node,
                client=client,
                inventory=inventory,
                endpoint=endpoint,
                on_change=on_change,
                state_dir=setup.state_dir,
                settings=self.pods,
                bounds=self.bounds,
                force_after_s=self.force_after_s,
            )

        port = self.pods.endpoint_port
        try:
            yield NodeJobs(
                inventory=inventory,
                make_backend=make_backend,
                listen=(self.listen, port) if port else None,
                says=f"pods in {self.pods.namespace}",
            )
        finally:
            await client.close()
