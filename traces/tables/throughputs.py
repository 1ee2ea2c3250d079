"""Reading and writing throughput tables."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from scheduler.domain.throughputs.throughput import ProfileKey, ThroughputTable
from scheduler.errors import InputError, TraceError
from traces.bundle import resolve
from traces.files import Line, atomic_writer, read_text
from traces.readers.header_csv import suggest_name
from traces.tables.gavel import SPREAD, parse_gavel_throughputs

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

#: Columns of the native table; the last three stay empty in rows about a job alone.
THROUGHPUT_COLUMNS = (
    "job_type",
    "scale_factor",
    "worker_type",
    "steps_per_s",
    "with_job_type",
    "with_scale_factor",
    "with_steps_per_s",
)

_Figure = TypeVar("_Figure")
_Isolated = dict[ProfileKey, dict[str, float]]
_Shared = dict[tuple[ProfileKey, ProfileKey], dict[str, tuple[float, float]]]


def read_throughputs(
    path: str | os.PathLike[str],
    *,
    unconsolidated: bool = False,
    derive_counts: bool = False,
    locality: bool = False,
) -> ThroughputTable:
    """Read a throughput table; the content determines the format.

    Args:
        path: Gavel's JSON, or the native CSV (``docs/reference/traces.md``); ``bundled`` stands for
            the table of the package.
        unconsolidated: keep Gavel's worker types ``<type>_unconsolidated`` (gangs spread over
            nodes), which are left out otherwise.
        derive_counts: see ``ThroughputTable``.
        locality: take rows of worker types ``<type>_unconsolidated`` for the speed of gangs on
            several nodes (``ThroughputTable.spread``).

    Returns:
        Steps/s alone and in pairs.

    Raises:
        TraceError: the file is missing or malformed; names line, field and value.
    """
    name = resolve(path, usual="throughputs")
    text = read_text(name)
    if text.lstrip().startswith("{"):
        table = parse_gavel_throughputs(text, path=name, unconsolidated=unconsolidated or locality)
    else:
        table = _parse_native(text, path=name)
    table = replace(table, derive_counts=derive_counts)
    return _with_spread(table) if locality else table


def _with_spread(table: ThroughputTable) -> ThroughputTable:
    """Return the table with its rows for gangs on several nodes as ``spread``."""
    several = [name for name in table.worker_types if name.endswith(SPREAD)]
    if not several:
        raise InputError(
            f"{table.source or 'the throughput table'} does not say how fast gangs are on several "
            f"nodes; give rows of worker types such as v100{SPREAD}, or leave out --locality"
        )
    spread = {
        key: {name.removesuffix(SPREAD): row.get(name, 0.0) for name in several}
        for key, row in table.isolated.items()
        if key[1] > 1
    }
    isolated = {key: _of_one_node(row) for key, row in table.isolated.items()}
    shared = {keys: _of_one_node(row) for keys, row in table.shared.items()}
    return replace(
        table,
        isolated={key: row for key, row in isolated.items() if row},
        shared={keys: row for keys, row in shared.items() if row},
        spread=spread,
    )


def _of_one_node(row: Mapping[str, _Figure]) -> dict[str, _Figure]:
    return {name: figure for name, figure in row.items() if not name.endswith(SPREAD)}


def write_throughputs(table: ThroughputTable, path: str | os.PathLike[str]) -> None:
    """Write a table as native CSV; reading it back gives an equal table.

    Args:
        table: the table. Every pair is written once, its smaller key first.
        path: replaced as a whole, or left as it was when an error occurs.

    Raises:
        TraceError: the folder cannot be written to.
    """
    with atomic_writer(path) as stream:
        for line in table.source.splitlines():
            stream.write(f"# {line}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(THROUGHPUT_COLUMNS)
        writer.writerows(_rows(table))


def _rows(table: ThroughputTable) -> Iterator[tuple[object, ...]]:
    for (job_type, scale_factor), row in table.isolated.items():
        for worker_type, steps_per_s in row.items():
            yield job_type, scale_factor, worker_type, steps_per_s, "", "", ""
    for key, row in table.spread.items():
        for worker_type, steps_per_s in row.items():
            yield *key, worker_type + SPREAD, steps_per_s, "", "", ""
    for (first, second), shared in table.shared.items():
        if first <= second:
            for worker_type, (mine, others) in shared.items():
                yield *first, worker_type, mine, *second, others


def _parse_native(text: str, *, path: str) -> ThroughputTable:
    lines = text.split("\n")
    comments = 0
    while comments < len(lines) and lines[comments].startswith("#"):
        comments += 1
    source = "\n".join(line[1:].strip() for line in lines[:comments])
    reader = csv.reader(f"{line}\n" for line in lines[comments:])
    header = [column.strip() for column in next(reader, [])]
    _check_header(header, path=path, line=comments + 1)
    isolated: _Isolated = {}
    shared: _Shared = {}
    for fields in reader:
        if fields:
            _read_row(fields, Line(path, comments + reader.line_num), isolated, shared)
    if not isolated:
        raise TraceError("the table has no rows; give at least one", path=path)
    _check_pairs(isolated, shared, path=path)
    return ThroughputTable(isolated=isolated, shared=shared, source=source or path)


def _check_header(header: list[str], *, path: str, line: int) -> None:
    if tuple(header) in (THROUGHPUT_COLUMNS, THROUGHPUT_COLUMNS[:4]):
        return
    field, problem = _fault_of_header(header)
    raise TraceError(
        f"{problem}; a throughput table is Gavel's JSON or a CSV with the header "
        f"{','.join(THROUGHPUT_COLUMNS)} (the last three columns may be left out)",
        path=path,
        line=line,
        field=field,
        value=None if field in header else ",".join(header),
    )


def _fault_of_header(header: list[str]) -> tuple[str | None, str]:
    """Return the first column that is wrong, if there is one, and the fault of the header."""
    unknown = [column for column in header if column not in THROUGHPUT_COLUMNS]
    for column in unknown:
        if near := suggest_name(column, THROUGHPUT_COLUMNS):
            return column, f"unknown column{near}"
    for column in THROUGHPUT_COLUMNS[:4]:
        if column not in header:
            return column, f"column '{column}' is missing"
    return (
        (unknown[0], "unknown column") if unknown else (None, "columns differ in number or order")
    )


def _read_row(fields: list[str], line: Line, isolated: _Isolated, shared: _Shared) -> None:
    fields = fields + [""] * 3 if len(fields) == 4 else fields
    line.columns(fields, len(THROUGHPUT_COLUMNS), "a throughput table")
    job_type, scale_factor, worker_type, steps_per_s, with_type, with_scale, with_steps = fields
    for value, field in ((job_type, "job_type"), (worker_type, "worker_type")):
        if not value:
            line.fail("it must not be empty", field=field, value=value)
    key = (job_type, line.integer_in(scale_factor, "scale_factor", at_least=1))
    mine = line.number_in(steps_per_s, "steps_per_s")
    if not with_type:
        row = isolated.setdefault(key, {})
        if worker_type in row:
            line.fail(f"{key} on {worker_type} is listed twice; keep one row", field="job_type")
        row[worker_type] = mine
        return
    other = (with_type, line.integer_in(with_scale, "with_scale_factor", at_least=1))
    others = line.number_in(with_steps, "with_steps_per_s")
    if worker_type in shared.get((key, other), {}):
        line.fail(f"the pair {key}, {other} on {worker_type} is listed twice", field="job_type")
    shared.setdefault((key, other), {})[worker_type] = (mine, others)
    shared.setdefault((other, key), {})[worker_type] = (others, mine)


def _check_pairs(isolated: _Isolated, shared: _Shared, *, path: str) -> None:
    for key, _ in shared:
        if key not in isolated:
            raise TraceError(
                "a pair names a job type and scale factor without a row of its own; add its "
                "throughput alone",
                path=path,
                field="with_job_type",
                value=key,
            )
