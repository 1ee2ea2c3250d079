"""What jobs print, as plain text."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from api.access import Ctx, Viewer
from api.context import Context, in_thread
from api.log_pieces import END, PIECES, piece_line, piece_lines
from api.routing import StrictRoute
from api.schemas.fields import JobId
from api.selection import visible_job
from scheduler.runtime.protocol import LogChunk

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=StrictRoute)

TEXT = "text/plain; charset=utf-8"
#: Header of a whole answer: bytes before it that are not kept any more.
DROPPED = "x-leasehold-dropped-bytes"
_TEXT_ANSWER = {
    200: {
        "description": "the output; with several nodes each piece has a heading",
        "headers": {
            "X-Leasehold-Dropped-Bytes": {
                "description": "bytes before the answer's first ones that are not kept any more; "
                "not where the output is followed",
                "schema": {"type": "integer"},
            }
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
        int | None, Query(ge=1, le=2**31, description="which attempt; the newest unless told")
    ] = None,
) -> Response:
    """Return a job's output.

    Where a gang runs on several nodes, a line `==> node (stream) <==` stands before each piece that
    comes from another node or stream than the piece before.

    With `Accept: application/x-ndjson` the answer is a line of JSON per piece: `attempt`, `node`,
    `stream`, `offset` (of its first byte since the attempt began), `kept_from` (offset of the
    stream's first byte that is still kept), `data` (base64). Empty lines say that there is nothing
    new; `{"end": true}` is the last line, unless the scheduler stopped.
    """
    await visible_job(context, principal, job_id)
    attempts = await in_thread(context.store.attempts, job_id)
    headings = any(len(row.nodes) > 1 for row in attempts)
    pieces = PIECES in request.headers.get("accept", "")
    if follow:
        chunks = context.service.follow_log(
            job_id, attempt=attempt, stream=stream, tail_bytes=tail_bytes
        )
        if pieces:
            return StreamingResponse(piece_lines(context, chunks), media_type=PIECES)
        return StreamingResponse(_following(context, chunks, headings=headings), media_type=TEXT)
    found = await context.service.read_log(
        job_id, attempt=attempt, stream=stream, tail_bytes=tail_bytes
    )
    dropped = {DROPPED: str(_dropped(found))}
    if pieces:
        body = b"".join([*map(piece_line, found), END])
        return Response(body, media_type=PIECES, headers=dropped)
    writer = Headings(wanted=headings or len({chunk.node for chunk in found}) > 1)
    body = b"".join(writer.write(chunk) for chunk in found)
    return Response(body, media_type=TEXT, headers=dropped)


def _dropped(found: Sequence[LogChunk]) -> int:
    """Return how many bytes are missing where the first piece of a stream begins."""
    first: dict[tuple[int, str, str], LogChunk] = {}
    for chunk in found:
        first.setdefault((chunk.attempt, chunk.node, chunk.stream), chunk)
    # A tail that begins later leaves out what is there; that is not lost.
    return sum(chunk.offset for chunk in first.values() if chunk.offset == chunk.kept_from)


class Headings:
    """Puts a heading before output of another node or stream than the output before.

    Args:
        wanted: whether there are headings at all.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._last: tuple[str, str] | None = None
        self._at_line_start = True

    def write(self, chunk: LogChunk) -> bytes:
        """Return the bytes to show for a piece."""
        source = (chunk.node, chunk.stream)
        if not chunk.data:
            return b""
        heading = b""
        if self._wanted and source != self._last:
            end = b"" if self._at_line_start else b"\n"
            heading = end + f"==> {chunk.node} ({chunk.stream}) <==\n".encode()
        self._last, self._at_line_start = source, chunk.data.endswith(b"\n")
        return heading + chunk.data


async def _following(
    context: Context, chunks: AsyncIterator[LogChunk], *, headings: bool
) -> AsyncIterator[bytes]:
    writer = Headings(wanted=headings)
    source = aiter(chunks)
    while True:
        chunk = await context.unless_stopping(_next(source))
        if chunk is None:
            return
        yield writer.write(chunk)


async def _next(source: AsyncIterator[LogChunk]) -> LogChunk | None:
    return await anext(source, None)
