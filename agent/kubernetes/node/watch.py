"""Watches a Node object, and the resources that other pods on it hold."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.kubernetes.client import KubernetesError
from agent.kubernetes.names import uid_of
from agent.kubernetes.node.foreign_pods import COUNTED, OLD_S, place_of, read_count, shard_of
from agent.kubernetes.pods.watch import PodWatch
from scheduler.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.node.workers import NodeInventory

#: How long the end of an evicted pod waits for a read of its node.
LOOK_MOST_S: Final = 30.0
#: Between two attempts of such a read.
LOOK_AGAIN_S: Final = 0.5


class NodeWatch:
    """Updates a node's inventory.

    Args:
        node: the node's name.
        client: the way to the API server.
        inventory: of the node.
        on_change: called when the Node object was read.
        on_trouble: called with a name and the problem; empty when it works (again).
        every_s: between two reads of the Node object.
        look_most_s: longest time that ``look`` takes.
        counted: the counts of other pods for all nodes, as NAMESPACE/NAME; ``watch``: this agent
            reads all pods on its node itself; empty: they are not counted.
    """

    def __init__(
        self,
        *,
        node: str,
        client: KubernetesClient,
        inventory: NodeInventory,
        on_change: Callable[[], None],
        on_trouble: Callable[[str, str], None],
        every_s: float = 10.0,
        look_most_s: float = LOOK_MOST_S,
        counted: str = "watch",
    ) -> None:
        self._node, self._client, self._inventory = node, client, inventory
        self._on_change, self._on_trouble = on_change, on_trouble
        self._every_s, self._look_most_s = every_s, look_most_s
        self._others: dict[str, Mapping[str, Any]] = {}
        self._pods: PodWatch | None = None
        #: The time in the count, and when that last changed here.
        self._counted_at, self._counted_s = "", 0.0
        self._counted = counted if counted != "watch" else ""
        if self._counted:
            namespace, name = place_of(self._counted)
            self._counted = f"ConfigMap {namespace}/{name}-{shard_of(node)}"
            self._pods = PodWatch(
                client=client,
                namespace=namespace,
                fields=f"metadata.name={name}-{shard_of(node)}",
                kind="configmaps",
                on_list=self._list_count,
                on_event=self._count_event,
                on_trouble=on_trouble,
            )
        elif counted:
            self._pods = PodWatch(
                client=client,
                fields=f"spec.nodeName={node}",
                on_list=self._list,
                on_event=self._event,
                on_trouble=on_trouble,
            )

    async def read(self) -> None:
        """Read the current Node object.

        Raises:
            KubernetesError: it cannot be read.
            ClusterError: it has no workers, and never had.
        """
        self._inventory.read_node(await self._client.node(self._node))

    async def look(self) -> None:
        """Read the node as soon as possible; give up after ``look_most_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._look_most_s):
                while True:
                    if await self._try():
                        return
                    await asyncio.sleep(LOOK_AGAIN_S * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load

    async def list_others(self) -> None:
        """Read the resources that other pods on the node hold, if that is allowed."""
        if self._pods is not None:
            with contextlib.suppress(KubernetesError):
                await self._pods.list()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._pods is not None:
                tasks.create_task(self._pods.run())
            tasks.create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._every_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load
            if await self._try():
                self._on_change()
            if self._counted and self._pods is not None and self._pods.heard_s:
                self._tell_age(lease_clock_s() - self._counted_s)

    def _tell_age(self, age_s: float) -> None:
        late = f"pods of others have not been counted for {age_s / 60:.0f} min ({self._counted})"
        self._on_trouble("age of the count", late if self._counted_s and age_s > OLD_S else "")

    async def _try(self) -> bool:
        try:
            await self.read()
        except (KubernetesError, ClusterError) as error:
            self._on_trouble("node", str(error))
            return False
        self._on_trouble("node", "")
        return True

    def _list(self, pods: list[dict[str, Any]]) -> None:
        self._others = {uid_of(pod): pod for pod in pods}
        self._read_others()

    def _event(self, kind: str, pod: Mapping[str, Any]) -> None:
        if kind == "DELETED":
            self._others.pop(uid_of(pod), None)
        else:
            self._others[uid_of(pod)] = pod
        self._read_others()

    def _list_count(self, items: list[dict[str, Any]]) -> None:
        missing = f"there is no {self._counted}, in which pods of others are counted"
        self._on_trouble("count", "" if items else missing)
        for item in items:
            self._read_count(item)

    def _count_event(self, kind: str, item: Mapping[str, Any]) -> None:
        if kind == "DELETED":
            self._list_count([])
        else:
            self._list_count([dict(item)])

    def _read_count(self, item: Mapping[str, Any]) -> None:
        # The count's time is another clock's, so the time of its change here is used.
        counted = str(((item.get("metadata") or {}).get("annotations") or {}).get(COUNTED, ""))
        if counted != self._counted_at or not self._counted_s:
            self._counted_at, self._counted_s = counted, lease_clock_s()
        try:
            self._inventory.read_strangers(read_count(item, self._node))
        except (ValueError, TypeError) as error:
            self._on_trouble("count", f"{self._counted} cannot be read: {error}")
            return
        self._on_change()

    def _read_others(self) -> None:
        try:
            self._inventory.read_pods(self._others.values())
        except Exception as error:  # noqa: BLE001 - pods may hold anything
            self._on_trouble("pods", f"the accelerators of other pods cannot be read: {error}")
        else:
            self._on_trouble("pods", "")
