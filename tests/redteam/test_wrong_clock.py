"""If a scheduler's clock was three hours ahead once and was set right, it does not stay ahead."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from real_service import as_user, ready, running_service

import leasehold.daemon.serve as serve_module
from scheduler.clock import WallClock

pytestmark = pytest.mark.redteam
AHEAD_S = 3 * 3600.0


async def submit(admin, user, name, **more):
    body = {"name": name, "command": ["true"], "worker_types": ["v100"], **more}
    return await admin.post("/v1/jobs", json=body, headers=user)


def test_a_clock_that_was_set_right_does_no_harm_for_longer_than_it_is_told(tmp_path, monkeypatch):
    """Tokens, deadlines and times of webhooks go by the clock of the machine."""

    async def ahead():
        with monkeypatch.context() as patch:
            wrong = partial(WallClock, wall=lambda: time.time() + AHEAD_S)
            patch.setattr(serve_module, "WallClock", wrong)
            async with running_service(tmp_path) as (_, admin):
                await ready(admin)
                user = await as_user(admin, "ann")
                assert (await submit(admin, user, "before")).status_code == 201
                return user

    async def refused():
        async with running_service(tmp_path) as (_, admin):
            end_s = time.monotonic() + 60.0
            while True:
                shown = (await admin.get("/readyz")).json()
                problems = " ".join(shown["problems"])
                if "--after-clock-set-back" in problems:
                    break
                assert time.monotonic() < end_s, shown
                await asyncio.sleep(0.1)
            assert not shown["leading"]
            assert "this machine's clock says" in problems

    async def told(user):
        async with running_service(tmp_path, after_set_back=True) as (_, admin):
            await ready(admin)
            now_s = time.time()
            made = await admin.post("/v1/tokens", json={"subject": "eve", "role": "user"})
            assert made.json()["created_s"] == pytest.approx(now_s, abs=60.0)
            soon = await submit(admin, user, "soon", deadline_s=now_s + 3600.0)
            assert soon.status_code == 201, soon.text
            late = await submit(admin, user, "late", deadline_s=now_s - 60.0)
            assert late.status_code == 422
            text = (await admin.get("/metrics")).text
            (line,) = [
                x for x in text.splitlines() if x.startswith("leasehold_clock_ahead_seconds ")
            ]
            assert float(line.split()[1]) == pytest.approx(AHEAD_S, abs=120.0)
            problems = " ".join((await admin.get("/readyz")).json()["problems"])
            assert "ahead of this machine's clock" in problems

    user = asyncio.run(asyncio.wait_for(ahead(), 120))
    asyncio.run(asyncio.wait_for(refused(), 120))
    asyncio.run(asyncio.wait_for(told(user), 120))
