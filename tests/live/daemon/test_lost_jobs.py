"""Jobs that end what watches over them, under a real scheduler and a real agent."""

from __future__ import annotations

import json
import signal
import sys
import time

import httpx
import pytest

from leasehold_testing.hiding import HIDE, pids_with, unique_word

#: Leaves a process behind that hides, and kills its supervisor.
SUICIDAL = f"""{HIDE}
hide(sys.argv[1])
while not seen(sys.argv[1]): pass
os.kill(os.getppid(), 9)
"""
#: Kills every agent named in a file.
MURDEROUS = """
import os, sys, time
dead = set()
while True:
    time.sleep(0.05)
    try:
        pid = int(open(sys.argv[1]).read())
    except (OSError, ValueError):
        continue
    if pid not in dead:
        os.kill(pid, 9)
        dead.add(pid)
"""


@pytest.fixture
def word():
    yield from unique_word()


def wait_until(condition, within_s=120.0):
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.05)
    return found


def submit(client, program, *arguments):
    job = {
        "name": "a",
        "project": "p",
        "command": [sys.executable, "-c", program, *arguments],
        "total_steps": 1000,
        "throughputs": {"v100": 1},
    }
    answer = client.post("/v1/jobs", json=job)
    assert answer.status_code < 300, answer.text
    return answer.json()["job_id"]


@pytest.mark.long
def test_a_job_that_kills_its_supervisor_waits_longer_each_time_and_leaves_nothing(
    start, tmp_path, word
):
    state = tmp_path / "s"
    up = start("up", f"--state-dir={state}", "--worker=v100:1")
    url = up.url
    admin = {"Authorization": f"Bearer {(state / 'admin.token').read_text().strip()}"}
    with httpx.Client(base_url=url, headers=admin, timeout=30) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        job_id = submit(client, SUICIDAL, word)

        def losses():
            lines = client.get(f"/v1/events?subject={job_id}&kind=job_interrupted").json()
            return [line["data"].get("losses", 1) for line in lines["events"]]

        wait_until(lambda: 2 in losses())
        assert pids_with(word) == []
        explanation = client.get(f"/v1/jobs/{job_id}/explain").json()
        words = "it was lost, or left by itself, 2 times in a row without progress; next try in"
        assert words in explanation["message"]
        assert client.get(f"/v1/jobs/{job_id}").json()["attempts"] == 2
        client.post(f"/v1/jobs/{job_id}/cancel")


@pytest.mark.long
def test_a_job_that_kills_its_agents_is_held_with_a_reason(start, tmp_path):
    target = tmp_path / "pid"
    serve = start("serve", f"--state-dir={tmp_path / 's'}", "--no-auth")
    options = (f"--state-dir={tmp_path / 'n1'}", "--node=n1", "--worker=v100:1")
    agents = []

    def begin():
        agents.append(start("agent", f"--server={serve.url}", *options, quick=False))
        agents[-1].wait_for("serves")

    with httpx.Client(base_url=serve.url, timeout=30) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        begin()
        job_id = submit(client, MURDEROUS, str(target))

        def job():
            return client.get(f"/v1/jobs/{job_id}").json()

        wait_until(lambda: job()["status"] == "running")
        wait_until(lambda: list((tmp_path / "n1" / "leases").glob("*/running.json")))
        deaths = []

        def dies():
            """Give the job the agent's pid, and start the next one as systemd would."""
            target.write_text(str(agents[-1].process.pid))
            agents[-1].process.wait(60)
            begin()

        for _ in range(2):
            dies()
            deaths.append(1)

            def told():
                lines = client.get("/v1/events?kind=agent_died").json()["events"]
                return len(lines) >= len(deaths)

            wait_until(told)
        wait_until(lambda: job()["status"] == "held")
        explanation = client.get(f"/v1/jobs/{job_id}/explain").json()
        why = "2 agents in a row died soon after it had been started"
        assert why in explanation["message"]
        (line,) = client.get(f"/v1/events?subject={job_id}&kind=job_held").json()["events"]
        assert why in line["data"]["reason"]
        assert "release" in explanation["unblocks"], json.dumps(explanation)
        wait_until(lambda: not client.get("/v1/leases").json()["leases"])
        agents[-1].send(signal.SIGTERM)
        assert agents[-1].end() == 0
