"""A job's output as lines of JSON, one per piece, from which a client can resume exactly."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import asdict
from typing import TYPE_CHECKING

from api.answers import dump_json
from scheduler.errors import NotLeadingError
from scheduler.logs.output import LogEnd

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from api.auth.roles import Principal
    from api.context import Context
    from scheduler.logs.output import LogChunk

#: Value of ``Accept`` that requests pieces.
PIECES = "application/x-ndjson"
#: Streams that the last line names at most.
MOST_GAPS = 100


def line_of(piece: LogChunk | LogEnd) -> bytes:
    """Return the line of a piece, or the last one."""
    return end_line(piece) if isinstance(piece, LogEnd) else piece_line(piece)


def piece_line(chunk: LogChunk) -> bytes:
    """Return the line of a piece; ``data`` is base64, since a piece may end within a character."""
    return (
        dump_json(
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


def end_line(end: LogEnd) -> bytes:
    """Return the last line, unless the service stopped before the output ended.

    ``complete`` is null if agents of an older release have sent the output.
    """
    said: dict[str, object] = {"end": True, "complete": end.complete}
    if end.missing:
        said["missing"] = [asdict(gap) for gap in end.missing[:MOST_GAPS]]
    return dump_json(said) + b"\n"


async def piece_lines(
    context: Context, principal: Principal, chunks: AsyncIterator[LogChunk | LogEnd]
) -> AsyncGenerator[bytes]:
    """Yield lines as output comes, an empty one without output, and the last one at its end."""
    source = aiter(chunks)
    heartbeat_s = context.settings.heartbeat_s
    coming: asyncio.Task[LogChunk | LogEnd | None] | None = None
    try:
        yield b"\n"  # the headers go out at once
        while True:
            coming = coming or asyncio.ensure_future(next_piece(source))
            news = asyncio.wait({coming}, timeout=heartbeat_s)
            done = await context.unless_stopping(news, principal)
            if done is None:
                return
            if not coming.done():
                yield b"\n"
                continue
            chunk, coming = coming.result(), None
            if chunk is None:
                return
            yield line_of(chunk)
            if isinstance(chunk, LogEnd):
                return
    finally:
        if coming is not None:
            coming.cancel()


async def next_piece(source: AsyncIterator[LogChunk | LogEnd]) -> LogChunk | LogEnd | None:
    """Return the next piece; None if this process has ceased to lead and others go on."""
    try:
        return await anext(source, None)
    except NotLeadingError:
        return None
