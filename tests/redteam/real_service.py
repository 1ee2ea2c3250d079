"""A real scheduler for attacks: its database, its REST interface and its tokens."""

from __future__ import annotations

import asyncio
import contextlib

import httpx

from leasehold.config.load import load_config
from leasehold.daemon.serve import serve
from leasehold_testing.process import QUICK


@contextlib.asynccontextmanager
async def running_service(folder, *, after_set_back=False, after_restore=False, **settings):
    """Run a scheduler; yield it and a client with the administrator's token."""
    texts = QUICK | {key.replace("__", "."): str(value) for key, value in settings.items()}
    config = load_config(
        environment={"XDG_CONFIG_HOME": str(folder)},
        texts={key: (f"--set {key}", text) for key, text in texts.items()}
        | {"state_dir": ("--state-dir", str(folder / "state"))},
    ).config
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(
            config,
            stop=stop,
            version="9.9",
            started=started.set_result,
            after_set_back=after_set_back,
            after_restore=after_restore,
        )
    )
    await asyncio.wait({task, started}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    running = started.result()
    headers = {"Authorization": f"Bearer {running.admin_token_file.read_text().strip()}"}
    try:
        async with httpx.AsyncClient(base_url=running.url, headers=headers, timeout=30) as client:
            yield running, client
    finally:
        stop.set()
        await task


async def as_user(admin, subject):
    """Return the header of a user's token."""
    answer = await admin.post("/v1/tokens", json={"subject": subject, "role": "user"})
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def ready(admin):
    """Wait until the service leads."""
    for _ in range(1200):
        if not (await admin.get("/readyz")).is_error:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the service does not lead")
