"""Why jobs got workers and lost them, as a real scheduler and real agents report it."""

from __future__ import annotations

import sys

import httpx

from leasehold_testing.waiting import until

JOB = "import time; time.sleep(600)"


def test_a_preemption_names_who_took_the_workers(start, tmp_path):
    state = tmp_path / "s"
    up = start("up", f"--state-dir={state}", "--worker=v100:1")
    token = (state / "admin.token").read_text().strip() if up.url else ""
    said = {"LEASEHOLD_SERVER": up.url, "LEASEHOLD_TOKEN": token, "COLUMNS": "200"}
    authorised = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=up.url, headers=authorised, timeout=30) as client:
        until(lambda: client.get("/readyz").status_code == 200)

        def submit(name, **more):
            body = {"name": name, "command": [sys.executable, "-c", JOB], "duration_s": 600}
            answer = client.post("/v1/jobs", json=body | more)
            assert answer.status_code < 300, answer.text
            return answer.json()["job_id"]

        def events(job, kind):
            path = f"/v1/events?subject={job}&kind={kind}"
            return client.get(path).json()["events"]

        first = submit("first")
        (granted,) = until(lambda: events(first, "lease_granted"))
        assert (granted["cause"]["fact"], granted["cause"]["subject"]) == ("job_arrived", first)
        second = submit("second", weight=100)
        preempted = until(lambda: events(first, "job_preempted"))[0]
        assert preempted["cause"]["rival"] == second
        assert second in preempted["cause"]["text"]
        explanation = client.get(f"/v1/jobs/{first}/explain").json()
        assert second in explanation["ended"]["text"]
        for shown in [start(name, first, quick=False, **said) for name in ("explain", "job")]:
            assert shown.end() == 0, shown.output
            assert preempted["cause"]["text"] in " ".join(shown.output.split()), shown.output
