"""``logs -f`` with real processes: the last byte of short jobs, over a scheduler that is killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from scheduler.logs.logbook import LogBook

JOBS = 5
#: Ends while the scheduler is away, right after it has written most of its output.
PROGRAM = """
import pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("x" * 300_000)
print("the end")
sys.stderr.write("last words")
"""
#: Rounds that outlast a restart on a busy machine: a job whose lease ends meanwhile begins again.
SERVE = (
    "--no-auth",
    "--set=engine.round_length_s=15",
    "--set=leases.notice_s=0.5",
    "--set=leases.grace_s=0.5",
    "--set=leases.margin_s=0.5",
    "--set=leadership.ttl_s=2",
)


def wait_until(condition, within_s=60.0):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)


@pytest.mark.long
def test_five_short_jobs_are_followed_to_their_ends_while_the_scheduler_is_killed(start, tmp_path):
    state = f"--state-dir={tmp_path / 's'}"
    first = start("serve", state, "--port=0", *SERVE, quick=False)
    url = first.url
    start(
        *("agent", f"--server={url}", "--node=n", f"--worker=v100:{JOBS}"),
        f"--state-dir={tmp_path / 'a'}",
        quick=False,
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LEASEHOLD_SERVER": url}
    env |= {"LEASEHOLD_AGENT__ISOLATION": "off"}
    followers = []
    with httpx.Client(base_url=url, timeout=30) as client:
        wait_until(lambda: client.get("/readyz").json()["leading"])
        for number in range(JOBS):
            job = {
                "name": f"short-{number}",
                "project": "p",
                "command": [sys.executable, "-c", PROGRAM, str(tmp_path / "go")],
                "total_steps": 1,
                "throughputs": {"v100": 10},
            }
            job_id = client.post("/v1/jobs", json=job).raise_for_status().json()["job_id"]
            followers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "leasehold", "logs", "-f", job_id],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=env,
                )
            )
    for follower in followers:
        assert follower.stdout.readline() == b"begun\n"
    first.send(signal.SIGKILL)
    first.end()
    (tmp_path / "go").touch()
    start("serve", state, f"--port={urlsplit(url).port}", *SERVE, quick=False).wait_for("listens")
    for follower in followers:
        out, err = follower.communicate(timeout=120)
        assert follower.returncode == 0, err
        assert out == b"x" * 300_000 + b"\nthe end\n"
        assert err.endswith(b"last words")


def test_readers_that_take_nothing_fill_no_memory(start, tmp_path):
    """Twenty of them ask for 30 MB each."""
    serve = start("serve", f"--state-dir={tmp_path / 's'}", "--no-auth")
    with httpx.Client(base_url=serve.url, timeout=30) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        job = {"name": "loud", "project": "p", "command": ["x"], "total_steps": 1}
        job_id = client.post("/v1/jobs", json=job).raise_for_status().json()["job_id"]
        book = LogBook(tmp_path / "s" / "logs", most_bytes=2**25)
        for offset in range(0, 30 * 2**20, 2**20):
            book.append(job_id, 1, "n1", "out", offset=offset, data=b"x" * 2**20)
        path = f"/v1/jobs/{job_id}/log"
        assert client.get(path).content == b"x" * 30 * 2**20
        before = resident_bytes(serve.process.pid)
        address = urlsplit(serve.url)
        with contextlib.ExitStack() as open_:
            for _ in range(20):
                reader = open_.enter_context(
                    socket.create_connection((address.hostname, address.port), timeout=30)
                )
                request = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
                reader.sendall(request.encode())
                assert reader.recv(12) == b"HTTP/1.1 200"
            assert client.get(f"{path}?tail_bytes=3").content == b"xxx"
            assert resident_bytes(serve.process.pid) - before < 100 * 2**20


def resident_bytes(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * 1024
