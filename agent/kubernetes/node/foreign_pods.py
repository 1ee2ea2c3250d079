"""Who else holds accelerators: counted once for the whole cluster, and told to each node's agent.

One program reads the pods of all namespaces, so that no agent has to, and writes what they hold
into ConfigMaps. An agent reads the one in which its node is counted. Nodes are spread over a fixed
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
from agent.kubernetes.node.workers import claims, full_name
from agent.kubernetes.pods.watch import PodWatch
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kubernetes.client import KubernetesClient

_log = logging.getLogger("leasehold.foreign_pods")

#: ConfigMaps over which the nodes are spread; the chart makes them.
SHARDS: Final = 16
#: The counter writes at least so often, whether something has changed or not.
BEAT_S: Final = 60.0
#: A count that was not written for so long is said to be old.
OLD_S: Final = 5 * BEAT_S
#: Annotation: when it was last counted.
COUNTED: Final = OWN + "counted"
#: What is bound to a node and has not ended.
_FIELDS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_GATHER_S: Final = 0.2
_AGAIN_S: Final = 5.0


def shard_of(node: str) -> int:
    """Return in which ConfigMap a node is counted."""
    return zlib.crc32(node.encode()) % SHARDS


def place_of(text: str) -> tuple[str, str]:
    """Return namespace and first part of the names of the ConfigMaps, written NAMESPACE/NAME.

    Raises:
        InputError: it is malformed.
    """
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise InputError(f"'{text}' names no ConfigMaps; give NAMESPACE/NAME")
    return namespace, name


def read_count(item: Mapping[str, Any], node: str) -> dict[str, Counter[str]]:
    """Return from a ConfigMap which pods of others on a node hold how much; see ``PodCounter``.

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
    """Counts what pods of others hold, by node, and writes it down.

    Args:
        client: the way to the API server.
        namespace: of the ConfigMaps.
        name: their names begin so; the number of the shard follows.
        instance: of this installation, whose own pods are not counted.
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
        #: By uid: node, namespace/name, how much of what.
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
        """Return the data of a ConfigMap: by node, as JSON, how much each pod holds of what."""
        nodes: dict[str, dict[str, dict[str, int]]] = {}
        for node, pod, held in self._held.values():
            if shard_of(node) == shard:
                nodes.setdefault(node, {})[pod] = dict(sorted(held.items()))
        return {node: json.dumps(pods, sort_keys=True) for node, pods in sorted(nodes.items())}

    def _counts(self, pod: Mapping[str, Any]) -> bool:
        try:
            return not is_ours(pod, instance=self._instance) and bool(claims(pod))
        except Exception as error:  # noqa: BLE001 - they are anybody's
            _log.warning("what pod %s holds cannot be told: %s", full_name(pod), error)
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
                await asyncio.sleep(_GATHER_S)  # a job array comes as many pods
            except TimeoutError:
                self._dirty = set(range(SHARDS))  # somebody may have changed one meanwhile, too

    async def _write_shard(self, shard: int) -> bool:
        """Write a ConfigMap, and take out what is not ours there; return whether it is done."""
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
    return str((pod.get("spec") or {}).get("nodeName") or ""), full_name(pod), claims(pod)


async def count_pods(counter: PodCounter, stop: asyncio.Event) -> None:
    """Run a counter until it is told to stop."""
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
