"""The document of runs: bounded, ready for JSON, and complete if a part of a run is missing."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from simulator.report.page import write_report
from simulator.report.runs import (
    FORMAT,
    MAX_BARS,
    MAX_MOMENTS,
    MAX_WORKERS,
    runs_document,
)
from simulator.result import LeaseSpan, Series


def run_of(result):
    """Return the only run of a result's document."""
    (run,) = runs_document([result])["runs"]
    return run


def held_s(result):
    """Return the worker-seconds of all leases."""
    return sum((lease.end_s - lease.start_s) * len(lease.workers) for lease in result.leases)


def lengths(bars):
    """Return the length of each bar in s."""
    return [end - start for start, end in zip(bars["start_s"], bars["end_s"], strict=True)]


def test_a_file_is_the_document_and_the_same_every_time(results, result_of, tmp_path):
    write_report(results, tmp_path / "report.html", runs=tmp_path / "runs.json")
    assert json.loads((tmp_path / "runs.json").read_text()) == runs_document(results)
    assert runs_document(results)["format"] == FORMAT
    assert runs_document([result_of()]) == runs_document([result_of()])


def test_columns_of_a_table_have_one_length_and_point_to_rows(results):
    for run in runs_document(results)["runs"]:
        for table in (run["jobs"], run["bars"], run["moments"]):
            assert len({len(values) for values in table.values()}) == 1
        assert set(run["bars"]["job"]) == set(range(len(run["jobs"]["id"])))
        assert set(run["bars"]["row"]) == set(range(len(run["workers"])))
        assert run["jobs"]["arrival_s"] == sorted(run["jobs"]["arrival_s"])


def test_bars_are_the_leases(result_of):
    result = result_of(jobs=20)
    run = run_of(result)
    assert sum(lengths(run["bars"])) == pytest.approx(held_s(result), rel=1e-3)
    assert len(run["workers"]) == 12
    assert run["note"] == ""
    assert set(run["bars"]["lane"]) == {-1}


def test_what_is_left_out_and_merged_is_said(result_of):
    run = run_of(result_of(jobs=8000, per_type=40))
    assert 0 < len(run["bars"]["row"]) <= MAX_BARS
    assert len(run["workers"]) <= MAX_WORKERS
    assert run["worker_count"] == 120
    assert "of 120 workers" in run["note"]
    assert f"{len(run['bars']['row']):,} bars, for " in run["note"]
    assert {label.split("-")[0] for label in run["workers"]} == {"a100", "v100", "t4"}


def test_all_of_a_long_run_is_shown(result_of):
    result = result_of(jobs=4000)
    assert len(result.leases) > 2 * MAX_BARS
    run = run_of(result)
    bars, moments = run["bars"], run["moments"]
    first_s = min(lease.start_s for lease in result.leases)
    last_s = max(lease.end_s for lease in result.leases)
    assert min(bars["start_s"]) == pytest.approx(first_s, abs=1e-3)
    assert max(bars["end_s"]) == run["end_s"] == pytest.approx(last_s, abs=1e-3)
    assert len(bars["row"]) <= MAX_BARS
    assert sum(bars["leases"]) == len(result.leases)
    assert sum(bars["held_s"]) == pytest.approx(held_s(result), rel=1e-3)
    assert MAX_MOMENTS / 3 < len(moments["time_s"]) <= MAX_MOMENTS
    assert moments["time_s"] == sorted(set(moments["time_s"]))
    assert moments["time_s"][-1] == pytest.approx(result.series.time_s[-1], abs=1e-3)
    assert max(moments["waiting"]) == result.series.waiting.max()
    assert f"{len(moments['time_s']):,} of {len(result.series.time_s):,} moments" in run["note"]
    assert (moments["complete"][-1], moments["waiting"][-1]) == (4000, 0)


def test_the_window_does_not_cut_the_bars(result_of):
    result = result_of(jobs=4000)
    jobs = tuple(replace(job, measured=i >= 1000) for i, job in enumerate(result.jobs))
    assert run_of(replace(result, jobs=jobs))["bars"] == run_of(result)["bars"]


def test_a_gang_that_is_partly_on_shown_workers_is_drawn_there(result_of):
    result = result_of(jobs=2, per_type=40)
    assert len(run_of(result)["workers"]) < 120
    gang = replace(result.leases[0], workers=(0, 1, 119), start_s=0.0, end_s=3600.0)
    bars = run_of(replace(result, leases=(gang,)))["bars"]
    assert bars["row"] == [0, 1]
    assert lengths(bars) == [3600.0, 3600.0]


def test_a_pair_gets_two_lanes(result_of):
    result = result_of(jobs=2)
    both = {"workers": (0,), "worker_type": "a100", "shared": True, "reason": "released"}
    leases = tuple(
        LeaseSpan(job_id=job.job_id, job_type="m", start_s=0.0, end_s=9.0, **both)
        for job in result.jobs
    )
    assert run_of(replace(result, leases=leases))["bars"]["lane"] == [0, 1]


def test_jobs_that_were_given_up_or_not_measured_are_in_no_mean(result_of):
    result = result_of(jobs=6)
    first, second, *others = result.jobs
    never = replace(first, end_s=None, status="cancelled")
    early = replace(second, measured=False)
    moments = run_of(replace(result, jobs=(never, early, *others)))["moments"]
    kept = (replace(one, measured=False) for one in (first, second))
    alone = run_of(replace(result, jobs=(*kept, *others)))["moments"]
    assert moments["arrived"][-1] == alone["arrived"][-1] + 1 == 5
    assert moments | {"arrived": None} == alone | {"arrived": None}


def test_a_queue_of_one_moment_is_kept(result_of):
    result = result_of(jobs=3)
    samples = 20 * MAX_MOMENTS
    waiting = np.zeros(samples, dtype=np.int64)
    waiting[12345] = 99
    series = Series(
        time_s=np.arange(samples, dtype=float),
        busy=np.zeros((samples, 3), dtype=np.int64),
        waiting=waiting,
        running=waiting,
    )
    moments = run_of(replace(result, leases=(), series=series))["moments"]
    at = moments["waiting"].index(99)
    assert moments["time_s"][at] == 12345.0
    # The peak does not last until the next piece of time.
    assert moments["time_s"][at + 1] - 12345.0 < samples / 400
    assert moments["waiting"][at + 1] == 0


def test_a_gang_counts_once_for_each_worker_in_the_note(result_of):
    result = result_of(jobs=4000)
    first = result.leases[0]
    gangs = tuple(
        replace(first, job_id=result.jobs[i % 7].job_id, workers=(0, 1), start_s=s, end_s=s + 0.5)
        for i, s in enumerate(np.arange(0.0, 4000.0).tolist())
    )
    note = run_of(replace(result, leases=gangs))["note"]
    assert "for 8,000 times that a lease held a worker" in note
    assert re.search(r"Leases shorter than [\d.]+ s ", note)


def test_a_job_that_has_just_come_has_spent_no_less_than_nothing(result_of):
    result, came_s = result_of(jobs=11), 123456.789
    jobs = tuple(replace(job, arrival_s=came_s, end_s=None) for job in result.jobs)
    left_s = 11 * came_s - float(np.cumsum(np.full(11, came_s))[-1])
    assert left_s < 0  # sums do not cancel
    series = Series(
        time_s=np.array([came_s]),
        busy=np.zeros((1, 3), dtype=np.int64),
        waiting=np.array([11]),
        running=np.array([0]),
    )
    moments = run_of(replace(result, jobs=jobs, leases=(), series=series))["moments"]
    assert moments["so_far_s"] == [0.0]


def test_before_the_first_job_is_complete_there_is_no_jct(result_of):
    moments = run_of(result_of())["moments"]
    first = moments["complete"].index(1)
    assert moments["jct_s"][:first] == [None] * first
    assert moments["jct_s"][first] is not None


def test_a_run_that_kept_no_leases_and_no_series_has_empty_tables(result_of):
    result = result_of(jobs=3)
    series = result.series
    nothing = replace(
        series,
        time_s=series.time_s[:0],
        busy=series.busy[:0],
        waiting=series.waiting[:0],
        running=series.running[:0],
    )
    summary = replace(result.summary, makespan_s=math.nan)
    run = run_of(replace(result, leases=(), series=nothing, summary=summary, settings={}))
    assert run["bars"]["row"] == run["jobs"]["id"] == run["moments"]["time_s"] == []
    assert (run["trace"], run["round_length_s"], run["end_s"]) == ("", None, 0.0)
    json.dumps(run, allow_nan=False)
