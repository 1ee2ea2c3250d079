"""A job with a changing batch, from its processes to the rates of the policy's problem.

A real scheduler and agent, and two processes with the SDK and passes of given times.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import leasehold
from leasehold_testing.waiting import until

ROOT = str(Path(leasehold.__file__).parents[1])
BATCH = {"initial": 64, "most": 512, "most_per_worker": 64}
LEARNER = """
import time
from leasehold import AdaptiveBatches, LeaseIterator
from leasehold.adaptive import StepMeasurement
from leasehold.gradient_noise import GradientNorms
batches = AdaptiveBatches(total=1000)
norms = GradientNorms(small_sqr=2.0 + 64.0, large_sqr=2.0 + 32.0, small=32.0, large=64.0)
for _ in LeaseIterator(batches, save=lambda folder: None):
    time.sleep(0.02)  # stands for the work of a step
    batches.record(
        StepMeasurement(pass_s=0.1, last_pass_s=0.2, norms=norms, next_size=batches.size)
    )
"""


@pytest.fixture
def client(start, tmp_path):
    state = tmp_path / "s"
    settings = ("--set=policy.name=goodput", "--set=server.port=0", "--worker=v100:2")
    up = start("up", f"--state-dir={state}", *settings, quick=False, PYTHONPATH=ROOT)
    url = up.url
    headers = {"Authorization": f"Bearer {(state / 'admin.token').read_text().strip()}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        yield client


def test_what_two_processes_measure_becomes_the_rate_of_jobs_of_the_type(client, tmp_path):
    job = {
        "name": "learner",
        "command": ["python3", "-c", LEARNER],
        "env": {"PYTHONPATH": ROOT},
        "scale_factor": 2,
        "total_steps": 1e6,
        "batch": BATCH,
        "checkpoint_dir": str(tmp_path / "checkpoints"),
    }

    def ways():
        answer = client.post("/v1/jobs?dry_run=true", json=job)
        found = answer.json()["configurations"] if answer.is_success else ()  # without a node
        return {way["locality"]: way for way in found}

    assert until(ways)["consolidated"]["source"] == "assumed"
    submitted = client.post("/v1/jobs", json=job)
    assert submitted.status_code == 201, submitted.text
    job_id = submitted.json()["job_id"]
    until(lambda: ways()["consolidated"]["source"] == "measured")
    # One that has just begun knows no noise: a step of its initial batch is worth one.
    assert ways()["consolidated"]["steps_per_s"] == pytest.approx(5.0, rel=0.1)
    assert ways()["any"]["source"] == "estimated"
    explained = client.get(f"/v1/jobs/{job_id}/explain")
    assert explained.status_code == 200
    assert client.get(f"/v1/jobs/{job_id}").json()["status"] == "running"
