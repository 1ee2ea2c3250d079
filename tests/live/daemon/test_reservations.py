"""Workers reserved by the command line, with real processes and a scheduler that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest

from scheduler.domain.rows import SettingRow
from scheduler.store.sql.store import SqlStore

ROUND_S = 4.0
SERVE = (
    "--no-auth",
    f"--set=engine.round_length_s={ROUND_S:g}",
    "--set=leases.notice_s=0.5",
    "--set=leases.grace_s=0.5",
    "--set=leases.margin_s=0.5",
    "--set=leadership.ttl_s=2",
)
#: Time that the processes of a loaded machine may take beyond the decided one.
SLACK_S = 5.0
SLEEPS = ("--", sys.executable, "-c", "import time; time.sleep(600)")
#: Two that take all the time to end that they are given: one ends half a second after its notice,
#: one ignores it and is killed at its deadline.
SLOW_TO_END = {
    "a": "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.4), sys.exit(0)))\n"
    "while True: time.sleep(600)",
    "b": "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "while True: time.sleep(600)",
}


def wait_until(condition, within_s=120.0):
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.1)
    return found


@pytest.fixture
def service(start, tmp_path):
    """A scheduler and an agent; yields a function that restarts it, ``leasehold``, the URL."""
    state = f"--state-dir={tmp_path / 's'}"
    first = start("serve", state, "--port=0", *SERVE, quick=False)
    url = first.url
    start(
        *("agent", f"--server={url}", "--node=n", "--worker=v100:2"),
        f"--state-dir={tmp_path / 'a'}",
        quick=False,
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LEASEHOLD_SERVER": url}

    running = [first]

    def again(between=lambda: None):
        last = running.pop()
        os.kill(last.process.pid, signal.SIGKILL)
        last.process.wait(30)
        between()
        again_there = start("serve", state, f"--port={urlsplit(url).port}", *SERVE, quick=False)
        assert again_there.url == url
        running.append(again_there)

    def run(*arguments, good=True):
        done = subprocess.run(
            [sys.executable, "-m", "leasehold", *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode == 0) is good, done.stdout + done.stderr
        return done.stdout if good else done.stderr

    return again, run, url


@pytest.mark.long
def test_a_reservation_for_one_job_ends_with_it(service, tmp_path):
    again, run, _ = service

    def held():
        found = json.loads(run("jobs", "--status", "running", "--json"))["jobs"]
        return {one["name"] for one in found}

    def lines():
        return json.loads(run("reservation", "list", "--json"))["reservations"]

    wait_until(lambda: "v100" in run("nodes"))
    own = run("submit", "--name", "own", *SLEEPS).split()[0]
    wait_until(lambda: held() == {"own"})
    asked = ("reservation", "add", "night", "--worker-type", "v100", "--workers", "2")
    assert "there is no job 'nobody'" in run(*asked, "--until=1h", "--job=nobody", good=False)
    made = json.loads(run(*asked, "--until=1h", "--job", "own", "--json"))
    assert made["reservation"]["job"] == own
    run("submit", "--name", "other", "--workers", "2", *SLEEPS)
    wait_until(lambda: lines()[0]["state"] == "in force")
    again()
    wait_until(lambda: lines()[0]["state"] == "in force" and held() == {"own"})
    run("cancel", "own")
    wait_until(lambda: held() == {"other"})
    assert lines() == []
    assert "has ended as cancelled" in run(*asked, "--until=1h", "--job", own, good=False)
    assert "it was released when the job" in run("reservation", "show", "night", good=False)
    assert "reservation 'night' for it was released" in run("explain", own)
    assert "reservation released" in run("job", own)
    # One that a release before this one has kept is released at the start.
    old = {**made["reservation"], "name": "old"}
    again(lambda: keep(tmp_path / "s", "reservation/old", old))
    wait_until(lambda: "released" in run("reservation", "show", "old", good=False))
    wait_until(lambda: held() == {"other"})


def keep(state, key, value):
    """Write a setting into the database of a scheduler that does not run."""
    (path,) = state.glob("*.db")
    store = SqlStore.open(f"sqlite:///{path}")
    store.write_settings((SettingRow(key=key, value=value, updated_s=0.0),), token=None)
    store.close()


@pytest.mark.long
def test_reserved_workers_are_there_in_time_and_go_back(service):
    again, run, url = service

    def held():
        found = json.loads(run("jobs", "--status", "running", "--json"))["jobs"]
        return {one["job_id"] for one in found}

    def job(job_id):
        return json.loads(run("job", job_id, "--json"))

    def attempts(job_id):
        return httpx.get(f"{url}/v1/jobs/{job_id}/attempts").json()["attempts"]

    def submit(name, project):
        text = SLOW_TO_END.get(name)
        command = ("--", sys.executable, "-c", text) if text else SLEEPS
        return run("submit", "--name", name, "--project", project, *command).split()[0]

    wait_until(lambda: "v100" in run("nodes"))
    others = [submit(name, "speech") for name in ("a", "b")]
    wait_until(lambda: set(others) <= held())
    asked = ("reservation", "add", "night", "--worker-type", "v100", "--project", "vision")
    too_many = run(*asked, "--workers", "3", "--until", "1h", good=False)
    assert "asks for 3 workers of type 'v100'; there are 2" in too_many
    made = run(*asked, "--workers", "2", "--from", "40s", "--until", "80s", "--json")
    from_s = json.loads(made)["reservation"]["from_s"]
    until_s = json.loads(made)["reservation"]["until_s"]
    own = submit("own", "vision")
    again()
    wait_until(lambda: "night" in run("reservation"))
    assert json.loads(run("reservation", "show", "night", "--json"))["nodes"] == {"n": 2}
    wait_until(lambda: time.time() > from_s)
    wait_until(lambda: job(own)["status"] == "running")
    # It may have had a worker before, by its own share.
    mine = [one for one in attempts(own) if one["ended_s"] is None or one["ended_s"] > from_s]
    late_s = max(mine[0]["start_s"] - from_s, 0.0)
    ends = [attempt["ended_s"] for name in others for attempt in attempts(name)]
    last_s = max(end_s for end_s in ends if end_s is not None) - from_s
    print(
        f"the others had left {last_s:.1f} s, the first lease began {late_s:.1f} s after the begin"
    )
    assert late_s <= SLACK_S  # a round ends within the margin that nodes have for a kill
    wait_until(lambda: held() == {own})
    waits = run("explain", others[0])
    assert "reservation 'night'" in waits
    assert "project 'vision'" in waits
    figures = httpx.get(f"{url}/metrics").text
    assert 'leasehold_reservation_workers{reservation="night",state="set_aside"} 2.0' in figures
    assert 'leasehold_reservation_workers{reservation="night",state="used"} 1.0' in figures
    for job_id in others:  # nothing of theirs was granted beyond the begin
        for attempt in attempts(job_id):
            assert attempt["start_s"] < from_s
            assert attempt["ended_s"] <= from_s + SLACK_S
    wait_until(lambda: time.time() > until_s)
    wait_until(lambda: len(held()) == 2)
    wait_until(lambda: "no reservations" in run("reservation"))
