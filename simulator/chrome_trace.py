"""Who held which worker and when, as a trace for https://ui.perfetto.dev.

A process is a node, a thread a worker (and a second thread for the other job of a pair); counters
show the queue and the busy workers. Format: "Trace Event Format", JSON object form, times in
microseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from simulator.lanes import lanes
from simulator.staging import staged_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from simulator.result import SimulationResult

#: The process that carries the counters; nodes follow.
_CLUSTER = 1

_Event = dict[str, object]


def write_chrome_trace(result: SimulationResult, path: Path) -> None:
    """Write the trace, whole or not at all.

    Args:
        result: what to show.
        path: the file; an existing one is replaced.
    """
    with staged_file(path) as file:
        file.write('{"displayTimeUnit":"ms","otherData":')
        file.write(_json({"policy": result.summary.policy, "cluster": result.summary.cluster}))
        file.write(',"traceEvents":[\n')
        separator = ""
        for event in _events(result):
            file.write(separator + _json(event))
            separator = ",\n"
        file.write("\n]}\n")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _events(result: SimulationResult) -> Iterator[_Event]:
    spans = list(lanes(result.leases))
    process = {
        name: _CLUSTER + 1 + v for v, name in enumerate(dict.fromkeys(result.node_of_worker))
    }
    yield from _process("cluster", _CLUSTER)
    for name, pid in process.items():
        yield from _process(f"node {name}", pid)
    used = sorted({(worker, lane) for _, worker, lane in spans} | _first_lanes(result))
    for worker, lane in used:
        yield _thread_name(result, process, worker, lane)
    for lease, worker, lane in spans:
        yield {
            "ph": "X",
            "name": lease.job_id,
            "cat": lease.job_type,
            "pid": process[result.node_of_worker[worker]],
            "tid": _thread(worker, lane),
            "ts": _microseconds(lease.start_s),
            "dur": _microseconds(lease.end_s) - _microseconds(lease.start_s),
            "args": {
                "job_type": lease.job_type,
                "workers": list(lease.workers),
                "worker_type": lease.worker_type,
                "shared": lease.shared,
                "reason": lease.reason,
            },
        }
    yield from _counters(result)


def _process(name: str, pid: int) -> Iterator[_Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _first_lanes(result: SimulationResult) -> set[tuple[int, int]]:
    """Idle workers get a thread too: that they were idle is worth seeing."""
    return {(worker, 0) for worker in range(len(result.node_of_worker))}


def _thread(worker: int, lane: int) -> int:
    """Thread 0 belongs to the process itself in some viewers, so numbers start at 1."""
    return 1 + 8 * worker + lane


def _thread_name(
    result: SimulationResult, process: dict[str, int], worker: int, lane: int
) -> _Event:
    kind = result.worker_types[result.worker_type_of[worker]]
    label = f"worker {worker} ({kind})" + (", shared" if lane else "")
    pid = process[result.node_of_worker[worker]]
    return {
        "ph": "M",
        "name": "thread_name",
        "pid": pid,
        "tid": _thread(worker, lane),
        "args": {"name": label},
    }


def _counters(result: SimulationResult) -> Iterator[_Event]:
    series = result.series
    for s, time_s in enumerate(series.time_s.tolist()):
        at = {"ph": "C", "pid": _CLUSTER, "ts": _microseconds(time_s)}
        jobs = {"waiting": int(series.waiting[s]), "running": int(series.running[s])}
        busy = {name: int(series.busy[s, k]) for k, name in enumerate(result.worker_types)}
        yield {**at, "name": "jobs", "args": jobs}
        yield {**at, "name": "busy workers", "args": busy}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
