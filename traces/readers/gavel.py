"""Traces of Gavel and of Shockwave: tab-separated, without a header.

Gavel's traces (Narayanan et al., OSDI 2020) have 10 columns, its older ones 7. Shockwave's (Zheng
et al., NSDI 2023) add the batch size mode and the duration to Gavel's.
"""

from __future__ import annotations

from typing import Final

from traces.files import Line
from traces.formats import TraceFormat
from traces.trace import ParsedTrace, TraceJob

_GAVEL = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time_s",
)
_OLD_GAVEL = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time_s",
    "scale_factor",
)
_SHOCKWAVE = (*_GAVEL[:7], "mode", "priority_weight", "SLO", "duration_s", "arrival_time_s")
_LABELS = ("command", "working_directory", "num_steps_arg", "needs_data_dir", "mode")

#: Columns by format; the first line of a file decides between the layouts of a format.
LAYOUTS = {"gavel": (_GAVEL, _OLD_GAVEL), "shockwave": (_SHOCKWAVE,)}


def parse_gavel(text: str, *, path: str) -> ParsedTrace:
    """Read a trace of Gavel, of 10 or of 7 columns.

    Raises:
        TraceError: a line is malformed.
    """
    return _parse(text, path, "gavel")


def parse_shockwave(text: str, *, path: str) -> ParsedTrace:
    """Read a trace of Shockwave.

    Raises:
        TraceError: a line is malformed.
    """
    return _parse(text, path, "shockwave")


def _parse(text: str, path: str, name: str) -> ParsedTrace:
    lines = enumerate(text.split("\n"), 1)
    rows = [(i, line.rstrip("\r").split("\t")) for i, line in lines if line.strip()]
    layout = _layout(len(rows[0][1]), name, Line(path, rows[0][0]), rows[0][1])
    return ParsedTrace(jobs=[_job(fields, Line(path, i), layout, name) for i, fields in rows])


def _layout(columns: int, name: str, line: Line, fields: list[str]) -> tuple[str, ...]:
    layouts = {len(layout): layout for layout in LAYOUTS[name]}
    if columns not in layouts:
        line.columns(fields, len(LAYOUTS[name][0]), f"a {name} trace (separated by tabs)")
    return layouts[columns]


def _job(fields: list[str], line: Line, layout: tuple[str, ...], name: str) -> TraceJob:
    line.columns(fields, len(layout), f"a {name} trace like this one")
    row = dict(zip(layout, fields, strict=True))
    if not row["job_type"]:
        line.fail("it must not be empty", field="job_type", value="")
    duration = row.get("duration_s")
    return TraceJob(
        line=line.number,
        job_type=row["job_type"],
        total_steps=line.number_in(row["total_steps"], "total_steps", above=0.0),
        scale_factors=(line.integer_in(row["scale_factor"], "scale_factor", at_least=1),),
        weight=line.number_in(row.get("priority_weight", "1"), "priority_weight", above=0.0),
        slo=_slo(row.get("SLO", "-1"), line),
        duration_s=None if duration is None else line.number_in(duration, "duration_s", above=0.0),
        arrival_s=line.number_in(row["arrival_time_s"], "arrival_time_s"),
        labels={key: row[key] for key in _LABELS if key in row},
    )


def _slo(text: str, line: Line) -> float | None:
    value = line.number_in(text, "SLO", at_least=-1.0)
    if value == -1.0:
        return None
    if value <= 0.0:
        line.fail("it must be -1 (none) or a multiple of the duration > 0", field="SLO", value=text)
    return value


def _has_columns(line: str, name: str) -> bool:
    # A line of JSON may hold tabs, too.
    tabs = line.count("\t") if line.lstrip()[:1] != "{" else 0
    return tabs > 0 and tabs + 1 in {len(layout) for layout in LAYOUTS[name]}


GAVEL: Final = TraceFormat(
    parse=parse_gavel,
    starts=lambda line: _has_columns(line, "gavel"),
    shape="10 columns separated by tabs, or 7",
)
SHOCKWAVE: Final = TraceFormat(
    parse=parse_shockwave,
    starts=lambda line: _has_columns(line, "shockwave"),
    shape="12 columns separated by tabs",
)
