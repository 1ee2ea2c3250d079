"""Figures about a trace."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from traces.tables import reference

if TYPE_CHECKING:
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.trace import Trace, TraceJob


def summarise(
    trace: Trace,
    throughputs: ThroughputTable | None = None,
    *,
    reference_worker_type: str | None = None,
) -> dict[str, object]:
    """Return figures about a trace, ready for JSON.

    Args:
        trace: the trace.
        throughputs: adds durations and work on the reference worker type. Jobs that the table does
            not know there are left out and counted.
        reference_worker_type: None for the table's usual one.

    Returns:
        ``source, format, jobs, span_s, arrivals_per_hour`` (None if all arrive together),
        ``scale_factors`` (jobs by worker counts, ``"1 2 4"`` for one that runs at each of them),
        ``job_types, entities`` (counts), ``deadlines`` (how many), ``notes``, and
        with throughputs ``reference_worker_type, duration_mean_s, duration_p50_s, duration_p95_s,
        worker_hours, unknown_jobs``.
    """
    jobs, span_s = trace.jobs, trace.span_s
    rate = (len(jobs) - 1) / span_s * 3600.0 if span_s > 0 else None
    sizes = Counter(j.scale_factors for j in jobs)
    figures: dict[str, object] = {
        "source": trace.source,
        "format": trace.format,
        "jobs": len(jobs),
        "span_s": span_s,
        "arrivals_per_hour": rate,
        "scale_factors": {" ".join(map(str, n)): c for n, c in sorted(sizes.items())},
        "job_types": dict(sorted(Counter(j.job_type for j in jobs).items())),
        "entities": dict(sorted(Counter(j.entity for j in jobs if j.entity).items())),
        "deadlines": sum(j.deadline_s is not None for j in jobs),
        "notes": list(trace.notes),
    }
    if throughputs is not None:
        on = reference.reference_worker_type(throughputs, reference_worker_type)
        figures |= {"reference_worker_type": on, **_work(trace, throughputs, on)}
    return figures


def _work(trace: Trace, throughputs: ThroughputTable, on: str) -> dict[str, object]:
    known = [_least(throughputs, job, on) for job in trace.jobs]
    speed = np.array([steps_per_s for _, steps_per_s in known])
    steps = np.array([j.total_steps or 0.0 for j in trace.jobs])
    size = np.array([count for count, _ in known])
    runs = speed > 0.0
    unknown = int((~runs).sum())
    if unknown == len(runs):
        return {"unknown_jobs": unknown}
    duration_s = steps[runs] / speed[runs]
    return {
        "duration_mean_s": float(duration_s.mean()),
        "duration_p50_s": float(np.quantile(duration_s, 0.5)),
        "duration_p95_s": float(np.quantile(duration_s, 0.95)),
        "worker_hours": float((duration_s * size[runs]).sum() / 3600.0),
        "unknown_jobs": unknown,
    }


def _least(throughputs: ThroughputTable, job: TraceJob, on: str) -> tuple[int, float]:
    """Return the smallest worker count at which a job runs on a worker type, and steps/s there."""
    speeds = ((n, throughputs.steps_per_s(job.job_type, n, on)) for n in job.scale_factors)
    return next((known for known in speeds if known[1] > 0.0), (job.scale_factor, 0.0))
