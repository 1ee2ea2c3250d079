"""Daemons within the test's process, and in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest

from leasehold.config.load import load_config
from leasehold.daemon.serve import serve

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


@pytest.fixture
def make_config(tmp_path):
    """Make a configuration with quick rounds: make_config(server__port=0, ...)."""

    def make(**changes):
        texts = QUICK | {key.replace("__", "."): str(value) for key, value in changes.items()}
        texts.setdefault("state_dir", str(tmp_path / "state"))
        return load_config(
            environment={"XDG_CONFIG_HOME": str(tmp_path)},
            texts={key: (f"--set {key}", text) for key, text in texts.items()},
        ).config

    return make


@pytest.fixture
def daemon():
    """Run a daemon in this process."""
    return run_daemon


@contextlib.asynccontextmanager
async def run_daemon(config):
    """Run a daemon in this process; gives (running, client with the first token)."""
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(config, stop=stop, version="9.9", started=started.set_result))
    await asyncio.wait({task, started}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    running = started.result()
    headers = {}
    if running.admin_token_file.exists():
        headers["Authorization"] = f"Bearer {running.admin_token_file.read_text().strip()}"
    try:
        async with httpx.AsyncClient(base_url=running.url, headers=headers, timeout=30) as client:
            yield running, client
    finally:
        stop.set()
        await task


class Process:
    """``leasehold ...`` in a process of its own."""

    def __init__(self, *arguments, env):
        self.lines = []
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

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def output(self):
        return "".join(self.lines)

    def wait_for(self, pattern):
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
    def url(self):
        return self.wait_for(r"listens on (\S+)")[1]

    def send(self, number):
        self.process.send_signal(number)

    def end(self):
        """Return the exit code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(5)
        return code

    def close(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(WAIT_S)
        self._reader.join(5)
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path):
    """Start ``leasehold COMMAND`` with quick rounds in a fresh environment."""
    begun = []
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "xdg"),
        "LEASEHOLD_AGENT__ISOLATION": "off",
    }

    def start(command, *arguments, quick=True, **more):
        items = [f"--set={key}={text}" for key, text in QUICK.items()] if quick else []
        process = Process(command, *items, *arguments, env=env | more)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.close()
