"""A scheduler that answers on a loopback port, with the real routes over a fake daemon."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from api.app import create_app, stop_waiting
from api.auth.tokens import hash_secret, new_secret
from api.settings import ApiSettings
from leasehold import __version__
from leasehold.cli.main import main
from leasehold_testing.service import FakeService
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        _until(lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    async def _counted(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests += scope["type"] == "http"
        self.before_request()
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


def _until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it has not come to pass"
        time.sleep(0.01)


@pytest.fixture
def until() -> Callable[..., None]:
    """Return what waits until something holds."""
    return _until


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keep the tests away from the user's configuration."""
    for name in ("SERVER", "TOKEN", "CA_FILE", "CLIENT_CONFIG", "STATE_DIR"):
        monkeypatch.delenv(f"LEASEHOLD_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scheduler]]:
    """Return what starts a scheduler; the command line finds the last one."""
    with contextlib.ExitStack() as stack:

        def start(*, workers: int = 8, **settings: Any) -> Scheduler:
            found = Scheduler(settings=ApiSettings(**({"auth": False} | settings)), workers=workers)
            stack.callback(found.stop)
            monkeypatch.setenv("LEASEHOLD_SERVER", found.url)
            return found

        yield start


@pytest.fixture
def scheduler(serve: Callable[..., Scheduler]) -> Scheduler:
    """Return a scheduler that asks for no tokens."""
    return serve()


@pytest.fixture
def leaves_token(surroundings: Any) -> Callable[[Scheduler], None]:
    """Return what lets a scheduler leave its first token only when a request has come."""

    def arrange(scheduler: Scheduler) -> None:
        token = scheduler.token("admin")
        local = surroundings / "state" / "leasehold" / "admin.token"
        local.parent.mkdir(parents=True, exist_ok=True)
        scheduler.before_request = lambda: local.write_text(token)

    return arrange


@dataclass
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def leasehold(capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Return what runs the command line in this process."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["leasehold", *map(str, arguments)])
        try:
            code: Any = main()
        except SystemExit as end:
            code = end.code or 0
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Ran(code, captured.out.decode(), captured.err.decode())

    return run


JOB = ("--", "python", "train.py")
