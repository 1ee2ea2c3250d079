"""Streams, read across breaks of the connection: history and output of jobs."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from leasehold.client.errors import ClientError, NoSchedulerError
from leasehold.client.exchange import BUSY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from leasehold.client.exchange import Exchange

#: Lines of JSON, one per piece of output; an empty line says that there is nothing new.
PIECES: Final = "application/x-ndjson"
_EVENTS: Final = "text/event-stream"
#: Streams with an offset in a reconnecting request: the length of addresses is limited.
_MOST_PLACES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One message of a stream.

    Attributes:
        event_id: where to resume after it; may be empty.
        kind: its name; ``message`` by default.
        data: its content.
    """

    event_id: str
    kind: str
    data: str


class LogGap(TypedDict):
    """A stream without its end.

    Attributes:
        attempt: of the job.
        node: the node of the attempt.
        stream: which.
        told: whether the agent there has reported the length.
    """

    attempt: int
    node: str
    stream: Literal["out", "err"]
    told: bool


class LogPiece(TypedDict):
    """A piece of a job's output.

    Attributes:
        attempt: of the job; 1 is the first.
        node: the node that printed it.
        stream: which.
        offset: of its first byte since the attempt began.
        dropped: earlier bytes that are no longer kept.
        data: the output.
    """

    attempt: int
    node: str
    stream: Literal["out", "err"]
    offset: int
    dropped: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The state of a job's output after all available output has been read.

    Attributes:
        complete: whether that is all that the job has printed; None if agents do not report it.
        missing: streams without ends.
    """

    complete: bool | None
    missing: tuple[LogGap, ...]


async def parse_events(lines: AsyncIterator[str]) -> AsyncGenerator[ServerEvent]:
    """Parse a stream as the HTML standard says: fields until an empty line, comments dropped."""
    event_id, kind, data = "", "message", list[str]()
    async for line in lines:
        if not line:
            if data:
                yield ServerEvent(event_id=event_id, kind=kind, data="\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            kind = value
        elif field == "id":
            event_id = value


async def read_events(
    exchange: Exchange, path: str, params: Mapping[str, Any], *, after: int
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a stream without end, each once, across breaks.

    Args:
        exchange: with the scheduler.
        path: of the stream.
        params: of the query.
        after: begin after this event id.

    Raises:
        ClientError: it is refused.
    """
    outage, last = exchange.outage(), str(after)
    while True:
        failure: ClientError | None = None
        try:
            headers = {"Last-Event-ID": last}
            async with exchange.stream(path, params=params, headers=headers, kind=_EVENTS) as lines:
                async for event in parse_events(lines):
                    outage.over()
                    last = event.event_id or last
                    yield _object(event.data, "an event")
        except ClientError as error:
            failure = _passing(error)
        await exchange.pause(outage, failure)


class LogReader:
    """Reads a job's output, each byte once, across breaks of the connection.

    Args:
        exchange: with the scheduler.
        path: of the output.
        attempt: of the job; None for all, or, if only a tail is wanted, the newest and later.
        stream: ``out``, ``err`` or ``both``.
        follow: go on until the job has ended and its output is whole.
        seen: (attempt, node, stream) -> offset after the known part.
    """

    def __init__(
        self,
        exchange: Exchange,
        path: str,
        *,
        attempt: int | None,
        stream: str,
        follow: bool,
        seen: Mapping[tuple[int, str, str], int] | None = None,
    ) -> None:
        self._exchange = exchange
        self._path = path
        self._attempt = attempt
        self._stream = stream
        self._follow = follow
        self._end: LogEnd | None = None
        #: (attempt, node, stream) -> offset after the last yielded byte.
        self._seen: dict[tuple[int, str, str], int] = dict(seen or {})
        #: whether the last request was only for a tail.
        self._tail = False

    async def pieces(self, tail_bytes: int | None = None) -> AsyncGenerator[LogPiece | LogEnd]:
        """Yield the existing output, if wanted also later output, and then the state of its end.

        Raises:
            ClientError: the server refuses; or, unless followed, is away for too long.
        """
        most_s = None if self._follow else self._exchange.patience.busy_s
        outage = self._exchange.outage(most_s=most_s)
        newest = tail_bytes is not None
        while self._end is None:
            failure: ClientError | None = None
            try:
                count = 0
                async for piece in self._open(tail_bytes, newest=newest):
                    if piece or count:  # every server sends the first line, without content
                        outage.over()
                    count += 1
                    if piece:
                        yield piece
            except ClientError as error:
                failure = _passing(error)
            if self._end is None:
                await self._exchange.pause(outage, failure)
            tail_bytes = None if self._seen else tail_bytes
        yield self._end

    async def _open(
        self, tail_bytes: int | None, *, newest: bool
    ) -> AsyncGenerator[LogPiece | None]:
        """Yield pieces, and None if the server reports nothing new."""
        self._tail = tail_bytes is not None
        params = {
            "stream": self._stream,
            "attempt": self._attempt,
            "attempts": None if newest or self._attempt is not None else "all",
            "tail_bytes": tail_bytes,
            "follow": self._follow or None,
            "since": self._places(),
        }
        async with self._exchange.stream(
            self._path, params=params, headers={}, kind=PIECES
        ) as lines:
            async for line in lines:
                yield self._fresh(_object(line, "a piece of the log")) if line else None

    def _places(self) -> list[str]:
        """Return the known offsets of the newest streams; older ones are sent again and cut."""
        newest = sorted(self._seen, reverse=True)[:_MOST_PLACES]
        return [
            f"{number}/{node}/{name}/{self._seen[number, node, name]}"
            for number, node, name in newest
        ]

    def _fresh(self, piece: dict[str, Any]) -> LogPiece | None:
        """Remove the part that was already yielded."""
        if piece.get("end"):
            missing = tuple(piece.get("missing") or ())
            self._end = LogEnd(complete=piece.get("complete"), missing=missing)
            return None
        key = (piece["attempt"], piece["node"], piece["stream"])
        seen, data = self._seen.get(key, 0), base64.b64decode(piece["data"])
        # The gap is lost, unless only a tail was wanted that begins within the kept output.
        tail = self._tail and key not in self._seen and piece["offset"] > piece.get("kept_from", 0)
        dropped = 0 if tail else max(piece["offset"] - seen, 0)
        end = piece["offset"] + len(data)
        if end <= seen or not data:
            if tail:  # an empty piece that marks the begin of the tail
                self._seen[key] = end
            return None
        self._seen[key] = end
        cut = max(seen - piece["offset"], 0)
        return {
            "attempt": piece["attempt"],
            "node": piece["node"],
            "stream": piece["stream"],
            "offset": piece["offset"] + cut,
            "dropped": dropped,
            "data": data[cut:],
        }


def _passing(error: ClientError) -> ClientError:
    """Return an error that a retry may cure.

    Raises:
        ClientError: a retry cannot cure it.
    """
    if error.status and error.status not in {307, *BUSY}:
        raise error
    return error


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise NoSchedulerError(f"{what} is no JSON: {text[:80]!r}", status=200) from None
    if not isinstance(value, dict):
        raise NoSchedulerError(f"{what} is no object: {text[:80]!r}", status=200)
    return value
