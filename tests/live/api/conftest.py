"""A served fake daemon, and callers with tokens of every role."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.app import create_app
from api.auth.browser import COOKIE, form_key
from api.auth.tokens import hash_secret, new_secret
from api.settings import ApiSettings
from leasehold_testing.service import FakeService
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from fastapi import FastAPI


@dataclass
class Clock:
    """A clock that tests move."""

    seconds: float = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Caller:
    """A client with calls that return when the answer is complete."""

    daemon: Daemon
    headers: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        return self.daemon.run(self._request(method, path, **kwargs))

    async def _request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        transport = httpx.ASGITransport(
            self.daemon.app, raise_app_exceptions=False, client=(self.address, 1234)
        )
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=self.headers
        ) as client:
            return await client.request(method, path, **kwargs)

    def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.request("GET", path, **kwargs)

    def post(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.request("POST", path, **kwargs)

    def put(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.request("PUT", path, **kwargs)

    def patch(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.request("PATCH", path, **kwargs)

    def delete(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.request("DELETE", path, **kwargs)

    def send(self, path: str, **fields: Any) -> httpx.Response:
        """Send a form of a page, as a browser does."""
        secret = self.headers.get("Cookie", "").partition("=")[2]
        return self.post(path, data={"form_key": form_key(secret)} | fields)

    def submit(self, **fields: Any) -> str:
        """Submit a job and return its id."""
        answer = self.post("/v1/jobs", json={"name": "train", "command": ["python"]} | fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])


class Stream:
    """An answer that goes on: a request made on the ASGI interface itself."""

    def __init__(self, app: FastAPI, path: str, headers: dict[str, str]) -> None:
        path, _, query = path.partition("?")
        self.status = 0
        self.headers: dict[str, str] = {}
        self._left = asyncio.Event()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (k.lower().encode(), v.encode())
                for k, v in ({"Host": "localhost"} | headers).items()
            ],
            "client": ("127.0.0.1", 1234),
            "server": ("leasehold", 80),
        }
        self._asked = False
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))
        self.task.add_done_callback(lambda _: self._pieces.put_nowait(None))

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        elif message.get("body"):
            self._pieces.put_nowait(message["body"])

    async def piece(self) -> bytes | None:
        """Return the next piece; None at the end."""
        return await asyncio.wait_for(self._pieces.get(), 60.0)

    async def rest(self) -> bytes:
        """Return everything up to the end."""
        pieces = []
        while (piece := await self.piece()) is not None:
            pieces.append(piece)
        return b"".join(pieces)

    async def leave(self) -> None:
        """Go away, as a client that is closed."""
        self._left.set()
        await asyncio.wait_for(self.task, 60.0)


@dataclass
class Daemon:
    """A fake daemon behind the REST interface."""

    service: FakeService
    app: FastAPI
    clock: Clock
    loop: asyncio.AbstractEventLoop
    made: int = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something in the daemon's event loop."""
        return self.loop.run_until_complete(work)

    @property
    def client(self) -> Caller:
        """A caller without a token."""
        return Caller(self)

    def secret(
        self,
        role: str,
        *,
        subject: str = "",
        projects: tuple[str, ...] = (),
        expires_s: float | None = None,
    ) -> str:
        """Put a token into the store."""
        secret = new_secret()
        self.made += 1
        self.service.store.add_token(
            TokenRow(
                token_id=f"{role}-{self.made}",
                secret_hash=hash_secret(secret),
                subject=subject or role,
                role=role,
                projects=projects,
                created_s=self.clock(),
                expires_s=expires_s,
            )
        )
        return secret

    def caller(self, role: str, **kwargs: Any) -> Caller:
        """Return a client with a new token of a role."""
        return self.bearer(self.secret(role, **kwargs))

    def browser(self, role: str, **kwargs: Any) -> Caller:
        """Return a client with a new session of a role, on a page of the scheduler."""
        return self.session(self.secret(role, **kwargs))

    def session(self, secret: str) -> Caller:
        """Return a client whose cookie has a secret."""
        return Caller(self, {"Cookie": f"{COOKIE}={secret}", "Sec-Fetch-Site": "same-origin"})

    def bearer(self, secret: str) -> Caller:
        """Return a client that shows a secret."""
        return Caller(self, {"Authorization": f"Bearer {secret}"})

    def stream(self, path: str, **headers: str) -> Stream:
        """Open a stream; to be called in the event loop."""
        return Stream(self.app, path, {k.replace("_", "-"): v for k, v in headers.items()})


@pytest.fixture
def serve() -> Iterator[Callable[..., Daemon]]:
    """Return what serves a fake daemon with given settings."""
    with contextlib.ExitStack() as stack:

        def start(
            *,
            workers: int = 8,
            node_of: Any = None,
            approved_of: Any = None,
            provider: Any = None,
            **settings: Any,
        ) -> Daemon:
            clock, service = Clock(), FakeService(workers=workers)
            app = create_app(
                service,
                ApiSettings(**settings),
                now=clock,
                monotonic=clock,
                node_of=node_of,
                approved_of=approved_of,
                provider=provider,
            )
            loop = asyncio.new_event_loop()
            stack.callback(loop.close)
            stack.callback(lambda: loop.run_until_complete(loop.shutdown_asyncgens()))
            lifespan = app.router.lifespan_context(app)
            loop.run_until_complete(lifespan.__aenter__())
            stack.callback(lambda: loop.run_until_complete(lifespan.__aexit__(None, None, None)))
            return Daemon(service=service, app=app, clock=clock, loop=loop)

        yield start


@pytest.fixture
def daemon(serve: Callable[..., Daemon]) -> Daemon:
    """Return a daemon that asks for tokens."""
    return serve()


@pytest.fixture
def open_client(serve: Callable[..., Daemon]) -> Caller:
    """Return a client of a daemon that asks for no tokens."""
    return serve(auth=False).client
