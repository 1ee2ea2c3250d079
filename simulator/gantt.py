"""The Gantt chart of a report: which job held which worker, in as many bars as a page can bear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulator.lanes import lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.charts import TimeUnit
    from simulator.result import LeaseSpan, SimulationResult

#: Bars of one chart; a browser draws these within about a second.
MAX_BARS: Final = 3000
#: Workers of one chart; rows thinner than a line of text show nothing.
MAX_WORKERS: Final = 64

_Bar = tuple["LeaseSpan", int, int]


def gantt(result: SimulationResult, unit: TimeUnit) -> dict[str, Any]:
    """Return the bars as columns, from which the page draws a chart when it is asked for.

    Returns:
        ``rows``: labels of the workers, top to bottom. One entry per bar: ``row``, ``lane`` (-1
        where the job has the worker to itself), ``job`` (index into ``jobs``), ``start`` and
        ``length`` in ``unit``, ``reason``. ``jobs``: names, and ``types``: their job types.
        ``range``: the times to show. ``note``: what is left out, or empty.
    """
    shown = _chosen_workers(result)
    row = {worker: r for r, worker in enumerate(shown)}
    every = [bar for bar in lanes(result.leases) if bar[1] in row]
    bars = _chosen_bars(result, every)
    jobs = {lease.job_id: lease.job_type for lease, _, _ in bars}
    index = {job_id: i for i, job_id in enumerate(jobs)}
    return {
        "rows": [_label(result, worker) for worker in shown],
        "row": [row[worker] for _, worker, _ in bars],
        "lane": [lane if lease.shared else -1 for lease, _, lane in bars],
        "job": [index[lease.job_id] for lease, _, _ in bars],
        "start": [round(lease.start_s / unit.seconds, 4) for lease, _, _ in bars],
        "length": [round((lease.end_s - lease.start_s) / unit.seconds, 4) for lease, _, _ in bars],
        "reason": [lease.reason for lease, _, _ in bars],
        "jobs": list(jobs),
        "types": list(jobs.values()),
        "range": _range(result, bars, len(every), unit),
        "unit": unit.name,
        "note": _note(result, len(shown), bars, len(every), unit),
    }


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


def _chosen_bars(result: SimulationResult, every: list[_Bar]) -> list[_Bar]:
    """Return all bars, or the first ones from when the measured jobs begin to arrive."""
    if len(every) <= MAX_BARS:
        return every
    begin_s = min((job.arrival_s for job in result.jobs if job.measured), default=0.0)
    later = [bar for bar in every if bar[0].end_s > begin_s]
    return later[:MAX_BARS]


def _range(
    result: SimulationResult, bars: Sequence[_Bar], every: int, unit: TimeUnit
) -> list[float]:
    """Return the whole run, or the stretch in which no bar is missing."""
    begin_s, end_s = 0.0, max((lease.end_s for lease in result.leases), default=1.0)
    if len(bars) < every:
        begin_s, end_s = bars[0][0].start_s, bars[-1][0].start_s
    return [round(begin_s / unit.seconds, 4), round(end_s / unit.seconds, 4)]


def _label(result: SimulationResult, worker: int) -> str:
    kind = result.worker_types[result.worker_type_of[worker]]
    node = result.node_of_worker[worker]
    return f"{node}/{worker}" if kind in node else f"{node}/{worker} {kind}"


def _note(
    result: SimulationResult, workers: int, bars: Sequence[_Bar], every: int, unit: TimeUnit
) -> str:
    parts = []
    total = len(result.worker_type_of)
    if workers < total:
        parts.append(f"{workers} of {total} workers")
    if len(bars) < every:
        begin = bars[0][0].start_s / unit.seconds
        end = bars[-1][0].start_s / unit.seconds
        parts.append(f"{len(bars):,} of {every:,} leases, {unit.name} {begin:.4g} to {end:.4g}")
    return f"Shown: {'; '.join(parts)}. The rest is in leases.csv." if parts else ""
