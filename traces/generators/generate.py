"""Generators of workloads. Same arguments and seed: the same trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arguments import check_positive, check_whole
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError
from traces.generators.distributions import (
    MULTI_SIZES,
    PHILLY_SIZES,
    diurnal_arrivals,
    gavel_durations,
    philly_durations,
    philly_entities,
    poisson_arrivals,
)
from traces.tables import reference as references
from traces.tables.scaling import with_counts
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace, TraceJob

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from scheduler.domain.arrays import FloatArray, IntArray

#: Kinds of workloads that ``generate`` knows.
KINDS = ("gavel", "philly")


def generate(
    kind: str,
    *,
    jobs: int,
    throughputs: str | os.PathLike[str] | ThroughputTable,
    rate_per_hour: float | None = None,
    multi: bool = False,
    seed: int = 0,
    reference_worker_type: str | None = None,
) -> Trace:
    """Generate a workload.

    ``gavel`` follows the generator of Narayanan et al. (OSDI 2020, section 7.1): durations of
    ``60 x 10^U(1.5, 3)`` s with probability 0.8 and ``60 x 10^U(3, 4)`` s otherwise; scale factor
    1, or with ``multi`` 1, 2, 4, 8 with probabilities 0.7, 0.1, 0.15, 0.05; Poisson arrivals.

    ``philly`` resembles Microsoft's cluster (Jeon et al., ATC 2019; the figures are fitted to the
    public 82,247 jobs): log-normal durations with a heavy tail, longer for gangs, gangs of up to 32
    (with ``multi``; else 1), virtual clusters of unequal size as entities, and an arrival rate that
    follows the hour of the day and the day of the week.

    Job types are drawn uniformly among those that run at the job's scale factor on the reference
    worker type. A job of duration d gets the steps that it runs in d seconds there, rounded.

    Args:
        kind: one of ``KINDS``.
        jobs: how many.
        throughputs: job types and steps/s: a file, ``"bundled"``, or a table.
        rate_per_hour: mean arrivals per hour; None for all at time 0. The first job arrives at 0.
        multi: whether there are gangs.
        seed: for every draw.
        reference_worker_type: the worker type that durations refer to; None for the table's usual
            one (``traces.tables.reference``).

    Returns:
        The trace; its notes repeat the arguments.

    Raises:
        InputError: an argument is out of range, or no job type runs at some scale factor.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of workload '{kind}'; known are {', '.join(KINDS)}")
    check_whole("jobs", jobs, least=1)
    check_whole("seed", seed, least=0)
    if rate_per_hour is not None:
        check_positive("rate_per_hour", rate_per_hour)
    if not isinstance(throughputs, ThroughputTable):
        throughputs = read_throughputs(throughputs)
    reference = references.reference_worker_type(throughputs, reference_worker_type)
    rng = np.random.default_rng(seed)
    sizes = _sizes(rng, kind, jobs, multi=multi)
    durations = gavel_durations(rng, jobs) if kind == "gavel" else philly_durations(rng, sizes)
    table = with_counts(throughputs, sizes.tolist())
    types = _types(rng, sizes, table, reference)
    arrivals = _arrivals(rng, kind, jobs, rate_per_hour)
    entities = philly_entities(rng, jobs) if kind == "philly" else [""] * jobs
    made = tuple(
        TraceJob(
            job_id=str(i),
            job_type=job_type,
            total_steps=max(1.0, round(duration_s * table.steps_per_s(job_type, size, reference))),
            scale_factors=(size,),
            arrival_s=arrival_s,
            entity=entity,
        )
        for i, (job_type, duration_s, size, arrival_s, entity) in enumerate(
            zip(types, durations.tolist(), sizes.tolist(), arrivals.tolist(), entities, strict=True)
        )
    )
    rate = "all at time 0" if rate_per_hour is None else f"{rate_per_hour:g} jobs/hour"
    gangs = "gangs" if multi else "scale factor 1"
    note = f"generated: {kind}, {jobs} jobs, {rate}, {gangs}, seed {seed}, durations on {reference}"
    return Trace(jobs=made, source=f"generator {kind}", format="generated", notes=(note,))


def _sizes(rng: np.random.Generator, kind: str, jobs: int, *, multi: bool) -> IntArray:
    if not multi:
        return np.ones(jobs, dtype=np.int64)
    odds: Mapping[int, float] = MULTI_SIZES if kind == "gavel" else PHILLY_SIZES
    return rng.choice(np.array(list(odds)), size=jobs, p=list(odds.values()))


def _types(
    rng: np.random.Generator, sizes: IntArray, table: ThroughputTable, reference: str
) -> list[str]:
    runnable: dict[int, list[str]] = {}
    for (job_type, size), row in sorted(table.isolated.items()):
        if row.get(reference, 0.0) > 0.0:
            runnable.setdefault(size, []).append(job_type)
    types = []
    for size, u in zip(sizes.tolist(), rng.random(len(sizes)).tolist(), strict=True):
        choices = runnable.get(size)
        if not choices:
            raise InputError(
                f"no job type runs at scale factor {size} on {reference}; add rows to the "
                "throughput table, or derive them from other counts (--derive-counts)"
            )
        types.append(choices[int(u * len(choices))])
    return types


def _arrivals(
    rng: np.random.Generator, kind: str, jobs: int, rate_per_hour: float | None
) -> FloatArray:
    if rate_per_hour is None:
        return np.zeros(jobs)
    arrivals = poisson_arrivals if kind == "gavel" else diurnal_arrivals
    return arrivals(rng, jobs, rate_per_hour)
