"""Between agents and the API server: fails, throttles, cuts and counts as a test wishes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import threading
from collections import Counter
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from leasehold_testing.ports import free_ports

if TYPE_CHECKING:
    from control_plane import ControlPlane

_PASSED = ("Authorization", "Content-Type", "Accept")


class FlakyProxy:
    """Passes requests on to the API server.

    Attributes:
        url: its address.
        fail_every: every so many requests are answered by ``fail_with``; 0: none.
        fail_with: HTTP status; -1: carried out, and the answer is lost.
        cut: nothing gets through.
        asked: how often each method and resource was asked for.
        answered: how often each status was given.
        expired: how often a watch got "version too old".
    """

    def __init__(self, plane: ControlPlane) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self.fail_every, self.fail_with, self.cut = 0, 500, False
        self.asked: Counter[str] = Counter()
        self.answered: Counter[int] = Counter()
        self.expired = 0
        self._plane, self._numbers = plane, itertools.count(1)
        self._streams: set[asyncio.Task[object]] = set()
        self._loop = asyncio.new_event_loop()
        self._stop, self._ready = asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def break_streams(self) -> None:
        """Cut every open watch and stream of output."""

        def cut() -> None:
            for task in self._streams:
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    def _run(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        trust = ssl.create_default_context(cafile=self._plane.authority)
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()
        await asyncio.sleep(0.2)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        what = next((p for p in ("log", "pods", "services", "nodes") if p in parts), parts[-1])
        verb = "WATCH" if request.query.get("watch") == "true" else request.method
        self.asked[f"{verb} {what}"] += 1
        failing = bool(self.fail_every) and next(self._numbers) % self.fail_every == 0
        if self.cut:
            return self._lose(request)
        if failing and self.fail_with > 0:
            return self._refuse()
        return await self._ask(request, stream=verb == "WATCH" or what == "log", lost=failing)

    def _refuse(self) -> web.Response:
        self.answered[self.fail_with] += 1
        headers = {"Retry-After": "1"} if self.fail_with == 429 else {}
        body = {"kind": "Status", "code": self.fail_with, "message": "by the test"}
        return web.json_response(body, status=self.fail_with, headers=headers)

    async def _ask(self, request: web.Request, *, stream: bool, lost: bool) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        task = asyncio.current_task()
        assert task is not None
        if stream:
            self._streams.add(task)
        try:
            async with self._session.request(
                request.method, f"{self._plane.url}{request.path_qs}",
                data=await request.read(), headers=headers,
            ) as answer:  # fmt: skip
                if stream and answer.status < 300:
                    return await self._stream(request, answer)
                body_bytes = await answer.read()
                self.answered[answer.status] += 1
                if answer.status == 410:
                    self.expired += 1
                if lost:
                    return self._lose(request)
                kind = answer.headers.get("Content-Type", "application/json").split(";")[0]
                return web.Response(body=body_bytes, status=answer.status, content_type=kind)
        except (aiohttp.ClientError, OSError):
            return self._lose(request)
        except asyncio.CancelledError:
            if not stream or self._stop.is_set():
                raise
            task.uncancel()
            return self._lose(request)
        finally:
            self._streams.discard(task)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
        await out.prepare(request)
        self.answered[answer.status] += 1
        with contextlib.suppress(ConnectionError):
            async for chunk in answer.content.iter_any():
                if b'"code":410' in chunk:
                    self.expired += 1
                await out.write(chunk)
        return out

    def _lose(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)
