"""Attacks on the secret variables of a job: on disk, over REST, as another node."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import sys
import time

import pytest
from real_service import as_user, running_service

from leasehold.cli.local.secrets import new_key_file, rotate

pytestmark = pytest.mark.redteam

PASSWORD = "correct-horse-battery-staple-7319"
PROGRAM = """
import hashlib, os, time
print("sum", hashlib.sha256(os.environ["PASSWORD"].encode()).hexdigest(), flush=True)
time.sleep(600)
"""
DIGEST = hashlib.sha256(PASSWORD.encode()).hexdigest()
TAKES = {"X-Leasehold-Takes": "secrets"}
#: A request through an untrusted proxy, so perhaps without encryption.
EXPOSED = {"Via": "1.1 proxy"}


def job(**fields):
    secret = {"PASSWORD": PASSWORD}
    return {
        "name": "train",
        "command": [sys.executable, "-c", PROGRAM],
        "secret_env": secret,
        "duration_s": 600,
        "throughputs": {"v100": 1.0},
    } | fields


def files_with(folder, text):
    """Return the files below a folder that hold a text."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(str(path.relative_to(folder)))
    return found


async def until(look, within_s=60.0):
    end_s = time.monotonic() + within_s
    while not (found := await look()):
        assert time.monotonic() < end_s, "it did not come to pass"
        await asyncio.sleep(0.1)
    return found


@contextlib.asynccontextmanager
async def leading_service(tmp_path, **settings):
    async with running_service(tmp_path, **settings) as (running, admin):

        async def leads():
            return (await admin.get("/readyz")).json()["leading"]

        await until(leads)
        yield running, admin


def with_key(tmp_path):
    path = tmp_path / "keys"
    if not path.exists():
        new_key_file(path)
    return {"secrets__key_file": path}


@contextlib.asynccontextmanager
async def running_agent(tmp_path, admin, url):
    """Run an agent in a process of its own; its state and its log lie below the test's folder."""
    made = (await admin.post("/v1/enrolments", json={"node": "n1"})).json()
    secret = tmp_path / "enrolment"
    secret.write_text(made["secret"])
    command = [
        *("-m", "leasehold", "agent", "--server", url, "--node", "n1", "--worker", "v100:1"),
        *("--state-dir", str(tmp_path / "agent"), "--enrol-file", str(secret)),
        *("--log-level", "debug"),
    ]
    with (tmp_path / "agent.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdout=log,
            stderr=log,
            env=os.environ | {"HOME": str(tmp_path)},
        )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def all_answers(client, headers, job_id):
    """Return a user's answers of the routes that read a job."""
    paths = ("", "/attempts", "/events", "/explain")
    said = [await client.get(f"/v1/jobs/{job_id}{path}", headers=headers) for path in paths]
    said += [await client.get(path, headers=headers) for path in ("/v1/jobs", "/v1/events")]
    assert all(answer.is_success for answer in said), [answer.text for answer in said]
    return "".join(answer.text for answer in said)


def test_a_secret_reaches_its_job_and_no_disk_no_answer_and_no_log(tmp_path, caplog):
    async def attack():
        caplog.set_level("DEBUG")
        async with leading_service(tmp_path, **with_key(tmp_path)) as (running, admin):
            ann = await as_user(admin, "ann")
            async with running_agent(tmp_path, admin, running.url):
                made = await admin.post("/v1/jobs", json=job(), headers=ann)
                assert made.status_code == 201, made.text
                job_id = made.json()["job_id"]

                async def printed():
                    log = await admin.get(f"/v1/jobs/{job_id}/log?stream=out")
                    return DIGEST in log.text

                await until(printed)
                assert files_with(tmp_path, PASSWORD) == []
                for headers in (ann, {}, await as_user(admin, "eve")):
                    said = await all_answers(admin, headers, job_id)
                    assert PASSWORD not in said
                    assert '"secret_env":{"PASSWORD":"***"}' in said
                await admin.post(f"/v1/jobs/{job_id}/cancel", headers=ann)

                async def over():
                    return (await admin.get(f"/v1/jobs/{job_id}")).json()["status"] == "cancelled"

                await until(over)
        database = tmp_path / "state" / "leasehold.db"
        with (
            contextlib.closing(sqlite3.connect(database)) as source,
            contextlib.closing(sqlite3.connect(tmp_path / "backup.db")) as backup,
        ):
            source.backup(backup)
        assert files_with(tmp_path, "train") != []  # the search does find a value that is there
        assert files_with(tmp_path, PASSWORD) == []
        assert PASSWORD not in caplog.text

    asyncio.run(attack())


async def join(admin, name):
    """Enrol a node by hand; returns its header."""
    made = (await admin.post("/v1/enrolments", json={"node": name})).json()
    body = {"node": name, "secret": made["secret"]}
    token = (await admin.post("/v1/agent/enrol", json=body, headers={"Authorization": ""})).json()
    return {"Authorization": f"Bearer {token['token']}"}


async def report(admin, agent, name, sequence, revision=0):
    body = {
        "node": name, "incarnation": 1.0, "sequence": sequence, "term": 0, "revision": revision,
        "workers": [{"index": 0, "worker_type": "v100", "problem": ""}], "leases": [],
    }  # fmt: skip
    answer = await admin.post("/v1/agent/report", json=body, headers=agent)
    assert answer.status_code == 204, answer.text


@pytest.mark.parametrize(
    ("headers", "reason"),
    [(TAKES | EXPOSED, "over plain HTTP"), ({}, "upgrade the agent")],
    ids=["exposed", "old_agent"],
)
def test_an_agent_that_could_leak_it_is_not_told_and_the_lease_ends(tmp_path, headers, reason):
    async def attack():
        async with leading_service(tmp_path, **with_key(tmp_path)) as (_, admin):
            agent = await join(admin, "n1")
            await report(admin, agent, "n1", 1)
            job_id = (await admin.post("/v1/jobs", json=job(max_failures=0))).json()["job_id"]
            sequence = iter(range(2, 10_000))

            async def told():
                asked = await admin.get("/v1/agent/desired", headers=agent | headers)
                assert PASSWORD not in asked.text
                assert asked.json()["leases"] == []
                body = asked.json()
                await admin.post(
                    "/v1/agent/report",
                    headers=agent,
                    json={
                        "node": "n1", "incarnation": 1.0, "sequence": next(sequence),
                        "term": body["term"], "revision": body["revision"],
                        "workers": [{"index": 0, "worker_type": "v100", "problem": ""}],
                        "leases": [],
                    },
                )  # fmt: skip
                found = (await admin.get(f"/v1/jobs/{job_id}/attempts")).json()["attempts"]
                return [one["message"] for one in found if one["ended_s"] is not None]

            (message,) = await until(told)
            assert "secret_env is not sent" in message
            assert reason in message

    asyncio.run(attack())


def test_another_node_is_not_told(tmp_path):
    async def attack():
        async with leading_service(tmp_path, **with_key(tmp_path)) as (_, admin):
            mine, other = await join(admin, "n1"), await join(admin, "n2")
            await report(admin, mine, "n1", 1)
            await admin.post("/v1/jobs", json=job())

            async def told():
                asked = await admin.get("/v1/agent/desired", headers=mine | TAKES)
                return PASSWORD in asked.text

            await until(told)
            for headers in (other | TAKES, other | TAKES | {"X-Leasehold-Node": "n1"}):
                asked = await admin.get("/v1/agent/desired", headers=headers)
                assert asked.json()["leases"] == []
            for headers in ({}, await as_user(admin, "eve")):
                asked = await admin.get("/v1/agent/desired", headers=headers | TAKES)
                assert asked.status_code == 403

    asyncio.run(attack())


def test_a_submission_that_could_be_read_or_not_be_kept_is_refused(tmp_path):
    async def attack():
        async with leading_service(tmp_path, **with_key(tmp_path)) as (_, admin):
            for body in (job(), {"jobs": [{"name": "a", "command": ["b"]}, job()]}):
                answer = await admin.post("/v1/jobs", json=body, headers=EXPOSED)
                assert answer.status_code == 422
                assert "over plain HTTP" in answer.json()["detail"]
            wrong = {"secret_env": {"PASSWORD": PASSWORD, "N": 1234567}}
            both = {"env": {"PASSWORD": "x"}}
            for fields in (wrong, both, {"total_steps": 5}, {"secret_env": PASSWORD}):
                answer = await admin.post("/v1/jobs", json=job(**fields))
                assert answer.status_code == 422
                assert PASSWORD not in answer.text
                assert "1234567" not in answer.text
            assert (await admin.get("/v1/jobs")).json()["jobs"] == []
        async with leading_service(tmp_path) as (_, admin):  # without a key
            for query in ({}, {"dry_run": "true"}):
                answer = await admin.post("/v1/jobs", json=job(), params=query)
                assert answer.status_code == 422
                assert "leasehold secrets new-key" in answer.json()["detail"]
            batch = {"jobs": [job(), {"name": "a", "command": ["b"]}, job()]}
            answer = await admin.post("/v1/jobs", json=batch)
            assert answer.status_code == 207, answer.text
            made = answer.json()["jobs"]
            assert [bool(one["job_id"]) for one in made] == [False, True, False]
        assert files_with(tmp_path, PASSWORD) == []

    asyncio.run(attack())


def test_keys_are_changed_while_old_ones_are_read_and_a_lost_one_is_named(tmp_path, capsys):
    keys = with_key(tmp_path)["secrets__key_file"]
    database = f"sqlite:///{tmp_path}/state/leasehold.db"

    async def handed_out(**settings):
        """Return the node's view of the job."""
        async with leading_service(tmp_path, **settings) as (_, admin):
            agent = await join(admin, "n1")
            if not (await admin.get("/v1/jobs")).json()["jobs"]:
                assert (await admin.post("/v1/jobs", json=job())).status_code == 201
            sequence = iter(range(int(time.time()), 10**12))

            async def told():
                await report(admin, agent, "n1", next(sequence))
                return (await admin.get("/v1/agent/desired", headers=agent | TAKES)).json()[
                    "leases"
                ]

            (lease,) = await until(told)
            return lease["secret_env"]

    async def lives():
        assert await handed_out(**with_key(tmp_path)) == {"PASSWORD": PASSWORD}

    asyncio.run(lives())
    old = keys.read_text()
    rotate(state_dir=str(tmp_path / "state"), db=database, settings=[f"secrets.key_file={keys}"])
    new = keys.read_text().removesuffix(old)
    assert len(keys.read_text().split()) == 2
    keys.write_text(new)  # the old one is not needed any more
    asyncio.run(lives())
    assert "keys of secret_env are lost" not in capsys.readouterr().err
    keys.write_text(old)

    async def lost():
        async with leading_service(tmp_path, **with_key(tmp_path)) as (_, admin):
            (row,) = (await admin.get("/v1/jobs")).json()["jobs"]
            return row["job_id"]

    job_id = asyncio.run(lost())
    said = capsys.readouterr().err
    assert "keys of secret_env are lost" in said
    assert job_id in said
    assert "Put the keys back" in said
