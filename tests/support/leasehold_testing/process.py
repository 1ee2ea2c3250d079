"""``leasehold ...`` in processes of their own, with quick rounds and a fresh environment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Rounds of seconds, so that tests need not wait for minutes.
QUICK = {
    "engine.round_length_s": "4",
    "leases.notice_s": "0.5",
    "leases.grace_s": "0.5",
    "leases.margin_s": "0.5",
    "leadership.ttl_s": "2",
    "server.port": "0",
}
WAIT_S = 60.0


def fresh(home: Path) -> dict[str, str]:
    """Return an environment without settings, whose files are in a folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "xdg"),
        "LEASEHOLD_AGENT__ISOLATION": "off",
    }


def settings(values: Mapping[str, str]) -> list[str]:
    """Return settings as options of a command."""
    return [f"--set={key}={text}" for key, text in values.items()]


class Process:
    """A command in a process of its own.

    Args:
        arguments: of ``leasehold``.
        env: its whole environment.
    """

    def __init__(self, *arguments: str, env: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
            start_new_session=True,
            # It is inherited, and this run of the tests may have been started by nohup.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - one call of C
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return "".join(self.lines)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it has printed something."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if found := re.search(pattern, self.output):
                return found
            if self.process.poll() is not None:
                self._reader.join(5)
                if not re.search(pattern, self.output):
                    break
            time.sleep(0.02)
        raise AssertionError(f"{pattern!r} did not come; there was:\n{self.output}")

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.wait_for(r"listens on (\S+)")[1]

    def send(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Return the exit code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(5)
        return code

    def close(self) -> None:
        """Kill it and what it has started."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(WAIT_S)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
