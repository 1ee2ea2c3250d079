"""A node with a copied state folder, or a cloned machine: nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time

import pytest
from real_service import as_user, ready, running_service

pytestmark = pytest.mark.redteam
#: Prints its identity each 0.2 s, until it is asked to leave.
JOB = """
trap 'exit 75' TERM
while :; do echo "$1 $LEASEHOLD_ATTEMPT $$" >> "$2"; sleep 0.2; done
"""


class Scene:
    def __init__(self, folder):
        self.folder, self.agents = folder, {}

    def begin(self, name, state, url, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
        env |= {"LEASEHOLD_AGENT__ISOLATION": "off", **more}
        command = [sys.executable, "-m", "leasehold", "agent", "--server", url, "--node", "n1"]
        command += ["--worker", "v100:2", "--state-dir", str(state)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.agents[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def runs(self, job):
        """Return the processes that have written within the last moments, and all that ever did."""
        file = self.folder / job
        return [] if not file.exists() else [line.split() for line in file.read_text().splitlines()]

    async def submit(self, admin, user, job):
        command = ["/bin/sh", "-c", JOB, "job", job, str(self.folder / job)]
        body = {"name": job, "command": command, "working_dir": str(self.folder)}
        body |= {"checkpoint_dir": str(self.folder), "worker_types": ["v100"]}
        answer = await admin.post("/v1/jobs", json=body, headers=user)
        assert answer.status_code == 201, answer.text
        return answer.json()["job_id"]

    async def until(self, condition, what, seconds=60.0):
        end_s = time.monotonic() + seconds
        while not condition():
            logs = "\n".join(map(self.log, self.agents))
            assert time.monotonic() < end_s, f"not within {seconds:g} s: {what}\n{logs}"
            await asyncio.sleep(0.1)


def test_a_copy_of_a_state_folder_starts_nothing_beside_the_original(tmp_path):
    scene = Scene(tmp_path)

    async def story():
        async with running_service(tmp_path) as (running, admin):
            await ready(admin)
            answer = await admin.post("/v1/enrolments", json={"node": "n1"})
            secret = answer.raise_for_status().json()["secret"]
            scene.begin("first", tmp_path / "s1", running.url, LEASEHOLD_ENROLMENT=secret)
            user = await as_user(admin, "ann")
            job_id = await scene.submit(admin, user, "before")
            await scene.until(lambda: scene.runs("before"), "the job runs")
            shutil.copytree(
                tmp_path / "s1", tmp_path / "s2", ignore=shutil.ignore_patterns("*.sock")
            )
            scene.begin("copy", tmp_path / "s2", running.url)
            await scene.until(
                lambda: "another agent serves node 'n1'" in scene.log("copy"), "it is refused"
            )
            await scene.submit(admin, user, "after")
            await scene.until(lambda: scene.runs("after"), "the next job runs")
            # The lease that the copy found in its folder is long over by now, and was renewed.
            seen = len(scene.runs("before"))
            await asyncio.sleep(10.0)
            assert len(scene.runs("before")) > seen + 20
            for job in ("before", "after"):
                assert len({(attempt, pid) for _, attempt, pid in scene.runs(job)}) == 1
            shown = (await admin.get(f"/v1/jobs/{job_id}")).json()
            assert (shown["status"], shown["attempts"]) == ("running", 1)

    try:
        asyncio.run(asyncio.wait_for(story(), 200))
    finally:
        for agent in scene.agents.values():
            agent.terminate()
        for agent in scene.agents.values():
            agent.wait(60)
        subprocess.run(["pkill", "-f", str(tmp_path / "before")], check=False)
        subprocess.run(["pkill", "-f", str(tmp_path / "after")], check=False)
