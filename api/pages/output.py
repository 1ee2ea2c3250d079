"""The view of a job's output: a part of one stream, and the lines of all attempts with a text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from pydantic import Field, TypeAdapter

from api.context import context_of
from api.jobs.selection import visible_job
from api.pages.copying import as_command, as_curl, options
from api.pages.queries import read_values, write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.problems import ProblemError
from api.schemas.fields import Line, NodeName
from api.threads import in_thread
from scheduler.logs.output import STREAMS, LogWanted
from scheduler.logs.terminal_text import TerminalText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.context import Context
    from scheduler.logs.output import LogChunk

#: Bytes of a part, and of a line that is found.
PART_BYTES: Final = 64 * 2**10
LINE_BYTES: Final = 300
#: Most bytes that one search reads, and most lines that it finds.
SEARCHED_BYTES: Final = 64 * 2**20
MOST_FOUND: Final = 200
#: Attempts and streams that the view offers.
MOST_OFFERED: Final = 30
#: An unfinished line that is longer than this is searched in pieces.
_CARRIED_BYTES: Final = 64 * 2**10
_Offset = Annotated[int, Field(ge=0, le=2**62)]
_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    "attempt": TypeAdapter(Annotated[int, Field(ge=1, le=2**31)]),
    "node": TypeAdapter(NodeName),
    "stream": TypeAdapter(Line),
    "before": TypeAdapter(_Offset),
    "after": TypeAdapter(_Offset),
    "q": TypeAdapter(Line),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream of an attempt, of which the bytes from ``begin`` to ``end`` are kept."""

    attempt: int
    node: str
    stream: str
    begin: int
    end: int


def url_of(one: Stream | LogChunk, **places: int) -> str:
    """Return the relative URL of a part of a stream: ``before`` or ``after`` an offset."""
    parts = {"attempt": str(one.attempt), "node": one.node, "stream": one.stream}
    return write_query(parts | {name: str(offset) for name, offset in places.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a stream, of whole lines if they are not too long.

    Attributes:
        begin: offset of its first byte.
        data: its bytes.
    """

    begin: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset after its last byte."""
        return self.begin + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLine:
    """A line with the text that was searched for, and the URL of the part that has it.

    ``piece`` names its attempt, node and stream, without bytes.
    """

    piece: LogChunk
    url: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search.

    Attributes:
        found: the lines, those of the newest attempt first.
        is_whole: whether all output that is kept was searched.
        lacks: whether the beginning of some output is not kept any more.
    """

    found: tuple[FoundLine, ...]
    is_whole: bool
    lacks: bool


def readable(data: bytes) -> str:
    """Return output as text without terminal codes."""
    reader = TerminalText(colours=False)
    return reader.feed(data) + reader.end()


async def show_output(request: Request, principal: Principal) -> Response:
    """Show a part of a job's output, or the lines with a text."""
    context, job_id = context_of(request), request.path_params["job_id"]
    row = await visible_job(context, principal, job_id)
    values, notes = read_values(request.query_params, _KINDS, most={}, others=())
    given = {name: found[0] if found else "" for name, found in values.items()}
    numbers = [one.attempt for one in await in_thread(context.store.attempts, job_id)][::-1]
    attempt = int(given["attempt"] or 0) or (numbers[0] if numbers else row.attempts)
    shown: dict[str, Any] = {"search": None, "stream": None, "streams": (), "more_streams": 0}
    if not context.service.health().leading:  # the leader has the output
        pass
    elif given["q"]:
        shown["search"] = await _search(request, principal, numbers, given["q"])
    else:
        shown |= await _part_of(context, job_id, attempt, given, notes)
    return render(
        request,
        "output.html",
        view="Jobs",
        job_id=job_id,
        follows=not given["q"] and not given["before"] and not given["after"],
        attempt=attempt,
        attempts=numbers[:MOST_OFFERED],
        more=max(len(numbers) - MOST_OFFERED, 0),
        wanted=given["q"],
        notes=notes,
        command=as_command("logs", job_id, *options({"attempt": given["attempt"]})),
        curl=as_curl(
            f"jobs/{quote(job_id)}/log",
            {"attempt": given["attempt"]} if given["attempt"] else {"attempts": "all"},
        ),
        **shown,
    )


async def _part_of(
    context: Context, job_id: str, attempt: int, given: Mapping[str, str], notes: list[str]
) -> dict[str, Any]:
    """Return the part that a URL asks for, and the streams of the attempt."""
    found = await context.service.read_log(job_id, LogWanted(attempt=attempt, tail_bytes=1))
    streams = sorted(
        (
            Stream(
                attempt=attempt,
                node=one.node,
                stream=one.stream,
                begin=one.kept_from,
                end=one.offset + 1,
            )
            for one in found.first
        ),
        key=lambda one: (one.node, STREAMS.index(one.stream)),
    )
    if not streams:
        return {}
    wanted = [
        one
        for one in streams
        if given["node"] in {"", one.node} and given["stream"] in {"", one.stream}
    ]
    if not wanted:
        notes.append("attempt, node and stream: there is no such output; this is another stream")
    here = (wanted or streams)[0]
    part = await _read(context, job_id, here, given)
    return {
        "streams": [(one, url_of(one)) for one in streams[:MOST_OFFERED]],
        "more_streams": max(len(streams) - MOST_OFFERED, 0),
        "stream": here,
        "part": part,
        "text": readable(part.data),
        "earlier": url_of(here, before=part.begin) if part.begin > here.begin else None,
        "later": url_of(here, after=part.end) if part.end < here.end else None,
        "oldest": url_of(here, after=here.begin),
        "newest": url_of(here),
    }


async def _read(context: Context, job_id: str, stream: Stream, given: Mapping[str, str]) -> Part:
    """Return the part of a stream before or after an offset; the newest part by default.

    Going from part to part, each byte is in one of them.
    """
    if after := given["after"]:
        begin = min(max(int(after), stream.begin), stream.end)
        part = await _bytes(context, job_id, stream, begin, begin + PART_BYTES)
        is_cut = part.end < stream.end
        size = part.data.rfind(b"\n") + 1 if is_cut else 0
        return replace(part, data=part.data[:size]) if size else part
    end = min(max(int(given["before"] or stream.end), stream.begin), stream.end)
    part = await _bytes(context, job_id, stream, max(end - PART_BYTES - 1, stream.begin), end)
    if part.begin > stream.begin:  # its first byte shows whether a line begins after it
        first = part.data.find(b"\n") + 1
        first = first if 0 < first < len(part.data) else 1
        return Part(begin=part.begin + first, data=part.data[first:])
    return part


async def _bytes(context: Context, job_id: str, stream: Stream, begin: int, end: int) -> Part:
    """Return the bytes of a stream between two offsets, as far as they are kept."""
    wanted = LogWanted(
        attempt=stream.attempt, node=stream.node, stream=stream.stream, from_byte=begin
    )
    first, pieces = begin, list[bytes]()
    async for chunk in (await context.service.read_log(job_id, wanted)).pieces:
        first = first if pieces else chunk.offset
        pieces.append(chunk.data[: max(end - chunk.offset, 0)])
        if chunk.offset + len(chunk.data) >= end:
            break
    return Part(begin=first, data=b"".join(pieces))


async def _search(
    request: Request, principal: Principal, attempts: Sequence[int], text: str
) -> SearchResult:
    """Return the lines with a text.

    Raises:
        ProblemError: a search with the same token is going on.
    """
    context = context_of(request)
    owner = principal.token_id or principal.subject
    if owner in context.searching:
        raise ProblemError(
            429,
            f"'{principal.subject}' searches output already, and one search at a time is the most; "
            "try again when it is over",
            headers={"Retry-After": "5"},
        )
    context.searching.add(owner)
    try:
        return await _searched(request, principal, attempts, text)
    finally:
        context.searching.discard(owner)


async def _searched(
    request: Request, principal: Principal, attempts: Sequence[int], text: str
) -> SearchResult:
    context, job_id = context_of(request), request.path_params["job_id"]
    found: list[FoundLine] = []
    read, lacks = 0, False
    for attempt in attempts:
        stored = await context.service.read_log(job_id, LogWanted(attempt=attempt))
        lacks = lacks or any(one.kept_from > 0 for one in stored.first)
        lines: Lines | None = None
        async for chunk in stored.pieces:
            if lines is not None and lines.key != chunk.key:
                found += lines.end()
                lines = None
            lines = lines or Lines(text, chunk.key)
            # A piece takes some milliseconds, and one that is all hits a hundred times as long.
            found += await context.heavily(lines.feed, chunk, MOST_FOUND + 1 - len(found))
            read += len(chunk.data)
            is_over = len(found) > MOST_FOUND or read >= SEARCHED_BYTES
            if is_over or await request.is_disconnected() or not context.serves(principal):
                return SearchResult(found=tuple(found[:MOST_FOUND]), is_whole=False, lacks=lacks)
        found += [] if lines is None else lines.end()
    is_whole = len(found) <= MOST_FOUND
    return SearchResult(found=tuple(found[:MOST_FOUND]), is_whole=is_whole, lacks=lacks)


class Lines:
    """Finds the lines of a stream that have a text; upper and lower case of a-z are the same.

    A carriage return ends a line, too: progress bars have no other ends.

    Args:
        text: the text.
        key: of the stream.
    """

    def __init__(self, text: str, key: str) -> None:
        self.key = key
        self._wanted = text.encode().lower()
        self._rest = b""
        self._last: LogChunk | None = None

    def feed(self, chunk: LogChunk, most: int) -> list[FoundLine]:
        """Return the first lines with the text that end in the stream's next piece."""
        if self._last is not None and chunk.offset != self._last.offset:
            self._rest = b""  # output between them is not kept any more
        data = self._rest + chunk.data
        complete = _line_begin(data, len(data))
        if len(data) - complete > _CARRIED_BYTES:
            complete = len(data) - len(self._wanted) + 1
        base = chunk.offset - len(self._rest)
        self._rest = data[complete:]
        self._last = replace(chunk, offset=chunk.offset + len(chunk.data), data=b"")
        return list(islice(self._of(data[:complete], base, self._last), most))

    def end(self) -> list[FoundLine]:
        """Return the last line, if it has the text and no end."""
        if self._last is None:
            return []
        base = self._last.offset - len(self._rest)
        return list(islice(self._of(self._rest, base, self._last), 1))

    def _of(self, data: bytes, base: int, chunk: LogChunk) -> Iterator[FoundLine]:
        lower, at = data.lower(), 0
        while (at := lower.find(self._wanted, at)) >= 0:
            begin, end = _line_begin(data, at), _line_end(data, at)
            shown = data[max(begin, at - LINE_BYTES // 3) : min(end, at + LINE_BYTES)]
            before = base + min(end, at + LINE_BYTES) + PART_BYTES // 2
            yield FoundLine(piece=chunk, url=url_of(chunk, before=before), text=readable(shown))
            at = max(end, at + 1)


def _line_begin(data: bytes, at: int) -> int:
    """Return the offset at which the line of a byte begins."""
    return max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1


def _line_end(data: bytes, at: int) -> int:
    """Return the offset at which the line of a byte ends."""
    end = data.find(b"\n", at)
    end = len(data) if end < 0 else end
    early = data.find(b"\r", at, end)
    return end if early < 0 else early


ROUTES: Final = (page("/jobs/{job_id}/output", show_output),)
