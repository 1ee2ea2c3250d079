"""The two transports: one that waits in an event loop, and one that blocks.

Both have the same coroutines. Those of the blocking one never wait for a loop. So code that uses
them runs to its end in one step: ``finish`` and ``each``.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator

    import httpx

T = TypeVar("T")


class Wire(Protocol):
    """Sends requests and waits."""

    async def send(
        self, request: httpx.Request, settings: dict[str, Any], *, stream: bool
    ) -> httpx.Response:
        """Send a request; ``settings`` are those of httpx's client, which is made only once."""

    def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        """Yield the lines of a streamed answer."""

    async def read(self, response: httpx.Response) -> None:
        """Read the whole of a streamed answer."""

    async def end(self, response: httpx.Response) -> None:
        """Close a streamed answer."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """Close the connections."""


class AsyncWire:
    """The network of an event loop.

    Args:
        transport: replaces the network in tests.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        self._http: httpx.AsyncClient | None = None

    async def send(
        self, request: httpx.Request, settings: dict[str, Any], *, stream: bool
    ) -> httpx.Response:
        """Send a request."""
        if self._http is None:
            import httpx  # noqa: PLC0415 - takes 0.07 s

            self._http = httpx.AsyncClient(transport=self._transport, **settings)
        return await self._http.send(request, stream=stream)

    async def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        """Yield the lines of a streamed answer."""
        async for line in response.aiter_lines():
            yield line

    async def read(self, response: httpx.Response) -> None:
        """Read the whole of a streamed answer."""
        await response.aread()

    async def end(self, response: httpx.Response) -> None:
        """Close a streamed answer."""
        await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait; other tasks go on."""
        import asyncio  # noqa: PLC0415 - the blocking one needs none

        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None


class BlockingWire:
    """The network of a thread.

    Args:
        transport: replaces the network in tests.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport
        self._wait = sleep
        self._http: httpx.Client | None = None
        self._process = 0

    async def send(
        self, request: httpx.Request, settings: dict[str, Any], *, stream: bool
    ) -> httpx.Response:
        """Send a request."""
        if self._http is None or self._process != os.getpid():  # a fork needs new ones
            import httpx  # noqa: PLC0415 - takes 0.07 s

            self._http = httpx.Client(transport=self._transport, **settings)
            self._process = os.getpid()
        return self._http.send(request, stream=stream)

    async def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        """Yield the lines of a streamed answer."""
        for line in response.iter_lines():
            yield line

    async def read(self, response: httpx.Response) -> None:
        """Read the whole of a streamed answer."""
        response.read()

    async def end(self, response: httpx.Response) -> None:
        """Close a streamed answer."""
        response.close()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        self._wait(seconds)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()
            self._http = None


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses a blocking wire, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        work.close()
    raise RuntimeError("a blocking client waited for an event loop")


def each(items: AsyncGenerator[T]) -> Iterator[T]:
    """Yield the items of a generator that uses a blocking wire."""
    try:
        while True:
            try:
                item = finish(_next(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        finish(items.aclose())


async def _next(items: AsyncGenerator[T]) -> T:
    return await anext(items)
