"""HTTP on one connection: uvicorn's protocol, with bounds on unfinished requests."""

from __future__ import annotations

import enum
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.edge.layers import KNOWN

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn import Config
    from uvicorn.server import ServerState

    from leasehold.daemon.http.connections import Keeper

#: Bytes and fields of a request's head, and bytes of its target.
MOST_HEAD_BYTES, MOST_FIELDS, MOST_TARGET_BYTES = 65_536, 200, 16_384
_LONG_HEAD = f"the request's head is larger than {MOST_HEAD_BYTES} bytes"
#: Bytes around the name and value of a field: ``: `` and the end of the line.
_AROUND = 4
#: Requests that may be sent ahead of their answers.
MOST_AHEAD = 16
#: Time to send a refusal.
LINGER_S = 1.0
#: Path prefixes that the reserved connections serve.
_KEPT_FOR = (b"/v1/agent/", b"/healthz", b"/readyz")


class Stage(enum.Enum):
    """The event that a connection waits for."""

    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    ANSWER = enum.auto()
    REFUSED = enum.auto()


class GuardedProtocol(HttpToolsProtocol):
    """Serves the requests of one connection.

    Args:
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: from the application's lifespan.
        keeper: of the connections.
        address: of the client.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        keeper: Keeper,
        address: str,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.address = address
        #: makes the connection (TLS handshake); done when there is a transport.
        self.accepting: asyncio.Task[None] | None = None
        self._keeper = keeper
        self._app = self.app
        self._stage = Stage.HEAD
        self._head_bytes = 0
        #: whether there has been a transport.
        self.was_made = False
        self._stuck: asyncio.TimerHandle | None = None

    # -- as the keeper sees it

    def drop(self) -> None:
        """Close the connection at once."""
        if self.was_made:
            self.transport.abort()
        elif self.accepting is not None:
            self.accepting.cancel()

    def time_out(self) -> None:
        """Close the connection; send an answer first if none was begun."""
        answering = self.cycle is not None and not self.cycle.response_complete
        quiet = not answering or (self._stage is Stage.BODY and not self.cycle.response_started)
        if not self.was_made or self._head_bytes == 0 or not quiet:
            self.drop()
            return
        part, limits = ("head", self._keeper.limits.header_timeout_s)
        if self._stage is Stage.BODY:
            part, limits = ("body", self._keeper.limits.body_timeout_s)
        self._refuse(408, f"the request's {part} did not arrive within {limits:g} s; send it again")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer in place of the application, and close."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        fields, body = _problem(status, detail)
        head = b"".join(b"%s: %s\r\n" % field for field in fields)
        phrase = HTTPStatus(status).phrase.encode()
        self.transport.write(b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, phrase, head, body))
        self._stage = Stage.REFUSED
        if self.transport.can_write_eof():
            # Further input is discarded: closing at once would lose the answer.
            self.transport.write_eof()
        else:
            self.transport.close()
        self.loop.call_later(LINGER_S, self.transport.abort)

    # -- as the transport sees it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve."""
        self.was_made = True
        super().connection_made(transport)
        if self.client is not None:  # the address as in the networks of trusted proxies
            self.client = (self.address, self.client[1])

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        if self._stage is Stage.REFUSED:
            return
        if self._stage is Stage.IDLE:  # even if they do not begin a request
            self._begin()
        before, self._head_bytes = self._head_bytes, self._head_bytes + len(data)
        if self._stage is Stage.HEAD and before > MOST_HEAD_BYTES:
            self._keeper.has_all(self)
            self._refuse(431, _LONG_HEAD)
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._keeper.remove(self)
        self._unstick()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read, for a limited time."""
        super().pause_writing()
        if self._stuck is None:
            limit_s = self._keeper.limits.body_timeout_s
            self._stuck = self.loop.call_later(limit_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue to write."""
        self._unstick()
        super().resume_writing()

    def _unstick(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    # -- as the parser sees it

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope["state"][KNOWN] = self._know
        if self._stage is not Stage.HEAD:
            self._begin()

    def on_headers_complete(self) -> None:
        """Begin to serve a request, unless there is too much of it."""
        if len(self.pipeline) >= MOST_AHEAD:
            raise ValueError(f"more than {MOST_AHEAD} requests were sent ahead of their answers")
        kept = self.url.startswith(_KEPT_FOR)
        refusal: ASGIApp | None = None
        head_bytes = len(self.url) + sum(len(n) + len(v) + _AROUND for n, v in self.headers)
        if head_bytes > MOST_HEAD_BYTES:
            refusal = _Refusal(431, _LONG_HEAD)
        elif len(self.headers) > MOST_FIELDS:
            refusal = _Refusal(431, f"the request's head has more than {MOST_FIELDS} fields")
        elif len(self.url) > MOST_TARGET_BYTES:
            refusal = _Refusal(414, f"the address is longer than {MOST_TARGET_BYTES} bytes")
        elif self._keeper.is_crowded and not kept:
            refusal = _Refusal(503, "all connections are in use (server.connections); try again")
        self._stage = Stage.BODY
        self._keeper.await_body(self, agent=kept or refusal is not None)
        self.app = cast("Any", refusal or self._app)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Record that a request is complete."""
        self._stage = Stage.ANSWER
        self._keeper.has_all(self)
        super().on_message_complete()
        if self.cycle.response_complete:  # before the rest of the request came
            self._rest()

    def on_response_complete(self) -> None:
        """Serve a request that was sent ahead, or wait for the next one."""
        super().on_response_complete()
        if self._stage is Stage.ANSWER and self.cycle.response_complete:
            self._rest()

    def _begin(self) -> None:
        self._stage, self._head_bytes = Stage.HEAD, 0
        self._keeper.await_head(self)

    def _rest(self) -> None:
        self._stage = Stage.IDLE
        self._keeper.has_answer(self)

    def _know(self) -> None:
        self._keeper.know(self)


class _Refusal:
    """An application that refuses a request and closes the connection."""

    def __init__(self, status: int, detail: str) -> None:
        self._status = status
        self._fields, self._body = _problem(status, detail)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Refuse it."""
        start = {"type": "http.response.start", "status": self._status}
        await send({**start, "headers": self._fields})
        await send({"type": "http.response.body", "body": self._body})


def _problem(status: int, detail: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return header fields and body of a refusal; ``api.problems`` would need a request."""
    code = {408: "timeout", 503: "unavailable"}.get(status, "too_large")
    body = json.dumps(
        {
            "type": f"urn:leasehold:problem:{code}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            "instance": "",
            "errors": [],
        }
    ).encode()
    fields = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return (fields if status != 503 else [*fields, (b"retry-after", b"1")]), body
