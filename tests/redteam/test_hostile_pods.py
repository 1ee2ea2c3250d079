"""A job that would reach its neighbours, or its node, by fields of its pod.

Pods that run, and attack from within, are in tests/cluster/test_attacks.py.
"""

from __future__ import annotations

import asyncio

import pytest
from pod_attacks import ATTACKS
from real_service import as_user, running_service


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Answers of a service to each attack of a user: by itself, tried, and in a batch."""

    async def attack():
        found = {}
        async with running_service(tmp_path_factory.mktemp("service")) as (_, admin):
            user = await as_user(admin, "mallory")
            for name, fields in ATTACKS.items():
                job = {"name": name[:40].replace("_", "-"), "command": ["x"], "image": "i"} | fields
                asked = ((job, {}), (job, {"dry_run": "true"}), ({"jobs": [job]}, {}))
                alone, tried, batch = [
                    await admin.post("/v1/jobs", json=body, params=query, headers=user)
                    for body, query in asked
                ]
                found[name] = alone, tried, batch.json()["jobs"][0]["error"]
            jobs = (await admin.get("/v1/jobs")).json()
        return found, jobs

    return asyncio.run(attack())


@pytest.mark.redteam
@pytest.mark.parametrize("name", ATTACKS)
def test_a_job_never(answers, name):
    alone, tried, batch = answers[0][name]
    for problem in (alone.json(), tried.json(), batch):
        assert problem["status"] == 422, name
        (error,) = problem["errors"]
        assert error["field"].startswith(("kubernetes.", "env.")), error
        assert "' is " in error["problem"], error


@pytest.mark.redteam
def test_nothing_of_it_was_stored(answers):
    assert answers[1]["jobs"] == []
