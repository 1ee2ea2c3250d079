"""Requests and answers: retries, their limits, and the errors of refusals.

A read or a repeatable write is retried if the connection breaks or the scheduler is busy. Any other
write is retried only if it surely was not executed.
"""

from __future__ import annotations

import json
import math
import re
import socket
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from leasehold.client.errors import (
    ClientError,
    NoSchedulerError,
    UnreachableError,
    UnsendableError,
    Why,
)
from leasehold.client.outages import Outage, delay_s
from leasehold.connection import SettingsError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    import httpx

    from leasehold.client.wires import Wire
    from leasehold.connection import Connection

#: Statuses of a scheduler that is not ready for a request.
BUSY: Final = (429, 502, 503, 504)
#: A gateway that gives up may have forwarded the request.
_SURELY_NOT_DONE: Final = (429, 503)
#: Redirections from one standby to the next, while they elect a leader.
_MOST_HOPS: Final = 3
_VERSION_HEADER: Final = "X-Leasehold-Version"
#: Matches the number that Python writes before the words of an error of the operating system.
_ERRNO: Final = re.compile(r"^\[Errno -?\d+\] ")
#: The scheduler sends at least every 15 s on a stream.
_SILENCE_S: Final = 45.0


#: A first start compiles, and may be slow on a busy machine.
_STARTING_S: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to try.

    Attributes:
        away_s: while no scheduler answers.
        busy_s: while the scheduler answers that it is busy or not ready.
        timeout_s: for one answer.
    """

    away_s: float = 2.0
    busy_s: float = 15.0
    timeout_s: float = 30.0

    @classmethod
    def of(cls, seconds: float, *, timeout_s: float = 30.0) -> Patience:
        """Use the same time in every case."""
        return cls(away_s=seconds, busy_s=seconds, timeout_s=timeout_s)


#: The longest wait for a connection if there are other addresses.
_CONNECT_S: Final = 5.0


class Exchange:
    """Talks to one scheduler, by the first of its addresses that answers.

    Args:
        connection: address and credentials of the scheduler.
        patience: how long to try.
        wire: the transport.
        agent: the client's ``User-Agent``.
        context: certificates to trust; those of the connection unless given.
        look_again: finds the connection again, since a starting scheduler may have written its
            first token meanwhile.
        on_outage: called once for an outage during which a stream waits, and for a scheduler that
            is starting.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        patience: Patience,
        wire: Wire,
        agent: str = "leasehold-client",
        context: ssl.SSLContext | None = None,
        look_again: Callable[[], Connection] | None = None,
        on_outage: Callable[[Exception], object] | None = None,
    ) -> None:
        self.connection = connection
        self.patience = patience
        self.wire = wire
        self.on_outage = on_outage
        #: release of the server that answered last; empty if it sends none.
        self.version = ""
        self._agent = agent
        self._context = context
        self._look_again = look_again
        self._settings: dict[str, Any] | None = None

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        repeatable: bool = True,
        good: Collection[int] = (),
    ) -> httpx.Response:
        """Make a request and return its answer.

        Args:
            method: of HTTP.
            path: as in ``/v1/jobs``.
            body: sent as JSON.
            params: of the query; None or empty ones are left out.
            key: by which the scheduler may know a write again; a new one unless given.
            repeatable: whether a repetition is harmless.
            good: statuses that are not refusals, beside those below 300.

        Raises:
            ClientError: the request was refused, or no scheduler answered.
            UnsendableError: the body has no JSON form.
        """
        headers = {} if method == "GET" else {"Idempotency-Key": key or uuid.uuid4().hex}
        sent = _json(body)
        work = _Try(method, path, sent, params, headers, repeatable=repeatable, good=good)
        response = await self._persist(work)
        if response.status_code == 401 and self._finds_token():
            response = await self._persist(work)
        self.version = response.headers.get(_VERSION_HEADER, "")
        if response.status_code >= 300 and response.status_code not in good:
            raise self._refusal(response)
        return response

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        kind: str,
    ) -> AsyncIterator[AsyncIterator[str]]:
        """Open a streamed answer, without retries: the reader knows where to resume.

        Args:
            path: as in ``/v1/events``.
            params: of the query.
            headers: further ones.
            kind: required content type of the answer.

        Returns:
            its lines.

        Raises:
            UnreachableError: it cannot be opened or breaks; resume from the last position.
            ClientError: it is refused.
        """
        import httpx  # noqa: PLC0415 - takes 0.07 s

        url, hops = path, 0
        work = _Try("GET", path, None, params, {**headers, "Accept": kind})
        try:
            while True:
                response = await self._send(work, url, stream=True, silence_s=_SILENCE_S)
                again = response.status_code == 401 and self._finds_token()
                if not again and (response.status_code != 307 or hops == _MOST_HOPS):
                    break
                await self.wire.end(response)
                if not again:
                    url, hops = self._leader(response), hops + 1
            try:
                self.version = response.headers.get(_VERSION_HEADER, "")
                if response.status_code >= 300:
                    await self.wire.read(response)
                    raise self._refusal(response)
                if not response.headers.get("Content-Type", "").startswith(kind):
                    raise NoSchedulerError(
                        f"{response.url} answered with no stream of {kind}; is that a scheduler?",
                        status=response.status_code,
                    )
                yield self.wire.lines(response)
            finally:
                await self.wire.end(response)
        except httpx.TransportError as error:
            failure = self._away(error)
            self.connection = self.connection.to_next()  # for the next try
            raise failure from None

    def outage(self, *, most_s: float | None = None) -> Outage:
        """Return an outage, which says how long to wait for a broken stream."""
        return Outage(most_s=most_s, tell=self.on_outage)

    async def pause(self, outage: Outage, error: ClientError | None) -> None:
        """Wait through an outage.

        Raises:
            ClientError: the outage lasted too long.
        """
        asked_s = 0.0 if error is None else error.retry_after_s
        try:
            seconds = outage.delay_s(error, at_least_s=asked_s)
        except EOFError:
            server = self.connection.server
            raise UnreachableError(
                f"the scheduler at {server} breaks off again and again", why="broken"
            ) from None
        await self.wire.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self.wire.close()

    async def _persist(self, work: _Try) -> httpx.Response:
        began_s, attempt, hops = time.monotonic(), 0, 0
        url, unasked = work.path, len(self.connection.others)
        while True:
            wait_s = 0.0
            response, failure, give_up_s = await self._attempt(work, url)
            if response is not None:
                if response.status_code == 307 and hops < _MOST_HOPS:
                    url = self._leader(response)
                    hops += 1
                    continue
                again = BUSY if work.repeatable else _SURELY_NOT_DONE
                if response.status_code not in again or response.status_code in work.good:
                    return response
                wait_s, give_up_s = _retry_after(response), self._busy_s(response, attempt)
            elif self.connection.others and url == work.path:
                self.connection = self.connection.to_next()
                unasked -= 1
                if unasked >= 0:
                    continue
            pause_s = delay_s(attempt, at_least_s=wait_s)
            if time.monotonic() - began_s + pause_s > give_up_s:
                if response is not None:
                    return response
                assert failure is not None
                raise failure
            url, hops = work.path, 0
            await self.wire.sleep(pause_s)
            attempt += 1

    async def _attempt(
        self, work: _Try, url: str
    ) -> tuple[httpx.Response | None, ClientError | None, float]:
        """Send a request once; return the answer or the error, and how long to retry after it."""
        import httpx  # noqa: PLC0415 - takes 0.07 s

        try:
            return await self._send(work, url), None, self.patience.away_s
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure, give_up_s = self._unreached(error, "" if url == work.path else url)
            return None, failure, give_up_s
        except httpx.TransportError as error:
            failure = self._broken_off(error, repeatable=work.repeatable)
            return None, failure, self.patience.away_s

    async def _send(
        self, work: _Try, url: str, *, stream: bool = False, silence_s: float | None = None
    ) -> httpx.Response:
        import httpx  # noqa: PLC0415 - takes 0.07 s

        longest_s = self.patience.timeout_s
        connect_s = min(longest_s, _CONNECT_S) if self.connection.others else longest_s
        timeout = httpx.Timeout(longest_s, read=silence_s or longest_s, connect=connect_s)
        headers = {"User-Agent": self._agent, "Accept": "application/json", **work.headers}
        if self.connection.token:
            headers["Authorization"] = f"Bearer {self.connection.token}"
        if work.body is not None:
            headers["Content-Type"] = "application/json"
        try:
            request = httpx.Request(
                work.method,
                url if "://" in url else self.connection.server + url,
                params=_given(work.params),
                headers=headers,
                content=work.body,
                extensions={"timeout": timeout.as_dict()},
            )
        except (ValueError, TypeError) as error:
            raise UnsendableError(f"the request cannot be written down: {error}") from None
        return await self.wire.send(request, self._http_settings(), stream=stream)

    def _http_settings(self) -> dict[str, Any]:
        if self._settings is None:
            addresses = " ".join(self.connection.servers)
            self._settings = {
                "verify": self._trust(),
                # Proxies are never used for a scheduler on this machine.
                "trust_env": "//127." not in addresses and "//localhost" not in addresses,
            }
        return self._settings

    def _trust(self) -> Any:
        if self._context is not None:
            return self._context
        if not any(server.startswith("https") for server in self.connection.servers):
            return False  # building the default context reads 150 certificates
        import ssl  # noqa: PLC0415 - only for https

        try:
            return ssl.create_default_context(cafile=self.connection.ca_file or None)
        except OSError as error:
            raise SettingsError(
                f"the certificates in '{self.connection.ca_file}' cannot be used: "
                f"{error.strerror or error}"
            ) from None

    def _finds_token(self) -> bool:
        """Look for the token again, once; return whether there is one now.

        A scheduler accepts connections before it has made its first token.
        """
        if self.connection.token or self._look_again is None:
            return False
        found, self._look_again = self._look_again(), None
        if not found.token or set(found.servers) != set(self.connection.servers):
            return False
        self.connection = replace(self.connection, token=found.token)
        return True

    def _leader(self, response: httpx.Response) -> str:
        """Return the leader that a standby names; never from https to http, which leaks a token."""
        location = response.headers.get("Location", "")
        if not location.startswith(("https://", self.connection.server.partition(":")[0] + "://")):
            raise NoSchedulerError(
                f"{self.connection.server} sends writes to '{location}', which cannot be used; "
                "name the leader",
                status=response.status_code,
            )
        # The query is added with each try.
        return str(location.partition("?")[0])

    def _busy_s(self, response: httpx.Response, attempt: int) -> float:
        """Return how long to retry if the scheduler is not ready."""
        most_s = self.patience.busy_s
        if not most_s or response.status_code != 503 or b"problem:starting" not in response.content:
            return most_s
        if not attempt and self.on_outage is not None:
            self.on_outage(self._refusal(response))
        return max(most_s, _STARTING_S)

    def _unreached(self, error: httpx.TransportError, leader: str) -> tuple[ClientError, float]:
        """Return the error, and how long to retry: a dead leader is replaced after a while."""
        if not leader:
            return self._away(error), self.patience.away_s
        told = UnreachableError(
            f"the scheduler at {self.connection.server} stands by, and the leader that it names "
            f"({leader.partition('/v1')[0]}) does not answer; a standby takes over in some seconds",
            why="leader",
        )
        return told, self.patience.busy_s

    def _broken_off(self, error: httpx.TransportError, *, repeatable: bool) -> ClientError:
        failure = self._away(error)
        if not repeatable:
            failure.add_note("whether it was done is unknown: look before you repeat it")
            raise failure from None
        return failure

    def _away(self, error: Exception) -> UnreachableError:
        server, why = self.connection.server, _why(error)
        words = _ERRNO.sub("", str(error))
        said = {
            "certificate": f"the certificate of {server} is not trusted: {words}",
            "plain": f"{server} does not speak https; is its address "
            f"http://{server.partition('://')[2]}?",
            "name": f"DNS does not know the server {server}: {words}",
            "silence": f"the scheduler at {server} has not answered for "
            f"{self.patience.timeout_s:g} s",
            "broken": f"the scheduler at {server} broke off: {words}"
            + ("; does it serve https? Then name it so" if server.startswith("http://") else ""),
        }
        return UnreachableError(
            said.get(why, f"no scheduler answers at {server}: {words}"), why=why
        )

    def _refusal(self, response: httpx.Response) -> ClientError:
        """Return the error for an answer."""
        status = response.status_code
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict):
            problem = {}
        words = str(problem.get("detail") or f"the answer was {status}")
        words = words.replace("; 'errors' says why", ":")  # they follow
        fields = "".join(
            f"\n  {entry.get('field') or 'request'}: {entry.get('problem')}"
            for entry in problem.get("errors") or ()
            if isinstance(entry, dict)
        )
        return ClientError(
            words + fields, status=status, problem=problem, retry_after_s=_retry_after(response)
        )


@dataclass(frozen=True, slots=True)
class _Try:
    """A request as it is sent with each retry."""

    method: str
    path: str
    body: bytes | None
    params: Mapping[str, Any] | None
    headers: Mapping[str, str]
    repeatable: bool = True
    good: Collection[int] = ()


def _json(body: object) -> bytes | None:
    if body is None:
        return None
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, ValueError) and (found := _not_finite(body)):
            field, value = found
            problem = f"is {value}; give a finite number"
            said = f"{field or 'the request'} {problem}"
            raise UnsendableError(said, field=field, problem=problem) from None
        raise UnsendableError(
            f"the request cannot be written down: {error}; numbers have to be finite, and text "
            "has to be Unicode"
        ) from None


def _not_finite(body: object) -> tuple[str, float] | None:
    """Return the path and the value of a number that is not finite; None if all are finite."""
    left, seen = [("", body)], set[int]()
    while left:
        field, value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return field, value
        if isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # it may contain itself
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            left += ((f"{field}.{key}" if field else str(key), part) for key, part in pairs)
    return None


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None and value not in ("", [], ())
    }


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(float(response.headers.get("Retry-After", 0.0)), 0.0)
    except ValueError:  # a date: rare, and the backoff will do
        return 0.0


def _unknown_name(error: BaseException | None) -> bool:
    """Return whether an error comes from a name look-up."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False


def _why(error: Exception) -> Why:
    name = type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "certificate"
    if "WRONG_VERSION_NUMBER" in str(error) or "record layer failure" in str(error):
        return "plain"
    if name == "ConnectError" and _unknown_name(error):
        return "name"
    if name in {"ReadTimeout", "WriteTimeout", "PoolTimeout"}:
        return "silence"
    return "nobody" if name in {"ConnectError", "ConnectTimeout"} else "broken"
