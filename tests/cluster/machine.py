"""Programs, namespaces and control groups of the machine that pretends to be several."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Control groups of everything that runs here; .ci/test-cluster removes them.
GROUP = "leasehold-cluster"
GROUPS = Path("/sys/fs/cgroup")


def run(*command: str | Path, **options: object) -> str:
    """Run a command to its end; return its output, or fail with its message."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload]
    if done.returncode:
        words = " ".join(str(word) for word in command)
        raise RuntimeError(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def eventually(what: str, look: Callable[[], object], *, limit_s: float, every_s: float = 0.2):
    """Return the first true answer; fail after a while. Errors count as no answer yet."""
    until, last = time.monotonic() + limit_s, None
    while True:
        try:
            last = look()
        except Exception as error:  # noqa: BLE001 - reported at the end
            last = error
        else:
            if last:
                return last
        if time.monotonic() > until:
            raise AssertionError(f"not within {limit_s:g} s: {what}; last seen: {last!r}")
        time.sleep(every_s)


@dataclass(kw_only=True)
class Programs:
    """Programs that run until they are stopped, each with a log.

    Attributes:
        folder: of their logs.
        inside: what each command is put behind, such as nsenter with its arguments.
    """

    folder: Path
    inside: Sequence[str] = ()
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *command: str | Path, **environment: str) -> int:
        """Start a program; return its process id."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*self.inside, *(str(word) for word in command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment},
                start_new_session=True,
            )
        return self._running[name].pid

    def stop(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a program and wait for its end."""
        process = self._running.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(30)

    def stop_all(self) -> None:
        """End all programs, the youngest first."""
        for name in reversed(tuple(self._running)):
            self.stop(name)

    def check(self) -> None:
        """Fail if one of them has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                text = self.text(name)
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{text[-3000:]}")

    def text(self, name: str) -> str:
        """Return a program's output."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def memory_bytes(self) -> dict[str, int]:
        """Return how much memory each holds."""
        page = os.sysconf("SC_PAGESIZE")
        found = {}
        for name, process in self._running.items():
            statm = Path(f"/proc/{process.pid}/statm").read_text()
            found[name] = int(statm.split()[1]) * page
        return found


def make_group(name: str) -> str:
    """Make a control group in every hierarchy; return its path from their roots."""
    path = f"{GROUP}/{name}"
    if (GROUPS / "cgroup.controllers").exists():  # one hierarchy: controllers are handed down
        (GROUPS / path).mkdir(parents=True, exist_ok=True)
        for parent in (GROUPS, GROUPS / GROUP, GROUPS / path):
            wanted = {"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}
            there = wanted & set((parent / "cgroup.controllers").read_text().split())
            (parent / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in there))
        return f"/{path}"
    for hierarchy in GROUPS.iterdir():
        if hierarchy.is_symlink() or not hierarchy.is_dir():
            continue
        (hierarchy / path).mkdir(parents=True, exist_ok=True)
        if hierarchy.name == "cpuset":  # a new group may use nothing
            for group in (hierarchy / GROUP, hierarchy / path):
                for part in ("cpuset.cpus", "cpuset.mems"):
                    (group / part).write_text((hierarchy / part).read_text())
    return f"/{path}"
