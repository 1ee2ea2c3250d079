"""The output of fake containers, as a kubelet's own server gives it to the API server."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Self

from aiohttp import web

from leasehold_testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

    from fake_nodes import World


class OutputServer:
    """Listens on the addresses of all nodes.

    Args:
        world: the nodes and their pods.
        folder: with the certificate and the key that the API server takes for a kubelet's.

    Attributes:
        port: on each of the addresses.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        (self.port,) = free_ports(1)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._give)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(self._folder / "apiserver.crt", self._folder / "apiserver.key")
        for address in sorted({node.address for node in self._world.nodes.values()}):
            await web.TCPSite(self._runner, address, self.port, ssl_context=own).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _give(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["pod"]
        pod = next((p for p in reversed(self._world.pods.values()) if p.name == name), None)
        if pod is None or pod.container is None:
            raise web.HTTPNotFound(text=f"no container of {name}")
        answer = web.StreamResponse()
        await answer.prepare(request)
        since = request.query.get("sinceTime", "")
        place = 0
        while request.transport is not None and not request.transport.is_closing():
            ended = pod.container.ended
            for stamp, text in pod.container.output[place:]:
                place += 1
                if stamp >= since:
                    front = f"{stamp} " if request.query.get("timestamps") == "true" else ""
                    await answer.write(f"{front}{text}\n".encode())
            if ended or request.query.get("follow") != "true":
                return answer
            await asyncio.sleep(0.1)
        return answer
