"""Uploading code over REST; ``tests/redteam/test_uploads.py`` has the attacks."""

from __future__ import annotations

import base64
import gzip
import hashlib
import tarfile
from typing import Any

CODE = gzip.compress(tarfile.TarInfo("train.py").tobuf() + bytes(1024), mtime=0)
DIGEST = hashlib.sha256(CODE).hexdigest()
PATH = f"/v1/uploads/{DIGEST}"


def send(caller: Any, archive: str | None = None, **more: Any) -> Any:
    body = {"archive": base64.b64encode(CODE).decode() if archive is None else archive}
    return caller.put(PATH, json=body | more)


def test_code_is_kept_once_and_jobs_start_in_it(daemon: Any) -> None:
    user = daemon.caller("user", projects=("vision",))
    assert user.get(PATH).status_code == 404
    job = {"name": "n", "command": ["x"], "upload": DIGEST}
    refused = user.post("/v1/jobs", json=job)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "upload")
    assert (send(user).status_code, send(user).status_code) == (201, 200)
    told = {"project": "vision", "digest": DIGEST, "size_bytes": len(CODE), "created": False}
    assert user.get(PATH).json() == told
    made = user.post("/v1/jobs", json=job)
    assert made.status_code == 201, made.text
    assert user.get(f"/v1/jobs/{made.json()['job_id']}").json()["spec"]["upload"] == DIGEST
    batch = {"jobs": [job | {"array": 2}, job | {"upload": "0" * 64}]}
    answer = user.post("/v1/jobs", json=batch).json()["jobs"]
    assert [bool(item["job_id"]) for item in answer] == [True, True, False]
    assert "has no such upload" in str(answer[-1]["error"])
    # It belongs to one project.
    other = daemon.caller("user")
    assert other.post("/v1/jobs", json=job | {"project": "nlp"}).status_code == 422


def test_what_is_sent_is_looked_at(daemon: Any) -> None:
    user = daemon.caller("user")
    for archive, said in (
        ("%%%", "is no base64"),
        ("é", "is no base64"),
        (base64.b64encode(CODE + b"x").decode(), "has the hash"),
    ):
        answer = send(user, archive)
        assert answer.status_code == 422
        assert said in answer.text
    assert user.get("/v1/uploads/xyz").status_code == 422


def test_code_has_one_place_where_it_starts(daemon: Any) -> None:
    user = daemon.caller("user")
    assert send(user).status_code == 201
    job = {"name": "n", "command": ["x"], "upload": DIGEST}
    answer = user.post("/v1/jobs", json=job | {"working_dir": "/srv"})
    assert answer.status_code == 422
    assert "give upload or working_dir" in answer.text
    tried = user.post("/v1/jobs?dry_run=true", json=job | {"image": "i"})
    assert tried.status_code == 200, tried.text
    pod = tried.json()["pod"]
    (bringer,) = pod["spec"]["initContainers"]
    assert (bringer["name"], bringer["image"]) == ("leasehold-code", "CODE-IMAGE")
    assert DIGEST in bringer["command"]
