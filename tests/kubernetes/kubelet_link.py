"""The way of the fake kubelets to the API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from control_plane import KUBELETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from control_plane import ControlPlane
    from fake_nodes import Pod

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


class KubeletLink:
    """Asks and watches until there is an answer: the API server is killed under it.

    Args:
        plane: the control plane.
        faults: list for refusals.
    """

    def __init__(self, plane: ControlPlane, faults: list[str]) -> None:
        self._plane, self._faults = plane, faults
        #: pod -> held while its status is sent: as real kubelets do, in the order of what happened.
        self._telling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cafile=self._plane.authority)
        self._session = aiohttp.ClientSession(
            base_url=self._plane.url,
            headers={"Authorization": f"Bearer {KUBELETS}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await asyncio.sleep(0.2)  # for connections to close

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "") -> Any:
        """Ask until there is an answer; None if the object is not there or another one."""
        headers = {"Content-Type": kind or "application/json"}
        data = None if body is None else json.dumps(body)
        while True:
            try:
                async with self._session.request(
                    method, path, data=data, headers=headers,
                    timeout=aiohttp.ClientTimeout(total=20),
                ) as answer:  # fmt: skip
                    value = await answer.json()
                    if answer.status in {404, 409}:
                        return None
                    if answer.status < 400:
                        return value
                    if answer.status not in {401, 403, 429, 500, 503, 504}:
                        self._faults.append(f"{method} {path}: {value.get('message')}")
                        return None
            except (aiohttp.ClientError, TimeoutError, ValueError):
                pass
            await asyncio.sleep(0.2)

    async def patch_status(self, pod: Pod, status: dict[str, Any]) -> None:
        """Update a pod's status, if it still is that pod."""
        body = {"metadata": {"uid": pod.uid}, "status": status}
        async with self._telling[pod.uid]:
            if not pod.gone:
                await self.ask("PATCH", f"{pod.path}/status", body, STRATEGIC)

    async def remove(self, pod: Pod) -> None:
        """Confirm to the API server that nothing of a pod is left."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await self.ask("DELETE", pod.path, body | {"preconditions": {"uid": pod.uid}})

    async def watch(
        self, path: str, *, on_list: Callable[[Iterable[Any]], None], on_event: Callable[..., None]
    ) -> None:
        """Follow the objects at a path, without an end."""
        while True:
            listed = await self.ask("GET", path)
            if listed is None:
                await asyncio.sleep(0.2)
                continue
            on_list(listed["items"])
            query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError, KeyError):
                async with self._session.get(path, params=query) as answer:
                    rest = b""
                    async for chunk in answer.content.iter_any():
                        *lines, rest = (rest + chunk).split(b"\n")
                        for line in lines:
                            event = json.loads(line)
                            if event["type"] == "ERROR":
                                raise KeyError("expired")
                            on_event(event["type"], event["object"])
            await asyncio.sleep(0.1)
