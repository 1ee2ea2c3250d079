"""A database that has lost its newest entries: no job runs as another, and no user reads another's.

A failover of PostgreSQL can lose them, and so can a file system on which nothing was synced. Here
an older copy of the database is put in place behind the service's back.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time

import httpx
import pytest
from real_service import as_user, ready, running_service

pytestmark = pytest.mark.redteam
JOB = """
trap 'exit 75' TERM
i=0
while [ $i -lt "$2" ]; do echo "I am $1" >> "$1.ran"; echo "I am $1"; i=$((i + 1)); sleep 0.1; done
"""


def begin_agent(folder, url, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
    env |= {"LEASEHOLD_AGENT__ISOLATION": "off", **more}
    command = [sys.executable, "-m", "leasehold", "agent", "--server", url, "--node", "n1"]
    command += ["--worker", "v100:1", "--state-dir", str(folder / "agent")]
    with (folder / "agent.log").open("ab") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


async def submit(admin, user, folder, name, times):
    body = {"name": name, "command": ["/bin/sh", "-c", JOB, "job", name, str(times)]}
    body |= {"working_dir": str(folder), "worker_types": ["v100"]}
    answer = await admin.post("/v1/jobs", json=body, headers=user)
    assert answer.status_code == 201, answer.text
    return answer.json()["job_id"]


async def until(look, what, folder, seconds=90.0):
    end_s = time.monotonic() + seconds
    while not await look():
        log = (folder / "agent.log").read_text()
        assert time.monotonic() < end_s, f"not within {seconds:g} s: {what}\n{log}"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("restored", [False, True])
def test_a_job_does_not_run_as_another_one_whose_lease_was_lost(tmp_path, caplog, restored):
    state, kept = tmp_path / "state", tmp_path / "kept"
    agents = []

    async def story():
        async with running_service(tmp_path) as (running, admin):
            await ready(admin)
            answer = await admin.post("/v1/enrolments", json={"node": "n1"})
            secret = answer.raise_for_status().json()["secret"]
            agents.append(begin_agent(tmp_path, running.url, LEASEHOLD_ENROLMENT=secret))
            same = {"server__port": httpx.URL(running.url).port}  # the agent asks there again
            users = {name: await as_user(admin, name) for name in ("ann", "eve")}

            async def known():
                return bool((await admin.get("/v1/nodes")).json()["nodes"])

            await until(known, "the agent reports", tmp_path)
        shutil.copytree(state, kept)
        async with running_service(tmp_path, **same) as (running, admin):
            await ready(admin)
            lost = await submit(admin, users["ann"], tmp_path, "lost", 10**6)

            async def runs():
                return (tmp_path / "lost.ran").exists()

            await until(runs, "the first job runs", tmp_path)
            first = (await admin.get(f"/v1/jobs/{lost}/attempts")).json()["attempts"]
        shutil.rmtree(state)
        shutil.copytree(kept, state)
        async with running_service(tmp_path, after_restore=restored, **same) as (running, admin):
            await ready(admin)
            mine = await submit(admin, users["eve"], tmp_path, "mine", 20)

            async def over():
                shown = (await admin.get(f"/v1/jobs/{mine}", headers=users["eve"])).json()
                return shown["status"] == "completed"

            await until(over, "the second job completes", tmp_path)
            second = (await admin.get(f"/v1/jobs/{mine}/attempts")).json()["attempts"]
            # The number is the same, and nothing else is; if a backup is told of, not even that.
            again = first[0]["lease_id"] in {one["lease_id"] for one in second}
            assert again != restored
            assert (tmp_path / "mine.ran").read_text() == "I am mine\n" * 20
            answer = await admin.get(f"/v1/jobs/{mine}/log", headers=users["eve"])
            assert "I am mine" in answer.text
            assert "I am lost" not in answer.text
            before = (tmp_path / "lost.ran").stat().st_size
            await asyncio.sleep(1.0)
            assert (tmp_path / "lost.ran").stat().st_size == before
            assert f"has lost its newest entries: node 'n1' holds leases of '{lost}'" in caplog.text

    try:
        asyncio.run(asyncio.wait_for(story(), 280))
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait(60)
        subprocess.run(["pkill", "-f", f"job lost {10**6}"], check=False)
