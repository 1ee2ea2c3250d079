"""The way to the scheduler: requests, retries, streams. The only module that uses httpx.

A read or a write that may be repeated is tried again where the connection breaks or the scheduler
is busy; a write that may not is tried again only where it surely was not done.
"""

from __future__ import annotations

import random
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from leasehold.cli.service.problems import error_of
from leasehold.cli.service.wording import Wording, option_of
from scheduler.errors import AnswerError, InputError, LeaseholdError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import httpx

    from leasehold.cli.service.connection import Connection

_BUSY: Final = (429, 502, 503, 504)
#: A gateway that gives up may have handed the request on.
_SURELY_NOT_DONE: Final = (429, 503)
_LONGEST_DELAY_S: Final = 5.0
#: From one standby to the next, while they elect a leader.
_MOST_HOPS: Final = 3
_VERSION_HEADER: Final = "X-Leasehold-Version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to try.

    Attributes:
        away_s: while nobody answers.
        busy_s: while the scheduler answers that it is busy or not ready.
        timeout_s: for one answer.
    """

    away_s: float = 2.0
    busy_s: float = 15.0
    timeout_s: float = 30.0

    @classmethod
    def of(cls, seconds: float) -> Patience:
        """Be patient for so long in every case."""
        return cls(away_s=seconds, busy_s=seconds)


class ServiceClient:
    """Talks to one scheduler.

    Args:
        connection: where it is.
        patience: how long to try.
        transport: stands in for the network in tests.
        sleep: waits so many seconds.
        look_again: finds the connection anew, where a scheduler that was starting has left its
            first token meanwhile.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        patience: Patience | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        look_again: Callable[[], Connection] | None = None,
    ) -> None:
        self.connection = connection
        self._look_again = look_again
        self.patience = patience or Patience()
        self._transport = transport
        self._sleep = sleep
        self._http: httpx.Client | None = None
        self._version_seen = False
        #: what the user calls the fields of the next requests.
        self.wording: Wording = option_of

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, path: str, **params: Any) -> Any:
        """Read something; parameters that are None or empty are left out."""
        return self.call("GET", path, params=params)

    def post(
        self,
        path: str,
        body: object = None,
        *,
        repeatable: bool = True,
        key: str | None = None,
        **params: Any,
    ) -> Any:
        """Do something; see ``call``."""
        return self.call("POST", path, body=body, params=params, repeatable=repeatable, key=key)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Mapping[str, Any] | None = None,
        repeatable: bool = True,
        key: str | None = None,
    ) -> Any:
        """Make a request and return what the JSON of its answer holds; None for an empty one.

        Args:
            method: of HTTP.
            path: beneath ``/v1``, as in ``/jobs``.
            body: sent as JSON.
            params: of the query; those that are None or empty are left out.
            repeatable: whether doing it twice is doing it once.
            key: by which the scheduler may know a write again; a new one unless given.

        Raises:
            UnreachableError: nobody answers, or only "busy".
            NotPermittedError: 401 or 403.
            NotFoundError: 404.
            ConflictError: 409.
            InputError: 400, 413 or 422; its notes name the fields.
            AnswerError: anything else.
        """
        headers = {} if method == "GET" else {"Idempotency-Key": key or uuid.uuid4().hex}
        response = self._persist(method, path, body, params, headers, repeatable=repeatable)
        if response.status_code == 401 and self._finds_token():
            response = self._persist(method, path, body, params, headers, repeatable=repeatable)
        self._check_version(response)
        if response.status_code >= 300:
            raise self._error(response)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise AnswerError(
                f"{response.url} answered with something that is no JSON; is that a scheduler?"
            ) from None

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float = 60.0,
    ) -> Iterator[httpx.Response]:
        """Open an answer that goes on, once: whoever reads it knows where to resume.

        Args:
            path: beneath ``/v1``.
            params: of the query.
            headers: further ones.
            read_timeout_s: silence after which the connection counts as broken.

        Raises:
            UnreachableError: it cannot be opened or breaks; try again from where it was.
            LeaseholdError: as ``call``.
        """
        import httpx  # noqa: PLC0415 - takes 0.07 s

        timeout = httpx.Timeout(self.patience.timeout_s, read=read_timeout_s)
        url = f"/v1{path}"
        try:
            for hop in range(_MOST_HOPS + 1):
                request = self._client().build_request(
                    "GET", url, params=_given(params), headers=headers, timeout=timeout
                )
                response = self._client().send(request, stream=True)
                if response.status_code == 401 and self._finds_token():
                    continue
                if response.status_code != 307 or hop == _MOST_HOPS:
                    break
                response.close()
                url = self._leader(response)
            try:
                self._check_version(response)
                if response.status_code >= 300:
                    response.read()
                    raise self._error(response)
                yield response
            finally:
                response.close()
        except httpx.TransportError as error:
            raise self._away(error) from None

    def pause(self, attempt: int, *, at_least_s: float = 0.0) -> None:
        """Wait before the next try: longer each time, never in step with other clients."""
        self._sleep(_delay(attempt, at_least_s))

    def _finds_token(self) -> bool:
        """Look for the token again, once; tell whether there is one now where there was none.

        A scheduler takes connections before it has made its first token.
        """
        if self.connection.token or self._look_again is None:
            return False
        found, self._look_again = self._look_again(), None
        if not found.token or found.server != self.connection.server:
            return False
        self.close()
        self.connection = found
        return True

    def _persist(
        self,
        method: str,
        path: str,
        body: object,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        *,
        repeatable: bool,
    ) -> httpx.Response:
        import httpx  # noqa: PLC0415 - takes 0.07 s

        client, began_s, attempt, hops = self._client(), time.monotonic(), 0, 0
        url = first = f"/v1{path}"
        while True:
            wait_s, give_up_s = 0.0, self.patience.away_s
            response, failure = None, None
            try:
                response = self._request(
                    client, method, url, params=_given(params), json=body, headers=headers
                )
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure, give_up_s = self._unreached(error, "" if url == first else url)
            except httpx.TransportError as error:
                failure = self._broken_off(error, repeatable=repeatable)
            if response is not None:
                if response.status_code == 307 and hops < _MOST_HOPS:
                    url = self._leader(response)
                    hops += 1
                    continue
                again = _BUSY if repeatable else _SURELY_NOT_DONE
                if response.status_code not in again:
                    return response
                wait_s, give_up_s = _retry_after(response), self.patience.busy_s
            delay_s = _delay(attempt, wait_s)
            if time.monotonic() - began_s + delay_s > give_up_s:
                if response is not None:
                    return response
                assert failure is not None
                raise failure
            url, hops = first, 0
            self._sleep(delay_s)
            attempt += 1

    @staticmethod
    def _request(client: httpx.Client, method: str, url: str, **content: Any) -> httpx.Response:
        try:
            return client.request(method, url, **content)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"the request cannot be written down: {error}; numbers have to be finite, and text "
                "has to be Unicode"
            ) from None

    def _unreached(self, error: httpx.TransportError, leader: str) -> tuple[LeaseholdError, float]:
        """Return what to say, and how long to try: a leader that died is replaced in a while."""
        if not leader:
            return self._away(error), self.patience.away_s
        told = UnreachableError(
            f"the scheduler at {self.connection.server} stands by, and the leader that it names "
            f"({leader.partition('/v1')[0]}) does not answer; somebody takes over in some seconds"
        )
        return told, self.patience.busy_s

    def _broken_off(self, error: httpx.TransportError, *, repeatable: bool) -> LeaseholdError:
        failure = self._away(error)
        if not repeatable:
            failure.add_note("whether it was done is unknown: look before you repeat it")
            raise failure from None
        return failure

    def _leader(self, response: httpx.Response) -> str:
        """Return where a standby sends a write; never from https to http, where a token leaks."""
        location = response.headers.get("Location", "")
        if not location.startswith(("https://", self.connection.server.partition(":")[0] + "://")):
            raise AnswerError(
                f"{self.connection.server} sends writes to '{location}', which cannot be used; "
                "name the leader with --server"
            )
        # The query is given anew with each try.
        return str(location.partition("?")[0])

    def _client(self) -> httpx.Client:
        if self._http is None:
            import httpx  # noqa: PLC0415 - takes 0.07 s

            headers = {"User-Agent": "leasehold-cli", "Accept": "application/json"}
            if self.connection.token:
                headers["Authorization"] = f"Bearer {self.connection.token}"
            self._http = httpx.Client(
                base_url=self.connection.server,
                headers=headers,
                timeout=self.patience.timeout_s,
                verify=self._trust(),
                transport=self._transport,
                # A proxy between here and a scheduler on this machine is never meant.
                trust_env="//127." not in self.connection.server
                and "//localhost" not in self.connection.server,
            )
        return self._http

    def _trust(self) -> Any:
        if not self.connection.server.startswith("https"):
            return False  # building the default context reads 150 certificates
        import ssl  # noqa: PLC0415 - only for https

        try:
            return ssl.create_default_context(cafile=self.connection.ca_file or None)
        except OSError as error:
            raise InputError(
                f"the certificates in '{self.connection.ca_file}' cannot be used: {error}"
            ) from None

    def _error(self, response: httpx.Response) -> LeaseholdError:
        error = error_of(
            response.status_code,
            response.content,
            server=self.connection.server,
            token=bool(self.connection.token),
            wording=self.wording,
        )
        if isinstance(error, UnreachableError):
            error.retry_after_s = _retry_after(response)
        return error

    def _away(self, error: Exception) -> UnreachableError:
        server = self.connection.server
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return UnreachableError(
                f"the certificate of {server} is not trusted ({error}); name its authority's "
                "with --ca-file"
            )
        if type(error).__name__ in {"ReadTimeout", "WriteTimeout", "PoolTimeout"}:
            return UnreachableError(
                f"the scheduler at {server} has not answered for {self.patience.timeout_s:g} s"
            )
        failure = UnreachableError(
            f"no scheduler answers at {server}: start one with `leasehold up` (it takes some "
            "seconds) or name another with --server"
        )
        if type(error).__name__ not in {"ConnectError", "ConnectTimeout"}:
            failure = UnreachableError(f"the scheduler at {server} broke off: {error}")
        return failure

    def _check_version(self, response: httpx.Response) -> None:
        """Say once that the server is of another release."""
        theirs = response.headers.get(_VERSION_HEADER)
        if not theirs or self._version_seen:
            return
        self._version_seen = True
        from importlib.metadata import version  # noqa: PLC0415 - only where there is a server

        ours = version("leasehold")
        if theirs.split(".")[:2] != ours.split(".")[:2]:
            sys.stderr.write(
                f"leasehold: the scheduler is version {theirs}, this command {ours}; "
                "what one of them does not know, fails\n"
            )


def job_path(job_id: str, rest: str = "") -> str:
    """Return the path of a job; ids come from users and may hold anything.

    Raises:
        InputError: the id is empty.
    """
    if not job_id:
        raise InputError("the job id is empty; `leasehold jobs` lists them")
    return f"/jobs/{quote(job_id, safe='')}{rest}"


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in (params or {}).items()
        if value is not None and value not in ("", [])
    }


def _delay(attempt: int, at_least_s: float) -> float:
    backoff = min(0.1 * 2.0**attempt, _LONGEST_DELAY_S)
    return at_least_s + backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, hides nothing


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(float(response.headers.get("Retry-After", 0.0)), 0.0)
    except ValueError:  # a date: rare, and the backoff will do
        return 0.0
