"""The view of a job's output: a window of one stream, and the lines of all attempts with a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pydantic import TypeAdapter

from api.context import context_of
from api.jobs.selection import visible_job
from api.pages.copying import as_command, as_curl
from api.pages.queries import read_values, write_query
from api.pages.rendering import render
from api.pages.routing import page
from api.schemas.fields import Line, NodeName
from api.threads import in_thread
from scheduler.logs.output import STREAMS, LogWanted
from scheduler.logs.terminal_text import TerminalText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.context import Context
    from scheduler.logs.output import LogChunk

#: Bytes of a window, and of a line that is found.
WINDOW_BYTES: Final = 64 * 2**10
LINE_BYTES: Final = 300
#: Most bytes that one search reads, most lines that it finds, and most searches at once.
SEARCHED_BYTES: Final = 64 * 2**20
MOST_FOUND: Final = 200
#: Attempts and streams that the view offers.
MOST_OFFERED: Final = 30
#: An unfinished line that is longer than this is searched in parts.
_CARRIED_BYTES: Final = 64 * 2**10
_KINDS: Final[dict[str, TypeAdapter[Any]]] = {
    "attempt": TypeAdapter(int),
    "before": TypeAdapter(int),
    "node": TypeAdapter(NodeName),
    "stream": TypeAdapter(Line),
    "q": TypeAdapter(Line),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A window of a stream.

    Attributes:
        attempt: of the job.
        node: the node that it was written on.
        stream: ``out`` or ``err``.
        before: offset after its last byte; None for the newest.
    """

    attempt: int
    node: str
    stream: str
    before: int | None = None

    @property
    def url(self) -> str:
        """The relative URL of the view that shows it."""
        before = "" if self.before is None else str(self.before)
        parts = {"attempt": str(self.attempt), "node": self.node, "stream": self.stream}
        return write_query(parts | {"before": before})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream of an attempt, of which the bytes from ``begin`` to ``end`` are kept."""

    node: str
    stream: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A line with the text that was searched for."""

    place: Place
    text: str


def readable(data: bytes) -> str:
    """Return output as text without terminal codes."""
    reader = TerminalText(colours=False)
    return reader.feed(data) + reader.end()


async def show_output(request: Request, principal: Principal) -> Response:
    """Show a window of a job's output, or the lines with a text."""
    context, job_id = context_of(request), request.path_params["job_id"]
    row = await visible_job(context, principal, job_id)
    values, notes = read_values(request.query_params, _KINDS, most={}, others=())
    given = {name: found[0] if found else "" for name, found in values.items()}
    numbers = [one.attempt for one in await in_thread(context.store.attempts, job_id)][::-1]
    attempt = int(given["attempt"] or 0) or (numbers[0] if numbers else row.attempts)
    if not context.service.health().leading:  # the leader has the output
        shown: dict[str, Any] = {"found": None, "text": ""}
    elif given["q"]:
        found, is_whole = await _search(context, job_id, numbers, given["q"])
        shown = {"found": found, "is_whole": is_whole, "text": ""}
    else:
        shown = {"found": None} | await _window(context, job_id, attempt, given)
    return render(
        request,
        "output.html",
        view="Jobs",
        job_id=job_id,
        follows=not given["q"] and not given["before"],
        attempt=attempt,
        attempts=numbers[:MOST_OFFERED],
        more=max(len(numbers) - MOST_OFFERED, 0),
        wanted=given["q"],
        notes=notes,
        command=as_command("logs", job_id),
        curl=as_curl(f"jobs/{quote(job_id)}/log", {"attempts": "all"}),
        **{"streams": (), "place": None, "earlier": None, "later": None} | shown,
    )


async def _window(
    context: Context, job_id: str, attempt: int, given: dict[str, str]
) -> dict[str, Any]:
    """Return the window that a URL asks for, and those beside it."""
    found = await context.service.read_log(job_id, LogWanted(attempt=attempt, tail_bytes=1))
    streams = [
        Stream(node=one.node, stream=one.stream, begin=one.kept_from, end=one.offset + 1)
        for one in found.first
    ]
    streams.sort(key=lambda one: (one.node, STREAMS.index(one.stream)))
    asked = given["node"], given["stream"]
    here = next((one for one in streams if (one.node, one.stream) == asked), None)
    if here is None and streams:
        here = streams[0]
    if here is None:
        return {"text": ""}
    end = min(int(given["before"] or here.end), here.end)
    begin = max(end - WINDOW_BYTES, here.begin)
    if end <= begin:
        end = min(begin + WINDOW_BYTES, here.end)

    wanted = LogWanted(
        attempt=attempt, node=here.node, stream=here.stream, tail_bytes=max(here.end - begin, 0)
    )
    data = await _read(context, job_id, wanted, end)
    if begin > here.begin and 0 <= (first := data.find(b"\n")) < len(data) - 1:
        data, begin = data[first + 1 :], begin + first + 1  # the window before has that line

    def at(before: int | None) -> str:
        return Place(attempt=attempt, node=here.node, stream=here.stream, before=before).url

    return {
        "streams": [
            (one, Place(attempt=attempt, node=one.node, stream=one.stream).url)
            for one in streams[:MOST_OFFERED]
        ],
        "place": here,
        "begin": begin,
        "end": end,
        "text": readable(data),
        "earlier": at(begin) if begin > here.begin else None,
        "later": None if end == here.end else at(end + WINDOW_BYTES),
    }


async def _read(context: Context, job_id: str, wanted: LogWanted, end: int) -> bytes:
    """Return the bytes of a stream before an offset."""
    pieces = []
    async for chunk in (await context.service.read_log(job_id, wanted)).pieces:
        pieces.append(chunk.data[: max(end - chunk.offset, 0)])
        if chunk.offset + len(chunk.data) >= end:
            break
    return b"".join(pieces)


async def _search(
    context: Context, job_id: str, attempts: Sequence[int], text: str
) -> tuple[list[Found], bool]:
    """Return the lines with a text, of the newest attempt first, and whether all was read."""
    found: list[Found] = []
    read = 0
    async with context.searching:
        for attempt in attempts:
            stored = await context.service.read_log(job_id, LogWanted(attempt=attempt))
            lines: dict[str, Lines] = {}
            async for chunk in stored.pieces:
                seeker = lines.setdefault(chunk.key, Lines(text))
                found += seeker.feed(chunk)
                read += len(chunk.data)
                if len(found) >= MOST_FOUND or read >= SEARCHED_BYTES:
                    return found[:MOST_FOUND], False
            for seeker in lines.values():
                found += seeker.end()
    return found[:MOST_FOUND], len(found) <= MOST_FOUND


class Lines:
    """Finds the lines of a stream that have a text; upper and lower case of a-z are the same.

    Args:
        text: the text.
    """

    def __init__(self, text: str) -> None:
        self._wanted = text.encode().lower()
        self._rest = b""
        self._last: LogChunk | None = None

    def feed(self, chunk: LogChunk) -> list[Found]:
        """Return the lines that end in the stream's next piece."""
        if self._last is not None and chunk.offset != self._last.offset + len(self._last.data):
            self._rest = b""  # output between them is not kept any more
        data, self._last = self._rest + chunk.data, chunk
        complete = data.rfind(b"\n") + 1
        if len(data) - complete > _CARRIED_BYTES:
            complete = len(data) - len(self._wanted) + 1
        self._rest = data[complete:]
        base = chunk.offset + len(chunk.data) - len(data)
        return list(self._of(data[:complete], base, chunk))

    def end(self) -> list[Found]:
        """Return the last line, if it has the text and no end."""
        if self._last is None:
            return []
        base = self._last.offset + len(self._last.data) - len(self._rest)
        return list(self._of(self._rest, base, self._last))

    def _of(self, data: bytes, base: int, chunk: LogChunk) -> Iterator[Found]:
        lower, at = data.lower(), 0
        while (at := lower.find(self._wanted, at)) >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            end = len(data) if end < 0 else end
            shown = data[max(begin, at - LINE_BYTES // 3) : min(end, at + LINE_BYTES)]
            place = Place(
                attempt=chunk.attempt,
                node=chunk.node,
                stream=chunk.stream,
                before=base + end + WINDOW_BYTES // 2,
            )
            yield Found(place=place, text=readable(shown))
            at = end


ROUTES: Final = (page("/jobs/{job_id}/output", show_output),)
