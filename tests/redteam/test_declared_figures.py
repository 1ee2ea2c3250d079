"""A plain user that declares steps/s on made-up worker types."""

from __future__ import annotations

import asyncio
import time

import pytest
from real_service import as_user, running_service

from planner.estimation import fitting

pytestmark = pytest.mark.redteam

#: So long that a slow machine is not taken for a service that stands still.
PATIENT = {"leadership__ttl_s": 30}
WORKERS = ("v100", "p100")


@pytest.fixture
def fits(monkeypatch):
    """Return the shapes of the matrices that the service fits."""
    shapes, real = [], fitting.fit_speed_model

    def counted(logs):
        shapes.append(logs.shape)
        return real(logs)

    monkeypatch.setattr(fitting, "fit_speed_model", counted)
    return shapes


def made_up(number, types=63):
    return {f"made-up-{number}-{k}": 1.0 + k for k in range(types)}


def job(number, **throughputs):
    return {
        "name": f"job-{number}",
        "command": ["train"],
        "total_steps": 1000,
        "throughputs": made_up(number) | throughputs,
    }


async def leading(client):
    end = time.monotonic() + 60.0
    while not (await client.get("/readyz")).json().get("leading"):
        assert time.monotonic() < end, "it does not lead"
        await asyncio.sleep(0.1)


async def join(admin):
    """Let a node with two worker types join."""
    secret = (await admin.post("/v1/enrolments", json={"node": "n0"})).json()["secret"]
    found = await admin.post("/v1/agent/enrol", json={"node": "n0", "secret": secret})
    workers = [{"index": i, "worker_type": kind, "problem": ""} for i, kind in enumerate(WORKERS)]
    report = {"node": "n0", "incarnation": 1.0, "sequence": 1, "term": 0, "revision": 0}
    agent = {"Authorization": f"Bearer {found.json()['token']}"}
    body = report | {"workers": workers, "leases": []}
    answer = await admin.post("/v1/agent/report", json=body, headers=agent)
    assert answer.status_code == 204, answer.text


async def submit(client, user, *jobs):
    answers = await asyncio.gather(
        *(client.post("/v1/jobs", json=body, headers=user) for body in jobs)
    )
    assert {answer.status_code for answer in answers} == {201}, answers[0].text


async def columns_of(client):
    """Return the worker types of which figures are known."""
    found = (await client.get("/v1/throughputs")).json()["throughputs"]
    return {one["worker_type"] for one in found}


def test_made_up_worker_types_do_not_stop_the_service(fits, tmp_path):
    async def attack():
        async with running_service(tmp_path, **PATIENT) as (_, admin):
            await leading(admin)
            await join(admin)
            mallory = await as_user(admin, "mallory")
            await submit(admin, mallory, *(job(number, v100=2.0) for number in range(20)))
            await leading(admin)
            assert len((await admin.get("/v1/jobs", headers=mallory)).json()["jobs"]) == 20
            assert await columns_of(admin) == {"v100"}
            assert max(columns for _, columns in fits) == 1
            # An operator may: this is the state that an earlier release kept of such jobs.
            figures = [
                {"job_type": f"old-{number}", "worker_type": name, "steps_per_s": rate}
                for number in range(12)
                for name, rate in made_up(number).items()
            ]
            body = {"throughputs": figures}
            assert (await admin.put("/v1/throughputs", json=body)).json() == {"changed": 756}
        fits.clear()
        async with running_service(tmp_path, **PATIENT) as (_, admin):
            await leading(admin)
            ann = await as_user(admin, "ann")
            await submit(admin, ann, *(job(number, v100=3.0) for number in range(20, 30)))
            await leading(admin)
            assert len(await columns_of(admin)) == 757
            rows, columns = (max(sizes) for sizes in zip(*fits, strict=True))
            assert rows <= fitting.MOST_ROWS
            assert columns == fitting.MOST_COLUMNS
            assert len(fits) <= 20  # at the start, and at most one for each request
            gone = await admin.delete("/v1/throughputs", params={"job_type": "old-3"})
            assert gone.json() == {"changed": 63}
            assert len(await columns_of(admin)) == 694

    asyncio.run(attack())
