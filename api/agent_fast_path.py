"""Fast path for the agents' frequent requests.

When a round is planned, a thousand agents receive a new desired set within a second, and report at
once. Each of these requests costs more in middleware and routing than in its answer. So the usual
case bypasses them: a known token, a well-formed request, a leader. Any other request is passed
unchanged to the FastAPI application.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import orjson

from api.agent_tokens import is_bound
from api.edge.layers import FIXED_HEADERS, RequestIds, mark_known_caller
from api.edge.privacy import why_not_private
from api.limits import NODE_REQUESTS
from api.problems import ProblemError
from api.routes.agents import DESIRED_PARAMETERS
from api.routing import check_count
from scheduler.errors import LeaseholdError
from scheduler.protocol.reports import report_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from api.auth.roles import Principal
    from api.context import Context
    from scheduler.protocol.reports import NodeReport

_access = logging.getLogger("leasehold.access")
_DESIRED, _REPORT = "/v1/agent/desired", "/v1/agent/report"
_PATHS = frozenset({_DESIRED, _REPORT})
_LONGEST_WAIT_S = 3600.0
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PLAIN = re.compile(rb"[A-Za-z0-9._:\[\]+-]{0,64}")
_INSTANCE = re.compile(rb"[A-Za-z0-9.+/-]{0,253}")
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,9})?")
_LENGTH = re.compile(rb"\d{1,12}")


class AgentFastPath:
    """Answers the usual requests of agents, and passes on all others.

    Args:
        app: answers all other requests.
        context: of the application.
        version: of the program, sent in every answer.
    """

    def __init__(self, app: ASGIApp, *, context: Context, version: str = "") -> None:
        self._app = app
        self._context = context
        self._headers = [
            (name.encode(), value.encode())
            for name, value in (FIXED_HEADERS | {"x-leasehold-version": version}).items()
        ]
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        usual = scope["type"] == "http" and scope["path"] in _PATHS
        if usual and not _access.isEnabledFor(logging.DEBUG):
            headers = dict(scope["headers"])
            repeated = len(headers) < len(scope["headers"])
            caller = None if repeated else self._caller(headers)
            node = "" if caller is None else caller.node
            if node and self._context.buckets.take(f"node {node}", NODE_REQUESTS) > 0:
                node = ""  # the application refuses it
            request = scope["method"], scope["path"]
            if node:
                mark_known_caller(scope)
            if caller and node and request == ("GET", _DESIRED):
                if await self._desired(scope, headers, caller, send):
                    return
            elif caller and node and request == ("POST", _REPORT) and not scope["query_string"]:
                read: list[Message] = []
                if await self._report(headers, caller, receive, read, send):
                    return
                receive = _again(read, receive)
        await self._app(scope, receive, send)

    def _caller(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Return the caller; None if the fast path cannot determine it."""
        scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
        context = self._context
        if scheme != b"Bearer" or not context.settings.auth or context.stopping.is_set():
            return None
        return context.authenticator.remembered(secret.decode("latin-1").strip())

    async def _desired(
        self, scope: Scope, headers: Mapping[bytes, bytes], caller: Principal, send: Send
    ) -> bool:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"))
        given = dict(pairs)
        instance = headers.get(b"x-leasehold-instance", b"")
        if not (given.keys() <= DESIRED_PARAMETERS and _INSTANCE.fullmatch(instance)):
            return False  # the application reports it
        if len(pairs) != len(given) or not all(map(_NUMBER.fullmatch, given.values())):
            return False
        term, revision, wait = (given.get(name, "0") for name in ("term", "revision", "wait_s"))
        wait_s = float(wait)
        if not (term.isdecimal() and revision.isdecimal() and wait_s <= _LONGEST_WAIT_S):
            return False
        context = self._context
        work = context.service.desired_json(
            caller.node,
            after=(int(term), int(revision)),
            wait_s=min(wait_s, context.settings.max_wait_s),
            hindrance=why_not_private(scope),
            instance=instance.decode(),
        )
        try:
            body = await context.unless_stopping(work, caller)
        except LeaseholdError:
            return False
        if body is None:
            return False
        length = (b"content-length", b"%d" % len(body))
        fields = [length, (b"content-type", b"application/json")]
        await self._answer(200, fields, body, headers, send)
        return True

    async def _report(
        self,
        headers: Mapping[bytes, bytes],
        caller: Principal,
        receive: Receive,
        read: list[Message],
        send: Send,
    ) -> bool:
        address = headers.get(b"x-leasehold-address", b"")
        version = headers.get(b"x-leasehold-agent", b"")
        if not (_PLAIN.fullmatch(address) and _PLAIN.fullmatch(version)):
            return False
        body = await self._body(headers, receive, read)
        try:
            self._context.buckets.take_report_of_node(caller.node, len(body))
            report = await self._context.by_size(body, _report_of)
            if report.node != caller.node:
                return False
            await self._context.service.report(
                report,
                address=address.decode(),
                version=version.decode(),
                enrolled=is_bound(self._context, caller),
            )
        except (LeaseholdError, ProblemError, orjson.JSONDecodeError):
            return False
        await self._answer(204, [], b"", headers, send)
        return True

    async def _body(
        self, headers: Mapping[bytes, bytes], receive: Receive, read: list[Message]
    ) -> bytes:
        """Return the body; empty if it is too large or does not arrive."""
        most, total = self._context.settings.max_body_bytes, 0
        announced = headers.get(b"content-length", b"0")
        if not _LENGTH.fullmatch(announced) or int(announced) > most:
            return b""
        while True:
            message = await receive()
            read.append(message)
            total += len(message.get("body", b""))
            if message["type"] != "http.request" or total > most:
                return b""
            if not message.get("more_body", False):
                return b"".join(part.get("body", b"") for part in read)

    async def _answer(
        self,
        status: int,
        fields: list[tuple[bytes, bytes]],
        body: bytes,
        headers: Mapping[bytes, bytes],
        send: Send,
    ) -> None:
        request_id = headers.get(b"x-request-id", b"")
        if not request_id or not _ID.fullmatch(request_id):
            request_id = self._ids.new().encode()
        fields = [*fields, *self._headers, (b"x-request-id", request_id)]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})


def _report_of(body: bytes) -> NodeReport:
    check_count(body)
    return report_from_dict(orjson.loads(body))


def _again(read: list[Message], receive: Receive) -> Receive:
    """Return a receiver that repeats the messages already read, then yields the rest."""
    left = iter(read)

    async def following() -> Message:
        for message in left:
            return message
        return await receive()

    return following
