"""The trace for Perfetto, against the leases that it shows."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from simulator.chrome_trace import write_chrome_trace
from simulator.lanes import lanes
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


def test_counters_carry_the_series(result_of, tmp_path):
    result = result_of()
    counters = _of_phase(_trace(result, tmp_path), "C")
    waiting = [e["args"]["waiting"] for e in counters if e["name"] == "jobs"]
    assert waiting == result.series.waiting.tolist()
    busy = [sum(e["args"].values()) for e in counters if e["name"] == "busy workers"]
    assert busy == result.series.busy.sum(axis=1).tolist()


def test_a_gang_is_drawn_on_each_of_its_workers():
    drawn = [(w, lane) for _, w, lane in lanes([_lease("a", (2, 3, 5), 0.0, 1.0)])]
    assert drawn == [(2, 0), (3, 0), (5, 0)]


def test_a_lease_that_follows_another_at_once_has_its_lane():
    leases = [_lease("a", (0,), 0.0, 1.0), _lease("b", (0,), 1.0, 2.0)]
    assert [lane for _, _, lane in lanes(leases)] == [0, 0]


def test_equal_results_give_equal_bytes(result_of, tmp_path):
    write_chrome_trace(result_of(), tmp_path / "a.json")
    write_chrome_trace(result_of(), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
