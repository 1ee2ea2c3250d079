"""The native formats: CSV with a header, and JSON lines. Reference: docs/reference/traces.md."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.job import LARGEST_GANG, counts_between, is_seconds
from scheduler.domain.jobs.spec import DEFAULT_PROJECT
from scheduler.errors import TraceError
from traces.files import Line, atomic_writer
from traces.formats import TraceFormat
from traces.readers.header_csv import HeaderCsv, columns_of, suggest_name
from traces.trace import CHECKPOINTS, CONDITIONS, ParsedTrace, TraceJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traces.trace import Trace


#: Every field of the native formats. ``total_steps`` and ``duration_s`` exclude each other.
FIELDS = (
    "job_id",
    "job_type",
    "total_steps",
    "duration_s",
    "scale_factor",
    "min_workers",
    "max_workers",
    "arrival_s",
    "weight",
    "deadline_s",
    "entity",
    "max_failures",
    "restart_s",
    "restarts",
    "labels",
    "project",
    "depends_on",
    "array_index",
    "max_run_time_s",
    "retry_oom",
    "checkpoints",
    "preemptible",
    "min_run_time_s",
    "worker_types",
    "mixed_gangs",
)
#: Rare fields with their defaults; written if a job of the trace has another value.
_USUAL = {
    "restarts": {},
    "checkpoints": True,
    "preemptible": True,
    "min_run_time_s": 0.0,
    "worker_types": (),
    "mixed_gangs": False,
}
#: Fields that are JSON objects, also in a CSV.
_OBJECTS = ("labels", "restarts")
_FLAGS = ("retry_oom", "checkpoints", "preemptible", "mixed_gangs")
#: Fields that stand for other fields; the other fields are written.
_INSTEAD = ("duration_s", "min_workers", "max_workers")
_WRITTEN = tuple(n for n in FIELDS if n not in {*_INSTEAD, *CONDITIONS, *_USUAL})
_TEXT = ("job_id", "job_type", "entity", "project")


def parse_native_csv(text: str, *, path: str) -> ParsedTrace:
    """Read the native CSV.

    Raises:
        TraceError: the file is malformed.
    """
    table = HeaderCsv.parse(text, path=path)
    table.require(("arrival_s",), optional=FIELDS)
    if not {"total_steps", "duration_s"} & set(table.header):
        raise TraceError(
            "there is no column with the work of a job; add total_steps, or duration_s",
            path=path,
            line=len(table.comments) + 1,
            field="total_steps",
            value=",".join(table.header),
        )
    jobs = []
    for number, texts in table.rows:
        values = zip(table.header, texts, strict=True)
        row = {name: value for name, value in values if value != ""}
        jobs.append(_job(row, Line(path, number)))
    return ParsedTrace(jobs=jobs, notes=table.comments)


def parse_native_jsonl(text: str, *, path: str) -> ParsedTrace:
    """Read JSON lines: one object per line, with the fields of the CSV.

    Raises:
        TraceError: the file is malformed.
    """
    jobs = []
    for number, content in enumerate(text.split("\n"), 1):
        if content.strip():
            line = Line(path, number)
            jobs.append(_job(_strings(content, line), line))
    return ParsedTrace(jobs=jobs)


def _strings(content: str, line: Line) -> dict[str, str]:
    """Return the object's fields as the CSV would write them."""
    try:
        row = json.loads(content)
    except json.JSONDecodeError as error:
        problem = f"the line is not JSON: {error.msg} in column {error.colno}"
        line.fail(problem, value=content[:80])
    if not isinstance(row, dict):
        line.fail("the line must be a JSON object", value=content[:80])
    texts = {}
    for name, given in row.items():
        value = _plain(name, given)
        if name not in FIELDS:
            hint = suggest_name(name, FIELDS)
            line.fail(
                f"unknown field{hint}; known are {', '.join(FIELDS)}", field=name, value=value
            )
        if isinstance(value, bool) or (isinstance(value, dict | list) and name not in _OBJECTS):
            line.fail("it must be a number or a text", field=name, value=value)
        if name in _TEXT and value is not None and not isinstance(value, str):
            line.fail("it must be a text", field=name, value=value)
        if value is not None and value != "":
            texts[name] = json.dumps(value) if name in _OBJECTS else str(value)
    return texts


def _plain(name: str, value: object) -> object:
    """Return a list of ids or counts, or a yes or no, as the CSV would write it."""
    lists = ("depends_on", "worker_types")
    if name in lists and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return " ".join(value)
    if name == "scale_factor" and isinstance(value, list) and value:
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in value)
        return " ".join(map(str, value)) if whole else value
    if name in _FLAGS and isinstance(value, bool):
        return str(value).lower()
    return value


def _job(row: Mapping[str, str], line: Line) -> TraceJob:
    """Build a draft from the fields that are given."""
    if ("total_steps" in row) == ("duration_s" in row):
        line.fail(
            "give either total_steps or duration_s",
            field="total_steps",
            value=row.get("total_steps"),
        )
    if "arrival_s" not in row:
        line.fail("the field is missing; give seconds since the start", field="arrival_s")
    index = row.get("array_index")
    return TraceJob(
        line=line.number,
        job_id=row.get("job_id", ""),
        job_type=row.get("job_type", ""),
        total_steps=_optional(row, "total_steps", line, above=0.0),
        duration_s=_optional(row, "duration_s", line, above=0.0),
        scale_factors=_counts(row, line),
        arrival_s=line.number_in(row["arrival_s"], "arrival_s"),
        weight=line.number_in(row.get("weight", "1"), "weight", above=0.0),
        deadline_s=_optional(row, "deadline_s", line),
        entity=row.get("entity", ""),
        max_failures=line.integer_in(row.get("max_failures", "3"), "max_failures"),
        restart_s=line.number_in(row.get("restart_s", "0"), "restart_s"),
        restarts=_restarts(row.get("restarts", ""), line),
        labels=_labels(row.get("labels", ""), line),
        checkpoint_dir=CHECKPOINTS if _flag(row, "checkpoints", line) else None,
        preemptible=_flag(row, "preemptible", line),
        min_run_time_s=_optional(row, "min_run_time_s", line) or 0.0,
        worker_types=tuple(sorted(set(row.get("worker_types", "").split()))),
        mixed_gangs=_flag(row, "mixed_gangs", line, usual=False),
        project=row.get("project", DEFAULT_PROJECT),
        depends_on=tuple(row.get("depends_on", "").split()),
        array_index=None if index is None else line.integer_in(index, "array_index"),
        max_run_time_s=_optional(row, "max_run_time_s", line, above=0.0),
        retry_oom=_flag(row, "retry_oom", line),
    )


def _flag(row: Mapping[str, str], field: str, line: Line, *, usual: bool = True) -> bool:
    """Return a yes or no; the default if the field is empty."""
    value = row.get(field, str(usual)).lower()
    if value not in {"true", "false"}:
        line.fail("it must be true or false", field=field, value=row[field])
    return value == "true"


def _counts(row: Mapping[str, str], line: Line) -> tuple[int, ...]:
    """Return worker counts, ascending: one, several with spaces or commas between, or a range."""
    if "min_workers" not in row and "max_workers" not in row:
        text = row.get("scale_factor", "1")
        parts = text.replace(",", " ").split() or [text]
        return tuple(sorted({line.integer_in(p, "scale_factor", at_least=1) for p in parts}))
    if "scale_factor" in row:
        line.fail(
            "give scale_factor, or min_workers and max_workers, not both",
            field="scale_factor",
            value=row["scale_factor"],
        )
    if "max_workers" not in row:
        line.fail("give max_workers too", field="min_workers", value=row["min_workers"])
    least = line.integer_in(row.get("min_workers", "1"), "min_workers", at_least=1)
    most = line.integer_in(row["max_workers"], "max_workers", at_least=1)
    if not least <= most <= LARGEST_GANG:
        line.fail(
            f"it must be at least min_workers, {least}, and at most {LARGEST_GANG}",
            field="max_workers",
            value=row["max_workers"],
        )
    return counts_between(least, most)


def _optional(
    row: Mapping[str, str], field: str, line: Line, *, above: float | None = None
) -> float | None:
    return line.number_in(row[field], field, above=above) if field in row else None


def _labels(text: str, line: Line) -> Mapping[str, str]:
    labels = _object(text)
    if labels is None or not all(isinstance(v, str) for v in labels.values()):
        problem = 'it must be a JSON object of texts, such as {"team": "vision"}'
        line.fail(problem, field="labels", value=text)
    return labels


def _restarts(text: str, line: Line) -> Mapping[str, float]:
    restarts = _object(text)
    if restarts is None or not all(is_seconds(v) for v in restarts.values()):
        problem = 'it must be a JSON object of seconds >= 0, such as {"v100": 60, "v100:8": 300}'
        line.fail(problem, field="restarts", value=text)
    return {workers: float(seconds) for workers, seconds in restarts.items()}


def _object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None if the text is not one; an empty one for an empty text."""
    try:
        found = json.loads(text or "{}")
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace in a native format; the jobs that are read back are equal.

    Args:
        trace: the trace. Its notes become comments of the CSV; JSON lines have no place for them.
        path: ``.csv``, or ``.jsonl`` for JSON lines. Replaced as a whole, or left as it was when an
            error occurs.

    Raises:
        TraceError: the suffix is another one, or the folder cannot be written to.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        problem = "the suffix tells the format to write; end the name with .csv or .jsonl"
        raise TraceError(problem, path=os.fspath(path), field="suffix", value=suffix)
    rare = any(getattr(job, name) != usual for job in trace.jobs for name, usual in _USUAL.items())
    conditions = any(job.has_conditions for job in trace.jobs)
    with atomic_writer(path) as stream:
        if suffix == ".jsonl":
            for job in trace.jobs:
                row = _fields(job, rare=rare, conditions=conditions)
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            return
        for note in trace.notes:
            stream.writelines(f"# {line}\n" for line in note.splitlines())
        writer = csv.writer(stream, lineterminator="\n")
        more = (*(_USUAL if rare else ()), *(CONDITIONS if conditions else ()))
        writer.writerow((*_WRITTEN, *more))
        for job in trace.jobs:
            row = _fields(job, rare=rare, conditions=conditions)
            for name in _OBJECTS:
                if name in row:
                    row[name] = json.dumps(row[name], ensure_ascii=False) if row[name] else ""
            writer.writerow("" if value is None else value for value in row.values())


def _fields(job: TraceJob, *, rare: bool, conditions: bool) -> dict[str, Any]:
    """Return a job's fields as a file writes them."""
    names = (*_WRITTEN, *(_USUAL if rare else ()), *(CONDITIONS if conditions else ()))
    row = {name: getattr(job, name) for name in names}
    row["labels"] = dict(job.labels)
    if len(job.scale_factors) > 1:
        row["scale_factor"] = " ".join(map(str, job.scale_factors))
    if rare:
        row |= {"restarts": dict(job.restarts), "worker_types": " ".join(job.worker_types)}
    if conditions:
        row["depends_on"] = " ".join(job.depends_on)
        row["project"] = "" if job.project == DEFAULT_PROJECT else job.project
    return {n: str(v).lower() if isinstance(v, bool) else v for n, v in row.items()}


NATIVE_CSV: Final = TraceFormat(
    parse=parse_native_csv,
    starts=lambda line: columns_of(line).issubset(FIELDS),
    shape="a CSV with the header of docs/reference/traces.md",
)
NATIVE_JSONL: Final = TraceFormat(
    parse=parse_native_jsonl,
    starts=lambda line: line.lstrip().startswith("{"),
    shape="a JSON object per line",
)
