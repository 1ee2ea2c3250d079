"""Watches pods, or other objects: list, watch, and list again if the watch is lost."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.kubernetes.client import GoneError, KubernetesError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.kubernetes.client import KubernetesClient

#: First and longest wait after the server has refused the account; it doubles. An API server that
#: has just started refuses all accounts until it has read its roles.
REFUSED_LEAST_S: Final = 0.5
REFUSED_MOST_S: Final = 30.0


@dataclass(kw_only=True)
class PodWatch:
    """Follows pods.

    Attributes:
        client: the way to the API server.
        on_list: called with all pods.
        on_event: called with ``ADDED``, ``MODIFIED`` or ``DELETED`` and the pod.
        on_version: called with the version of the objects when all its changes are taken in.
        on_trouble: called with a name and the problem; empty when it works (again).
        namespace: empty for all.
        labels: a label selector.
        fields: a field selector.
        kind: of other objects than pods, as paths name it.
        keep: returns whether a pod is wanted when all are listed.
        resync_s: all pods are listed again after this time, even if the watch works: that detects a
            watch that leaves something out.
        heard_s: when the server last sent something, on the lease clock.
    """

    client: KubernetesClient
    on_list: Callable[[list[dict[str, Any]]], None]
    on_event: Callable[[str, Mapping[str, Any]], None]
    on_trouble: Callable[[str, str], None]
    on_version: Callable[[str], None] = lambda _: None
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    kind: str = "pods"
    keep: Callable[[Mapping[str, Any]], bool] | None = None
    resync_s: float = 600.0
    heard_s: float = 0.0
    _version: str = field(default="", init=False)
    _listed_s: float = field(default=0.0, init=False)

    async def list(self) -> None:
        """Read all current pods."""
        pods, self._version = await self.client.pods(
            namespace=self.namespace,
            labels=self.labels,
            fields=self.fields,
            kind=self.kind,
            keep=self.keep,
        )
        self._listed_s = self.heard_s = lease_clock_s()
        self.on_list(pods)
        self.on_version(self._version)

    async def run(self) -> None:
        """Watch until cancelled."""
        failures = refusals = 0
        name = f"{self.kind} of {self.namespace or 'all namespaces'}"
        while True:
            try:
                if not self._version or lease_clock_s() - self._listed_s > self.resync_s:
                    await self.list()
                self.on_trouble(name, "")
                began_s = lease_clock_s()
                await self._watch()
                failures = 0 if lease_clock_s() - began_s > 1.0 else failures + 1
                refusals = 0
            except GoneError:
                self._version = ""
                failures += 1
            except KubernetesError as error:
                failures += 1
                self.on_trouble(name, str(error))
                if isinstance(error, PermissionDeniedError):
                    await asyncio.sleep(min(REFUSED_LEAST_S * 2**refusals, REFUSED_MOST_S))
                    refusals = min(refusals + 1, 8)
                    continue
            if failures > 1:  # the first time at once: a watch may end at any time
                wait_s = min(0.1 * 2 ** min(failures, 8), 10.0)
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load

    async def _watch(self) -> None:
        async for kind, pod in self.client.watch_pods(
            version=self._version,
            namespace=self.namespace,
            labels=self.labels,
            fields=self.fields,
            kind=self.kind,
        ):
            self.heard_s = lease_clock_s()
            self._version = str((pod.get("metadata") or {}).get("resourceVersion") or self._version)
            if kind in {"ADDED", "MODIFIED", "DELETED"}:
                self.on_event(kind, pod)
            self.on_version(self._version)
