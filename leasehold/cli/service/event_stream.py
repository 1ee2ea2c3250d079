"""Server-sent events that survive the server: parsed line by line, resumed by the last id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli.service.outages import Outage
from scheduler.errors import AnswerError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leasehold.cli.service.client import ServiceClient

#: The server says something at least every 15 s.
_SILENCE_S: Final = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One message of a stream.

    Attributes:
        event_id: where to resume after it; empty where it has none.
        kind: its name; ``message`` unless told.
        data: what it says.
    """

    event_id: str
    kind: str
    data: str


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Parse a stream as the HTML standard says: fields until an empty line, comments dropped."""
    event_id, kind, data = "", "message", list[str]()
    for line in lines:
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


class Stream:
    """A stream that is opened again wherever it breaks.

    Args:
        client: to whom it belongs.
        path: beneath ``/v1``.
        params: of the query.
        last_id: resume after this event; None begins where the server begins.
    """

    def __init__(
        self,
        client: ServiceClient,
        path: str,
        params: Mapping[str, Any],
        *,
        last_id: str | None = None,
    ) -> None:
        self.last_id = last_id
        self._client = client
        self._path = path
        self._params = params

    def __iter__(self) -> Iterator[ServerEvent]:
        """Yield events without end.

        Raises:
            LeaseholdError: the server refuses, or is away for longer than ``Outage`` goes on.
        """
        outage = Outage(self._client)
        while True:
            failure: UnreachableError | None = None
            try:
                for event in self._open():
                    outage.over()
                    self.last_id = event.event_id or self.last_id
                    yield event
            except UnreachableError as error:
                failure = error
            outage.wait(failure)

    def _open(self) -> Iterator[ServerEvent]:
        headers = {"Accept": "text/event-stream"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        with self._client.stream(
            self._path, params=self._params, headers=headers, read_timeout_s=_SILENCE_S
        ) as response:
            if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise AnswerError(f"{response.url} answered with no stream; is that a scheduler?")
            yield from parse_events(response.iter_lines())


def event_value(event: ServerEvent) -> dict[str, Any]:
    """Return what an event says as a mapping."""
    try:
        value = json.loads(event.data)
    except ValueError:
        raise AnswerError(f"an event is no JSON: {event.data[:80]!r}") from None
    if not isinstance(value, dict):
        raise AnswerError(f"an event is no object: {event.data[:80]!r}")
    return value
