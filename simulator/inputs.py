"""The inputs of a run: reading, checks, and names in reports."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from scheduler.errors import InputError, ParameterError
from simulator.models import misfits, plannable, read_models, with_models
from simulator.request import IDEAL
from traces.cluster import read_cluster
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from planner.plans.hardware import Hardware
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from simulator.request import SimulationRequest
    from simulator.world.learning import LearningType
    from traces.trace import Trace, TraceJob


#: A first arrival after so many seconds, a year, is likely one by a calendar.
_LATE_S: Final = 365 * 86400.0


def read_inputs(
    request: SimulationRequest, learning: Mapping[str, LearningType], hardware: Hardware
) -> tuple[ThroughputTable, Cluster, Trace]:
    """Return the inputs; inputs given as values are returned as they are.

    Args:
        request: names the inputs.
        learning: the job types with a variable batch; the throughput table need not have them.
        hardware: accelerators, for jobs that give their model.

    Raises:
        InputError: one is malformed or missing.
    """
    throughputs, cluster, trace = request.throughputs, request.cluster, request.trace
    if isinstance(throughputs, str):
        throughputs = read_throughputs(
            throughputs, derive_counts=request.derive_counts, locality=request.locality
        )
    elif request.locality and not throughputs.spread:
        raise ParameterError(
            "locality is asked for, and the throughput table that is given does not say how fast "
            "gangs are on several nodes; read it with locality=True"
        )
    elif request.derive_counts:
        throughputs = replace(throughputs, derive_counts=True)
    if throughputs.spread and request.service is not None:
        raise ParameterError(
            "the throughput table says how fast gangs are on several nodes, and a configuration is "
            "replayed; the service does not learn that: leave out --locality"
        )
    if isinstance(cluster, str):
        cluster = read_cluster(cluster, workers_per_node=request.workers_per_node)
    models = {} if request.models is None else read_models(request.models)
    if both := sorted(models.keys() & learning.keys()):
        raise InputError(
            f"job type '{both[0]}' is in {request.models} and in {request.batches}; take it out of "
            "one of them"
        )
    if isinstance(trace, str):
        trace = read_trace(
            trace,
            format=request.trace_format,
            throughputs=throughputs,
            seed=request.seed,
            reference_worker_type=request.reference_worker_type,
            limit=request.limit,
            further_types={name: tuple(one.models) for name, one in learning.items()}
            | dict.fromkeys(models, plannable(cluster, hardware)),
        )
    trace = with_models(trace, models)
    _check_worker_types(request, throughputs, cluster, trace, learning=learning, hardware=hardware)
    return throughputs, cluster, trace


def _check_worker_types(
    request: SimulationRequest,
    throughputs: ThroughputTable,
    cluster: Cluster,
    trace: Trace,
    *,
    learning: Mapping[str, LearningType],
    hardware: Hardware,
) -> None:
    """Refuse worker types of which nothing is known.

    Raises:
        InputError: the cluster has one.
    """
    planned = any(job.model for job in trace.jobs)
    learned = chain(*(one.models for one in learning.values()))
    known = {*throughputs.worker_types, *learned}
    unknown = sorted(
        set(cluster.type_names) - known - {*(plannable(cluster, hardware) if planned else ())}
    )
    if not unknown:
        return
    also = "" if request.batches is None else " or the batch file"
    also += ", and models are not planned for it" if planned else ""
    some = sorted({*known, *(hardware.accelerators if planned else ())})
    raise InputError(
        f"worker type '{unknown[0]}' of the cluster is not in the throughput table{also}; "
        f"it may be one of {', '.join(some)}"
    )


def remark_on_inputs(
    trace: Trace,
    throughputs: ThroughputTable,
    cluster: Cluster,
    hardware: Hardware,
    learning: Collection[str] = (),
) -> tuple[str, ...]:
    """Return what readers of a run's figures must know of its inputs, a sentence each.

    Args:
        trace: the jobs.
        throughputs: steps/s of job types.
        cluster: jobs of more workers than it has are refused for that, and need no rows.
        hardware: accelerators, for jobs that give their model.
        learning: further job types, with rates from elsewhere.
    """
    remarks = []
    if throughputs.left_out and max(trace.scale_factors, default=1) > 1:
        remarks.append(
            "the throughput table says how fast gangs are on several nodes "
            f"({', '.join(throughputs.left_out)}), which is left out; --locality heeds it"
        )
    first_s = min((job.arrival_s for job in trace.jobs), default=0.0)
    if first_s > _LATE_S:
        remarks.append(
            f"the first job arrives {first_s / 86400:,.0f} days after the start; if the trace has "
            "times of day, subtract the first one from all (arrivals are in seconds from the start)"
        )
    most = cluster.capacity.max(initial=0.0)
    without = [
        job
        for job in trace.jobs
        if not (job.job_type in learning or job.model) and min(job.scale_factors) <= most
        if not any((job.job_type, count) in throughputs.isolated for count in job.scale_factors)
    ]
    if lost := misfits(trace, cluster, hardware):
        job, why = lost[0]
        remarks.append(
            f"jobs whose model fits on none of their workers cannot run ({len(lost)}, such as "
            f"'{job.job_id}' of type '{job.job_type}': {why})"
        )
    if without:
        job = without[0]
        counts = ", ".join(map(str, job.scale_factors))
        remarks.append(
            "jobs for whose worker counts the throughput table has no row cannot run "
            f"({len(without)}, such as '{job.job_id}' of type '{job.job_type}' at {counts}); add "
            "rows, or derive them from other counts with --derive-counts"
        )
    return tuple(remarks)


def names_of_inputs(request: SimulationRequest) -> dict[str, str]:
    """Name the inputs that the summary does not show, as text for reports."""
    names = (
        *("round_length_s", "workers_per_node", "overheads", "failures", "batches", "models"),
        *("hardware", "limit"),
    )
    values = {
        "trace": name_of(request.trace),
        "throughputs": name_of(request.throughputs),
        **{name: getattr(request, name) for name in names},
        "orders": None if request.service is None else request.service.orders,
        "profile": IDEAL if request.service is None else request.service.profile,
    }
    if math.isfinite(request.until_s):
        values["until_s"] = request.until_s
    values |= {name: True for name in ("derive_counts", "locality") if getattr(request, name)}
    return {name: str(value) for name, value in values.items() if value is not None}


def name_of(given: str | Trace | ThroughputTable) -> str:
    """Name an input by its file, or by the source that a value states."""
    return given if isinstance(given, str) else given.source or "given as a value"


def check_jobs(jobs: Sequence[Job] | Sequence[TraceJob], window: tuple[int, int] | None) -> None:
    """Refuse jobs that cannot be run.

    Raises:
        InputError: two have one id.
        ParameterError: the window holds no job.
    """
    seen: set[str] = set()
    for job in jobs:
        if job.job_id in seen:
            raise InputError(f"job '{job.job_id}' is in the trace twice; ids must be unique")
        seen.add(job.job_id)
    if window is not None and window[0] >= len(jobs):
        raise ParameterError(
            f"window is {window[0]}:{window[1]}, but the trace has {len(jobs)} jobs; "
            f"begin it below {len(jobs)}"
        )
