"""A standby that forwards requests to the leader, for callers that cannot reach the leader.

Behind one address for several schedulers, such as a Service or an Ingress of Kubernetes, a caller
that is redirected to the leader's own address may not be able to go there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from api.auth.browser import page_of, site_of
from api.edge.layers import (
    MOST_UNKNOWN_BYTES,
    OPEN_PATHS,
    known_caller,
    mark_known_caller,
    stranger_bucket,
    too_large,
)
from api.outgoing import no_cookies
from scheduler.errors import NotLeadingError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from api.context import Context

#: Says that a standby has passed a request on; it is not passed on again.
FORWARDED: Final = "x-leasehold-forwarded"
_MARK: Final = (FORWARDED.encode(), b"1")
#: Paths that each process answers about itself.
OWN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
#: Headers that are about one connection.
_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length"}
    # Set again: the leader would trust the caller's values, as coming from a proxy.
    | {b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"}
    | {b"sec-fetch-site"}
)
#: Agents' requests are held for a minute, and streams say something every 15 s.
_TIMES: Final = httpx.Timeout(connect=3.0, read=90.0, write=30.0, pool=10.0)
#: Connections are given up before the leader does that.
_LIMITS: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=64, keepalive_expiry=20.0
)


class Forwarder:
    """Forwards requests to the leader while this process does not lead.

    Args:
        context: of the application.
        certificate: PEM file with the certificate that all schedulers show; the leader must show
            it, too. Addresses of pods stand in no certificate. None without TLS.
    """

    def __init__(self, context: Context, *, certificate: str | None = None) -> None:
        self._context = context
        self._certificate = None if certificate is None else Path(certificate)
        self._pinned = ""  # the text of the certificate's file that the client was made with
        self._client: httpx.AsyncClient | None = None

    def takes(self, scope: Scope) -> bool:
        """Return whether the leader must serve a request."""
        if scope["type"] != "http" or scope["path"] in OWN_PATHS:
            return False
        health = self._context.service.health()
        if health.leading or not health.leader_address:
            return False
        return FORWARDED not in Headers(scope=scope)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the leader serve a request.

        Raises:
            NotLeadingError: it cannot be reached, or has ceased to lead.
        """
        body = await self._read(scope, receive)
        passing = asyncio.create_task(self._pass_on(scope, body, send))
        leaving = asyncio.create_task(_until_gone(receive))
        stopping = asyncio.create_task(self._context.stopping.wait())
        try:
            await asyncio.wait({passing, leaving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, stopping):
                task.cancel()
            if not passing.done():
                passing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await passing

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Return a request's body; the wrapping layer limits its size.

        The leader decides which tokens are valid, but this process protects its own memory. So it
        keeps a body larger than a secret only for a caller with a token.

        Raises:
            ClientDisconnect: the sender left early; an incomplete body must not be forwarded.
            ProblemError: it is too large for an unknown caller.
        """
        parts, size, is_known = [], 0, not self._context.settings.auth
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MOST_UNKNOWN_BYTES and not is_known:
                context = self._context
                is_known = await known_caller(Headers(scope=scope), context, scope) is not None
                if not is_known:
                    rate = context.settings.rate_without_token
                    context.buckets.take(stranger_bucket(scope), rate)
                    raise too_large(MOST_UNKNOWN_BYTES, "without a token ")
            if not message.get("more_body"):
                return b"".join(parts)

    async def _pass_on(self, scope: Scope, body: bytes, send: Send) -> None:
        try:
            answer = await self._send(scope, body)
        except (httpx.HTTPError, OSError) as error:  # OSError: of the certificate's file
            raise NotLeadingError from error
        try:
            if answer.status_code == httpx.codes.TEMPORARY_REDIRECT:
                raise NotLeadingError  # it has just ceased to lead
            headers = [(k.lower(), v) for k, v in answer.headers.raw if k.lower() not in _HOP]
            if length := answer.headers.get("content-length"):
                headers.append((b"content-length", length.encode()))
            is_open = scope["path"] in OPEN_PATHS or page_of(scope["path"]) is not None
            if answer.is_success and not is_open:
                mark_known_caller(scope)
            start = {"type": "http.response.start", "status": answer.status_code}
            await send({**start, "headers": headers})
            with contextlib.suppress(httpx.HTTPError):  # the answer is cut short, as it came
                async for chunk in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()

    async def _send(self, scope: Scope, body: bytes) -> httpx.Response:
        """Send a request to the leader; once more if the certificate was replaced meanwhile."""
        try:
            client = self._client or self._connect()
            return await client.send(self._request(client, scope, body), stream=True)
        except httpx.ConnectError:  # nothing was sent
            if self._certificate is None or self._certificate.read_text() == self._pinned:
                raise
            client = self._connect()  # streams of the one before go on
            return await client.send(self._request(client, scope, body), stream=True)

    def _request(self, client: httpx.AsyncClient, scope: Scope, body: bytes) -> httpx.Request:
        headers = [pair for pair in scope["headers"] if pair[0] not in _HOP]
        if all(name != b"accept-encoding" for name, _ in headers):  # httpx would add its own
            headers.append((b"accept-encoding", b"identity"))
        return client.build_request(
            scope["method"],
            self._url(scope),
            headers=[*headers, *_for(scope)],
            content=body,
        )

    def _url(self, scope: Scope) -> httpx.URL:
        address = self._context.service.health().leader_address
        if "://" not in address:
            address = f"{scope.get('scheme', 'http')}://{address}"
        path = scope.get("raw_path") or scope["path"].encode()
        query = scope.get("query_string", b"")
        return httpx.URL(address).copy_with(raw_path=path + (b"?" + query if query else b""))

    def _connect(self) -> httpx.AsyncClient:
        verify: ssl.SSLContext | bool = True
        if self._certificate is not None:
            self._pinned = self._certificate.read_text()
            verify = same_certificate(self._pinned)
        self._client = httpx.AsyncClient(
            verify=verify,
            timeout=_TIMES,
            limits=_LIMITS,
            trust_env=False,
            follow_redirects=False,
            cookies=no_cookies(),
        )
        return self._client


def same_certificate(text: str) -> ssl.SSLContext:
    """Return a context that accepts only the first certificate of a text, under any name."""
    leaf, end, _ = text.partition("-----END CERTIFICATE-----")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=leaf + end + "\n")
    return context


def _for(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return headers with the original caller; used if this address is a trusted proxy."""
    client = scope.get("client")
    address = client[0] if client else "unknown"
    return [
        _MARK,
        # The leader does not see the host by which the browser knows this process.
        (b"sec-fetch-site", site_of(Headers(scope=scope)).encode("latin-1")),
        (b"x-forwarded-for", address.encode("latin-1", "replace")),
        (b"x-forwarded-proto", str(scope.get("scheme", "http")).encode()),
    ]


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
