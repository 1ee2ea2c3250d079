"""Accelerators that other pods hold: counted once for the cluster, and read by each agent.

One program reads the pods of all namespaces, so that no agent has to, and writes the accelerators
that they hold into ConfigMaps. An agent reads the one with its node. Nodes are spread over a fixed
number of them: their names are known beforehand, and rights can be given for them alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.client import KubernetesError
from agent.kubernetes.names import OWN, is_ours, uid_of
from agent.kubernetes.node.workers import claimed_accelerators, full_name
from agent.kubernetes.pods.watch import PodWatch
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kubernetes.client import KubernetesClient

_log = logging.getLogger("leasehold.foreign_pods")

#: The number of ConfigMaps for the nodes; the chart creates them.
SHARDS: Final = 16
#: The counter writes at least this often, changed or not.
BEAT_S: Final = 60.0
#: A count that was not written for this long is reported as old.
OLD_S: Final = 5 * BEAT_S
#: Annotation: when it was last counted.
COUNTED: Final = OWN + "counted"
#: Pods that are bound to a node and have not ended.
_FIELDS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_GATHER_S: Final = 0.2
_AGAIN_S: Final = 5.0


def shard_of(node: str) -> int:
    """Return the ConfigMap that counts a node."""
    return zlib.crc32(node.encode()) % SHARDS


def place_of(text: str) -> tuple[str, str]:
    """Return namespace and name prefix of the ConfigMaps, written NAMESPACE/NAME.

    Raises:
        InputError: it is malformed.
    """
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise InputError(f"'{text}' names no ConfigMaps; give NAMESPACE/NAME")
    return namespace, name


def read_count(item: Mapping[str, Any], node: str) -> dict[str, Counter[str]]:
    """Return from a ConfigMap how much each other pod on a node holds; see ``PodCounter``.

    Raises:
        ValueError: it is no count.
    """
    text = (item.get("data") or {}).get(node)
    if text is None:
        return {}
    told = json.loads(text)
    if not isinstance(told, dict) or not all(isinstance(held, dict) for held in told.values()):
        raise ValueError(f"the count of node '{node}' is {text[:80]!r}, and no object of objects")
    return {
        str(pod): Counter({str(resource): int(count) for resource, count in held.items()})
        for pod, held in told.items()
    }


class PodCounter:
    """Counts the accelerators that other pods hold, by node, and writes the counts.

    Args:
        client: the way to the API server.
        namespace: of the ConfigMaps.
        name: the prefix of their names; the number of the shard follows.
        instance: of this installation, which does not count its own pods.
        beat_s: see ``BEAT_S``.
    """

    def __init__(
        self,
        *,
        client: KubernetesClient,
        namespace: str,
        name: str,
        instance: str,
        beat_s: float = BEAT_S,
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._instance, self._beat_s = instance, beat_s
        #: By uid: node, namespace/name, amount of each resource.
        self._held: dict[str, tuple[str, str, Counter[str]]] = {}
        self._listed, self._news = asyncio.Event(), asyncio.Event()
        self._dirty: set[int] = set()
        self._troubles: dict[str, str] = {}
        self._watch = PodWatch(
            client=client,
            fields=_FIELDS,
            keep=self._counts,
            on_list=self._list,
            on_event=self._event,
            on_trouble=self._note,
        )

    async def run(self) -> None:
        """Keep up until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            tasks.create_task(self._write())

    def counted(self, shard: int) -> dict[str, str]:
        """Return the data of a ConfigMap: by node, as JSON, the resources that each pod holds."""
        nodes: dict[str, dict[str, dict[str, int]]] = {}
        for node, pod, held in self._held.values():
            if shard_of(node) == shard:
                nodes.setdefault(node, {})[pod] = dict(sorted(held.items()))
        return {node: json.dumps(pods, sort_keys=True) for node, pods in sorted(nodes.items())}

    def _counts(self, pod: Mapping[str, Any]) -> bool:
        try:
            return not is_ours(pod, instance=self._instance) and bool(claimed_accelerators(pod))
        except Exception as error:  # noqa: BLE001 - pods may hold anything
            _log.warning("the accelerators of pod %s cannot be read: %s", full_name(pod), error)
            return False

    def _list(self, pods: list[dict[str, Any]]) -> None:
        self._held = {uid_of(pod): _entry(pod) for pod in pods}
        self._dirty = set(range(SHARDS))
        self._listed.set()
        self._news.set()

    def _event(self, kind: str, pod: Mapping[str, Any]) -> None:
        uid = uid_of(pod)
        before = self._held.pop(uid, None)
        if kind != "DELETED" and self._counts(pod):
            self._held[uid] = _entry(pod)
        after = self._held.get(uid)
        if before != after:
            self._dirty |= {shard_of(entry[0]) for entry in (before, after) if entry}
            self._news.set()

    async def _write(self) -> None:
        await self._listed.wait()
        while True:
            self._news.clear()
            changed, self._dirty = self._dirty, set()
            for shard in sorted(changed):
                if not await self._write_shard(shard):
                    self._dirty.add(shard)
            if self._dirty:
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                async with asyncio.timeout(self._beat_s):
                    await self._news.wait()
                await asyncio.sleep(_GATHER_S)  # a job array creates many pods
            except TimeoutError:
                self._dirty = set(range(SHARDS))  # others may have changed one meanwhile, too

    async def _write_shard(self, shard: int) -> bool:
        """Write a ConfigMap, and remove foreign entries from it; return whether that is done."""
        name = f"{self._name}-{shard}"
        wanted = self.counted(shard)
        meta = {"annotations": {COUNTED: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
        try:
            found = await self._client.patch_config_map(
                self._namespace, name, {"metadata": meta, "data": wanted}
            )
            if stale := (found.get("data") or {}).keys() - wanted.keys():
                gone = dict.fromkeys(sorted(stale))
                await self._client.patch_config_map(self._namespace, name, {"data": gone})
        except KubernetesError as error:
            self._note(name, f"cannot write ConfigMap {self._namespace}/{name}: {error}")
            return False
        self._note(name, "")
        return True

    def _note(self, what: str, trouble: str) -> None:
        if trouble == self._troubles.get(what, ""):
            return
        if trouble:
            self._troubles[what] = trouble
            _log.warning("%s", trouble)
        else:
            self._troubles.pop(what)
            _log.info("%s: all is well again", what)


def _entry(pod: Mapping[str, Any]) -> tuple[str, str, Counter[str]]:
    return (
        str((pod.get("spec") or {}).get("nodeName") or ""),
        full_name(pod),
        claimed_accelerators(pod),
    )


async def count_pods(counter: PodCounter, stop: asyncio.Event) -> None:
    """Run a counter until the event stops it."""
    task = asyncio.ensure_future(counter.run())
    waits = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    finally:
        for one in (task, waits):
            one.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await one
