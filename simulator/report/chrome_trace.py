"""The jobs on each worker over time, as a trace for https://ui.perfetto.dev.

A process is a node, a thread a worker (and a second thread for the other job of a pair); counters
show the queue and the busy workers. Format: "Trace Event Format", JSON object form, times in
microseconds. A browser has to open the trace of a long run. So a slice does not repeat the data of
its thread, and the numbers of slices and of samples of counters are bounded.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Final

from simulator.report.slices import draw_slices
from simulator.staging import staged_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from simulator.report.slices import Drawing, Slice
    from simulator.result import SimulationResult

#: The process that carries the counters; nodes follow.
_CLUSTER = 1

#: Most slices of one trace; with usual names, about 20 MB.
MAX_SLICES: Final = 150_000
#: Most samples of one counter; both counters are about 5 MB.
MAX_SAMPLES: Final = 20_000

_Event = dict[str, object]


def write_chrome_trace(
    result: SimulationResult,
    path: Path,
    *,
    max_slices: int = MAX_SLICES,
    max_samples: int = MAX_SAMPLES,
) -> None:
    """Write the trace, whole or not at all.

    Args:
        result: the run to show.
        path: the file; an existing one is replaced.
        max_slices: above this, slices too short to be seen are merged with their neighbours.
        max_samples: above this, a counter shows the last value of each of ``max_samples``
            intervals.
    """
    drawn = draw_slices(result.leases, limit=max_slices)
    with staged_file(path) as file:
        file.write('{"displayTimeUnit":"ms","otherData":')
        file.write(_json(_about(result, drawn)))
        file.write(',"traceEvents":[\n')
        separator = ""
        for event in _events(result, drawn, max_samples):
            file.write(separator + _json(event))
            separator = ",\n"
        file.write("\n]}\n")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _about(result: SimulationResult, drawn: Drawing) -> dict[str, object]:
    about: dict[str, object] = {"policy": result.summary.policy, "cluster": result.summary.cluster}
    if drawn.merged_below_s:
        about["merged"] = (
            f"leases shorter than {drawn.merged_below_s:.4g} s that follow one another on a worker "
            "are one slice; leases.csv has each"
        )
    return about


def _events(result: SimulationResult, drawn: Drawing, max_samples: int) -> Iterator[_Event]:
    process = {
        name: _CLUSTER + 1 + v for v, name in enumerate(dict.fromkeys(result.node_of_worker))
    }
    yield from _process("cluster", _CLUSTER)
    for name, pid in process.items():
        yield from _process(f"node {name}", pid)
    used = sorted({(one.worker, one.lane) for one in drawn.slices} | _first_lanes(result))
    for worker, lane in used:
        yield _thread_name(result, process, worker, lane)
    for one in drawn.slices:
        start = _microseconds(one.start_s)
        yield {
            "ph": "X",
            **(_of_one_job(one) if one.jobs == 1 else _of_several(one)),
            "pid": process[result.node_of_worker[one.worker]],
            "tid": _thread(one.worker, one.lane),
            "ts": start,
            "dur": _microseconds(one.end_s) - start,
        }
    yield from _counters(result, max_samples)


def _of_one_job(one: Slice) -> _Event:
    """Return the arguments of a slice about its job, without defaults."""
    held = one.held
    args: _Event = {"reason": held.reason}
    if len(held.workers) > 1:
        args["workers"] = _ranges(held.workers)
    if one.shared:
        args["shared"] = True
    if one.leases > 1:
        args["leases"] = one.leases
    if one.held_s < one.end_s - one.start_s:
        args["held_s"] = round(one.held_s, 3)
    return {"name": held.job_id, "cat": held.job_type, "args": args}


def _of_several(one: Slice) -> _Event:
    args = {"longest": one.held.job_id, "held_s": round(one.held_s, 3)}
    return {"name": f"{one.leases} leases of {one.jobs} jobs", "cat": "merged", "args": args}


def _ranges(workers: Sequence[int]) -> str:
    """Return ascending numbers as "0-3, 8": gangs are large, and mostly contiguous."""
    runs = groupby(enumerate(workers), key=lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(group) for _, group in runs)]
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ends)


def _process(name: str, pid: int) -> Iterator[_Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _first_lanes(result: SimulationResult) -> set[tuple[int, int]]:
    """Return a lane for every worker: idle workers get a thread, too."""
    return {(worker, 0) for worker in range(len(result.node_of_worker))}


def _thread(worker: int, lane: int) -> int:
    """Return the thread's number, from 1: thread 0 is the process itself in some viewers."""
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


def _counters(result: SimulationResult, max_samples: int) -> Iterator[_Event]:
    series = result.series
    times = [_microseconds(time_s) for time_s in series.time_s.tolist()]
    pairs = zip(series.waiting.tolist(), series.running.tolist(), strict=True)
    jobs = [{"waiting": waiting, "running": running} for waiting, running in pairs]
    busy = [dict(zip(result.worker_types, row, strict=True)) for row in series.busy.tolist()]
    for name, values in (("jobs", jobs), ("busy workers", busy)):
        for ts, value in _changes(times, values, max_samples):
            yield {"ph": "C", "pid": _CLUSTER, "name": name, "ts": ts, "args": value}


def _changes(
    times: Sequence[int], values: Sequence[dict[str, int]], limit: int
) -> list[tuple[int, dict[str, int]]]:
    """Return the times at which a value changes, with the last value of each time.

    With more than ``limit`` times, the last one of each of ``limit`` equal intervals.
    """
    last = dict(zip(times, values, strict=True))
    changes: list[tuple[int, dict[str, int]]] = []
    for ts, value in last.items():
        if not changes or changes[-1][1] != value:
            changes.append((ts, value))
    if len(changes) <= limit:
        return changes
    first, whole = changes[0][0], changes[-1][0] - changes[0][0] + 1
    return list({(ts - first) * limit // whole: (ts, value) for ts, value in changes}.values())


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
