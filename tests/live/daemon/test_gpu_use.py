"""How busy GPUs are, from NVML to the command line: a real scheduler, agent and pynvml.

The library beneath pynvml is compiled from C; what its GPUs do stands in files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import leasehold_testing

SOURCE = Path(leasehold_testing.__file__).with_name("nvml.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
GIB = 2**30

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler for a library of NVML's")


class Machine:
    """Two GPUs with use set by a test."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        library = folder / "libnvidia-ml.so.1"
        flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
        subprocess.run([COMPILER, *flags, "-o", library, SOURCE], check=True)
        self.set("GPU-0", 0)
        self.set("GPU-1", 0)

    def set(self, gpu, percent, memory_bytes=GIB):
        fresh = self.folder / f"{gpu}.new"
        fresh.write_text(f"{percent} {memory_bytes}\n")
        fresh.replace(self.folder / gpu)

    def set_all(self, percent):
        self.set("GPU-0", percent)
        self.set("GPU-1", percent)

    @property
    def environment(self):
        return {"LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML": str(self.folder)}


class Cluster:
    """A scheduler and the agent of such a machine."""

    def __init__(self, start, tmp_path, *settings, quick=True):
        self.machine = Machine(tmp_path / "gpus")
        self._begin, self._state, self._settings = start, tmp_path / "s", settings
        self._quick = quick
        self.start()
        self.token = (self._state / "admin.token").read_text().strip()
        self.client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30
        )
        wait_until(lambda: self.client.get("/readyz").status_code == 200)

    def start(self):
        settings = (f"--set={text}" for text in self._settings)
        self.up = self._begin(
            *("up", f"--state-dir={self._state}", *settings),
            quick=self._quick,
            **self.machine.environment,
        )
        self.url = self.up.url

    def get(self, path):
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def leasehold(self, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", "leasehold", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ)
            | {"LEASEHOLD_SERVER": self.url, "LEASEHOLD_TOKEN": self.token, "COLUMNS": "200"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, name):
        job = {
            "name": name,
            "project": "vision",
            "command": [sys.executable, "-c", "import time; time.sleep(600)"],
            "total_steps": 1e9,
            "throughputs": {"v100": 1},
            "preemptible": False,
        }
        answer = self.client.post("/v1/jobs", json=job)
        assert answer.status_code < 300, answer.text
        return answer.json()["job_id"]

    def events(self, job_id, kind):
        return self.get(f"/v1/events?subject={job_id}&kind={kind}")["events"]


@pytest.fixture
def begin(start, tmp_path):
    """Begin a scheduler and an agent with settings: begin("idle.after_s=3")."""
    with contextlib.ExitStack() as open_:

        def begin(*settings, quick=True):
            cluster = Cluster(start, tmp_path, *settings, quick=quick)
            open_.callback(cluster.client.close)
            return cluster

        yield begin


def wait_until(condition, within_s=120.0):
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.1)
    return found


@pytest.mark.long
def test_an_idle_job_is_seen_named_with_its_owner_and_busy_again(begin):
    cluster = begin("idle.after_s=3")
    cluster.machine.set_all(80)
    job_id = cluster.submit("train")
    path = f"/v1/jobs/{job_id}"
    wait_until(lambda: cluster.get(path)["gpu_use"] == pytest.approx(0.8))
    assert cluster.get(path)["idle_since_s"] is None
    assert cluster.get("/v1/leases?idle=true") == {"leases": []}
    assert "no running job" in cluster.leasehold("usage", "--idle")

    cluster.machine.set_all(1)
    (told,) = wait_until(lambda: cluster.events(job_id, "job_idle"))
    assert (told["data"]["use_percent"], told["data"]["workers"]) == (1.0, 1)
    assert told["data"]["idle_s"] >= 3.0
    (lease,) = cluster.get("/v1/leases?idle=true")["leases"]
    assert (lease["job_id"], lease["owner"], lease["gpu_use"]) == (job_id, "admin", 0.01)
    shown = cluster.leasehold("usage", "--idle")
    assert job_id in shown
    assert "admin" in shown
    assert "no running job" in cluster.leasehold("usage", "--idle", "--project=other")
    (row,) = json.loads(cluster.leasehold("usage", "--idle", "--json"))["idle"]
    assert row["job_id"] == job_id
    assert cluster.leasehold("usage", "--idle", "--csv").splitlines()[1].startswith(f"{job_id},")
    assert "idle for" in cluster.leasehold("job", job_id)
    assert "1%" in cluster.leasehold("jobs").replace(" %", "%")
    assert "its GPUs compute 1% of the time" in cluster.leasehold("explain", job_id)
    wait_until(lambda: 'leasehold_gpus_idle{project="vision"} 1.0' in metrics(cluster))
    assert 'leasehold_jobs_idle{project="vision"} 1.0' in metrics(cluster)
    assert 'leasehold_gpu_use_ratio{project="vision"} 0.01' in metrics(cluster)

    cluster.machine.set_all(90)
    wait_until(lambda: cluster.events(job_id, "job_busy"))
    wait_until(lambda: 'leasehold_gpus_idle{project="vision"} 0.0' in metrics(cluster))
    cluster.leasehold("cancel", job_id)
    (end,) = wait_until(lambda: cluster.events(job_id, "lease_ended"))
    assert 0.0 < end["data"]["gpu_used_s"] < end["data"]["gpu_measured_s"]
    wait_until(lambda: "leasehold_gpus_idle{" not in metrics(cluster))
    (row,) = cluster.get("/v1/usage?by=job&by=owner&by=project&by=worker_type")["usage"]
    assert (row["job"], row["owner"], row["project"]) == (job_id, "admin", "vision")
    assert round(row["gpu_used_s"], 1) == end["data"]["gpu_used_s"]
    assert round(row["gpu_measured_s"], 1) == end["data"]["gpu_measured_s"]
    assert row["gpu_measured_s"] <= row["worker_s"]
    table = cluster.leasehold("usage").splitlines()
    assert "GPU-hours used" in table[0]
    csv = cluster.leasehold("usage", "--csv").splitlines()
    assert csv[0].endswith("worker_s,gpu_used_s,gpu_measured_s")
    assert csv[1].endswith(f"{row['gpu_used_s']:.6f},{row['gpu_measured_s']:.6f}")
    shown = metrics(cluster)
    assert 'leasehold_gpu_used_seconds_total{project="vision",worker_type="v100"}' in shown
    assert 'leasehold_gpu_measured_seconds_total{project="vision",worker_type="v100"}' in shown


@pytest.mark.long
def test_what_was_used_survives_a_crash_and_is_not_counted_twice(begin):
    cluster = begin("store.snapshot_entries=20")
    cluster.machine.set_all(80)
    job_id = cluster.submit("train")

    def grown(least_s):
        rows = cluster.get("/v1/usage?by=job")["usage"]
        return bool(rows) and (rows[0]["gpu_used_s"] or 0.0) > least_s and rows[0]

    before = wait_until(lambda: grown(0.0))
    cluster.up.close()
    cluster.start()
    cluster.client.base_url = cluster.url
    wait_until(lambda: cluster.client.get("/readyz").status_code == 200)
    wait_until(lambda: cluster.client.get("/readyz").status_code == 200)
    after = wait_until(lambda: grown(before["gpu_used_s"] + 4.0))
    assert after["job"] == job_id
    assert after["gpu_used_s"] <= after["gpu_measured_s"] <= after["worker_s"]
    assert after["gpu_used_s"] == pytest.approx(0.8 * after["gpu_measured_s"], rel=1e-4)


def metrics(cluster):
    return cluster.client.get("/metrics").text


@pytest.mark.long
def test_an_idle_job_is_ended_where_an_operator_wants_that_and_a_busy_one_goes_on(begin):
    cluster = begin("idle.after_s=2", "idle.stop_after_s=6")
    busy = cluster.submit("busy")
    wait_until(lambda: cluster.get(f"/v1/jobs/{busy}")["status"] == "running")
    (index,) = cluster.get("/v1/leases")["leases"][0]["workers"]
    # Workers are numbered as NVML numbers its GPUs.
    cluster.machine.set(f"GPU-{index}", 95)
    idle = cluster.submit("idle")
    wait_until(lambda: cluster.get(f"/v1/jobs/{idle}")["status"] == "failed")
    assert cluster.get(f"/v1/jobs/{idle}")["reason"] == "idle"
    (told,) = cluster.events(idle, "idle_limit")
    assert told["data"]["use_percent"] == 0.0
    assert told["data"]["idle_s"] >= 6.0
    assert (told["data"]["least_percent"], told["data"]["stop_after_s"]) == (5.0, 6.0)
    assert "has not used its GPUs for too long" in cluster.leasehold("job", idle)
    assert cluster.get(f"/v1/jobs/{busy}")["status"] == "running"


@pytest.mark.long
def test_gpus_whose_use_nvml_does_not_tell_are_no_idle_ones(begin):
    cluster = begin("idle.after_s=1", "idle.stop_after_s=2")
    for gpu in ("GPU-0", "GPU-1"):  # as NVML is for instances of MIG
        (cluster.machine.folder / gpu).write_text("N/A\n")
    job_id = cluster.submit("slice")
    wait_until(lambda: cluster.get(f"/v1/jobs/{job_id}")["status"] == "running")
    (index,) = cluster.get("/v1/leases")["leases"][0]["workers"]
    # A job that idles on the other GPU, and came later, shows that the time is over.
    cluster.machine.set(f"GPU-{1 - index}", 0)
    idle = cluster.submit("idle")
    wait_until(lambda: cluster.get(f"/v1/jobs/{idle}")["status"] == "failed")
    assert cluster.get(f"/v1/jobs/{job_id}")["gpu_use"] is None
    assert cluster.get(f"/v1/jobs/{job_id}")["status"] == "running"
    assert not cluster.events(job_id, "job_idle")


def test_a_missing_gpu_ends_only_the_job_on_it(begin):
    cluster = begin("server.port=0", quick=False)  # long rounds: leases outlast the restart
    jobs = {cluster.submit(name) for name in ("a", "b")}
    wait_until(lambda: len(cluster.get("/v1/leases")["leases"]) == 2)
    on = {lease["workers"][0]: lease["job_id"] for lease in cluster.get("/v1/leases")["leases"]}
    assert set(on.values()) == jobs
    wait_until(lambda: all(cluster.get(f"/v1/jobs/{j}")["status"] == "running" for j in jobs))
    cluster.up.close()  # SIGKILL; the jobs run on
    (cluster.machine.folder / "GPU-1").unlink()
    cluster.start()
    cluster.client.base_url = cluster.url
    wait_until(lambda: cluster.client.get("/readyz").status_code == 200)
    problem = wait_until(lambda: worker(cluster, 1)["problem"])
    assert "v100 GPU-1 was there before and was missing when the agent started" in problem
    wait_until(lambda: cluster.get(f"/v1/jobs/{on[1]}")["status"] == "waiting")
    attempts = cluster.get(f"/v1/jobs/{on[0]}/attempts")["attempts"]
    assert [attempt["end_reason"] for attempt in attempts] == [None]


def test_a_gpu_that_processes_without_a_lease_use_is_not_granted(begin):
    cluster = begin()
    cluster.machine.set("GPU-1", 90, 12 * GIB)
    problem = wait_until(lambda: worker(cluster, 1)["problem"])
    assert "processes without a lease use 12.0 of 16.0 GiB of its memory" in problem
    jobs = {cluster.submit(name) for name in ("a", "b")}
    (lease,) = wait_until(lambda: cluster.get("/v1/leases")["leases"])
    assert lease["workers"] == [0]
    # The memory of a job is no fault of its worker, and that of a free one is no more.
    cluster.machine.set("GPU-0", 90, 12 * GIB)
    cluster.machine.set("GPU-1", 0, GIB)
    wait_until(lambda: len(cluster.get("/v1/leases")["leases"]) == 2)
    assert all(len(cluster.get(f"/v1/jobs/{j}/attempts")["attempts"]) == 1 for j in jobs)


def worker(cluster, index):
    return cluster.get("/v1/nodes")["nodes"][0]["workers"][index]
