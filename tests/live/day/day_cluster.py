"""A scheduler with tokens, three agents, and users with only the command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from oracle import ENDS

from leasehold_testing.process import fresh

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_S = 5
SETTINGS = {
    "engine.round_length_s": ROUND_S,
    "engine.retry_backoff_s": 1,
    "engine.solve_grace_s": 0.5,
    "leases.notice_s": 0.5,
    "leases.grace_s": 0.5,
    "leases.margin_s": 1.5,
    "server.port": 0,
}
NODES = {"n1": "v100:2", "n2": "v100:2", "n3": "k80:2"}
#: Not seconds of a quiet machine.
WAIT_S = 240.0
LEASEHOLD = (sys.executable, "-m", "leasehold")
#: Commands that are followed by another one.
_GROUPS = frozenset({"project", "token"})


class User:
    """A user at a shell.

    Args:
        name: his.
        folder: where he works.
        url: of the scheduler.
        token: his.
        patient: whether he waits for a scheduler that is away, and repeats a command if it is
            unknown whether it was done.
    """

    def __init__(
        self, name: str, folder: Path, url: str, token: str, *, patient: bool = False
    ) -> None:
        self.name, self.folder, self._patient = name, folder, patient
        folder.mkdir(parents=True, exist_ok=True)
        self._env = _environment(folder) | {"LEASEHOLD_SERVER": url, "LEASEHOLD_TOKEN": token}

    def __call__(self, *words: str, code: int | None = 0, said: str = "") -> str:
        """Run a command to its end and return its output.

        Args:
            words: behind ``leasehold``.
            code: which it has to end with; None for any.
            said: required text on its standard error.
        """
        ran = self._run(words)
        while self._patient and "whether it was done is unknown" in ran.stderr:
            ran = self._run(words)
        told = f"{self.name}: leasehold {' '.join(words)}\n{ran.stdout}{ran.stderr}"
        assert code in {None, ran.returncode}, f"{told}\nended with {ran.returncode}, not {code}"
        assert said in ran.stderr, f"{told}\ndid not say {said!r}"
        return ran.stdout

    def _run(self, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command, *rest = words
        patience = ["--retry-for", "2m"] if self._patient else []
        named = rest[:1] if command in _GROUPS else []
        return subprocess.run(
            [*LEASEHOLD, command, *named, *patience, *rest[len(named) :]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._env,
            cwd=self.folder,
            timeout=WAIT_S,
            check=False,
        )

    def submit(self, *words: str) -> list[str]:
        """Submit jobs and return their ids."""
        return self("submit", *words).split()

    def ask(self, *words: str) -> Any:
        """Return a command's output as JSON."""
        return json.loads(self(*words, "--json"))

    def until(self, question: tuple[str, ...], holds: Any) -> Any:
        """Ask again and again until an answer is as it is to be."""
        end_s = time.monotonic() + WAIT_S
        while not holds(answer := self.ask(*question)):
            assert time.monotonic() < end_s, f"{self.name}: {question} stays at {answer}"
            time.sleep(0.2)
        return answer

    def watch(self, file: IO[bytes], *words: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on until it is asked to end."""
        return subprocess.Popen(
            [*LEASEHOLD, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.DEVNULL,
            env=self._env,
            cwd=self.folder,
        )


class Programs:
    """What runs beside the users: a scheduler and agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._told: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}

    def start(self, name: str, *words: str, **more: str) -> Path:
        """Start ``leasehold WORDS`` and return the file of its output."""
        log = self.folder / f"{name}.log"
        self._told[name] = words, more
        with log.open("ab") as file:
            self._running[name] = subprocess.Popen(
                [*LEASEHOLD, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=_environment(self.folder) | more,
                cwd="/",
                start_new_session=True,
            )
        return log

    def kill(self, name: str, away_s: float) -> None:
        """Kill one of them, and start it again after a while."""
        process = self._running[name]
        process.kill()
        process.wait(WAIT_S)
        time.sleep(away_s)
        words, more = self._told[name]
        self.start(name, *words, **more)

    def stop(self) -> None:
        """End all of them, agents first, and with them the rest of jobs."""
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(WAIT_S)


class Cluster:
    """The service, with its administrator.

    Args:
        folder: of everything.
        patient: whether its users wait for a scheduler that is away.
        settings: beside ``SETTINGS``.
    """

    def __init__(self, folder: Path, *, patient: bool = False, **settings: Any) -> None:
        self.folder, self._programs, self._patient = folder, Programs(folder), patient
        self.kill = self._programs.kill
        items = SETTINGS | {key.replace("__", "."): value for key, value in settings.items()}
        options = [f"--set={key}={value}" for key, value in items.items()]
        state = folder / "scheduler"
        log = self._programs.start("scheduler", "serve", f"--state-dir={state}", *options)
        try:
            self.url = _wait_for(log, r"listens on (\S+)")[1]
        except BaseException:
            self._programs.stop()
            raise
        token = (state / "admin.token").read_text().strip()
        self.admin = User("admin", folder / "home" / "admin", self.url, token)
        self.users: dict[str, User] = {}

    def user(self, name: str, *words: str) -> User:
        """Make a token for a user, and give the user a shell."""
        file = self.folder / f"{name}.token"
        self.admin("token", "create", name, *words, "--out", str(file))
        token = file.read_text().strip()
        self.users[name] = User(
            name, self.folder / "home" / name, self.url, token, patient=self._patient
        )
        return self.users[name]

    def node(self, name: str, workers: str, *words: str) -> None:
        """Enrol a node and start its agent."""
        secret = self.folder / f"{name}.enrolment"
        self.admin("token", "enrol", name, "--worker", workers, "--out", str(secret))
        self._programs.start(
            name,
            *("agent", f"--server={self.url}", f"--node={name}", f"--worker={workers}"),
            *(f"--state-dir={self.folder / name}", f"--enrol-file={secret}", "--stop-jobs"),
            *("--report-every=2", "--progress-every=1", *words),
        )

    def await_nodes(self, count: int) -> None:
        """Wait until the workers of so many nodes are in service."""
        self.admin.until(
            ("nodes",),
            lambda found: (
                sum(all(w["in_service"] for w in n["workers"]) for n in found["nodes"]) == count
            ),
        )

    def logs(self) -> dict[str, str]:
        """Return what each program has said."""
        return {file.name: file.read_text(errors="replace") for file in self.folder.glob("*.log")}

    def close(self) -> None:
        """End everything."""
        self._programs.stop()


class History:
    """The output of ``leasehold watch`` all day long."""

    def __init__(self, user: User, file: Path) -> None:
        self._file, self._stream = file, file.open("wb")
        self._process = user.watch(self._stream, "watch", "--after", "0", "--json")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines so far, the last of which may be on its way."""
        lines = self._file.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def await_ends(self, jobs: set[str]) -> None:
        """Wait until the ends of jobs are here."""
        end_s = time.monotonic() + WAIT_S
        while left := jobs - {e["subject"] for e in self.events if e["kind"] in ENDS}:
            assert time.monotonic() < end_s, f"the ends of {left} are not shown"
            time.sleep(0.1)

    def close(self) -> None:
        """Stop watching."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(WAIT_S)
        self._stream.close()


def together(*days: Callable[[], None]) -> None:
    """Run each in a thread of its own, to its end, and raise what went wrong in one."""
    with ThreadPoolExecutor(len(days)) as pool:
        for future in [pool.submit(day) for day in days]:
            future.result()


def _environment(home: Path) -> dict[str, str]:
    """Return an environment in which nothing of this machine's user is found."""
    return fresh(home) | {
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),  # this checkout, if it is one
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }


def _wait_for(log: Path, pattern: str) -> re.Match[str]:
    end_s = time.monotonic() + WAIT_S
    while not (found := re.search(pattern, log.read_text(errors="replace"))):
        assert "Traceback" not in log.read_text(), log.read_text()
        assert time.monotonic() < end_s, f"{pattern!r} did not come:\n{log.read_text()}"
        time.sleep(0.05)
    return found
