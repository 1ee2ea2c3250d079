"""Every store behind one fixture; PostgreSQL where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.store.memory import MemoryStore
from scheduler.store.sql import SqlStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.store.protocol import Store


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


class PrivatePostgres:
    """A PostgreSQL cluster of the tests' own, on a socket in a temporary folder."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # Sockets need a short path, and the server's user must be able to enter the folder.
        self.folder = Path(tempfile.mkdtemp(prefix="lh-pg-"))
        # PostgreSQL refuses to run as root; Debian's package brings a user for it.
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        self._names = count()

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            self._run("initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=50"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", data, "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        name = f"test{next(self._names)}"
        self._run("createdb", "-h", self.folder, "-U", "test", name)
        return f"postgresql://test@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._programs / program, *map(str, arguments)],
            cwd=self.folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server would hold a pipe open
            stderr=subprocess.DEVNULL,
            **self._user,
        )
        assert done.returncode == 0, f"{program} failed; see {self.folder}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = PrivatePostgres(programs)
    try:
        server.start()
        yield server
    finally:
        with suppress(AssertionError):
            server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a new, empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def open_store() -> Iterator[Callable[[str], SqlStore]]:
    """Open stores that are closed after the test."""
    opened: list[SqlStore] = []

    def opener(url: str) -> SqlStore:
        opened.append(SqlStore.open(url))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, open_store: Callable[[str], SqlStore]
) -> Store:
    """Return an empty store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return open_store(f"sqlite:///{tmp_path}/store.db")
    return open_store(request.getfixturevalue("postgres").new_database())
