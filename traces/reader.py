"""Read traces; the content determines the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.arguments import check_whole
from scheduler.errors import InputError, TraceError
from traces.bundle import resolve
from traces.complete import complete
from traces.files import Line, read_text
from traces.formats import BUILT_IN, plugin_formats, trace_format
from traces.readers.header_csv import columns_of
from traces.readers.native import FIELDS
from traces.trace import Trace

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.trace import TraceJob

#: Names of the formats that come with the package; ``csv`` and ``jsonl`` are the native ones. With
#: those of plugins: ``traces.formats.format_names``.
FORMATS = tuple(BUILT_IN)


def read_trace(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002  # the word that users write
    throughputs: ThroughputTable | None = None,
    seed: int = 0,
    reference_worker_type: str | None = None,
    limit: int | None = None,
    further_types: Mapping[str, Collection[str]] | None = None,
) -> Trace:
    """Read a workload.

    Args:
        path: the file; ``bundled`` stands for the small trace of the package.
        format: a name such as those in ``FORMATS``, or ``auto`` to detect it by the first line.
        throughputs: checks job types; needed for workloads without job types or steps, and for
            deadlines that are multiples of a duration.
        seed: for the draw of job types, if the workload has none.
        reference_worker_type: the worker type that durations refer to; None for the table's usual
            one (``traces.tables.reference``).
        limit: keep only that many jobs, the first to arrive.
        further_types: job types that the throughput table need not know, and the worker types of
            each; such jobs have steps, not durations.

    Returns:
        The jobs in order of arrival. A job without an id in the file is named by its position
        there, from 0.

    Raises:
        TraceError: the file is missing or malformed; names line, field and value.
        InputError: an argument cannot be used.
    """
    name = resolve(path, usual="small")
    given = None if format == "auto" else trace_format(format)
    if limit is not None:
        check_whole("limit", limit, least=1)
    check_whole("seed", seed, least=0)
    text = read_text(name)
    told = detect_format(text, path=name) if format == "auto" else format
    jobs, notes = complete(
        (given or trace_format(told)).parse(text, path=name),
        path=name,
        throughputs=throughputs,
        seed=seed,
        reference=reference_worker_type,
        further_types=further_types or {},
    )
    jobs.sort(key=lambda job: job.arrival_s)
    _check_dependencies(jobs, path=name)
    return Trace(jobs=tuple(jobs[:limit]), source=name, format=told, notes=tuple(notes))


def _check_dependencies(jobs: Sequence[TraceJob], *, path: str) -> None:
    """Refuse dependencies on jobs that do not exist when a job arrives, as the service does."""
    seen: set[str] = set()
    for job in jobs:
        for other in job.depends_on:
            if other not in seen:
                problem = (
                    "no job of that id comes before this one"
                    if any(other == one.job_id for one in jobs)
                    else "no job of the trace has that id"
                )
                Line(path, job.line).fail(problem, field="depends_on", value=other)
        seen.add(job.job_id)


def detect_format(text: str, *, path: str) -> str:
    """Detect a trace's format by its first line.

    Raises:
        TraceError: no format matches.
    """
    lines = text.split("\n")
    content = ((i, s) for i, s in enumerate(lines, 1) if s.strip() and s[0] != "#")
    number, line = next(content, (1, lines[0]))
    ours = {name: trace_format(name) for name in BUILT_IN}
    for name, known in ours.items():
        if known.starts(line):
            return name
    plugins = plugin_formats()
    for name, known in plugins.items():
        try:
            if known.starts(line):
                return name
        except Exception as error:  # a plugin may raise anything; the error names it
            raise InputError(
                f"trace format '{name}' failed to tell whether {path} is of it: "
                f"{type(error).__name__}: {error}; name the format by --format"
            ) from error
    if columns_of(line) & set(FIELDS):
        return "csv"  # its reader reports the fault
    known_ones = (f"{name} ({known.shape})" for name, known in (ours | plugins).items())
    tabs = line.count("\t")
    raise TraceError(
        (f"the line has {tabs + 1} columns separated by tabs; " if tabs else "")
        + f"this is the start of no known trace format; known are {', '.join(known_ones)}",
        path=path,
        line=number,
        value=line[:80],
    )
