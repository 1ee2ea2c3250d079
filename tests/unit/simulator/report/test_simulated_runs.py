"""Trace and Gantt chart of runs of the simulator, against what its ledger and jobs say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise

import pytest

from simulator.report.charts import TimeUnit
from simulator.report.chrome_trace import write_chrome_trace
from simulator.report.gantt import gantt_columns
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces.bundle import bundled

HOURS = TimeUnit(name="hours", seconds=3600)


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


def test_the_chart_goes_from_the_first_start_to_the_last_end(preempted):
    chart = gantt_columns(preempted, HOURS)
    ends = [start + length for start, length in zip(chart["start"], chart["length"], strict=True)]
    ran = [job for job in preempted.jobs if job.start_s is not None]  # a gang of 4 cannot
    first = min(job.start_s for job in ran) / 3600
    last = max(job.end_s for job in ran) / 3600
    assert min(chart["start"]) == pytest.approx(first, abs=1e-3)
    assert max(ends) == pytest.approx(last, abs=1e-3)
    assert chart["range"][0] <= first
    assert chart["range"][1] == pytest.approx(last, abs=1e-3)


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
