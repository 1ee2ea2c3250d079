"""Ends of pods that were collected while no agent ran, from the API server's own history.

A finalizer would keep such a pod until its end is read. But agents may change pods of their own
node only. So a pod whose node is gone, or whose agents were uninstalled or went back to the release
before, would stay for ever, and its namespace with it.

The API server repeats the changes since a version, for 75 s at least and 5 minutes at most. The
agent stores the version that it has read, and the next agent reads on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Final

from agent.clock import lease_clock_s
from agent.kubernetes.client import KubernetesError
from agent.kubernetes.names import pod_selector, uid_of
from agent.kubernetes.pods.ends import look_at
from agent.logs.job_output import write_json
from scheduler.errors import InputError
from scheduler.protocol.bounds import LONGEST_NAME
from scheduler.protocol.reading import Reader, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.pods import PodSettings
    from agent.kubernetes.pods.record import PodRecord

#: Longest time in which missed changes are read; an agent begins no lease meanwhile.
REPLAY_S: Final = 2.0
#: Least time between two writes of the version.
STORE_EVERY_S: Final = 1.0


class PodHistory:
    """Reads the changes that no agent has seen.

    Args:
        client: the way to the API server.
        node: name of the node.
        settings: of the pods.
        folder: of the file with the version that was read last.
    """

    def __init__(
        self, *, client: KubernetesClient, node: str, settings: PodSettings, folder: Path
    ) -> None:
        self._client, self._namespace = client, settings.namespace
        self.labels = pod_selector(node=node, instance=settings.instance)
        self._file = folder / "pods.version"
        self._since = self._stored()
        self._written_s = -math.inf

    def note(self, version: str) -> None:
        """Store the version up to which changes are known, once in a while.

        An older version does no harm, as after a full disk: the next agent reads more changes.
        """
        now_s = lease_clock_s()
        if now_s - self._written_s < STORE_EVERY_S:
            return
        self._written_s = now_s
        with contextlib.suppress(OSError):
            write_json(self._file, {"version": version})

    async def replay(self, records: Iterable[PodRecord]) -> None:
        """Show records of pods that are gone how these ended, if the server still knows it."""
        missing = {record.uid: record for record in records if record.uid}
        if not missing or not self._since:
            return
        with contextlib.suppress(KubernetesError, TimeoutError):  # such as a version too old
            async with asyncio.timeout(REPLAY_S):
                changes = self._client.watch_pods(
                    version=self._since, namespace=self._namespace, labels=self.labels
                )
                async with contextlib.aclosing(changes):
                    async for kind, pod in changes:
                        record, gone = missing.get(uid_of(pod)), kind == "DELETED"
                        if record is None or not (gone or look_at(pod).job_over):
                            continue  # how it began says nothing of its end
                        record.see(pod, gone=gone)
                        if record.over:  # what follows is no news of the job
                            record.gone = True
                            del missing[record.uid]
                        if not missing:
                            return

    def _stored(self) -> str:
        try:
            data = Reader.of(decode_json(self._file.read_bytes()))
            return data.text("version", longest=LONGEST_NAME)
        except (OSError, InputError):
            return ""
