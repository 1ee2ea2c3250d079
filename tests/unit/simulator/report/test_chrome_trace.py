"""The trace for Perfetto, against the leases that it shows."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simulator.report.chrome_trace import MAX_SAMPLES, MAX_SLICES, write_chrome_trace
from simulator.report.lanes import assign_lanes
from simulator.result import LeaseSpan


def _trace(result, tmp_path):
    write_chrome_trace(result, tmp_path / "trace.json")
    return json.loads((tmp_path / "trace.json").read_text())


def _of_phase(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def _lease(job_id, workers, start_s, end_s, *, shared=False):
    return LeaseSpan(
        job_id=job_id,
        job_type="Model A (batch size 8)",
        workers=workers,
        worker_type="a100",
        start_s=start_s,
        end_s=end_s,
        shared=shared,
        reason="released",
    )


def test_busy_time_is_that_of_the_leases_in_microseconds(result_of, tmp_path):
    result = result_of()
    total = sum(event["dur"] for event in _of_phase(_trace(result, tmp_path), "X"))
    expected = sum((s.end_s - s.start_s) * len(s.workers) for s in result.leases) * 1e6
    assert total == pytest.approx(expected, abs=2 * len(result.leases))


def test_every_worker_is_a_thread_of_its_node(result_of, tmp_path):
    result = result_of()
    events = _of_phase(_trace(result, tmp_path), "M")
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = [e for e in events if e["name"] == "thread_name"]
    shown = {(processes[e["pid"]], e["args"]["name"]) for e in threads}
    expected = {
        (f"node {node}", f"worker {w} ({result.worker_types[result.worker_type_of[w]]})")
        for w, node in enumerate(result.node_of_worker)
    }
    assert shown == expected


def test_slices_of_a_thread_never_overlap(result_of, tmp_path):
    result = result_of(jobs=8)
    # Three jobs: two share worker 0, and one of them leaves in the middle of the other.
    leases = (
        _lease("a", (0, 1), 0.0, 100.0, shared=True),
        _lease("b", (0, 1), 10.0, 200.0, shared=True),
        _lease("c", (0,), 100.0, 150.0, shared=True),
    )
    trace = _trace(replace(result, leases=leases), tmp_path)
    by_thread = defaultdict(list)
    for event in _of_phase(trace, "X"):
        by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(by_thread) == 4
    for spans in by_thread.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


def _value_at(events, time_s):
    """Return a counter's value at that time: its last event until then."""
    return next(e["args"] for e in reversed(events) if e["ts"] <= round(time_s * 1e6))


def test_counters_carry_the_series(result_of, tmp_path):
    result = result_of()
    counters = _of_phase(_trace(result, tmp_path), "C")
    jobs = [event for event in counters if event["name"] == "jobs"]
    busy = [event for event in counters if event["name"] == "busy workers"]
    series = result.series
    for s, time_s in enumerate(series.time_s.tolist()):
        assert _value_at(jobs, time_s) == {
            "waiting": series.waiting[s],
            "running": series.running[s],
        }
        expected = dict(zip(result.worker_types, series.busy[s].tolist(), strict=True))
        assert _value_at(busy, time_s) == expected


def test_a_counter_has_an_event_only_where_it_changes(result_of, tmp_path):
    result = result_of()
    still = replace(
        result.series, waiting=result.series.waiting * 0, running=result.series.waiting * 0
    )
    counters = _of_phase(_trace(replace(result, series=still), tmp_path), "C")
    assert sum(event["name"] == "jobs" for event in counters) == 1
    busy = [event["args"] for event in counters if event["name"] == "busy workers"]
    assert all(a != b for a, b in pairwise(busy))


def test_a_counter_with_too_many_changes_is_sampled_to_its_last_value(result_of, tmp_path):
    result = result_of(jobs=200)
    path = tmp_path / "trace.json"
    write_chrome_trace(result, path, max_samples=50)
    busy = [e for e in _of_phase(json.loads(path.read_text()), "C") if e["name"] == "busy workers"]
    assert 25 < len(busy) <= 50
    assert list(busy[-1]["args"].values()) == result.series.busy[-1].tolist()
    for event in busy:  # none is made up
        s = result.series.time_s.tolist().index(pytest.approx(event["ts"] / 1e6, abs=1e-6))
        assert list(event["args"].values()) == result.series.busy[s].tolist()


def _preempted(workers=36, rounds=400, jobs=300, *, seed=0):
    """Return leases of a saturated cluster that gives each worker to another job every round."""
    random = np.random.default_rng(seed)
    leases = []
    for number in range(rounds):
        ids = random.choice(jobs, size=workers, replace=False)
        leases += [
            _lease(f"{job}", (worker,), 360.0 * number, 360.0 * (number + 1))
            for worker, job in enumerate(ids.tolist())
        ]
    return tuple(leases)


def _held_s(leases):
    held = defaultdict(float)
    for lease in leases:
        held[lease.job_id] += (lease.end_s - lease.start_s) * len(lease.workers)
    return held


def test_slices_of_each_job_add_up_to_what_the_ledger_noted(result_of, tmp_path):
    result = replace(result_of(per_type=12), leases=_preempted())
    drawn = defaultdict(float)
    for event in _of_phase(_trace(result, tmp_path), "X"):
        drawn[event["name"]] += event["dur"] / 1e6
    assert drawn == pytest.approx(_held_s(result.leases))


def test_a_slice_takes_few_bytes(result_of, tmp_path):
    """150,000 slices and 40,000 samples at this size are less than 30 MB."""
    result = replace(result_of(per_type=12), leases=_preempted())
    write_chrome_trace(result, tmp_path / "trace.json")
    lines = (tmp_path / "trace.json").read_bytes().splitlines()
    slices = [line for line in lines if line.startswith(b'{"ph":"X"')]
    samples = [line for line in lines if line.startswith(b'{"ph":"C"')]
    assert len(slices) > 10_000
    slice_bytes = sum(map(len, slices)) / len(slices) + 1
    sample_bytes = max(map(len, samples)) + 1
    assert MAX_SLICES * slice_bytes + 2 * MAX_SAMPLES * sample_bytes < 28e6


def test_above_its_bound_the_trace_merges_short_slices_and_keeps_long_ones(result_of, tmp_path):
    short = _preempted()
    long = _lease("long", (36, 37), 0.0, 360.0 * 400)
    result = replace(result_of(per_type=14), leases=(long, *short))
    path = tmp_path / "trace.json"
    write_chrome_trace(result, path, max_slices=1000)
    trace = json.loads(path.read_text())
    slices = _of_phase(trace, "X")
    assert 500 < len(slices) <= 1000
    assert "leases shorter than" in trace["otherData"]["merged"]
    assert sum(e["name"] == "long" and e["args"]["workers"] == "36-37" for e in slices) == 2
    held = sum(e["args"].get("held_s", e["dur"] / 1e6) for e in slices)
    assert held == pytest.approx(sum(_held_s(result.leases).values()))
    assert min(e["ts"] for e in slices) == 0
    assert max(e["ts"] + e["dur"] for e in slices) == 360 * 400 * 1e6


def test_leases_of_a_job_that_follow_on_are_one_slice(result_of, tmp_path):
    leases = (
        _lease("a", (0,), 0.0, 360.0),
        _lease("a", (0,), 360.0, 720.0),
        _lease("a", (1,), 720.0, 1080.0),  # on another worker
        _lease("a", (1,), 1200.0, 1440.0),  # after a pause
    )
    slices = _of_phase(_trace(replace(result_of(), leases=leases), tmp_path), "X")
    assert [(e["ts"] / 1e6, e["dur"] / 1e6) for e in slices] == [(0, 720), (720, 360), (1200, 240)]
    assert [e["args"].get("leases", 1) for e in slices] == [2, 1, 1]


def test_a_gang_names_its_workers_on_every_slice(result_of, tmp_path):
    result = replace(result_of(), leases=(_lease("a", (0, 1, 2, 5, 7, 8), 0.0, 1.0),))
    slices = _of_phase(_trace(result, tmp_path), "X")
    assert [event["args"]["workers"] for event in slices] == ["0-2, 5, 7-8"] * 6


def test_a_gang_is_drawn_on_each_of_its_workers():
    drawn = [(w, lane) for _, w, lane in assign_lanes([_lease("a", (2, 3, 5), 0.0, 1.0)])]
    assert drawn == [(2, 0), (3, 0), (5, 0)]


def test_a_lease_that_follows_another_at_once_has_its_lane():
    leases = [_lease("a", (0,), 0.0, 1.0), _lease("b", (0,), 1.0, 2.0)]
    assert [lane for _, _, lane in assign_lanes(leases)] == [0, 0]


def test_equal_results_give_equal_bytes(result_of, tmp_path):
    write_chrome_trace(result_of(), tmp_path / "a.json")
    write_chrome_trace(result_of(), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
