"""From drafts to jobs: job types drawn, durations turned into steps, deadlines made absolute."""

from __future__ import annotations

import difflib
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.jobs.job import Job
from scheduler.errors import InputError, TraceError
from traces.files import Line
from traces.tables.reference import reference_worker_type
from traces.tables.scaling import with_counts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.draft import Draft, Drafts


def complete(
    drafts: Drafts,
    *,
    path: str,
    throughputs: ThroughputTable | None,
    seed: int,
    reference: str | None,
    further_types: Mapping[str, Collection[str]],
) -> tuple[list[Job], list[str]]:
    """Turn drafts into jobs.

    Args:
        drafts: the lines of the file.
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
    _check_ids(drafts, path)
    notes = list(drafts.notes)
    if throughputs is None:
        _refuse_without_table(drafts, path)
        return _jobs(drafts, [d.job_type for d in drafts.jobs], None, path), notes
    _check_types(drafts, throughputs, further_types, path)
    on = reference_worker_type(throughputs, reference)
    counts = {n for d in drafts.jobs for n in (d.scale_factor, *d.scale_factors)}
    table = with_counts(throughputs, counts)
    types = [d.job_type for d in drafts.jobs]
    if not all(types):
        types = _drawn(drafts, table, on, path, seed)
        notes.append(f"job types drawn with seed {seed} among those that run on {on}")
    if any(d.total_steps is None for d in drafts.jobs):
        notes.append(f"steps = duration x steps/s on {on}")
    if len(table.isolated) > len(throughputs.isolated):
        known = {n for _, n in throughputs.isolated}
        unknown = sorted(counts - known)
        if unknown:
            shown = ", ".join(map(str, unknown))
            notes.append(f"throughputs at scale factors {shown} are extrapolated")
    return _jobs(drafts, types, _Speeds(table, on), path), notes


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


def _check_ids(drafts: Drafts, path: str) -> None:
    seen: dict[str, int] = {}
    for draft in drafts.jobs:
        if draft.job_id:
            first = seen.setdefault(draft.job_id, draft.line)
            if first != draft.line:
                problem = f"the id is there already, in line {first}; ids must be unique"
                Line(path, draft.line).fail(problem, field="job_id", value=draft.job_id)


def _refuse_without_table(drafts: Drafts, path: str) -> None:
    for draft in drafts.jobs:
        slo = draft.slo is not None and draft.duration_s is None
        if not draft.job_type or draft.total_steps is None or slo:
            raise TraceError(
                "the job has no job type, no number of steps, or a deadline relative to its "
                "duration; give a throughput table to derive it from",
                path=path,
                line=draft.line,
                field="job_type" if not draft.job_type else "SLO" if slo else "duration",
            )


def _check_types(
    drafts: Drafts,
    throughputs: ThroughputTable,
    further_types: Mapping[str, Collection[str]],
    path: str,
) -> None:
    known = {*throughputs.job_types, *further_types}
    worker_types = sorted({*throughputs.worker_types, *chain(*further_types.values())})
    for draft in drafts.jobs:
        for name in draft.worker_types:
            if name not in worker_types:
                some = ", ".join(worker_types)
                problem = f"the throughput table does not know this worker type; it knows {some}"
                Line(path, draft.line).fail(problem, field="worker_types", value=name)
        if draft.job_type and draft.job_type not in known:
            near = difflib.get_close_matches(draft.job_type, known, n=3, cutoff=0.3)
            some = ", ".join(map(repr, near or sorted(known)[:3]))
            all_of_them = f"it knows {len(known)}, such as" if len(known) > 3 else "it knows"
            hint = f"; {'close to it are' if near else all_of_them} {some}"
            problem = (
                "the throughput table does not know this job type; add rows for it or name one "
                "that it knows"
            )
            Line(path, draft.line).fail(problem + hint, field="job_type", value=draft.job_type)


def _drawn(
    drafts: Drafts, table: ThroughputTable, reference: str, path: str, seed: int
) -> list[str]:
    """Return the types; missing ones are drawn uniformly among the types that can run."""
    runnable: dict[int, list[str]] = {}
    for (job_type, scale_factor), row in sorted(table.isolated.items()):
        if row.get(reference, 0.0) > 0.0:
            runnable.setdefault(scale_factor, []).append(job_type)
    # One number per job, even if not needed, so that a job's draw depends only on its position.
    uniform = np.random.default_rng(seed).random(len(drafts.jobs)).tolist()
    types = []
    for draft, u in zip(drafts.jobs, uniform, strict=True):
        choices = runnable.get(draft.scale_factor, [])
        if not draft.job_type and not choices:
            Line(path, draft.line).fail(
                f"no job type of the throughput table runs at this scale factor on {reference}; "
                "add rows, or derive them from other counts (--derive-counts)",
                field=drafts.size_field,
                value=draft.scale_factor,
            )
        types.append(draft.job_type or choices[int(u * len(choices))])
    return types


def _jobs(drafts: Drafts, types: list[str], speeds: _Speeds | None, path: str) -> list[Job]:
    start = min(d.arrival_s for d in drafts.jobs) if drafts.relative else 0.0
    taken = Counter(d.job_id for d in drafts.jobs)
    jobs = []
    for position, (draft, job_type) in enumerate(zip(drafts.jobs, types, strict=True)):
        job_id = draft.job_id or str(position)
        if not draft.job_id and taken[job_id]:
            problem = f"a job without an id is named by its position, {job_id}, which is taken"
            Line(path, draft.line).fail(problem, field="job_id", value=job_id)
        counts = draft.scale_factors or (draft.scale_factor,)
        speed = 0.0 if speeds is None else speeds.of(job_type, counts)
        try:
            jobs.append(_job(draft, job_id, job_type, draft.arrival_s - start, speed))
        except InputError as error:
            raise TraceError(str(error), path=path, line=draft.line) from error
    return jobs


def _job(draft: Draft, job_id: str, job_type: str, arrival_s: float, speed: float) -> Job:
    return Job(
        job_id=job_id,
        job_type=job_type,
        total_steps=_steps(draft, speed),
        scale_factor=draft.scale_factor,
        scale_factors=draft.scale_factors,
        checkpoints=draft.checkpoints,
        preemptible=draft.preemptible,
        min_run_time_s=draft.min_run_time_s,
        arrival_s=arrival_s,
        weight=draft.weight,
        deadline_s=_deadline(draft, arrival_s, speed),
        entity=draft.entity,
        max_failures=draft.max_failures,
        restart_s=draft.restart_s,
        restarts=draft.restarts,
        labels=draft.labels,
        worker_types=draft.worker_types,
        mixed_gangs=draft.mixed_gangs,
    )


def _steps(draft: Draft, speed: float) -> float:
    if draft.total_steps is not None:
        return draft.total_steps
    if speed <= 0.0:
        raise InputError(
            f"job field 'duration_s' has the value {draft.duration_s!r}: the throughput table has "
            "no row of the job type at its worker count, by which it would become steps; give "
            "total_steps, add a row, or derive it from other counts (--derive-counts)"
        )
    return (draft.duration_s or 0.0) * speed


def _deadline(draft: Draft, arrival_s: float, speed: float) -> float | None:
    if draft.slo is None:
        return draft.deadline_s
    if draft.duration_s is not None:
        return arrival_s + draft.slo * draft.duration_s
    if speed <= 0.0:
        raise InputError(
            f"job field 'SLO' has the value {draft.slo!r}: a job that runs on no worker type has "
            "no duration to multiply; give -1"
        )
    return arrival_s + draft.slo * (draft.total_steps or 0.0) / speed
