"""Trace and Gantt chart of runs of the simulator, against what its ledger and jobs say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise

import pytest

from simulator.report.chrome_trace import write_chrome_trace
from simulator.report.runs import runs_document
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces.bundle import bundled


@pytest.fixture(scope="module")
def preempted():
    """Return a run of twenty jobs, some of them gangs, on too few workers."""
    request = SimulationRequest(
        trace=str(bundled("small")),
        throughputs=str(bundled("throughputs")),
        cluster="t4:2,v100:2,a100:2",
        policy="max_min_fairness",
        limit=20,
        record=True,
    )
    return simulate(request)


def _slices(result, path):
    write_chrome_trace(result, path)
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]


def test_the_slices_of_each_job_add_up_to_its_leases(preempted, tmp_path):
    assert preempted.summary.preemptions > 100
    drawn, held = defaultdict(float), defaultdict(float)
    for event in _slices(preempted, tmp_path / "trace.json"):
        drawn[event["name"]] += event["dur"] / 1e6
    for lease in preempted.leases:
        held[lease.job_id] += (lease.end_s - lease.start_s) * len(lease.workers)
    assert drawn == pytest.approx(held, rel=1e-6)


def test_the_slices_add_up_to_the_utilisation(preempted, tmp_path):
    summary = preempted.summary
    busy_s = summary.utilisation * summary.makespan_s * sum(preempted.capacity)
    drawn_s = sum(e["dur"] for e in _slices(preempted, tmp_path / "trace.json")) / 1e6
    assert drawn_s == pytest.approx(busy_s, rel=1e-6)


def test_no_slice_follows_another_of_the_same_job(preempted, tmp_path):
    by_thread = defaultdict(list)
    for event in _slices(preempted, tmp_path / "trace.json"):
        by_thread[event["pid"], event["tid"]].append(event)
    for events in by_thread.values():
        for one, other in pairwise(events):
            same = one["name"] == other["name"] and one["args"] == other["args"]
            assert not (same and one["ts"] + one["dur"] == other["ts"])


def test_the_bars_add_up_to_the_leases_and_end_with_the_run(preempted):
    (run,) = runs_document([preempted])["runs"]
    drawn, held = defaultdict(float), defaultdict(float)
    for job, held_s in zip(run["bars"]["job"], run["bars"]["held_s"], strict=True):
        drawn[run["jobs"]["id"][job]] += held_s
    for lease in preempted.leases:
        held[lease.job_id] += (lease.end_s - lease.start_s) * len(lease.workers)
    assert drawn == pytest.approx(held, rel=1e-3)
    assert max(run["bars"]["end_s"]) == run["end_s"] == run["moments"]["time_s"][-1]
    assert run["end_s"] == pytest.approx(preempted.summary.makespan_s, abs=1e-3)
    assert run["round_length_s"] == 360


def test_the_last_moment_has_the_figures_of_the_summary(preempted):
    (run,) = runs_document([preempted])["runs"]
    last = {name: values[-1] for name, values in run["moments"].items()}
    summary = preempted.summary
    assert last["complete"] == summary.jobs_completed > 10
    assert last["jct_s"] == pytest.approx(summary.average_jct_s, rel=1e-5)
    assert (last["running"], last["busy"]) == (0, 0)


def test_moments_are_what_the_leases_say(preempted):
    (run,) = runs_document([preempted])["runs"]
    moments = run["moments"]
    jobs = [job for job in preempted.jobs if job.status != "refused"]
    for i in range(0, len(moments["time_s"]) - 1, 97):
        # In the middle of what the row holds for: times in the document are rounded.
        time_s = (moments["time_s"][i] + moments["time_s"][i + 1]) / 2
        held = [lease for lease in preempted.leases if lease.start_s <= time_s < lease.end_s]
        done = [job for job in jobs if job.end_s is not None and job.end_s <= time_s]
        came = [job for job in jobs if job.arrival_s <= time_s]
        arrived = sum(job.arrival_s <= time_s for job in preempted.jobs)
        assert moments["busy"][i] == len({w for lease in held for w in lease.workers})
        assert moments["running"][i] == len({lease.job_id for lease in held})
        assert (moments["complete"][i], moments["arrived"][i]) == (len(done), arrived)
        at_s = moments["time_s"][i]
        spent_s = [(job.end_s if job in done else at_s) - job.arrival_s for job in came]
        assert moments["so_far_s"][i] == pytest.approx(sum(spent_s) / len(came), rel=1e-4)


@pytest.mark.long
def test_1500_jobs_with_300000_preemptions_make_a_trace_below_30_mb(tmp_path):
    def leasehold(*arguments):
        command = [sys.executable, "-m", "leasehold", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    leasehold("traces", "generate", "jobs.csv", "--jobs", "1500", "--rate", "8", "--multi")
    cluster = ("--throughputs", "bundled", "--cluster", "v100:36,a100:36,t4:36")
    more = ("--policy", "max_min_fairness", "--out", "out", "--chrome-trace")
    leasehold("simulate", "jobs.csv", *cluster, *more)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["jobs_completed"] == 1500
    assert summary["preemptions"] > 300_000
    assert (tmp_path / "out" / "trace.json").stat().st_size < 30e6
    assert (tmp_path / "out" / "report.html").stat().st_size < 6e6
