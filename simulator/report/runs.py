"""The runs of a report as one document, which reports and the page of a scheduler play.

A run has the leases on its workers as bars, and figures at moments. A bounded number of both is
enough for a screen: leases too short to be seen are merged with their neighbours
(``simulator.report.slices``). Format: docs/reference/simulate-output.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simulator.report.charts import TimeUnit, round_values, run_end_s
from simulator.report.slices import draw_slices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scheduler.domain.arrays import FloatArray, IntArray
    from simulator.report.slices import Drawing
    from simulator.result import JobOutcome, LeaseSpan, Series, SimulationResult

#: Says what a file is; its number grows if a reader of the former format could not read it.
FORMAT: Final = "leasehold runs 1"
#: Most bars of one run; a browser draws these within about a second.
MAX_BARS: Final = 3000
#: Most workers of one run; rows thinner than a line of text show nothing.
MAX_WORKERS: Final = 64
#: Most moments of one run with figures.
MAX_MOMENTS: Final = 1500
#: States of jobs that ended without completing; their end times are unknown.
_GIVEN_UP: Final = frozenset({"cancelled", "failed", "refused"})


def runs_document(results: Sequence[SimulationResult]) -> dict[str, Any]:
    """Return the document, ready for JSON; times are seconds of the trace.

    Returns:
        ``format``, and ``runs``, each with

        - ``policy``, ``trace`` (name of the file, or empty), ``cluster``, ``round_length_s`` (or
          None), ``end_s``, and ``note``: the parts that are left out or merged, or empty;
        - ``workers``: labels of those shown; ``worker_count``: how many there are;
        - ``jobs``: columns ``id``, ``type``, ``arrival_s``, ``start_s`` and ``end_s`` (None if it
          never started or completed) of the jobs that are drawn, in order of arrival;
        - ``bars``: columns ``row`` (into ``workers``), ``lane`` (-1 if the job does not share the
          worker), ``job`` (into ``jobs``: the job that held the worker, or held it for longest),
          ``start_s``, ``end_s``, ``held_s`` (the part of it in which any job held the worker),
          ``leases`` and ``of`` (the numbers of leases and of jobs in the bar), ``reason`` (why the
          last lease ended, or empty if jobs are merged);
        - ``moments``: columns ``time_s``, ``waiting``, ``running``, ``busy`` (workers under a
          lease), and of the measured jobs ``arrived``, ``complete``, ``jct_s`` (mean of those
          complete; None before the first) and ``so_far_s`` (mean time since arrival, up to the
          completion, of all that have arrived and are not given up later). Each row holds until
          the next.
    """
    return {"format": FORMAT, "runs": [_run(result) for result in results]}


def write_runs(document: Mapping[str, Any], path: Path) -> None:
    """Write the document as JSON."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _run(result: SimulationResult) -> dict[str, Any]:
    shown = _chosen_workers(result)
    leases = _on(result.leases, {worker: row for row, worker in enumerate(shown)})
    drawn = draw_slices(leases, limit=MAX_BARS)
    held = {bar.held.job_id for bar in drawn.slices}
    jobs = [job for job in result.jobs if job.job_id in held]
    end_s = run_end_s(result)
    moments = _kept_moments(result.series, end_s)
    round_length_s = result.settings.get("round_length_s")
    return {
        "policy": result.summary.policy,
        "trace": PurePath(result.settings.get("trace", "")).name,
        "cluster": result.summary.cluster,
        "round_length_s": None if round_length_s is None else float(round_length_s),
        "end_s": _seconds(end_s),
        "note": _note(result, shown, leases, drawn, len(moments)),
        "workers": [_label(result, worker) for worker in shown],
        "worker_count": len(result.worker_type_of),
        "jobs": {
            "id": [job.job_id for job in jobs],
            "type": [job.job_type for job in jobs],
            "arrival_s": [_seconds(job.arrival_s) for job in jobs],
            "start_s": [_seconds(job.start_s) for job in jobs],
            "end_s": [_seconds(job.end_s) for job in jobs],
        },
        "bars": _bars(drawn, shown, jobs),
        "moments": _moments(result, moments),
    }


def _seconds(time_s: float | None) -> float | None:
    return None if time_s is None else round(time_s, 3)


def _bars(drawn: Drawing, shown: Sequence[int], jobs: Sequence[JobOutcome]) -> dict[str, list[Any]]:
    row = {worker: r for r, worker in enumerate(shown)}
    index = {job.job_id: i for i, job in enumerate(jobs)}
    bars = drawn.slices
    return {
        "row": [row[bar.worker] for bar in bars],
        "lane": [bar.lane if bar.shared else -1 for bar in bars],
        "job": [index[bar.held.job_id] for bar in bars],
        "start_s": [_seconds(bar.start_s) for bar in bars],
        "end_s": [_seconds(bar.end_s) for bar in bars],
        "held_s": [_seconds(bar.held_s) for bar in bars],
        "leases": [bar.leases for bar in bars],
        "of": [bar.jobs for bar in bars],
        "reason": [bar.held.reason if bar.jobs == 1 else "" for bar in bars],
    }


def _kept_moments(series: Series, end_s: float) -> IntArray:
    """Return the samples to show: all, or of each piece of time its first, longest queue and last.

    Returns:
        (M,) indices into the series, ascending.
    """
    samples = len(series.time_s)
    if samples <= MAX_MOMENTS:
        return np.arange(samples)
    pieces = MAX_MOMENTS // 3
    edges_s = np.linspace(series.time_s[0], end_s, pieces, endpoint=False)
    piece = np.searchsorted(edges_s, series.time_s, side="right")
    firsts = np.flatnonzero(np.diff(piece, prepend=-1))
    lasts = np.append(firsts[1:], samples) - 1
    longest = np.lexsort((-series.waiting, piece))[firsts]
    return np.unique(np.concatenate((firsts, longest, lasts)))


def _moments(result: SimulationResult, at: IntArray) -> dict[str, list[Any]]:
    series = result.series
    time_s = series.time_s[at]
    return {
        "time_s": [_seconds(moment_s) for moment_s in time_s.tolist()],
        "waiting": series.waiting[at].tolist(),
        "running": series.running[at].tolist(),
        "busy": series.busy[at].sum(axis=1).tolist(),
        **_times_so_far([job for job in result.jobs if job.measured], time_s),
    }


def _times_so_far(jobs: Sequence[JobOutcome], time_s: FloatArray) -> dict[str, list[Any]]:
    """Return what is known of completion times at M moments; see ``runs_document``."""
    all_s = np.sort(np.array([job.arrival_s for job in jobs]))
    counted = [(job.arrival_s, job.end_s) for job in jobs if job.status not in _GIVEN_UP]
    arrival_s = np.sort(np.array([arrival for arrival, _ in counted]))
    ended = np.array(sorted((end, arrival) for arrival, end in counted if end is not None))
    end_s, began_s = ended.reshape(-1, 2).T
    came = np.searchsorted(arrival_s, time_s, side="right")
    complete = np.searchsorted(end_s, time_s, side="right")
    spent_s = _sums(end_s - began_s)[complete]
    # Those still there have spent the moment less their arrival.
    left_s = (came - complete) * time_s - _sums(arrival_s)[came] + _sums(began_s)[complete]
    return {
        "arrived": np.searchsorted(all_s, time_s, side="right").tolist(),
        "complete": complete.tolist(),
        "jct_s": _means(spent_s, complete),
        # Sums of large numbers that cancel may end a hair below zero.
        "so_far_s": _means(np.maximum(spent_s + left_s, 0.0), came),
    }


def _sums(values: FloatArray) -> FloatArray:
    return np.append(0.0, np.cumsum(values))


def _means(sums: FloatArray, counts: IntArray) -> list[float | None]:
    return round_values(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _on(leases: Sequence[LeaseSpan], row: dict[int, int]) -> list[LeaseSpan]:
    """Return the leases on the workers that have a row, without workers that have no row."""
    kept = ((lease, tuple(w for w in lease.workers if w in row)) for lease in leases)
    return [
        lease if workers == lease.workers else replace(lease, workers=workers)
        for lease, workers in kept
        if workers
    ]


def _chosen_workers(result: SimulationResult) -> list[int]:
    """Return every worker, or of each type the first ones in proportion to its size."""
    total = len(result.worker_type_of)
    if total <= MAX_WORKERS:
        return list(range(total))
    chosen: list[int] = []
    for k, size in enumerate(result.capacity):
        quota = max(1, MAX_WORKERS * size // total)
        chosen += [w for w, kind in enumerate(result.worker_type_of) if kind == k][:quota]
    return chosen[:MAX_WORKERS]


def _label(result: SimulationResult, worker: int) -> str:
    kind = result.worker_types[result.worker_type_of[worker]]
    node = result.node_of_worker[worker]
    return f"{node}/{worker}" if kind in node else f"{node}/{worker} {kind}"


def _note(
    result: SimulationResult,
    shown: Sequence[int],
    leases: Sequence[LeaseSpan],
    drawn: Drawing,
    moments: int,
) -> str:
    parts = []
    total = len(result.worker_type_of)
    if len(shown) < total:
        parts.append(f"Shown: {len(shown)} of {total} workers.")
    if drawn.merged_below_s:
        held = sum(len(lease.workers) for lease in leases)
        parts.append(
            f"Leases shorter than {_span(drawn.merged_below_s)} that follow one another are one "
            f"pale bar: {len(drawn.slices):,} bars, for {held:,} times that a lease held a worker."
        )
    if parts:
        parts.append("leases.csv has each lease.")
    samples = len(result.series.time_s)
    if moments < samples:
        parts.append(
            f"Figures are of {moments:,} of {samples:,} moments, among them the longest queues."
        )
    return " ".join(parts)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s"
    unit = TimeUnit.for_span(seconds)
    return f"{seconds / unit.seconds:.2g} {unit.name}"
