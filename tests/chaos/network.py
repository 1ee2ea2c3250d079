"""The network between one agent and the schedulers: cut, slow, lossy, doubling, out of order.

A proxy in the test's process that understands just enough HTTP/1.1 to find the end of a message.
Each request goes upstream on a connection of its own, so that a fault hits one message and not the
state of an unused connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

#: Reports that are remembered, to be delivered once more when they are old.
REMEMBERED = 40


@dataclass(kw_only=True)
class Wire:
    """What lies between one agent and the schedulers.

    Attributes:
        targets: ports of the schedulers.
        chance: every choice comes from here.
        ports: ports to which the agent is to connect instead, in the order of ``targets``.
        up, down: whether requests, and answers, get through. What does not waits.
        delay_s: each message waits up to so long.
        reset: how probably a connection breaks in the middle of an answer.
        double: how probably a report is delivered twice.
        refuse: while cut, connections are refused; otherwise they hang.
        counts: faults of messages.
    """

    targets: tuple[int, ...]
    chance: random.Random
    ports: tuple[int, ...] = ()
    up: bool = True
    down: bool = True
    refuse: bool = False
    delay_s: float = 0.0
    reset: float = 0.0
    double: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _old: deque[bytes] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _servers: list[asyncio.Server] = field(default_factory=list)
    _open: dict[asyncio.StreamWriter, asyncio.Task[None]] = field(default_factory=dict)
    _healed: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self) -> None:
        """Listen."""
        for target in self.targets:

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target
            ) -> None:
                over = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
                with self._known(writer), contextlib.suppress(*over):
                    await self._serve(reader, writer, target)

            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        self.ports = tuple(server.sockets[0].getsockname()[1] for server in self._servers)

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        for server in self._servers:
            server.close()
        self.drop()
        serving = list(self._open.values())
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def cut(self, *, up: bool, down: bool, refuse: bool) -> None:
        """Let requests (``up``) or answers (``down``) through no more."""
        self.up, self.down, self.refuse = not up, not down, refuse
        if refuse:
            self.drop()

    def heal(self) -> None:
        """Be a good network again; waiting messages are delivered now."""
        self.up = self.down = True
        self.refuse = False
        self.delay_s = self.reset = self.double = 0.0
        self._healed.set()
        self._healed = asyncio.Event()

    def drop(self) -> None:
        """Break all connections."""
        for writer in list(self._open):
            writer.transport.abort()

    async def replay(self, target: int) -> None:
        """Deliver an old report once more."""
        if self._old:
            self.counts["replayed"] += 1
            with contextlib.suppress(OSError):
                await _ask(target, self.chance.choice(self._old))

    @contextlib.contextmanager
    def _known(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        try:
            yield
        finally:
            del self._open[writer]
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int
    ) -> None:
        while True:
            request = await _read_request(reader)
            if self.refuse:
                writer.transport.abort()
                return
            await self._pass("up")
            answer = await self._forward(request, target)
            await self._pass("down")
            self.counts["messages"] += 1
            if self.chance.random() < self.reset:
                self.counts["reset"] += 1
                writer.write(answer[: self.chance.randrange(len(answer) or 1)])
                await writer.drain()
                writer.transport.abort()
                return
            writer.write(self._readdress(answer))
            await writer.drain()

    async def _pass(self, way: str) -> None:
        """Wait as long as a message takes in one direction."""
        if self.delay_s:
            self.counts["delayed"] += 1
            await asyncio.sleep(self.chance.uniform(0.0, self.delay_s))
        if not getattr(self, way):
            self.counts["held"] += 1
        while not getattr(self, way):
            await self._healed.wait()

    async def _forward(self, request: bytes, target: int) -> bytes:
        if request.startswith(b"POST /v1/agent/report"):
            self._old.append(request)
            if self.chance.random() < self.double:
                self.counts["doubled"] += 1
                answers = await asyncio.gather(_ask(target, request), _ask(target, request))
                return answers[0]
        return await _ask(target, request)

    def _readdress(self, answer: bytes) -> bytes:
        """Let a redirect to another scheduler lead over this wire, too."""
        for target, port in zip(self.targets, self.ports, strict=True):
            answer = answer.replace(b"//127.0.0.1:%d" % target, b"//127.0.0.1:%d" % port, 1)
        return answer


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    body = await reader.readexactly(int(length[1])) if length else b""
    head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
    return head[:-2] + b"Connection: close\r\n\r\n" + body


async def _ask(target: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", target)
    try:
        writer.write(request)
        await writer.drain()
        answer = await reader.read(-1)
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("the scheduler went away without an answer")
    head, blank, body = answer.partition(b"\r\n\r\n")
    return re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head) + blank + body
