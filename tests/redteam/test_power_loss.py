"""A machine loses power: jobs with an answered submission are on its disk.

The state lies in a file system of its own, in a file. A copy of that file has the synced bytes,
and nothing else: it is the disk after the cut.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from real_service import ready, running_service

MISSING = [
    why
    for why, there in {
        "mounting needs root": os.geteuid() == 0,
        "this machine has no loop devices": Path("/dev/loop-control").exists(),
    }.items()
    if not there
]
pytestmark = [
    pytest.mark.redteam,
    pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING)),
]
CUTS = 3


@contextlib.contextmanager
def mounted(image, place):
    """Mount the file system in a file."""
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


async def submitted(folder, image):
    """Submit jobs; returns for each its id, and the disk right after the answer."""
    found = []
    async with running_service(folder, leadership__ttl_s=20) as (_, admin):
        await ready(admin)
        for number in range(CUTS):
            job = {"name": f"job-{number}", "command": ["true"], "throughputs": {"v100": 1.0}}
            answer = await admin.post("/v1/jobs", json=job)
            # The service is in this process, and writes nothing meanwhile.
            cut = shutil.copy(image, image.with_name(f"cut-{number}"))
            found.append((answer.raise_for_status().json()["job_id"], cut))
    return found


async def known(folder):
    """Return the ids of the jobs that a service finds in a folder."""
    async with running_service(folder, leadership__ttl_s=20) as (_, admin):
        await ready(admin)
        jobs = (await admin.get("/v1/jobs")).raise_for_status().json()["jobs"]
        return {job["job_id"] for job in jobs}


def test_no_answered_submission_is_lost(tmp_path):
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(2**25)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with mounted(image, tmp_path / "before") as folder:
        cuts = asyncio.run(submitted(folder, image))
    answered = set()
    for number, (job_id, cut) in enumerate(cuts):
        answered.add(job_id)
        with mounted(cut, tmp_path / f"after-{number}") as folder:
            assert asyncio.run(known(folder)) == answered
