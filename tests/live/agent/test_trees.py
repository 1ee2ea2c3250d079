"""The code of a lease is fetched until it is here, and other code is not taken for it."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile

import pytest

from agent.trees import Trees
from scheduler.archive import digest_of
from scheduler.errors import InputError
from scheduler.protocol.desired import DesiredLease, desired_from_dict, to_dict


def archive_of(name):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    return made.getvalue()


CODE = archive_of("train.py")


def lease(archive=CODE, lease_id=7):
    return DesiredLease(
        lease_id=lease_id,
        attempt=1,
        token=1,
        job_id="job",
        command=("x",),
        workers=(0,),
        remaining_s=30.0,
        upload=digest_of(archive),
    )


class Link:
    """Gives one answer after the other; the last one again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def code(self, lease_id):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def fetched(folder, wanted, *answers, **options):
    """Return what became of a lease's code."""

    async def scene():
        news = asyncio.Event()
        trees = Trees(Link(*answers), folder, news.set, **options)
        assert trees.fault(wanted) is None
        async with asyncio.timeout(60):
            await news.wait()
        return trees.fault(wanted)

    return asyncio.run(scene())


def test_code_is_unpacked_into_a_folder_of_its_own(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "left").touch()  # of an agent that ended meanwhile
    assert fetched(tmp_path, lease(), CODE) == ""
    assert [path.name for path in (tmp_path / "7").iterdir()] == ["train.py"]
    assert (tmp_path / "7" / "train.py").read_bytes() == b"x"


def test_code_is_given_to_its_job_before_the_lease_begins(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, **_: given.update({path: (uid, gid)}))
    assert fetched(tmp_path, lease(), CODE, owner_of=lambda _lease: 1234) == ""
    assert given == dict.fromkeys((tmp_path / "7", tmp_path / "7" / "train.py"), (1234, 1234))


@pytest.mark.parametrize("trouble", [ConnectionError("away"), PermissionError("wrong token")])
def test_a_scheduler_that_is_away_is_asked_again(tmp_path, trouble):
    assert fetched(tmp_path, lease(), trouble, CODE) == ""


def test_what_cannot_be_had_is_told(tmp_path):
    assert "no lease 7 whose" in fetched(tmp_path, lease(), InputError("no lease 7 whose"))
    assert "another tree than" in fetched(tmp_path, lease(), archive_of("other.py"))
    hostile = archive_of("../x")
    assert "lies outside" in fetched(tmp_path, lease(hostile), hostile)
    assert not (tmp_path.parent / "x").exists()


def test_a_lease_that_is_not_wanted_any_more_is_forgotten(tmp_path):
    async def scene():
        news = asyncio.Event()
        trees = Trees(Link(CODE), tmp_path, news.set)
        trees.fault(lease())
        await news.wait()
        trees.keep({7})
        assert (tmp_path / "7").is_dir()
        trees.keep(())
        assert not (tmp_path / "7").exists()
        trees.fault(lease(lease_id=8))  # on its way
        trees.keep(())
        await asyncio.sleep(0.1)
        assert trees.fault(lease(lease_id=8)) is None  # asked for again
        trees.keep(())

    asyncio.run(scene())


def test_the_lease_says_which_code_and_an_older_scheduler_says_nothing():
    told = to_dict(lease())
    message = {"term": 0, "revision": 1, "held_s": 0.0, "leases": [told]}
    assert desired_from_dict(message).leases[0].upload == digest_of(CODE)
    del told["upload"]
    assert desired_from_dict(message).leases[0].upload == ""
