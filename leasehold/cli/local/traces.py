"""``leasehold traces``: inspect, convert and generate workloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from leasehold.cli import options  # noqa: TC001  typer reads the annotations at run time
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.trace import Trace

app = typer.Typer(
    name="traces",
    help="Inspect, convert and generate traces.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

OptionalTable: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--throughputs",
        help="Throughput table: native CSV, Gavel's JSON, or 'bundled'. Needed "
        "if the trace has no job types or steps.",
    ),
]
Out: TypeAlias = Annotated[Path, typer.Argument(help="File to write: .csv or .jsonl.")]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


@app.command("inspect")
def inspect_trace(
    trace: options.Trace,
    *,
    throughputs: OptionalTable = None,
    trace_format: options.TraceFormat = "auto",
    seed: options.Seed = 0,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    limit: options.Limit = None,
    json_output: options.Json = False,
) -> None:
    """Show what a trace holds."""
    table = _table(throughputs, derive_counts=derive_counts)
    read = _read(trace, trace_format, table, seed, reference, limit)
    _show(read, table, reference, json_output=json_output)


@app.command("convert")
def convert(
    trace: options.Trace,
    out: Out,
    *,
    throughputs: OptionalTable = None,
    trace_format: options.TraceFormat = "auto",
    seed: options.Seed = 0,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    limit: options.Limit = None,
    force: Force = False,
    json_output: options.Json = False,
) -> None:
    """Write a trace of any known format in a native one."""
    table = _table(throughputs, derive_counts=derive_counts)
    read = _read(trace, trace_format, table, seed, reference, limit)
    _write(read, out, force=force)
    _show(read, table, reference, json_output=json_output, written=out)


@app.command("generate")
def generate_trace(
    out: Out,
    *,
    jobs: Annotated[int, typer.Option("--jobs", help="How many jobs.")],
    kind: Annotated[str, typer.Option("--kind", help="gavel or philly.")] = "gavel",
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Mean arrivals per hour; all at time 0 by default."),
    ] = None,
    multi: Annotated[bool, typer.Option("--multi", help="With gangs.")] = False,
    throughputs: Annotated[
        str, typer.Option("--throughputs", help="Native CSV, Gavel's JSON, or 'bundled'.")
    ] = "bundled",
    seed: options.Seed = 0,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    force: Force = False,
    json_output: options.Json = False,
) -> None:
    """Draw a workload from Gavel's distributions, or one that resembles Philly's."""
    from traces.generators.generate import generate  # noqa: PLC0415  keeps --help quick
    from traces.tables.throughputs import read_throughputs  # noqa: PLC0415 - keeps the start quick

    table = read_throughputs(throughputs, derive_counts=derive_counts)
    made = generate(
        kind,
        jobs=jobs,
        throughputs=table,
        rate_per_hour=rate,
        multi=multi,
        seed=seed,
        reference_worker_type=reference,
    )
    _write(made, out, force=force)
    _show(made, table, reference, json_output=json_output, written=out)


def _table(path: str | None, *, derive_counts: bool) -> ThroughputTable | None:
    from traces.tables.throughputs import read_throughputs  # noqa: PLC0415 - keeps the start quick

    return None if path is None else read_throughputs(path, derive_counts=derive_counts)


def _read(  # noqa: PLR0917  the options of two commands, in their order
    trace: str,
    trace_format: str,
    table: ThroughputTable | None,
    seed: int,
    reference: str | None,
    limit: int | None,
) -> Trace:
    from traces.reader import read_trace  # noqa: PLC0415 - keeps the start quick

    return read_trace(
        trace,
        format=trace_format,
        throughputs=table,
        seed=seed,
        reference_worker_type=reference,
        limit=limit,
    )


def _write(trace: Trace, out: Path, *, force: bool) -> None:
    from traces.readers.native import write_trace  # noqa: PLC0415 - keeps the start quick

    if out.exists() and not force:
        raise InputError(f"{out} exists; give another name, or --force to replace it")
    write_trace(trace, out)


def _show(
    trace: Trace,
    table: ThroughputTable | None,
    reference: str | None,
    *,
    json_output: bool,
    written: Path | None = None,
) -> None:
    from traces.summary import summarise  # noqa: PLC0415 - keeps the start quick
    from traces.tables.scaling import with_counts  # noqa: PLC0415 - keeps the start quick

    known = table and with_counts(table, trace.scale_factors)
    figures = summarise(trace, known, reference_worker_type=reference)
    if written is not None:
        figures["written"] = str(written)
    if json_output:
        typer.echo(json.dumps(figures))
        return
    console = Console()
    console.print(_figures(figures))
    for title, key in (("scale factor", "scale_factors"), ("entity", "entities")):
        _counts(console, title, figures[key])
    _counts(console, "job type", figures["job_types"])


def _figures(figures: Mapping[str, object]) -> Table:
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for key, value in figures.items():
        if isinstance(value, list):
            value = "\n".join(map(str, value))  # noqa: PLW2901  shown differently, not kept
        if not isinstance(value, dict) and value not in (None, ""):
            shown = f"{value:,.4g}" if isinstance(value, float) else str(value)
            grid.add_row(key, shown)
    return grid


def _counts(console: Console, title: str, counts: object) -> None:
    if not isinstance(counts, dict) or not counts:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title)
    table.add_column("jobs", justify="right")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    console.print()
    console.print(table)
