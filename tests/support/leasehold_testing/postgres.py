"""A PostgreSQL server of one's own, for tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from scheduler.errors import StoreUnavailableError

#: How long a start may take on a busy machine.
START_S = 120.0


class PrivatePostgres:
    """A PostgreSQL cluster on a socket in a temporary folder.

    Args:
        programs: folder of ``initdb`` and ``pg_ctl``; see ``find_programs``.
        durable: whether commits wait for the disk.
        connections: most at once.
    """

    def __init__(self, programs: Path, *, durable: bool = False, connections: int = 50) -> None:
        self._programs = programs
        self._options = [
            f"--fsync={'on' if durable else 'off'}",
            f"--max_connections={connections}",
        ]
        self._server: subprocess.Popen[bytes] | None = None
        #: sockets need a short path, and the server's user must be able to enter the folder.
        self.folder = Path(tempfile.mkdtemp(prefix="lh-pg-"))
        # PostgreSQL refuses to run as root; Debian's package brings a user for it.
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self.folder, "postgres", "postgres")
        self._names = count()

    @staticmethod
    def find_programs() -> Path | None:
        """Return the folder of the installed server's programs; None if there is no folder."""
        found = shutil.which("initdb")
        if found:
            return Path(found).resolve().parent
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        return installed[-1].parent if installed else None

    def start(self) -> None:
        """Start the server.

        Raises:
            StoreUnavailableError: it does not start; names the folder of its log.
        """
        data = self.folder / "data"
        if not data.exists():
            self._run("initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync")
        # Not by pg_ctl: its server becomes an orphan, and an agent in this process kills orphans.
        options = ["-D", data, "-k", self.folder, "-c", "listen_addresses=", *self._options]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", *map(str, options)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._user,
            )
        until_s = time.monotonic() + START_S
        while True:
            with suppress(StoreUnavailableError):
                self._run("pg_isready", "-q", "-h", self.folder)
                return
            if self._server.poll() is not None or time.monotonic() > until_s:
                raise StoreUnavailableError(f"postgres does not start; see {self.folder}")
            time.sleep(0.05)

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: ``immediate`` is a crash, ``fast`` is graceful."""
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-m", mode, "stop")
        if self._server is not None:
            self._server.wait()
            self._server = None

    def remove(self) -> None:
        """Stop the server and delete everything."""
        with suppress(StoreUnavailableError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
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
        if done.returncode:
            raise StoreUnavailableError(f"{program} failed; see {self.folder}")
