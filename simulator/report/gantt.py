"""The Gantt chart of a report: the jobs on each worker, with a bounded number of bars.

The chart shows the whole run. If it has too many leases, those too short to be seen are merged with
their neighbours (``simulator.report.slices``), and the page says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulator.report.slices import draw_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.report.charts import TimeUnit
    from simulator.report.slices import Drawing
    from simulator.result import LeaseSpan, SimulationResult

#: Most bars of one chart; a browser draws these within about a second.
MAX_BARS: Final = 3000
#: Most workers of one chart; rows thinner than a line of text show nothing.
MAX_WORKERS: Final = 64


def gantt_columns(result: SimulationResult, unit: TimeUnit) -> dict[str, Any]:
    """Return the bars as columns, from which the page draws a chart on request.

    Returns:
        ``rows``: labels of the workers, top to bottom. One entry per bar: ``row``, ``lane`` (-1 if
        the job does not share the worker), ``job`` (index into ``jobs``: the job that held the
        worker, or held it for longest), ``start``, ``length`` and ``held`` (the part of it in which
        any job held the worker) in ``unit``, ``leases`` and ``of`` (the numbers of leases and of
        jobs in the bar), ``reason`` (why the last one ended, or empty if jobs are merged).
        ``jobs``: names, and ``types``: their job types. ``range``: the times to show, which is the
        whole run. ``note``: the parts that are left out or merged, or empty.
    """
    shown = _chosen_workers(result)
    row = {worker: r for r, worker in enumerate(shown)}
    leases = _on(result.leases, row)
    drawn = draw_slices(leases, limit=MAX_BARS)
    bars = drawn.slices
    jobs = {bar.held.job_id: bar.held.job_type for bar in bars}
    index = {job_id: i for i, job_id in enumerate(jobs)}
    return {
        "rows": [_label(result, worker) for worker in shown],
        "row": [row[bar.worker] for bar in bars],
        "lane": [bar.lane if bar.shared else -1 for bar in bars],
        "job": [index[bar.held.job_id] for bar in bars],
        "start": [round(bar.start_s / unit.seconds, 4) for bar in bars],
        "length": [round((bar.end_s - bar.start_s) / unit.seconds, 4) for bar in bars],
        "held": [round(bar.held_s / unit.seconds, 4) for bar in bars],
        "leases": [bar.leases for bar in bars],
        "of": [bar.jobs for bar in bars],
        "reason": [bar.held.reason if bar.jobs == 1 else "" for bar in bars],
        "jobs": list(jobs),
        "types": list(jobs.values()),
        "range": [0.0, round(_end_s(result) / unit.seconds, 4)],
        "unit": unit.name,
        "note": _note(result, len(shown), len(leases), drawn, unit),
    }


def _on(leases: Sequence[LeaseSpan], row: dict[int, int]) -> list[LeaseSpan]:
    """Return the leases on the workers that have a row, without workers that have no row."""
    kept = ((lease, tuple(w for w in lease.workers if w in row)) for lease in leases)
    return [
        lease if workers == lease.workers else replace(lease, workers=workers)
        for lease, workers in kept
        if workers
    ]


def _end_s(result: SimulationResult) -> float:
    return max((lease.end_s for lease in result.leases), default=1.0)


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
    result: SimulationResult, workers: int, leases: int, drawn: Drawing, unit: TimeUnit
) -> str:
    parts = []
    total = len(result.worker_type_of)
    if workers < total:
        parts.append(f"Shown: {workers} of {total} workers.")
    if drawn.merged_below_s:
        below = f"{drawn.merged_below_s / unit.seconds:.2g} {unit.name}"
        parts.append(
            f"Leases shorter than {below} that follow one another are one pale bar: "
            f"{len(drawn.slices):,} bars for {leases:,} leases."
        )
    return " ".join([*parts, "leases.csv has each lease."]) if parts else ""
