"""A job on two nodes of unlike workers: a scheduler, two agents, and a process on each node.

A sample takes as long as the worker's type says. Gradients are fractions, so they can be compared
to the last digit with those of one process that has all samples.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import leasehold
from leasehold_testing.waiting import until

ROOT = str(Path(leasehold.__file__).parents[1])
STEPS = 8
#: Trains by averaged gradients, as DistributedDataParallel does; exchanges them through files.
PROGRAM = """
import json, os, sys, time
from fractions import Fraction
from pathlib import Path
from leasehold import GlobalBatches, LeaseIterator
STEPS, SIZE, SAMPLE_S = 8, 16, {"a100": 0.002, "v100": 0.005}
folder = Path(sys.argv[1])
batches = GlobalBatches(total=1000, size=SIZE, most_per_pass=4)
rank, world = batches.rank, batches.world_size
sample_s = SAMPLE_S[os.environ.get("LEASEHOLD_WORKER_TYPE", "a100")]

def gradient(weight, sample):
    x, y = sample % 7 + 1, sample % 5
    return x * (weight * x - y)

def exchanged(step, mine):
    new = folder / f"{step}.{rank}.new"
    new.write_text(str(mine))
    new.rename(folder / f"{step}.{rank}")
    found = []
    for other in range(world):
        while not (theirs := folder / f"{step}.{other}").exists():
            time.sleep(0.002)  # between two looks for what another process writes
        found.append(Fraction(theirs.read_text()))
    return sum(found) / world

weight, samples = Fraction(1, 2), 0
iterated = LeaseIterator(batches, total_steps=STEPS, save=lambda folder: None)
for batch in iterated:
    mine = Fraction(0)
    for part in batch.passes:
        time.sleep(sample_s * len(part.samples))  # stands for the work, by worker type
        mean = sum(gradient(weight, sample) for sample in part.samples) / len(part.samples)
        mine += Fraction(part.weight) * mean
    weight -= exchanged(batch.step, mine) / 64
    samples += len(batch.samples)
given = {name: os.environ.get(name) for name in ("LEASEHOLD_WORKER_TYPES", "LEASEHOLD_PACES")}
found = {"type": os.environ.get("LEASEHOLD_WORKER_TYPE"), "samples": samples, "weight": str(weight)}
(folder / f"found.{rank}").write_text(json.dumps(found | given))
"""


@pytest.fixture
def client(start, tmp_path):
    """A scheduler with a node of one a100 and a node of one v100."""
    serve = start("serve", f"--state-dir={tmp_path / 's'}", "--no-auth", PYTHONPATH=ROOT)
    url = serve.url
    for worker_type in ("a100", "v100"):
        start(
            "agent",
            f"--server={url}",
            f"--node={worker_type}-node",
            f"--worker={worker_type}:1",
            f"--state-dir={tmp_path / worker_type}",
            quick=False,
            PYTHONPATH=ROOT,
        )
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


def of_one_process(folder):
    """Return what one process finds that has all samples."""
    folder.mkdir()
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": ROOT, "RANK": "0", "WORLD_SIZE": "1"}
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=variables, check=True, timeout=60
    )
    return json.loads((folder / "found.0").read_text())


def test_unlike_ranks_take_unlike_parts_and_learn_what_one_process_learns(client, tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    job = {
        "name": "mixed",
        "command": [sys.executable, "-c", PROGRAM, str(folder)],
        "env": {"PYTHONPATH": ROOT},
        "scale_factor": 2,
        "total_steps": STEPS,
        "checkpoint_dir": str(tmp_path / "checkpoints"),
        "throughputs": {"a100": 50.0, "v100": 20.0},
    }
    until(lambda: client.get("/readyz").json().get("leading"))
    until(lambda: len(client.get("/v1/nodes").json()["nodes"]) == 2)
    alone = client.post("/v1/jobs?dry_run=true", json=job).json()
    assert not alone["fits"]
    assert "at least 2 workers of one type" in alone["message"]
    job["mixed_gangs"] = True
    fit = client.post("/v1/jobs?dry_run=true", json=job).json()
    mixed = [way for way in fit["configurations"] if len(way["workers"]) == 2]
    assert fit["fits"]
    assert [way["worker_type"] for way in mixed] == ["1 x a100 + 1 x v100"]
    assert mixed[0]["steps_per_s"] == pytest.approx(0.95 * 35.0)
    job_id = client.post("/v1/jobs", json=job).json()["job_id"]
    until(lambda: client.get(f"/v1/jobs/{job_id}").json()["status"] == "completed")
    found = [json.loads((folder / f"found.{rank}").read_text()) for rank in (0, 1)]
    types = [one["type"] for one in found]
    pace = {"a100": 25.0, "v100": 10.0}
    assert sorted(types) == ["a100", "v100"]
    assert json.loads(found[0]["LEASEHOLD_WORKER_TYPES"]) == types
    assert json.loads(found[0]["LEASEHOLD_PACES"]) == [pace[name] for name in types]
    samples = {one["type"]: one["samples"] for one in found}
    # A step takes 22 ms on one and 25 ms on the other; with equal parts it would take 40 ms.
    assert samples == {"a100": 11 * STEPS, "v100": 5 * STEPS}
    assert [one["weight"] for one in found] == [of_one_process(tmp_path / "one")["weight"]] * 2
    (attempt,) = client.get(f"/v1/jobs/{job_id}/attempts").json()["attempts"]
    assert sorted(attempt["nodes"]) == ["a100-node", "v100-node"]
