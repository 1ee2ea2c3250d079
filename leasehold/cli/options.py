"""Options that several commands share, and the request built from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from scheduler.domain.throughputs.throughput import ThroughputTable

Trace: TypeAlias = Annotated[str, typer.Argument(help="The trace: a file in any known format.")]
Throughputs: TypeAlias = Annotated[
    str,
    typer.Option("--throughputs", help="Throughput table: native CSV, Gavel's JSON, or bundled."),
]
SomeThroughputs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--throughputs",
        help="Throughput table: native CSV, Gavel's JSON, or bundled. Not needed if --models has "
        "all job types.",
    ),
]
ClusterSpec: TypeAlias = Annotated[
    str, typer.Option("--cluster", help="A spec such as v100:36,p100:36,k80:36, or a YAML file.")
]
TraceFormat: TypeAlias = Annotated[
    str, typer.Option("--format", help="The trace's format; detected from its content by default.")
]
Window: TypeAlias = Annotated[
    str | None,
    typer.Option("--window", help="Measure only positions A:B in order of arrival."),
]
Until: TypeAlias = Annotated[
    float | None,
    typer.Option("--until", metavar="S", help="End after so many seconds, even if jobs are left."),
]
RoundLength: TypeAlias = Annotated[
    float, typer.Option("--round-length", help="Seconds of a round.")
]
WorkersPerNode: TypeAlias = Annotated[
    int, typer.Option("--workers-per-node", help="Workers on a node, for a cluster spec.")
]
OverheadFile: TypeAlias = Annotated[
    str,
    typer.Option(
        "--overheads", help="Seconds to launch, checkpoint and restore: none, default, or a file."
    ),
]
FailureFile: TypeAlias = Annotated[
    str | None, typer.Option("--failures", help="YAML file that says how workers and jobs fail.")
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", help="Seed of every random draw.")]
Reference: TypeAlias = Annotated[
    str | None,
    typer.Option("--reference", help="Worker type on which durations of a trace become steps."),
]
Locality: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--locality",
        help="Use the slower rows TYPE_unconsolidated of the table for gangs on several nodes.",
    ),
]
Batches: TypeAlias = Annotated[
    str | None,
    typer.Option("--batches", help="YAML file of the job types with a variable batch."),
]
Models: TypeAlias = Annotated[
    str | None,
    typer.Option("--models", help="YAML file of the job types that are planned by their model."),
]
HardwareFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--hardware", help="YAML file of accelerators, beside the bundled ones."),
]
Limit: TypeAlias = Annotated[
    int | None, typer.Option("--limit", help="Read only so many jobs of the trace.")
]
DeriveCounts: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--derive-counts",
        help="Derive steps/s at worker counts for which the throughput table has no row; without "
        "it a job does not run at them.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def parse_params(items: list[str], flag: str = "--param") -> dict[str, str]:
    """Turn ``KEY=VALUE`` items of a flag into a mapping.

    Raises:
        ParameterError: an item has no ``=`` or no key, or a key comes twice.
    """
    params: dict[str, str] = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise ParameterError(f"{flag} is '{item}'; give KEY=VALUE")
        if key in params:
            raise ParameterError(f"{flag} '{key}' is given twice; give it once")
        params[key] = value
    return params


def table_of(
    throughputs: str | None, models: str | None, *, locality: bool = False
) -> str | ThroughputTable:
    """Return the throughput table of a run; an empty one if models are all that it needs.

    Raises:
        ParameterError: neither is given, or rows of a table are asked for that is not given.
    """
    if throughputs is not None:
        return throughputs
    if models is None:
        raise ParameterError("no throughputs are given; give --throughputs FILE or --models FILE")
    if locality:
        raise ParameterError(
            "--locality asks for rows of a table; give --throughputs FILE, or leave it out: plans "
            "of models heed nodes anyway"
        )
    from scheduler.domain.throughputs.throughput import (  # noqa: PLC0415 - keeps the start quick
        ThroughputTable,
    )

    return ThroughputTable(isolated={}, source="none")
