"""Uploaded code: attacks of archives on their receivers, and on other users' code.

The attacker has a token of project ``evil``, or that of a node. ``ann`` of project ``vision`` has
uploaded code; a job that starts in it runs on node ``alice``.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import tarfile

import httpx
import pytest
from real_service import running_service
from test_lost_nodes import enrolled, until


def archive_of(*members, content=b"x"):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, fields in members:
            info = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(info, field, value)
            data = b"" if "type" in fields else content
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


CODE = archive_of(("train.py", {}))
ATTACKS = {
    "leads out of its folder": archive_of(("../../etc/cron.d/x", {})),
    "is absolute": archive_of(("/etc/passwd", {})),
    "is a link": archive_of(("x", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("x/y", {})),
    "is a hard link": archive_of(("x", {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"})),
    "is a device": archive_of(("x", {"type": tarfile.BLKTYPE, "devmajor": 8})),
    "is a bomb": archive_of(("x", {}), content=bytes(70 * 2**20)),
    "has too many files": archive_of(*((f"f{n}", {}) for n in range(10_001)), content=b""),
    "has too many folders that it does not name": archive_of(
        *((f"{n}/" + "a/" * 250 + "f", {}) for n in range(60)), content=b""
    ),
    "is no archive": gzip.compress(b"x" * 5000),
}


def hash_of(archive):
    return hashlib.sha256(archive).hexdigest()


async def send(client, archive, headers, *, project=None, digest=None):
    body = {"archive": base64.b64encode(archive).decode(), "project": project}
    path = f"/v1/uploads/{digest or hash_of(archive)}"
    return await client.put(path, json=body, headers=headers)


async def token(admin, subject, project, role="user"):
    fields = {"subject": subject, "role": role, "projects": [project]}
    answer = await admin.post("/v1/tokens", json=fields)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


def happens(folder, story, **settings):
    async def happen():
        async with running_service(folder, leadership__ttl_s=30, **settings) as (_, admin):

            async def leads():
                return (await admin.get("/readyz")).json().get("leading")

            await until(leads)
            await story(
                admin, await token(admin, "ann", "vision"), await token(admin, "eve", "evil")
            )

    asyncio.run(asyncio.wait_for(happen(), 240))


@pytest.mark.redteam
def test_what_would_harm_who_unpacks_it_is_not_kept(tmp_path):
    async def story(admin, _ann, eve):
        for what, archive in ATTACKS.items():
            answer = await send(admin, archive, eve)
            assert answer.status_code == 422, (what, answer.text)
            found = await admin.get(f"/v1/uploads/{hash_of(archive)}", headers=eve)
            assert found.status_code == 404, what
        # Nor what pretends to be something else, so that others would run it.
        answer = await send(admin, CODE, eve, digest="0" * 64)
        assert answer.status_code == 422, answer.text

    happens(tmp_path, story)


@pytest.mark.redteam
def test_the_code_of_another_project_can_be_neither_used_nor_probed_for(tmp_path):
    async def story(admin, ann, eve):
        assert (await send(admin, CODE, ann)).status_code == 201
        digest, absent = hash_of(CODE), "0" * 64
        job = {"name": "x", "command": ["cat", "train.py"]}
        for mine in (digest, absent):  # there is no difference
            asked = await admin.get(f"/v1/uploads/{mine}", headers=eve)
            other = await admin.get(f"/v1/uploads/{mine}?project=vision", headers=eve)
            sent = await send(admin, CODE, eve, project="vision", digest=mine)
            run = await admin.post("/v1/jobs", json=job | {"upload": mine}, headers=eve)
            tried = await admin.post(
                "/v1/jobs?dry_run=true", json=job | {"upload": mine}, headers=eve
            )
            statuses = [a.status_code for a in (asked, other, sent, run, tried)]
            assert statuses == [404, 403, 403, 422, 422], mine
            for answer in (asked, run, tried):
                assert answer.text.replace(mine, "HASH").count("HASH") >= 1
        # A user that sends the same code gets "new", also if another user has it already.
        assert (await send(admin, CODE, eve)).json()["created"] is True
        viewer = await token(admin, "vic", "vision", role="viewer")
        assert (await admin.get(f"/v1/uploads/{digest}", headers=viewer)).status_code == 403
        assert (await send(admin, CODE, viewer)).status_code == 403

    happens(tmp_path, story)


@pytest.mark.redteam
def test_a_node_gets_the_code_of_its_own_leases_and_of_no_others(tmp_path):
    async def story(admin, ann, eve):
        alice, mallory = await enrolled(admin, "alice"), await enrolled(admin, "mallory")
        try:
            assert (await alice.report("v100")).status_code == 204
            assert (await mallory.report("k80")).status_code == 204
            assert (await send(admin, CODE, ann)).status_code == 201
            job = {"name": "x", "command": ["x"], "worker_types": ["v100"], "duration_s": 100}
            made = await admin.post("/v1/jobs", json=job | {"upload": hash_of(CODE)}, headers=ann)
            assert made.status_code == 201, made.text

            async def granted():
                return (await alice.desired())["leases"]

            (lease,) = await until(granted)
            assert lease["upload"] == hash_of(CODE)
            path = f"/v1/agent/code/{lease['lease_id']}"
            answer = await alice.ask("GET", path)
            assert (answer.status_code, answer.content) == (200, CODE)
            for number in (lease["lease_id"], 0, 10**14, "x"):
                stolen = await mallory.ask("GET", f"/v1/agent/code/{number}")
                assert stolen.status_code == 404
                assert CODE not in stolen.content
            for headers in (ann, eve):  # it is for agents
                assert (await admin.get(path, headers=headers)).status_code == 403
            async with httpx.AsyncClient(base_url=admin.base_url) as nobody:
                assert (await nobody.get(path)).status_code == 401
            # When the lease is over, its node gets no code.
            assert (
                await admin.post(f"/v1/jobs/{made.json()['job_id']}/cancel", headers=ann)
            ).is_success
            ended = {
                "lease_id": lease["lease_id"], "token": lease["token"], "state": "ended",
                "reason": "cancelled", "exit_code": None, "steps_done": 0, "steps_live": 0,
                "started_s": None, "message": "", "reason_code": "",
            }  # fmt: skip
            assert (await alice.report("v100", leases=[ended])).status_code == 204

            async def over():
                return (await alice.ask("GET", path)).status_code == 404

            await until(over)
        finally:
            await alice.client.aclose()
            await mallory.client.aclose()

    happens(tmp_path, story)


@pytest.mark.redteam
def test_nobody_fills_the_database(tmp_path):
    async def story(admin, ann, eve):
        for number in range(3):
            code = archive_of((f"f{number}", {}))
            answer = await send(admin, code, eve)
            assert answer.status_code == (201 if number < 2 else 422), answer.text
        assert "uploads.max_project_bytes" in answer.text
        assert (await send(admin, CODE, ann)).status_code == 201  # others are not the worse for it

    size = len(archive_of(("f0", {})))
    happens(tmp_path, story, uploads__max_project_bytes=2 * size + size // 2)
