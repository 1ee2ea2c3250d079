"""A client of the scheduler for programs: the standard library and nothing else.

    from leasehold import Client

    client = Client("http://scheduler:8642", token="lh_...")
    job_id = client.submit(name="train", command=["python", "train.py"], total_steps=1000)
    job = client.wait(job_id)

Every call is tried again while the scheduler restarts or is busy, and a submission carries an id by
which a repeated one is recognised, so that none is lost and none is doubled.
"""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from leasehold.actions import Actions, T, job_path
from leasehold.connection import find_connection, usable_token
from leasehold.naming import meaning

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: A job in one of these will not run again unless somebody takes it up.
ENDED = frozenset({"completed", "cancelled", "failed", "refused"})
_BUSY = frozenset({429, 502, 503, 504})
_LONGEST_DELAY_S = 5.0
#: The scheduler says something at least every 15 s on a stream.
_SILENCE_S = 45.0
_MOST_HOPS = 3
#: Jobs of one page of a list.
_PAGE = 500
_BROKEN = (OSError, http.client.HTTPException)


class ClientError(Exception):
    """A request was refused, or nobody answered.

    Args:
        message: what happened.
        status: of HTTP; 0 where nobody answered.
        problem: the scheduler's own words: ``type``, ``detail``, ``errors`` by field.
    """

    def __init__(
        self, message: str, *, status: int = 0, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = dict(problem or {})


class Client(Actions):
    """Talks to a scheduler.

    Args:
        server: its address. Unless given, ``LEASEHOLD_SERVER``, ``client.toml``, else this machine.
        token: bearer token; empty: none is shown. Unless given, ``LEASEHOLD_TOKEN``, that of
            ``client.toml``, else what a scheduler of this user on this machine has left.
        patience_s: how long a call is tried again while nobody answers.
        timeout_s: for one answer.
        context: certificates to trust, for https. Unless given, ``LEASEHOLD_CA_FILE`` or that of
            ``client.toml``, else the system's.

    Raises:
        SettingsError: an address, a token or ``client.toml`` cannot be used; a ValueError.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        patience_s: float = 60.0,
        timeout_s: float = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        found = find_connection(server=server, server_origin="the argument 'server'")
        self.server = found.server
        self._token = found.token if token is None else usable_token(token, "the argument 'token'")
        self._may_find_token = token is None
        if context is None and found.ca_file:
            import ssl  # noqa: PLC0415 - keeps the start quick

            context = ssl.create_default_context(cafile=found.ca_file)
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def submit(
        self, *, name: str, command: Sequence[str], client_id: str | None = None, **fields: Any
    ) -> str:
        """Submit a job and return its id.

        Args:
            name: what you call it.
            command: program and arguments; no shell sees it.
            client_id: your own id: submitting the same job again under it returns the first one.
            fields: further ones of a job, see the REST interface.

        Raises:
            ClientError: the job cannot be used or can never run.
            TypeError: ``command`` is one string.
        """
        if isinstance(command, str | bytes):
            raise TypeError(
                f"command is {command!r}; give a list of the program and its arguments, such as "
                "['python', 'train.py']"
            )
        key = client_id or uuid.uuid4().hex
        body = {"name": name, "command": list(command), **fields, "client_id": key}
        return str(self.call("POST", "/jobs", body, key=key)["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job with its specification."""
        return self._on_job(job_id, lambda found: dict(self.call("GET", job_path(found))))

    def jobs(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Return jobs, newest first: ``status``, ``project``, ``job_type``, ``owner``, ``label``.

        The first page is asked for at once, further ones as they are needed.

        Raises:
            ClientError: a filter cannot be used.
        """
        asked = {**filters, "limit": _PAGE}
        return self._jobs_from(asked, self.call("GET", "/jobs", params=asked))

    def _jobs_from(
        self, asked: Mapping[str, Any], page: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        yield from page["jobs"]
        while (cursor := page["next_cursor"]) is not None:
            page = self.call("GET", "/jobs", params={**asked, "cursor": cursor})
            yield from page["jobs"]

    def cancel(self, job_id: str, *, reason: str = "") -> bool:
        """End a job for good; False if it had ended already."""
        try:
            return self._act_on_job(job_id, "cancel", reason)
        except ClientError as error:
            if error.status == 409:
                return False
            raise

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return a job once it has ended, however often the scheduler restarts meanwhile.

        Raises:
            TimeoutError: it has not ended within ``timeout_s``.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        looks, word = 1, job_id
        while True:
            job = None
            try:
                job = self.job(job_id)
            except ClientError as error:
                if error.status and error.status not in _BUSY:
                    raise
            if job is not None and job["status"] in ENDED:
                return job
            if job is not None:
                job_id = job["job_id"]  # a later job may have the name
            delay_s = _delay(looks)
            if until_s is not None and time.monotonic() + delay_s > until_s:
                raise TimeoutError(f"job '{word}' has not ended within {timeout_s:g} s")
            time.sleep(delay_s)
            looks += 1

    def events(self, *, after: int | None = None, **filters: Any) -> Iterator[dict[str, Any]]:
        """Yield lines of the history as they are written, without end; each one once.

        Args:
            after: begin behind this event id; None begins with what happens from now on.
            filters: ``subject_kind``, ``subject``, ``kind``, ``project``.
        """
        if after is None:
            page = self.call("GET", "/events", params={"descending": "true", "limit": 1})
            after = int(page["last_event_id"])
        failures = 0
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            try:
                with self._open(
                    "GET", "/events", None, filters, headers=headers, timeout_s=_SILENCE_S
                ) as answer:
                    for data in _messages(answer):
                        event = dict(json.loads(data))
                        after, failures = event["event_id"], 0
                        yield event
            except _BROKEN as error:
                _raise_refusal(error)
            failures += 1
            time.sleep(_delay(failures))

    def log(
        self, job_id: str, *, stream: str = "both", attempt: int | None = None, tail_bytes: int = 0
    ) -> bytes:
        """Return what a job has printed, in its newest attempt unless told.

        Args:
            job_id: the job.
            stream: ``out``, ``err`` or ``both``.
            attempt: 1 for the first.
            tail_bytes: only so many last bytes of each stream; 0 for all.
        """
        params = {"stream": stream, "attempt": attempt, "tail_bytes": tail_bytes or None}
        return self._on_job(
            job_id, lambda found: self._persist("GET", job_path(found, "/log"), None, params, {})
        )

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Any:
        """Make a request beneath ``/v1`` and return what its answer holds.

        Args:
            method: of HTTP.
            path: as in ``/nodes``.
            body: sent as JSON.
            params: of the query; those that are None are left out.
            key: by which a repeated write is recognised; a new one unless given.

        Raises:
            ClientError: it was refused, or nobody answered.
        """
        headers = {} if method == "GET" else {"Idempotency-Key": key or uuid.uuid4().hex}
        raw = self._persist(method, path, body, params, headers)
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise ClientError(
                f"{self.server} answered with something that is no JSON; is that a scheduler?"
            ) from None

    def _on_job(self, word: str, do: Callable[[str], T]) -> T:
        try:
            return do(word)
        except ClientError as error:
            if error.status != 404:
                raise
            found = meaning(word, self._page_of_jobs)
            if found is None or found == word:
                raise
        return do(found)

    def _page_of_jobs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(self.call("GET", "/jobs", params=params))
        except ClientError as error:
            if error.status != 422:  # then no job can be called so
                raise
            return {"jobs": []}

    def _persist(
        self,
        method: str,
        path: str,
        body: object,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> bytes:
        until_s, tries = time.monotonic() + self._patience_s, 0
        while True:
            at_least_s = 0.0
            try:
                with self._open(
                    method, path, body, params, headers=headers, timeout_s=self._timeout_s
                ) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                failure = _refusal(error)
                if error.code == 401 and self._finds_token():
                    continue
                if error.code not in _BUSY:
                    raise failure from None
                at_least_s = _retry_after(error)
            except _BROKEN as error:
                reason = getattr(error, "reason", error)
                failure = ClientError(f"no scheduler answers at {self.server}: {reason}")
            delay_s = at_least_s + _delay(tries)
            if time.monotonic() + delay_s > until_s:
                raise failure from None
            time.sleep(delay_s)
            tries += 1

    def _finds_token(self) -> bool:
        """Look for the token again, once; tell whether there is one now where there was none.

        A scheduler takes connections before it has made its first token.
        """
        if self._token or not self._may_find_token:
            return False
        self._may_find_token = False
        self._token = find_connection(server=self.server).token
        return bool(self._token)

    def _open(
        self,
        method: str,
        path: str,
        body: object,
        params: Mapping[str, Any] | None,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Any:
        query = urlencode({k: v for k, v in (params or {}).items() if v is not None}, doseq=True)
        url = f"{self.server}/v1{path}" + (f"?{query}" if query else "")
        sent = {"Accept": "application/json", "User-Agent": "leasehold-client", **headers}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        for hop in range(_MOST_HOPS + 1):
            request = urllib.request.Request(url, data=data, headers=sent, method=method)  # noqa: S310 - the scheme was checked
            try:
                return self._opener.open(request, timeout=timeout_s)
            except urllib.error.HTTPError as error:
                leader = error.headers.get("Location", "")
                # A standby names the leader; never from https to http, where the token would leak.
                schemes = ("https://", self.server.partition(":")[0] + "://")
                if error.code != 307 or hop == _MOST_HOPS or not leader.startswith(schemes):
                    raise
                error.close()
                url = leader
        raise AssertionError  # the loop returns or raises


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirections to the client: urllib would send a write on as a read."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _messages(lines: Iterator[bytes]) -> Iterator[str]:
    """Yield the data of server-sent events."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line and data:
            yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def _refusal(error: urllib.error.HTTPError) -> ClientError:
    with error:
        try:
            problem = json.loads(error.read())
        except (ValueError, *_BROKEN):
            problem = None
    if not isinstance(problem, dict):
        problem = {}
    words = str(problem.get("detail") or f"the answer was {error.code}")
    fields = "".join(
        f"\n  {entry.get('field') or 'request'}: {entry.get('problem')}"
        for entry in problem.get("errors") or ()
    )
    return ClientError(words + fields, status=error.code, problem=problem)


def _raise_refusal(error: BaseException) -> None:
    """Raise what trying again does not change."""
    if isinstance(error, urllib.error.HTTPError):
        failure = _refusal(error)
        if error.code not in _BUSY:
            raise failure from None


def _retry_after(error: urllib.error.HTTPError) -> float:
    try:
        return max(float(error.headers.get("Retry-After") or 0.0), 0.0)
    except ValueError:  # a date: rare, and the backoff will do
        return 0.0


def _delay(tries: int) -> float:
    """Return longer waits each time, never in step with other clients."""
    return min(0.1 * 2.0 ** min(tries, 10), _LONGEST_DELAY_S) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, hides nothing
