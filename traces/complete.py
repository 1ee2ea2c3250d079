"""Fill in what lines leave out: draw job types, compute steps, make deadlines absolute."""

from __future__ import annotations

import difflib
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scheduler.errors import InputError, TraceError
from traces.files import Line
from traces.tables.reference import reference_worker_type
from traces.tables.scaling import with_counts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.trace import ParsedTrace, TraceJob


def complete(
    parsed: ParsedTrace,
    *,
    path: str,
    throughputs: ThroughputTable | None,
    seed: int,
    reference: str | None,
    further_types: Mapping[str, Collection[str]],
) -> tuple[list[TraceJob], list[str]]:
    """Fill in what the lines of a file leave out.

    Args:
        parsed: the file.
        path: for messages.
        throughputs: needed if job types are drawn, durations become steps, or SLOs are given.
        seed: for the draw of job types.
        reference: the worker type that durations refer to, or None for the table's usual one.
        further_types: job types that the table need not know, and the worker types of each.

    Returns:
        The jobs in the order of the file, and notes for the reader.

    Raises:
        TraceError: a job type is unknown, an id occurs twice, or the needed table is missing.
    """
    _check_ids(parsed, path)
    notes = list(parsed.notes)
    if throughputs is None:
        _refuse_without_table(parsed, path)
        return _jobs(parsed, [d.job_type for d in parsed.jobs], None, path), notes
    _check_types(parsed, throughputs, further_types, path)
    on = reference_worker_type(throughputs, reference)
    counts = {n for d in parsed.jobs for n in d.scale_factors}
    table = with_counts(throughputs, counts)
    types = [d.job_type for d in parsed.jobs]
    if not all(types):
        types = _drawn(parsed, table, on, path, seed)
        notes.append(f"job types drawn with seed {seed} among those that run on {on}")
    if any(d.total_steps is None for d in parsed.jobs):
        notes.append(f"steps = duration x steps/s on {on}")
    if len(table.isolated) > len(throughputs.isolated):
        known = {n for _, n in throughputs.isolated}
        unknown = sorted(counts - known)
        if unknown:
            shown = ", ".join(map(str, unknown))
            notes.append(f"throughputs at scale factors {shown} are extrapolated")
    return _jobs(parsed, types, _Speeds(table, on), path), notes


class _Speeds:
    """Steps/s on the reference worker type; if a job does not run there, on its fastest type.

    For an elastic job, at the smallest worker count at which it runs.
    """

    def __init__(self, table: ThroughputTable, reference: str) -> None:
        self._table = table
        self._reference = reference

    def of(self, job_type: str, counts: Iterable[int]) -> float:
        rows = (self._table.isolated.get((job_type, count), {}) for count in counts)
        speeds = (row.get(self._reference, 0.0) or max(row.values(), default=0.0) for row in rows)
        return next((speed for speed in speeds if speed > 0.0), 0.0)


def _check_ids(parsed: ParsedTrace, path: str) -> None:
    seen: dict[str, int] = {}
    for job in parsed.jobs:
        if job.job_id:
            first = seen.setdefault(job.job_id, job.line)
            if first != job.line:
                problem = f"the id is there already, in line {first}; ids must be unique"
                Line(path, job.line).fail(problem, field="job_id", value=job.job_id)


def _refuse_without_table(parsed: ParsedTrace, path: str) -> None:
    for job in parsed.jobs:
        slo = job.slo is not None and job.duration_s is None
        if not job.job_type or job.total_steps is None or slo:
            raise TraceError(
                "the job has no job type, no number of steps, or a deadline relative to its "
                "duration; give a throughput table to derive it from",
                path=path,
                line=job.line,
                field="job_type" if not job.job_type else "SLO" if slo else "duration",
            )


def _check_types(
    parsed: ParsedTrace,
    throughputs: ThroughputTable,
    further_types: Mapping[str, Collection[str]],
    path: str,
) -> None:
    known = {*throughputs.job_types, *further_types}
    worker_types = sorted({*throughputs.worker_types, *chain(*further_types.values())})
    for job in parsed.jobs:
        for name in job.worker_types:
            if name not in worker_types:
                some = ", ".join(worker_types)
                problem = f"the throughput table does not know this worker type; it knows {some}"
                Line(path, job.line).fail(problem, field="worker_types", value=name)
        if job.job_type and job.job_type not in known:
            near = difflib.get_close_matches(job.job_type, known, n=3, cutoff=0.3)
            some = ", ".join(map(repr, near or sorted(known)[:3]))
            all_of_them = f"it knows {len(known)}, such as" if len(known) > 3 else "it knows"
            hint = f"; {'close to it are' if near else all_of_them} {some}"
            problem = (
                "the throughput table does not know this job type; add rows for it or name one "
                "that it knows"
            )
            Line(path, job.line).fail(problem + hint, field="job_type", value=job.job_type)


def _drawn(
    parsed: ParsedTrace, table: ThroughputTable, reference: str, path: str, seed: int
) -> list[str]:
    """Return the types; missing ones are drawn uniformly among the types that can run."""
    runnable: dict[int, list[str]] = {}
    for (job_type, scale_factor), row in sorted(table.isolated.items()):
        if row.get(reference, 0.0) > 0.0:
            runnable.setdefault(scale_factor, []).append(job_type)
    # One number per job, even if not needed, so that a job's draw depends only on its position.
    uniform = np.random.default_rng(seed).random(len(parsed.jobs)).tolist()
    types = []
    for job, u in zip(parsed.jobs, uniform, strict=True):
        choices = runnable.get(job.scale_factor, [])
        if not job.job_type and not choices:
            Line(path, job.line).fail(
                f"no job type of the throughput table runs at this scale factor on {reference}; "
                "add rows, or derive them from other counts (--derive-counts)",
                field=parsed.size_field,
                value=job.scale_factor,
            )
        types.append(job.job_type or choices[int(u * len(choices))])
    return types


def _jobs(
    parsed: ParsedTrace, types: list[str], speeds: _Speeds | None, path: str
) -> list[TraceJob]:
    start = min(d.arrival_s for d in parsed.jobs) if parsed.relative else 0.0
    taken = Counter(d.job_id for d in parsed.jobs)
    for position, (job, job_type) in enumerate(zip(parsed.jobs, types, strict=True)):
        job_id = job.job_id or str(position)
        if not job.job_id and taken[job_id]:
            problem = f"a job without an id is named by its position, {job_id}, which is taken"
            Line(path, job.line).fail(problem, field="job_id", value=job_id)
        speed = 0.0 if speeds is None else speeds.of(job_type, job.scale_factors)
        arrival_s = job.arrival_s - start
        try:
            job.fill_in(
                job_id=job_id,
                job_type=job_type,
                arrival_s=arrival_s,
                total_steps=_steps(job, speed),
                duration_s=None,
                deadline_s=_deadline(job, arrival_s, speed),
                slo=None,
            )
            job.engine_job()  # refuses values that no job can have
        except InputError as error:
            raise TraceError(str(error), path=path, line=job.line) from error
    return parsed.jobs


def _steps(job: TraceJob, speed: float) -> float:
    if job.total_steps is not None:
        return job.total_steps
    if speed <= 0.0:
        raise InputError(
            f"job field 'duration_s' has the value {job.duration_s!r}: the throughput table has "
            "no row of the job type at its worker count, by which it would become steps; give "
            "total_steps, add a row, or derive it from other counts (--derive-counts)"
        )
    return (job.duration_s or 0.0) * speed


def _deadline(job: TraceJob, arrival_s: float, speed: float) -> float | None:
    if job.slo is None:
        return job.deadline_s
    if job.duration_s is not None:
        return arrival_s + job.slo * job.duration_s
    if speed <= 0.0:
        raise InputError(
            f"job field 'SLO' has the value {job.slo!r}: a job that runs on no worker type has "
            "no duration to multiply; give -1"
        )
    return arrival_s + job.slo * (job.total_steps or 0.0) / speed
