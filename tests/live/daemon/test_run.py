"""``leasehold run`` with real processes: exit codes, preemption, a scheduler that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest

SERVE = (
    "--no-auth",
    "--set=engine.round_length_s=4",
    "--set=leases.notice_s=0.5",
    "--set=leases.grace_s=0.5",
    "--set=leases.margin_s=0.5",
    "--set=leadership.ttl_s=2",
)
LEASEHOLD = (sys.executable, "-m", "leasehold")
#: Ends at once, with words and a code of its own.
ENDS = 'import sys; print("out"); print("err", file=sys.stderr); sys.exit(7)'
#: Runs until a file is there; after a notice it comes back as another attempt.
STAYS = """
import os, pathlib, signal, sys, time
go = pathlib.Path(sys.argv[1])
attempt = os.environ["LEASEHOLD_ATTEMPT"]
def leave(*_):
    print(f"left {attempt}", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
print(f"begun {attempt}", flush=True)
while not go.exists():
    time.sleep(0.05)
print(f"the end of {attempt}", flush=True)
sys.exit(7)
"""


def wait_until(condition, within_s=90.0):
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.1)
    return found


@pytest.fixture
def service(start, tmp_path):
    """A scheduler and an agent; yields (the scheduler, its restart, ``leasehold run``)."""
    state = f"--state-dir={tmp_path / 's'}"
    first = start("serve", state, "--port=0", *SERVE, quick=False)
    url = first.url
    start(
        *("agent", f"--server={url}", "--node=n", "--worker=v100:1"),
        f"--state-dir={tmp_path / 'a'}",
        quick=False,
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LEASEHOLD_SERVER": url}
    begun = []

    def again():
        port = urlsplit(url).port
        return start("serve", state, f"--port={port}", *SERVE, quick=False)

    def run(program, *arguments, options=()):
        begun.append(
            subprocess.Popen(
                [*LEASEHOLD, "run", *options, "--", sys.executable, "-c", program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                text=True,
            )
        )
        return begun[-1]

    with httpx.Client(base_url=url, timeout=30) as client:
        wait_until(lambda: client.get("/readyz").json()["leading"])
        yield first, again, run, client
    for process in begun:
        process.kill()
        process.communicate()


def test_the_exit_code_is_passed_on(service):
    _, _, run, client = service
    ran = run(ENDS)
    out, err = ran.communicate(timeout=120)
    assert (ran.returncode, out) == (7, "out\n"), err
    assert "err\n" in err
    (job,) = client.get("/v1/jobs").json()["jobs"]
    assert (job["status"], job["attempts"]) == ("failed", 1)
    # A program that is not there has no code.
    missing = run("", options=("--working-dir", "/nowhere"))
    out, err = missing.communicate(timeout=120)
    assert (missing.returncode, out) == (125, ""), err
    assert "failed: " in err


@pytest.mark.long
def test_a_job_that_is_preempted_is_followed_to_its_end_over_a_scheduler_that_is_killed(
    service, tmp_path
):
    first, again, run, client = service
    go = tmp_path / "go"
    ran = run(STAYS, str(go), options=("--name", "run"))
    assert ran.stdout.readline() == "begun 1\n"
    other = {"name": "other", "project": "q", "command": ["sleep", "1"], "weight": 50}
    client.post("/v1/jobs", json=other).raise_for_status()
    assert ran.stdout.readline() == "left 1\n"
    first.send(signal.SIGKILL)
    first.end()
    again().wait_for("listens")
    assert ran.stdout.readline() == "begun 2\n"
    go.touch()
    out, err = ran.communicate(timeout=120)
    # A lease may have run out while no scheduler could extend it: then there is a third.
    last = client.get("/v1/jobs?name=run").json()["jobs"][0]["attempts"]
    # On a busy machine that one is killed before it has said that it leaves.
    passed = "".join(f"(left {n}\n)?begun {n + 1}\n" for n in range(2, last))
    assert re.fullmatch(f"{passed}the end of {last}\n", out), (out, err)
    assert ran.returncode == 7
    assert "attempt 2 on n (v100)\n" in err
