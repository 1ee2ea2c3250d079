"""Attacks by ``exec`` beyond the attacker's job: others' jobs, the node, its end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
from pathlib import Path

import pytest
from real_service import as_user, running_service

from agent.backend import ENDED_WITH_JOB
from agent.process.node import ProcessJobs
from leasehold.daemon.agent import AgentOptions, run_agent

pytestmark = [
    pytest.mark.redteam,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("bwrap") is None,
        reason="jobs are kept apart by an agent that is root and has bubblewrap",
    ),
]


async def until(ask, there):
    async with asyncio.timeout(180):
        while not there(found := await ask()):  # noqa: ASYNC110 - it is asked by REST
            await asyncio.sleep(0.2)
    return found


@contextlib.asynccontextmanager
async def scene(tmp_path):
    """Run a scheduler, a node, and Anna's job on it; gives a client, Anna's header and the job."""
    tmp_path.chmod(0o755)
    async with running_service(tmp_path) as (running, admin):
        await until(lambda: admin.get("/readyz"), lambda found: found.json()["leading"])
        made = await admin.post("/v1/enrolments", json={"node": "n1"})
        options = AgentOptions(
            servers=(running.url,),
            node="n1",
            workers=("v100:1",),
            state_dir=tmp_path / "agent",
            backend=ProcessJobs(isolation="required"),
            enrolment=made.json()["secret"],
            stop_jobs=True,
        )
        stop = asyncio.Event()
        agent = asyncio.create_task(run_agent(options, stop=stop))
        try:
            anna = await as_user(admin, "anna")
            body = {"name": "long", "command": ["sleep", "900"], "duration_s": 900}
            job = (await admin.post("/v1/jobs", json=body, headers=anna)).json()["job_id"]

            async def runs():
                return await admin.get(f"/v1/jobs/{job}", headers=anna)

            await until(runs, lambda found: found.json()["status"] == "running")
            yield admin, anna, job
        finally:
            stop.set()
            await agent


async def ran(admin, header, job, *command, stdin=b"", **fields):
    """Return exit code, output and problem of a command, or the status that refused it."""
    asked = {"command": list(command), "stdin": base64.b64encode(stdin).decode()} | fields
    begun = await admin.post(f"/v1/jobs/{job}/exec", json=asked, headers=header)
    if begun.status_code != 201:
        return begun.status_code, begun.json()["detail"], ""
    path, after, out = f"/v1/jobs/{job}/exec/{begun.json()['exec_id']}", 0, b""
    async with asyncio.timeout(120):
        while True:
            query = {"after": after, "wait_s": 5}
            found = (await admin.get(path, params=query, headers=header)).json()
            out += b"".join(base64.b64decode(piece["data"]) for piece in found["pieces"])
            after = found["next"]
            if found["done"]:
                return found["exit_code"], out.decode(errors="replace"), found["problem"]


async def running(admin, header, job):
    """Run commands until one is taken: the job may be about to begin."""
    return await until(lambda: ran(admin, header, job, "id", "-u"), lambda found: found[0] == 0)


def test_a_command_is_no_more_than_its_job_and_only_its_owner_s(tmp_path):
    async def go():
        async with scene(tmp_path) as (admin, anna, job):
            _, uid, _ = await running(admin, anna, job)
            assert int(uid) >= 65_536
            eve = await as_user(admin, "eve")
            status, why, _ = await ran(admin, eve, job, "id")
            assert (status, "only they and administrators" in why) == (403, True)

            code, out, _ = await ran(admin, anna, job, "sh", "-c", "cat; exit 7", stdin=b"hello")
            assert (code, out) == (7, "hello")
            _, out, _ = await ran(admin, anna, job, "grep", "Cap[EPI]\\|NoNew", "/proc/self/status")
            values = {line.split()[0]: int(line.split()[1], 16) for line in out.splitlines()}
            assert values == {"CapInh:": 0, "CapPrm:": 0, "CapEff:": 0, "NoNewPrivs:": 1}
            _, out, _ = await ran(admin, anna, job, "ls", "-A", str(tmp_path / "agent"))
            assert out == ""
            _, out, _ = await ran(admin, anna, job, "sh", "-c", "cat /proc/[0-9]*/comm")
            assert set(out.split()) <= {"bwrap", "sh", "sleep", "cat", "python"}

            assert (await ran(admin, anna, job, "no-such-program"))[0] == 127
            _, _, problem = await ran(admin, anna, job, "sleep", "60", timeout_s=1.0)
            assert "longer than 1 s" in problem
            shown = (await admin.get("/v1/events?kind=job_exec", headers=anna)).json()["events"]
            assert {line["actor"] for line in shown} == {"anna"}
            assert shown[0]["data"]["command"] == "id -u"

    asyncio.run(go())


def test_a_command_that_would_outlive_its_job_ends_with_it(tmp_path):
    async def go():
        async with scene(tmp_path) as (admin, anna, job):
            await running(admin, anna, job)
            mark = "86399.731"
            left = f"setsid sleep {mark} >/dev/null 2>&1 & echo begun"
            assert (await ran(admin, anna, job, "sh", "-c", left))[1] == "begun\n"
            watching = asyncio.create_task(ran(admin, anna, job, "sleep", mark))
            await until(_sleepers(mark), lambda found: len(found) == 2)
            await admin.post(f"/v1/jobs/{job}/cancel", json={}, headers=anna)
            code, _, problem = await watching
            assert (code, problem) == (None, ENDED_WITH_JOB)
            await until(_sleepers(mark), lambda found: not found)
            # Until the scheduler has heard of its end, the node refuses.
            await until(lambda: ran(admin, anna, job, "id"), lambda found: found[0] == 409)

    asyncio.run(go())


def _sleepers(mark):
    def look():
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes() == f"sleep\0{mark}\0".encode():
                    found.append(path.parent.name)
        return found

    return lambda: asyncio.to_thread(look)
