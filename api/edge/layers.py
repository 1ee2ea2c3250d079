"""The outermost layers of the application: request ids, access log, sizes, tokens, rates."""

from __future__ import annotations

import itertools
import json
import logging
import re
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from api.auth.browser import SESSION, page_of, secrets_in_cookies
from api.auth.roles import ANONYMOUS, Principal, Role, TokenFault
from api.auth.tokens import ENROLMENT_PREFIX, TOKEN_PREFIX
from api.problems import ProblemError, PublicError, fault_of, internal_error, rate_limited
from api.redaction import redact
from scheduler.errors import NotLeadingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from api.context import Context

    #: A request and its error -> the page of the error.
    PageOf = Callable[[Scope, PublicError], ASGIApp]

_access = logging.getLogger("leasehold.access")
_log = logging.getLogger("leasehold.api")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: Paths that need no token.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/v1/openapi.json", "/v1/agent/enrol"})
#: Agents are known and many behind one address; each node has a limit of its own.
_OF_AGENTS = "/v1/agent/"
#: Frequent requests of machines, which are logged only at debug level.
_ROUTINE = ("/v1/agent/", "/healthz", "/readyz", "/metrics")
#: Largest body of a caller without a valid token.
MOST_UNKNOWN_BYTES = 65_536
#: Key in a request's state: function to call when the caller is authenticated.
KNOWN = "known"
#: Pages of these hosts may call a scheduler that requires no tokens.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: Part of every answer.
FIXED_HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


def wants_page(path: str, headers: Headers) -> bool:
    """Return whether an error is to be a page: of a view, for a browser.

    The REST interface answers in JSON, whatever a program says that it accepts.
    """
    return page_of(path) is not None and "text/html" in headers.get("accept", "")


class RequestIds:
    """Makes request ids, which are unique but not secret."""

    def __init__(self) -> None:
        self._first, self._count = secrets.token_hex(4), itertools.count()

    def new(self) -> str:
        """Return an unused id."""
        return f"{self._first}{next(self._count):08x}"


class Edge:
    """Gives each request an id, a line in the access log, a size limit, and an answer.

    Args:
        app: the application.
        max_body_bytes: largest body.
        version: of the program, sent in every answer.
        page: makes the page of an error, for browsers.
    """

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, version: str = "", page: PageOf | None = None
    ) -> None:
        self._app = app
        self._page = page
        self._max_body_bytes = max_body_bytes
        self._headers = FIXED_HEADERS | {"x-leasehold-version": version}
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else self._ids.new()
        exchange = _Exchange(
            scope, receive, send, self._max_body_bytes, self._headers, request_id=request_id
        )
        try:
            exchange.check_announced_size()
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001 - the caller gets an answer for any error
            await exchange.fail(error, self._page)
        finally:
            exchange.log()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        max_body_bytes: int,
        fixed: Mapping[str, str],
        *,
        request_id: str,
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._max_body_bytes, self._fixed = max_body_bytes, fixed
        self._headers = Headers(scope=scope)
        self._began_s = time.perf_counter()
        self._received = self._status = 0
        self.request_id = request_id
        scope.setdefault("state", {})["request_id"] = self.request_id

    def check_announced_size(self) -> None:
        announced = self._headers.get("content-length", "0")
        if announced.isdigit() and int(announced[:20]) > self._max_body_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._max_body_bytes:
            raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._fixed.items():
                headers.setdefault(name, value)
            headers["x-request-id"] = self.request_id
        await self._send(message)

    async def fail(self, error: Exception, page: PageOf | None) -> None:
        """Answer with the error, unless an answer has already begun; browsers get a page."""
        if isinstance(error, ClientDisconnect):
            return  # the caller is gone
        fault = fault_for(error, self._scope)
        if fault is None:
            _log.error("request %s failed", self.request_id, exc_info=error)
            fault = internal_error(self.request_id)
        if self._status:
            return
        answer: ASGIApp = fault.answer(instance_of(self._scope))
        # Strangers are refused in as little time as possible.
        is_known = self._scope["state"].get("principal") is not None or fault.status == 421
        if page is not None and is_known and wants_page(self._scope["path"], self._headers):
            try:
                answer = page(self._scope, fault)
            except Exception:  # noqa: BLE001 - the document does without it
                _log.exception("the page of an error of request %s failed", self.request_id)
        await answer(self._scope, self._receive, self.send)

    def log(self) -> None:
        """Write the line of the access log; never a query, which may hold anything."""
        routine = self._status < 400 and self._scope["path"].startswith(_ROUTINE)
        level = logging.DEBUG if routine else logging.INFO
        if not _access.isEnabledFor(level):
            return
        principal = self._scope["state"].get("principal")
        client = self._scope.get("client")
        fields = {
            "request_id": self.request_id,
            "method": self._scope["method"],
            "path": redact(self._scope["path"]),
            "status": self._status,
            "duration_ms": round((time.perf_counter() - self._began_s) * 1e3, 2),
            "subject": principal.subject if principal else "",
            "client": client[0] if client else "",
            "received_bytes": self._received,
        }
        line = " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
        _access.log(level, line, extra={"request": fields})

    def _too_large(self) -> ProblemError:
        return too_large(self._max_body_bytes)


class Gate:
    """Authenticates callers, and refuses those without a token or with too many requests.

    Args:
        app: the application.
        context: of the application.
    """

    def __init__(self, app: ASGIApp, *, context: Context) -> None:
        self._app = app
        self._context = context
        open_metrics = {"/metrics"} if context.settings.metrics_open else set()
        self._open = OPEN_PATHS | open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check_origin(headers)
            principal = await self._principal(headers, scope)
            scope["state"]["principal"] = principal
            if principal is not None:
                mark_known_caller(scope)
            self._limit(scope, principal)
            if principal is None:
                if scope["path"] not in self._open and page_of(scope["path"]) is None:
                    raise refusal(scope)  # a page leads to the page for signing in
                receive = _briefly(receive)
        await self._app(scope, receive, send)

    async def _principal(self, headers: Headers, scope: Scope) -> Principal | None:
        known = await known_caller(headers, self._context, scope)
        if self._context.settings.auth:
            return known
        if known is None:
            return ANONYMOUS
        return Principal(subject=known.subject, role=Role.ADMIN, node=known.node)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse requests of foreign web pages if tokens are not required.

        Browsers send an Origin with every request that changes state. They send none with reads,
        and a page can read the answer if its own host name resolves to this server. But they do
        send that host name.
        """
        settings = self._context.settings
        if settings.auth:
            return
        own = _LOOPBACK | settings.hosts
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _host_of(f"//{hosts[0]}") not in own:
            named = f"'{hosts[0][:200]}'" if hosts else "no name"
            raise ProblemError(
                421,
                f"this scheduler asks for no tokens, and so may not be called as {named}; use "
                "localhost, name it in the setting server.hosts, or start it with authentication",
            )
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) not in own:
            raise ProblemError(
                403,
                f"a page of '{origin[:200]}' may not call a scheduler that asks for no tokens; "
                "start it with authentication",
            )

    def _limit(self, scope: Scope, principal: Principal | None) -> None:
        settings, path = self._context.settings, scope["path"]
        if principal is not None and path.startswith(_OF_AGENTS) and path not in OPEN_PATHS:
            if principal.node:
                self._context.buckets.take_request_of_node(principal.node)
            if principal.node or not principal.token_id:
                return
        caller, limit = stranger_bucket(scope), settings.rate_without_token
        if principal is not None:
            caller = f"token {principal.token_id}" if principal.token_id else f"open {caller}"
            limit = settings.rate
        wait_s = self._context.buckets.take(caller, limit)
        if wait_s > 0:
            raise rate_limited(wait_s)


async def known_caller(
    headers: Headers, context: Context, scope: Scope | None = None
) -> Principal | None:
    """Return the principal of a request's token; None without a valid one.

    Args:
        headers: of the request.
        context: of the application.
        scope: of the request; if given, it records why a provider's token is refused.
    """
    if secret := secret_of(headers):
        return await principal_with(secret, context, scope)
    if scope is not None and page_of(scope["path"]) is not None:
        for found in secrets_in_cookies(headers):
            principal = await principal_with(found, context, scope)
            if principal is not None:
                scope["state"][SESSION] = found
                return principal
    return None


def secret_of(headers: Headers) -> str:
    """Return the token that a request shows; empty without one."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


async def principal_with(
    secret: str, context: Context, scope: Scope | None = None
) -> Principal | None:
    """Return the principal of a token; None if it is not valid.

    Args:
        secret: the token.
        context: of the application.
        scope: see ``known_caller``.
    """
    if context.provider is None or not is_foreign(secret):
        before = None if scope is None else partial(_check_stranger, context, scope)
        return await context.authenticator.principal(secret, before=before)
    found = await context.provider.principal(secret)
    if isinstance(found, Principal):
        return found
    if scope is not None:
        scope["state"]["token_fault"] = found
    return None


def _check_stranger(context: Context, scope: Scope) -> None:
    """Refuse to look a token up for an address that has used up its requests without one.

    Raises:
        ProblemError: it has.
    """
    wait_s = context.buckets.wait_s(stranger_bucket(scope), context.settings.rate_without_token)
    if wait_s > 0:
        raise rate_limited(wait_s)


def stranger_bucket(scope: Scope) -> str:
    """Return the name of the bucket of an address without a valid token."""
    client = scope.get("client")
    return f"address {client[0] if client else ''}"


def is_foreign(secret: str) -> bool:
    """Return whether a secret has the form of a provider's token: three parts, no own prefix."""
    return secret.count(".") == 2 and not secret.startswith((TOKEN_PREFIX, ENROLMENT_PREFIX))


def refusal(scope: Scope) -> ProblemError:
    """Return the refusal of a request whose token is missing or not valid."""
    fault = scope["state"].get("token_fault")
    if not isinstance(fault, TokenFault):
        return unauthenticated_error()
    detail = f"the identity provider's token is not taken: {fault.why}"
    if fault.away:
        return ProblemError(503, f"{detail}; try again later", headers={"Retry-After": "5"})
    error = 'Bearer realm="leasehold", error="invalid_token"'
    return ProblemError(401, detail, headers={"WWW-Authenticate": error})


def _briefly(receive: Receive) -> Receive:
    """Bound the body of an unknown caller: a secret is short."""
    received = 0

    async def short() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_UNKNOWN_BYTES:
            raise too_large(MOST_UNKNOWN_BYTES, "without a token ")
        return message

    return short


def too_large(most_bytes: int, whose: str = "") -> ProblemError:
    """Return the refusal of a body."""
    return ProblemError(
        413,
        f"the body is larger than {most_bytes} bytes, the most that is taken {whose}at once; send "
        "it in smaller pieces",
        headers={"Connection": "close"},
    )


def mark_known_caller(scope: Scope) -> None:
    """Notify the server, if it asks for it, that a connection's caller is authenticated."""
    tell = scope.get("state", {}).get(KNOWN)
    if tell is not None:
        tell()


def _host_of(origin: str) -> str:
    try:
        return (urlsplit(origin).hostname or "").removesuffix(".")
    except ValueError:
        return ""


def unauthenticated_error() -> ProblemError:
    """Return the refusal of a request without a valid token."""
    return ProblemError(
        401,
        "no valid token was shown; send 'Authorization: Bearer TOKEN' with one that is neither "
        "expired nor revoked",
        headers={"WWW-Authenticate": 'Bearer realm="leasehold"'},
    )


def fault_for(error: Exception, scope: Scope) -> PublicError | None:
    """Return the answer to a request for an error; a standby names the leader."""
    if isinstance(error, NotLeadingError) and error.leader_address:
        address = error.leader_address.rstrip("/")
        if "://" not in address:
            address = f"{scope.get('scheme', 'http')}://{address}"
        query = scope.get("query_string", b"").decode("latin-1")
        location = address + quote(scope["path"]) + (f"?{query}" if query else "")
        headers = {"Location": location, "Retry-After": "1"}
        return PublicError(status=307, detail=str(error), code="not_leading", headers=headers)
    return fault_of(error)


def instance_of(scope: Scope) -> str:
    """Return the URI reference of a request, for problem documents."""
    return quote(scope["path"])


def principal_of(state: Any) -> Principal:
    """Return the caller of a request.

    Raises:
        ProblemError: there is no caller: the path is open, but the route requires one.
    """
    principal = getattr(state, "principal", None)
    if not isinstance(principal, Principal):
        raise unauthenticated_error()
    return principal
