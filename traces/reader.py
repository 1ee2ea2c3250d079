"""Reading traces: the format is told by the content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import InputError, TraceError
from traces.bundle import resolve
from traces.complete import complete
from traces.files import Line, read_text
from traces.gavel_trace import parse_gavel, parse_shockwave, tabbed_format
from traces.microsoft import ITP_COLUMNS, PHILLY_COLUMNS, parse_itp, parse_philly
from traces.native import FIELDS, parse_native_csv, parse_native_jsonl
from traces.trace import Trace

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from scheduler.domain.job import Job
    from scheduler.domain.throughput import ThroughputTable
    from traces.trace import Conditions

_PARSERS = {
    "gavel": parse_gavel,
    "shockwave": parse_shockwave,
    "philly": parse_philly,
    "msr-itp": parse_itp,
    "csv": parse_native_csv,
    "jsonl": parse_native_jsonl,
}

#: Names of the formats that can be read; ``csv`` and ``jsonl`` are the native ones.
FORMATS = tuple(_PARSERS)


def read_trace(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002  # the word that users write
    throughputs: ThroughputTable | None = None,
    seed: int = 0,
    reference_worker_type: str | None = None,
    limit: int | None = None,
) -> Trace:
    """Read a workload.

    Args:
        path: the file; ``bundled`` stands for the small trace of the package.
        format: one of ``FORMATS``, or ``auto`` to tell it by the first line.
        throughputs: checks job types; needed for workloads without job types or steps, and for
            deadlines that are multiples of a duration.
        seed: of the draw of job types, where the workload has none.
        reference_worker_type: the worker type that durations refer to; None for the table's usual
            one (``traces.reference``).
        limit: keep only that many jobs, the first to arrive.

    Returns:
        The jobs in order of arrival. A job without an id in the file is named by its position
        there, from 0.

    Raises:
        TraceError: the file is missing or malformed; names line, field and value.
        InputError: an argument cannot be used.
    """
    name = resolve(path, usual="small")
    if format != "auto" and format not in _PARSERS:
        raise InputError(f"unknown trace format '{format}'; known are {', '.join(FORMATS)}")
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; it must be >= 1")
    text = read_text(name)
    told = detect_format(text, path=name) if format == "auto" else format
    drafts = _PARSERS[told](text, path=name)
    jobs, notes = complete(
        drafts,
        path=name,
        throughputs=throughputs,
        seed=seed,
        reference=reference_worker_type,
    )
    conditions = {
        job.job_id: draft.conditions
        for job, draft in zip(jobs, drafts.jobs, strict=True)
        if draft.conditions is not None
    }
    lines = {job.job_id: draft.line for job, draft in zip(jobs, drafts.jobs, strict=True)}
    jobs.sort(key=lambda job: job.arrival_s)
    _check_dependencies(jobs, conditions, lines, path=name)
    kept = jobs[:limit]
    return Trace(
        jobs=tuple(kept),
        source=name,
        format=told,
        notes=tuple(notes),
        conditions={j.job_id: conditions[j.job_id] for j in kept if j.job_id in conditions},
    )


def _check_dependencies(
    jobs: Sequence[Job],
    conditions: Mapping[str, Conditions],
    lines: Mapping[str, int],
    *,
    path: str,
) -> None:
    """Refuse dependencies on what is not there when a job comes, as the service does."""
    seen: set[str] = set()
    for job in jobs:
        asked = conditions.get(job.job_id)
        for other in () if asked is None else asked.depends_on:
            if other not in seen:
                problem = (
                    "no job of that id comes before this one"
                    if other in lines
                    else "no job of the trace has that id"
                )
                Line(path, lines[job.job_id]).fail(problem, field="depends_on", value=other)
        seen.add(job.job_id)


def detect_format(text: str, *, path: str) -> str:
    """Tell a trace's format by its first line.

    Raises:
        TraceError: no format is like this.
    """
    lines = text.split("\n")
    content = ((i, s) for i, s in enumerate(lines, 1) if s.strip() and s[0] != "#")
    number, line = next(content, (1, lines[0]))
    if line.lstrip().startswith("{"):
        return "jsonl"
    if "\t" in line:
        return tabbed_format(line, path=path)
    header = {field.strip() for field in line.split(",")}
    for told, columns in (("philly", PHILLY_COLUMNS), ("msr-itp", ITP_COLUMNS)):
        if header.issuperset(columns):
            return told
    if header & set(FIELDS):
        return "csv"
    raise TraceError(
        "this is the start of no known trace format; known are a CSV with the header of the native "
        "format (docs/reference/traces.md), of Philly or of MSR-ITP, JSON lines, and Gavel's and "
        "Shockwave's tab-separated lines",
        path=path,
        line=number,
        value=line[:80],
    )
