"""Schedulers, agents and the database of a soak test, as processes that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from leasehold_testing.postgres import PrivatePostgres

#: Written to a program's log when it is started.
STARTED = "--- started by the soak test\n"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(kw_only=True)
class Program:
    """A program that is started again and again.

    Attributes:
        name: its name in the report.
        command: how it is started.
        log: where its output goes.
        env: its environment.
        starts: how often it was started.
        frozen: whether it is stopped by SIGSTOP.
        wanted: whether it is to run at the moment.
    """

    name: str
    command: list[str]
    log: Path
    env: dict[str, str]
    starts: int = 0
    frozen: bool = False
    wanted: bool = False
    process: subprocess.Popen[bytes] | None = None
    _file: IO[bytes] | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.alive:
            return
        if self._file is None:
            self._file = self.log.open("ab", buffering=0)
        self._file.write(STARTED.encode())
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=self._file,
            env=self.env,
            cwd="/",
            start_new_session=True,
        )
        self.starts += 1
        self.frozen, self.wanted = False, True

    def send(self, number: int) -> bool:
        """Send a signal to it alone; return whether it was there."""
        if self.process is None or not self.alive:
            return False
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self.wanted = False
        self.process.send_signal(number)
        return True

    def kill(self) -> bool:
        """End it at once."""
        there = self.send(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        return there

    def freeze(self) -> bool:
        """Stop it in the middle of its work."""
        self.frozen = self.send(signal.SIGSTOP)
        return self.frozen

    def thaw(self) -> None:
        """Let it go on."""
        if self.frozen:
            self.send(signal.SIGCONT)
        self.frozen = False

    @property
    def has_no_database(self) -> bool:
        """Whether it has refused to start because the database was away at that moment."""
        last = self.log.read_text(errors="replace").rpartition(STARTED)[2]
        return last.startswith("leasehold: the database cannot be used now")

    @property
    def stopped_well(self) -> bool:
        """Whether it has obeyed SIGTERM; before it serves, that may end it on the spot."""
        if self.process is None or self.process.poll() is None:
            return self.process is None
        last = self.log.read_text(errors="replace").rpartition(STARTED)[2]
        young = "listens on" not in last and " serves " not in last
        return self.process.returncode == 0 or (young and self.process.returncode == -15)

    def close(self) -> None:
        """End it finally."""
        self.kill()
        if self._file is not None:
            self._file.close()


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's is found."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "xdg"),
        "LEASEHOLD_AGENT__ISOLATION": "off",  # jobs write to a folder that all of them can read
        "PYTHONPATH": str(ROOT),  # this checkout, whatever is installed
        # The many small matrices of this test are not worth a thread each.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def scheduler(number: int, port: int, url: str, folder: Path, settings: dict[str, Any]) -> Program:
    """Return a scheduler that is to serve on a port of loopback."""
    state = folder / f"scheduler-{number}"
    options = [f"--set={key}={value}" for key, value in settings.items()]
    return Program(
        name=f"scheduler-{number}",
        command=[
            sys.executable, "-m", "leasehold", "serve", "--no-auth", f"--port={port}",
            f"--state-dir={state}", f"--db={url}", *options,
        ],
        log=folder / f"scheduler-{number}.log",
        env=environment(folder),
    )  # fmt: skip


def agent(name: str, worker: str, ports: tuple[int, ...], folder: Path) -> Program:
    """Return an agent that is to reach the schedulers through its own ports."""
    return Program(
        name=name,
        command=[
            sys.executable, "-m", "leasehold", "agent", f"--node={name}", f"--worker={worker}",
            f"--state-dir={folder / name}", "--report-every=1", "--progress-every=0.5",
            "--poll-wait=3", *(f"--server=http://127.0.0.1:{port}" for port in ports),
        ],
        log=folder / f"{name}.log",
        env=environment(folder),
    )  # fmt: skip


def kill_node(program: Program, state_dir: Path) -> int:
    """End an agent and, at the same moment, everything that it has started.

    Returns:
        how many supervisors were killed; their jobs' processes go with them.
    """
    program.send(signal.SIGSTOP)  # it shall start nothing meanwhile
    killed = 0
    for file in state_dir.glob("leases/*/running.json"):
        with contextlib.suppress(OSError, ValueError):
            pid = json.loads(file.read_text())["pid"]
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if str(file.parent).encode() in command:
                os.kill(pid, signal.SIGKILL)
                killed += 1
    program.kill()
    return killed


class Sqlite:
    """A database file, which needs no server."""

    restartable = False

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/leasehold.db"

    def restart(self) -> None:
        """There is nothing to restart."""

    def stop(self) -> None:
        """There is nothing to stop."""


class Postgres:
    """A PostgreSQL server of the test's own; its power can be cut."""

    restartable = True

    def __init__(self) -> None:
        programs = PrivatePostgres.find_programs()
        if programs is None:
            raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
        # Committed entries must survive the power cut.
        self._server = PrivatePostgres(programs, durable=True, connections=60)
        self._server.start()
        self.url = self._server.new_database()

    def restart(self) -> None:
        """Pull the plug and start it again: every connection and open transaction is lost."""
        self._server.stop("immediate")
        self._server.start()

    def stop(self) -> None:
        """End it, and remove its files."""
        self._server.remove()
