"""One HTTP/1.1 connection that is kept alive: the least that a client needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Line:
    """A connection; opened when needed, one request at a time.

    Args:
        host: where.
        port: where.
        headers: of every request.
    """

    def __init__(self, host: str, port: int, headers: dict[str, str]) -> None:
        self._host, self._port = host, port
        fixed = {"Host": f"{host}:{port}", **headers}
        self._fixed = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of the answer."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()  # the server has closed it, since it was idle for long
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=2**24)
        reader, writer = self._streams
        content = "Content-Type: application/json\r\n" if body else ""
        head = f"{method} {target} HTTP/1.1\r\n{self._fixed}{content}"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            raw = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = raw.find(b"content-length:")
            length = int(raw[at + 15 : raw.index(b"\r", at)]) if at >= 0 else 0
            answer = await reader.readexactly(length)
        except BaseException:
            self.close()
            raise
        if b"\r\nconnection: close" in raw:
            self.close()
        return int(raw[9:12]), answer

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
