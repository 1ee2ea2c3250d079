"""Receivers of webhooks on this machine: kind ones, hanging ones, and ones that mean harm."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

#: More turns than the loop needs from accepting a connection to serving it.
_TURNS = 8

TAKEN = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Receiver:
    """The messages at a receiver.

    Attributes:
        url: its address.
        requests: heads (names in lower case) and bodies, in the order in which they came.
        answer: writes the answers to the next ones.
    """

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None

    async def until(self, count: int, *, within_s: float = 60.0) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(within_s):
            while len(self.requests) < count:  # noqa: ASYNC110 - tests read the list, too
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def receiving(host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """Run a receiver that takes every message, unless it is given another answer."""
    receiver = Receiver()

    at_work: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work[asyncio.get_running_loop().create_task(take(reader, writer))] = writer

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = (line.partition(":") for line in head[1:] if line)
            headers = {name.lower(): value.strip() for name, _, value in fields}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            receiver.requests.append((headers, body))
            if receiver.answer is None:
                writer.write(TAKEN)
            else:
                await receiver.answer(writer)
            await writer.drain()

    server = await asyncio.start_server(serve, host, 0)
    receiver.url = f"http://{host}:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        # Accept no more, and serve accepted connections: closing now would leak those sockets.
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        for task, writer in at_work.items():
            task.cancel()  # a task that has not begun closes nothing
            writer.transport.abort()
        await asyncio.gather(*at_work, return_exceptions=True)


def answering(text: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Return what answers with some bytes."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text)

    return answer
