"""A scheduler that answers on a loopback port, with the real routes over a fake daemon."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from api.settings import ApiSettings
from leasehold.cli.main import main
from leasehold_testing.listening import Scheduler
from leasehold_testing.listening import until as wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def until() -> Callable[..., None]:
    """Return what waits until something holds."""
    return wait_until


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
