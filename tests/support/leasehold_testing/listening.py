"""A scheduler that answers on a loopback port, with the real routes over a fake daemon."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn

from api.app import create_app, stop_waiting
from api.auth.tokens import hash_secret, new_secret
from api.settings import ApiSettings
from leasehold import __version__
from leasehold_testing.service import FakeService
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.views.types import Health


class Daemon(FakeService):
    """The fake daemon, of the same release as the command line."""

    version = __version__

    def health(self) -> Health:
        return dataclasses.replace(super().health(), version=self.version)


@dataclass
class Scheduler:
    """The fake daemon behind a real server, in a thread; may be stopped and started again."""

    settings: ApiSettings = field(default_factory=lambda: ApiSettings(auth=False))
    workers: int = 8
    port: int = 0
    prefix: str = ""

    def __post_init__(self) -> None:
        self.service = Daemon(workers=self.workers, now_s=time.time())
        self.requests = 0  # that have come in
        self.before_request: Callable[[], object] = lambda: None
        self.start()

    def start(self) -> None:
        """Listen, on the same port as before."""
        self.service._news = asyncio.Event()  # the old one belongs to the old event loop
        self.app = create_app(self.service, self.settings)
        config = uvicorn.Config(
            self._counted,
            interface="asgi3",
            host="127.0.0.1",
            port=self.port,
            log_level="critical",
            loop="asyncio",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        until(lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    async def _counted(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests += scope["type"] == "http"
        self.before_request()
        if self.prefix and scope["type"] == "http":  # as a proxy removes it
            path = scope["path"].removeprefix(self.prefix)
            scope = scope | {"path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)

    def stop(self) -> None:
        """End every stream and stop to listen."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(stop_waiting, self.app)
            self._server.should_exit = True
            self._thread.join(10)
            assert not self._thread.is_alive()

    def do(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something of the service, in the server's thread."""

        async def work() -> Any:
            return call(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)

    def token(self, role: str, *, projects: tuple[str, ...] = (), subject: str = "ada") -> str:
        """Put a token into the store."""
        secret = new_secret()
        row = TokenRow(
            token_id=f"{role}-{len(self.service.store.tokens())}",
            secret_hash=hash_secret(secret),
            subject=subject,
            role=role,
            projects=projects,
            created_s=time.time(),
        )
        self.service.store.add_token(row)
        return secret

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve()

        asyncio.run(run())


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it has not come to pass"
        time.sleep(0.01)
