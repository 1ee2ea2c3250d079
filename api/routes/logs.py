"""Jobs' output, as plain text."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import StringConstraints
from starlette.responses import Response, StreamingResponse

from api.access import Ctx, Viewer
from api.auth.roles import Principal
from api.context import Context
from api.jobs.log_pieces import PIECES, line_of, next_piece, piece_lines
from api.jobs.selection import visible_job
from api.patterns import LOG_PLACE
from api.routing import StrictRoute
from api.schemas.fields import JobId
from api.threads import in_thread
from scheduler.logs.output import LogChunk, LogEnd, LogWanted

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

TEXT = "text/plain; charset=utf-8"
#: Header of a whole answer: earlier bytes that are no longer kept.
DROPPED = "x-leasehold-dropped-bytes"
#: Header of a whole answer: whether it is all that the job has printed.
COMPLETE = "x-leasehold-complete"
_WORDS = {True: "true", False: "false", None: "unknown"}
#: Position up to which the caller has a stream: ATTEMPT/NODE/STREAM/OFFSET.
Place = Annotated[str, StringConstraints(pattern=LOG_PLACE)]
MOST_PLACES = 100
_TEXT_ANSWER = {
    200: {
        "description": "the output; with several nodes each piece has a heading",
        "headers": {
            "X-Leasehold-Dropped-Bytes": {
                "description": "bytes before the answer's first ones that are not kept any"
                " more; missing if the output is followed",
                "schema": {"type": "integer"},
            },
            "X-Leasehold-Complete": {
                "description": "whether that is all that the job has printed; unknown for "
                "agents of an older release; missing if the output is "
                "followed",
                "schema": {"type": "string", "enum": ["true", "false", "unknown"]},
            },
        },
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            PIECES: {"schema": {"type": "string"}},
        },
    }
}


@router.get(
    "/jobs/{job_id}/log",
    summary="Read or follow a job's output",
    operation_id="read_log",
    response_class=Response,
    responses=_TEXT_ANSWER,  # type: ignore[arg-type]  # a plain dictionary of the right form
)
async def read_log(
    request: Request,
    *,
    job_id: Annotated[JobId, Path(description="job id")],
    context: Ctx,
    principal: Viewer,
    follow: Annotated[bool, Query(description="go on until the job has ended")] = False,
    tail_bytes: Annotated[
        int | None, Query(ge=0, le=2**30, description="only the last bytes of each stream")
    ] = None,
    stream: Annotated[Literal["out", "err", "both"], Query(description="which")] = "both",
    attempt: Annotated[
        int | None, Query(ge=1, le=2**31, description="the attempt; the newest by default")
    ] = None,
    attempts: Annotated[
        Literal["newest", "all"],
        Query(description="all: every attempt that is kept; not together with attempt"),
    ] = "newest",
    since: Annotated[
        list[Place],
        Query(max_length=MOST_PLACES, description="ATTEMPT/NODE/STREAM/OFFSET: known until there"),
    ] = [],  # noqa: B006
) -> Response:
    """Return a job's output.

    If a gang runs on several nodes, or all attempts are asked for, a line `==> node (stream) <==`
    stands before each piece that comes from another node, stream or attempt than the piece before.

    With `Accept: application/x-ndjson` the answer is a line of JSON per piece: `attempt`, `node`,
    `stream`, `offset` (of its first byte since the attempt began), `kept_from` (offset of the
    stream's first byte that is still kept), `data` (base64). Empty lines say that there is nothing
    new. The last line, unless the scheduler stopped: `end` is true; `complete` says whether that is
    all (null: unknown for agents of an older release); `missing` lists streams without ends.

    A job has ended before the last of its output is here. Followed output ends when it is whole, or
    when the rest has been waited for in vain; other answers wait some seconds for it.
    """
    await visible_job(context, principal, job_id)
    wanted = LogWanted(
        attempt=attempt,
        every=attempts == "all" and attempt is None,
        stream=stream,
        tail_bytes=tail_bytes,
        follow=follow,
        since=_known(since),
    )
    context.check_streams(principal)
    rows = await in_thread(context.store.attempts, job_id)
    writer = Headings(wanted=any(len(row.nodes) > 1 for row in rows), attempts=wanted.every)
    headers, is_followed = {}, follow or wanted.every
    if is_followed:
        chunks = context.service.follow_log(job_id, wanted)
    else:
        end = await context.service.log_end(job_id, wanted)  # first: output before a mark is stored
        found = await context.service.read_log(job_id, wanted)
        headers = {DROPPED: str(_dropped(found.first)), COMPLETE: _WORDS[end.complete]}
        writer.wanted |= len({chunk.node for chunk in found.first}) > 1
        chunks = _with_end(found.pieces, end)
    as_lines = PIECES in request.headers.get("accept", "")
    if as_lines and is_followed:
        parts = piece_lines(context, principal, chunks)
    else:
        parts = _written(context, principal, chunks, line_of if as_lines else writer.write)
    return StreamingResponse(
        context.streaming(principal, parts),
        media_type=PIECES if as_lines else TEXT,
        headers=headers,
    )


async def _with_end(
    pieces: AsyncIterator[LogChunk], end: LogEnd
) -> AsyncIterator[LogChunk | LogEnd]:
    async for piece in pieces:
        yield piece
    yield end


def _known(places: Sequence[str]) -> dict[str, int]:
    pairs = (place.rpartition("/") for place in places)
    return {key: int(offset) for key, _, offset in pairs}


def _dropped(first: Sequence[LogChunk]) -> int:
    """Return how many bytes are missing before the first pieces of the streams."""
    # A tail that begins later omits existing bytes; those are not lost.
    return sum(chunk.offset for chunk in first if chunk.offset == chunk.kept_from)


class Headings:
    """Puts a heading before output of another origin than the output before.

    Args:
        wanted: whether there are headings at all.
        attempts: whether another attempt is another origin; then it is named.
    """

    def __init__(self, *, wanted: bool, attempts: bool = False) -> None:
        self.wanted = wanted or attempts
        self._attempts = attempts
        self._last: tuple[object, ...] | None = None
        self._at_line_start = True

    def write(self, chunk: LogChunk | LogEnd) -> bytes:
        """Return the bytes to show for a piece."""
        if isinstance(chunk, LogEnd):
            return b""
        attempt = f"attempt {chunk.attempt} on " if self._attempts else ""
        source = (attempt, chunk.node, chunk.stream)
        if not chunk.data:
            return b""
        heading = b""
        if self.wanted and source != self._last:
            end = b"" if self._at_line_start else b"\n"
            heading = end + f"==> {attempt}{chunk.node} ({chunk.stream}) <==\n".encode()
        self._last, self._at_line_start = source, chunk.data.endswith(b"\n")
        return heading + chunk.data


async def _written(
    context: Context,
    principal: Principal,
    chunks: AsyncIterator[LogChunk | LogEnd],
    write: Callable[[LogChunk | LogEnd], bytes],
) -> AsyncGenerator[bytes]:
    """Yield pieces as they are written, until the end; each once the client has taken the last."""
    source = aiter(chunks)
    while True:
        chunk = await context.unless_stopping(next_piece(source), principal)
        if chunk is None:
            return
        if data := write(chunk):
            yield data
        if isinstance(chunk, LogEnd):
            return
