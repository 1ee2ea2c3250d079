"""A job's output as lines of JSON, one per piece: what a client needs to resume exactly."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

from api.answers import dump

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.context import Context
    from scheduler.runtime.protocol import LogChunk

#: What ``Accept`` holds where pieces are wanted.
PIECES = "application/x-ndjson"
#: The last line, unless the service stopped before the output ended.
END = b'{"end":true}\n'


def piece_line(chunk: LogChunk) -> bytes:
    """Return the line of a piece; ``data`` is base64, since a piece may end within a character."""
    return (
        dump(
            {
                "attempt": chunk.attempt,
                "node": chunk.node,
                "stream": chunk.stream,
                "offset": chunk.offset,
                "kept_from": chunk.kept_from,
                "data": base64.b64encode(chunk.data).decode("ascii"),
            }
        )
        + b"\n"
    )


async def piece_lines(context: Context, chunks: AsyncIterator[LogChunk]) -> AsyncIterator[bytes]:
    """Yield lines as output comes, an empty one where nothing does, and the last one at its end."""
    source = aiter(chunks)
    heartbeat_s = context.settings.heartbeat_s
    coming: asyncio.Task[LogChunk | None] | None = None
    try:
        yield b"\n"  # the headers go out at once
        while True:
            coming = coming or asyncio.ensure_future(_next(source))
            done = await context.unless_stopping(asyncio.wait({coming}, timeout=heartbeat_s))
            if done is None:
                return
            if not coming.done():
                yield b"\n"
                continue
            chunk, coming = coming.result(), None
            if chunk is None:
                yield END
                return
            yield piece_line(chunk)
    finally:
        if coming is not None:
            coming.cancel()


async def _next(source: AsyncIterator[LogChunk]) -> LogChunk | None:
    return await anext(source, None)
