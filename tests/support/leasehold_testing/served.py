"""The daemon as ``leasehold serve`` composes it, started and stopped in one call."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from unittest import mock

import httpx

from leasehold.daemon.serve import serve
from leasehold_testing.inline_solver import InlineSolver
from policies.answering import PolicyAnswerer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.config.settings import ServerConfig
    from leasehold.daemon.serve import Running


def served(
    config: ServerConfig, talk: Callable[[Running, httpx.AsyncClient], Awaitable[object]]
) -> object:
    """Return the findings of a talk to a daemon of a configuration.

    The daemon serves and leads when the talk begins. It computes allocations in its own thread,
    since processes take seconds to start, and leaves Python's garbage collector as it is. The
    client shows the first token, and takes any certificate.
    """

    async def happen() -> object:
        stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
        daemon = asyncio.create_task(serve(config, stop=stop, started=started.set_result))
        await asyncio.wait({daemon, started}, return_when=asyncio.FIRST_COMPLETED)
        if daemon.done():
            await daemon
        running = started.result()
        headers = {}
        if running.admin_token_file.exists():
            headers["Authorization"] = f"Bearer {running.admin_token_file.read_text().strip()}"
        try:
            async with httpx.AsyncClient(
                base_url=running.url, headers=headers, verify=False, timeout=30.0
            ) as client:
                async with asyncio.timeout(60.0):
                    while running.store.leader() is None:  # noqa: ASYNC110 - it sets no event
                        await asyncio.sleep(0.01)
                return await talk(running, client)
        finally:
            stop.set()
            await daemon

    def inline(*_arguments: object, **_options: object) -> InlineSolver:
        return InlineSolver(PolicyAnswerer())

    with (
        mock.patch("leasehold.daemon.serve.SolverPool", inline),
        mock.patch("leasehold.daemon.serve.rare_collections", contextlib.nullcontext),
    ):
        return asyncio.run(happen())
