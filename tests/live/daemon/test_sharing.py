"""Two real jobs share a worker if the configured table of throughputs says that it pays."""

from __future__ import annotations

import sys
import time

import httpx

from traces.tables.throughputs import THROUGHPUT_COLUMNS

#: Each of two jobs keeps three quarters of its speed.
TABLE = f"""{",".join(THROUGHPUT_COLUMNS)}
a,1,v100,10,,,
b,1,v100,10,,,
a,1,v100,7.5,b,1,7.5
"""
#: Notes that the other job counts its steps at the same time.
JOB = """
import sys, time
from pathlib import Path
mine, other = map(Path, sys.argv[1:])
for step in range(100_000):
    mine.write_text(str(step))
    print("step", step, flush=True)
    if other.exists() and time.time() - other.stat().st_mtime < 1.0:
        mine.with_suffix(".met").touch()
    time.sleep(0.1)
"""


def test_two_jobs_run_on_one_worker_at_the_same_time(start, tmp_path):
    state, table = tmp_path / "state", tmp_path / "table.csv"
    table.write_text(TABLE)
    settings = ("policy.space_sharing=true", f"throughputs.path={table}")
    up = start(
        "up", f"--state-dir={state}", "--worker=v100:1", *(f"--set={one}" for one in settings)
    )

    def job(name, other):
        return {
            "name": name,
            "job_type": name,
            "command": [sys.executable, "-c", JOB, *(str(tmp_path / one) for one in (name, other))],
            "total_steps": 100_000,
            "progress_regex": r"step (\d+)",
        }

    url = up.url
    admin = {"Authorization": f"Bearer {(state / 'admin.token').read_text().strip()}"}
    with httpx.Client(base_url=url, headers=admin, timeout=30) as client:
        end = time.monotonic() + 120
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < end, up.output
            time.sleep(0.05)
        answer = client.post("/v1/jobs", json={"jobs": [job("a", "b"), job("b", "a")]})
        assert [one["error"] for one in answer.json()["jobs"]] == [None, None], answer.text
        while not all((tmp_path / f"{name}.met").exists() for name in "ab"):
            assert time.monotonic() < end, client.get("/v1/leases").text
            time.sleep(0.05)
        leases = client.get("/v1/leases").json()["leases"]
        assert [lease["workers"] for lease in leases] == [[0], [0]]
