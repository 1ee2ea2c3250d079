"""The link to the scheduler over HTTP: a long poll for the desired set, posts of reports.

Several addresses may be given, those of the leader and its standbys. Each call makes one attempt. A
failure moves on to the next address and is raised, so that the caller measures its next request
from the moment at which that one is sent. A standby's redirect is followed at once.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import orjson

from scheduler.errors import InputError, NotPermittedError
from scheduler.protocol.desired import desired_from_dict, to_dict
from scheduler.protocol.reading import Reader
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import NodeReport

#: Redirects that are followed within one call.
MOST_REDIRECTS = 3
#: The wait if no new token will come.
NEVER_S = 1e9
#: Characters of an answer that an error message quotes.
QUOTED = 300
#: Header of a piece of output: ``open`` while more may follow, ``end`` with the last one.
STREAM_STATE = "X-Leasehold-Stream"
#: Distinguishes the lease of the sent output from others of its number.
NONCE = "X-Leasehold-Nonce"
#: Names the agent that asks for leases. A header, since a scheduler of the previous release refuses
#: unknown parameters.
INSTANCE = "X-Leasehold-Instance"
#: Content types.
JSON, RAW = "application/json", "application/octet-stream"

_REFUSALS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_REDIRECTS = {HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT}


class RefusedError(PermissionError):
    """The scheduler does not accept this agent's token; a quick retry is of no use."""


def no_token() -> str:
    """Return the token of an agent without one: for a scheduler without authentication."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Times of the link.

    Attributes:
        wait_s: how long the scheduler may hold a request for the desired set.
        slack_s: how much longer its answer may take before the connection counts as dead.
        connect_s: until a connection is open.
        reply_s: until a report or a piece of output is answered.
    """

    wait_s: float = 15.0
    slack_s: float = 5.0
    connect_s: float = 5.0
    reply_s: float = 15.0


@dataclass(kw_only=True)
class Route:
    """The addresses of the scheduler, and the current one.

    Attributes:
        servers: base addresses such as ``https://leader:8642``.
        current: the address to ask: one of them, or the leader's, as one of them named it.
    """

    servers: tuple[str, ...]
    current: str = ""
    _position: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Begin with the first address."""
        self.servers = tuple(server_address(server) for server in self.servers)
        if not self.servers:
            raise InputError("no address of a scheduler is given; give one: --server URL")
        self.current = self.servers[0]

    def leave(self, failed: str) -> None:
        """Switch to the next address, unless another call already has."""
        if failed == self.current:
            if failed == self.servers[self._position]:
                self._position = (self._position + 1) % len(self.servers)
            self.current = self.servers[self._position]

    def follow(self, answer: httpx.Response, asked: str) -> str:
        """Switch to the address that a standby names as the leader's.

        Raises:
            ConnectionError: it names none, or one that would expose the token on the way.
        """
        target = answer.request.url.join(answer.headers.get("location", ""))
        origin = f"{target.scheme}://{target.netloc.decode()}"
        if target.scheme not in {"http", "https"} or (
            asked.startswith("https:") and target.scheme != "https"
        ):
            self.leave(asked)
            raise ConnectionError(f"{asked} redirects to {target}, which is not followed")
        if asked == self.current:
            self.current = origin
        return origin


class HttpLink:
    """The agent's link over HTTP; see ``agent.link.port.Link`` for the contract of the calls.

    Args:
        servers: base addresses of the scheduler's processes; the first is asked first.
        node: the node's name.
        token: returns the bearer token, empty for none; called again after a refusal.
        address: the address of rank 0 of a gang on this node.
        version: of the agent.
        ca_file: certificates that the scheduler's is checked against, instead of the system's.
        settings: times.
        transport: for tests; a real one by default.

    Raises:
        InputError: an address is malformed, or ``ca_file`` cannot be used.
    """

    def __init__(
        self,
        *,
        servers: Sequence[str],
        node: str,
        token: Callable[[], str] = no_token,
        address: str = "",
        version: str = "",
        ca_file: Path | None = None,
        settings: LinkSettings | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings or LinkSettings()
        self._route = Route(servers=tuple(servers))
        self._read_token = token
        self._token = token()
        # Only a scheduler without authentication uses the name: elsewhere the token has it.
        told = {"X-Leasehold-Node": quote(node), "X-Leasehold-Address": address}
        told |= {"X-Leasehold-Agent": version, "User-Agent": f"leasehold-agent/{version or '0'}"}
        told["X-Leasehold-Takes"] = "secrets"  # secret variables: it writes them to no disk
        self._client = httpx.AsyncClient(
            headers=told,
            verify=tls_context(ca_file) if ca_file is not None else True,
            transport=transport,
            trust_env=False,  # a proxy for the outside world does not lead to the scheduler
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=4),
        )

    @property
    def server(self) -> str:
        """The current address."""
        return self._route.current

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def desired(self, *, after: tuple[int, int], instance: str = "") -> Desired:
        """Return the desired set; see ``agent.link.port.Link``."""
        # An agent without a desired set asks for the current one, at once.
        wait_s = self._settings.wait_s if after[1] >= 0 else 0.0
        answer = await self._send(
            "GET",
            "/v1/agent/desired",
            params={"term": after[0], "revision": max(after[1], 0), "wait_s": wait_s},
            more={INSTANCE: instance} if instance else None,
            read_s=wait_s + self._settings.slack_s,
        )
        return desired_from_dict(_decoded(answer))

    async def report(self, report: NodeReport) -> None:
        """Deliver a report."""
        try:
            body = orjson.dumps(to_dict(report))
        except TypeError as error:  # worker types, say, that are no texts
            raise InputError(f"the report cannot be written as JSON: {error}") from error
        await self._send("POST", "/v1/agent/report", content=body)

    async def tell_exec(self, exec_id: str, told: Mapping[str, Any]) -> tuple[bool, bool]:
        """Deliver the output of a command; see ``agent.link.port.Link``."""
        path = f"/v1/agent/execs/{quote(exec_id, safe='')}"
        answer = Reader.of(_decoded(await self._send("POST", path, content=orjson.dumps(told))))
        return answer.flag("stop"), answer.flag("room")

    async def append_log(
        self,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool = False,
        nonce: str = "",
    ) -> int:
        """Send a piece of output; see ``agent.link.port.Link``."""
        path = f"/v1/agent/logs/{lease_id}/{stream}"
        # A header, since a scheduler of the previous release refuses unknown parameters.
        state = {STREAM_STATE: "end" if end else "open"}
        state |= {NONCE: nonce} if nonce else {}
        answer = await self._send(
            "PUT", path, params={"offset": offset}, content=data, kind=RAW, more=state
        )
        return Reader.of(_decoded(answer)).integer("next_offset")

    async def code(self, lease_id: int) -> bytes:
        """Return the code that a lease is started in; see ``agent.link.port.Link``."""
        return (await self._send("GET", f"/v1/agent/code/{lease_id}")).content

    async def renew_token(self) -> tuple[str, float]:
        """Show the token, and return a new one if it is time for that.

        The new one is valid from the first such call with it; the old one is valid until then.

        Returns:
            The new token, empty if there is none, and the seconds until the next call.

        Raises:
            RefusedError: the token is not valid any more.
        """
        answer = await self._send("POST", "/v1/agent/token")
        told = Reader.of(_decoded(answer))
        wait_s = told.optional("renew_in_s", told.number)
        return told.maybe("token"), NEVER_S if wait_s is None else wait_s

    def take_token(self) -> None:
        """Use the stored token, from the next request on."""
        self._token = self._read_token()

    async def exchange(self, node: str, secret: str) -> str:
        """Return the token for a one-time secret; see ``enrol``."""
        body = orjson.dumps({"node": node, "secret": secret})
        try:
            answer = await self._send("POST", "/v1/agent/enrol", content=body)
        except RefusedError as error:
            raise NotPermittedError(
                f"{self.server} refuses the enrolment of node '{node}': the secret is wrong, used "
                "or too old; make a new one on the scheduler and try again"
            ) from error
        return Reader.of(_decoded(answer)).text("token")

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        content: bytes | None = None,
        kind: str = JSON,
        more: Mapping[str, str] | None = None,
        read_s: float | None = None,
    ) -> httpx.Response:
        """Make one attempt, and return an answer that is neither an error nor a redirect."""
        times, server = self._settings, self._route.current
        answer: httpx.Response | None = None
        for _ in range(MOST_REDIRECTS + 1):
            request = self._client.build_request(
                method,
                server + path,
                params=params,
                content=content,
                headers=self._headers(kind) | dict(more or {}),
                timeout=httpx.Timeout(
                    times.reply_s, connect=times.connect_s, read=read_s or times.reply_s
                ),
            )
            answer = await self._try(request, server)
            if answer.status_code not in _REDIRECTS:
                return self._judge(answer, server)
            server = self._route.follow(answer, server)
        self._route.leave(server)
        raise ConnectionError(f"the schedulers redirect in circles, last to {server}; try later")

    def _headers(self, kind: str) -> dict[str, str]:
        headers = {"Content-Type": kind}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    async def _try(self, request: httpx.Request, server: str) -> httpx.Response:
        try:
            return await self._client.send(request)
        except httpx.TimeoutException as error:
            self._route.leave(server)
            raise TimeoutError(f"{server} did not answer in time ({_name(error)})") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._route.leave(server)
            raise ConnectionError(f"{server}: {_name(error)}") from error

    def _judge(self, answer: httpx.Response, server: str) -> httpx.Response:
        """Return a good answer; raise an error for any other."""
        status = answer.status_code
        if answer.is_success:
            return answer
        if status in _REFUSALS:
            shown, self._token = self._token, self._read_token()  # it may have been renewed
            fault = (
                "refuses this agent's token"
                if shown
                else "asks for a token, and this agent has none"
            )
            raise RefusedError(
                f"{server} {fault} ({status}: {_detail(answer)}); put a valid "
                "token of role agent for this node into the token file, or make a new enrolment "
                "and enrol again"
            )
        if status >= 500 or status == HTTPStatus.TOO_MANY_REQUESTS:
            self._route.leave(server)
            raise ConnectionError(f"{server} answers {status}: {_detail(answer)}")
        raise InputError(f"{server} answers {status}: {_detail(answer)}")


async def enrol(
    *,
    servers: Sequence[str],
    node: str,
    secret: str,
    ca_file: Path | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> str:
    """Exchange a one-time secret for this node's token.

    Raises:
        OSError: no scheduler could be reached; the same secret may be tried again.
        NotPermittedError: the secret is wrong, used or too old.
    """
    link = HttpLink(
        servers=servers,
        node=node,
        ca_file=ca_file,
        transport=transport,
    )
    try:
        return await link.exchange(node, secret)
    finally:
        await link.close()


def server_address(text: str) -> str:
    """Return a base address without the slash at its end.

    Raises:
        InputError: it is no http or https address.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InputError(f"the scheduler's address '{text}' is malformed: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        raise InputError(f"the scheduler's address is '{text}'; it must be like https://host:8642")
    return text.rstrip("/")


def tls_context(ca_file: Path) -> ssl.SSLContext:
    """Return a context that checks the scheduler's certificate against those of a file.

    Raises:
        InputError: the file cannot be read or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        why = why_unreadable(error)
        raise InputError(f"the file of certificates {ca_file} cannot be used: {why}") from error


def _decoded(answer: httpx.Response) -> object:
    try:
        return orjson.loads(answer.content)
    except orjson.JSONDecodeError as error:
        raise InputError(
            f"{answer.request.url} answers something that is not JSON: {_quoted(answer)}"
        ) from error


def _detail(answer: httpx.Response) -> str:
    """Return the message of an error answer."""
    try:
        problem = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return _quoted(answer)
    if not isinstance(problem, dict):
        return _quoted(answer)
    said = str(problem.get("detail") or problem.get("title") or _quoted(answer))
    errors = problem.get("errors")
    fields = [
        f"{error.get('field') or 'the request'} {error.get('problem')}"
        for error in (errors if isinstance(errors, list) else ())
        if isinstance(error, dict)
    ]
    return "; ".join((said, *fields))[:QUOTED]


def _quoted(answer: httpx.Response) -> str:
    return answer.text[:QUOTED] or "(nothing)"


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
