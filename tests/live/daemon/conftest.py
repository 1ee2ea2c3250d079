"""Daemons within the test's process, and in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import pytest

from leasehold.config.load import load_config
from leasehold.daemon.serve import serve
from leasehold_testing.process import QUICK, WAIT_S, Process, fresh, settings


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


@pytest.fixture
def start(tmp_path):
    """Start ``leasehold COMMAND`` with quick rounds in a fresh environment."""
    begun, env = [], fresh(tmp_path)

    def start(command, *arguments, quick=True, **more):
        items = settings(QUICK) if quick else []
        process = Process(command, *items, *arguments, env=env | more)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.close()
