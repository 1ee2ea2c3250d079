"""``leasehold sweep``: a grid of arrival rates, policies and seeds on generated traces."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold import __version__
from leasehold.cli import exit_codes, multi_options, options
from scheduler.errors import InputError, ParameterError
from simulator.many.parallel import check_policies, process_count
from simulator.many.policy_items import parse_policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.domain.throughputs.throughput import ThroughputTable
    from simulator.many.parallel import RunOutcome
    from simulator.many.sweep import CellResult, CellStore, Point, SweepCell
    from simulator.progress import Progress


def sweep(
    *,
    throughputs: options.Throughputs,
    cluster: options.ClusterSpec,
    policies: multi_options.Policies,
    rates: Annotated[str, typer.Option("--rates", metavar="R,R,...", help="Jobs per hour.")],
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="S,S,...|A:B", help="Seeds, or A <= seed < B.")
    ] = "0:3",
    kind: Annotated[
        str, typer.Option("--kind", help="Workload to generate: gavel or philly.")
    ] = "gavel",
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, help="Jobs of each generated trace.")
    ] = 1000,
    multi: Annotated[bool, typer.Option("--multi", help="Generate gangs too.")] = False,
    agnostic: multi_options.Agnostic = False,
    space_sharing: multi_options.SpaceSharing = False,
    window: options.Window = None,
    round_length: options.RoundLength = 360.0,
    workers_per_node: options.WorkersPerNode = 4,
    overheads: options.OverheadFile = "none",
    failures: options.FailureFile = None,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for cells and report; finished cells are kept.")
    ] = Path("leasehold-sweep"),
    processes: multi_options.Processes = None,
    json_output: options.Json = False,
) -> None:
    """Run every arrival rate under every policy with every seed; a stopped sweep resumes."""
    from simulator.many.sweep import CellStore, SweepCell  # noqa: PLC0415 - keeps the start quick
    from simulator.request import SimulationRequest, parse_window  # noqa: PLC0415  --help is quick
    from simulator.staging import claim_directory  # noqa: PLC0415 - keeps the start quick
    from traces.bundle import resolve  # noqa: PLC0415 - keeps the start quick
    from traces.tables.throughputs import read_throughputs  # noqa: PLC0415 - keeps the start quick

    items = parse_policies(policies)
    rate_list, seed_list = parse_rates(rates), parse_seeds(seeds)
    measured = parse_window(window) if window else None
    if measured and measured[1] > jobs:
        raise ParameterError(f"window ends at {measured[1]}, but --jobs is {jobs}")
    table = resolve(throughputs, usual="throughputs")
    cells = [
        SweepCell(
            rate_per_hour=rate,
            seed=seed,
            request=SimulationRequest(
                trace=str(out / "traces" / _trace_name(kind, rate, seed, jobs, multi=multi)),
                throughputs=table,
                cluster=resolve(cluster, usual="cluster"),
                policy=item.name,
                params=item.params,
                agnostic=agnostic or item.agnostic,
                space_sharing=space_sharing or item.space_sharing,
                window=measured,
                round_length_s=round_length,
                workers_per_node=workers_per_node,
                overheads=overheads,
                failures=failures,
                seed=seed,
                reference_worker_type=reference,
                derive_counts=derive_counts,
            ),
        )
        for item in items
        for rate in rate_list
        for seed in seed_list
    ]
    check_policies([cell.request for cell in cells[:: len(rate_list) * len(seed_list)]])
    claim_directory(out, kind="sweep")
    known = read_throughputs(table, derive_counts=derive_counts)
    _generate(cells, kind=kind, jobs=jobs, multi=multi, known=known, reference=reference)
    store = CellStore(out / "cells", version=__version__)
    finished, failed = _run(cells, store, processes)
    _write(finished, out, subtitle=f"{kind}, {jobs} jobs per trace, cluster {cluster}")
    _print(finished, failed, out, json_output=json_output)
    if failed:
        raise typer.Exit(exit_codes.FAILED)


def parse_rates(text: str) -> list[float]:
    """Parse ``0.2,0.4``.

    Raises:
        ParameterError: one is no number above 0, or comes twice.
    """
    rates = [_number(part.strip()) for part in text.split(",")]
    if len(set(rates)) < len(rates):
        raise ParameterError(f"--rates is '{text}'; name every rate once")
    return rates


def _number(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise ParameterError(f"--rates has '{text}'; a rate is a number of jobs per hour above 0")
    return rate


def parse_seeds(text: str) -> list[int]:
    """Parse ``0,1,5`` or ``A:B``.

    Raises:
        ParameterError: it is neither, is empty, or names a seed twice.
    """
    first, colon, last = text.partition(":")
    parts = [part.strip() for part in ([first, last] if colon else text.split(","))]
    if not all(part.isdecimal() for part in parts):
        raise ParameterError(f"--seeds is '{text}'; give whole numbers such as 0,1,2 or 0:3")
    numbers = [int(part) for part in parts]
    seeds = list(range(numbers[0], numbers[1])) if colon else numbers
    if not seeds or len(set(seeds)) < len(seeds):
        raise ParameterError(f"--seeds is '{text}'; it must name at least one seed, each once")
    return seeds


def _trace_name(kind: str, rate: float, seed: int, jobs: int, *, multi: bool) -> str:
    return f"{kind}{'-multi' if multi else ''}-n{jobs}-rate{rate:g}-seed{seed}.csv"


def _generate(
    cells: Sequence[SweepCell],
    *,
    kind: str,
    jobs: int,
    multi: bool,
    known: ThroughputTable,
    reference: str | None,
) -> None:
    """Write the traces; they are cheap beside the runs, so existing ones are replaced."""
    from traces import generate, write_trace  # noqa: PLC0415 - keeps the start quick

    for name, cell in {cell.request.trace: cell for cell in cells}.items():
        trace = generate(
            kind,
            jobs=jobs,
            throughputs=known,
            rate_per_hour=cell.rate_per_hour,
            multi=multi,
            seed=cell.seed,
            reference_worker_type=reference,
        )
        Path(str(name)).parent.mkdir(exist_ok=True)
        write_trace(trace, str(name))


class _Storing:
    """Stores every cell when it is finished, so that a stopped sweep loses no finished cell."""

    def __init__(self, cells: Sequence[SweepCell], store: CellStore) -> None:
        self._cells = cells
        self._store = store
        self._ended = 0

    def started(self, index: int) -> None:
        """Print nothing yet."""

    def progressed(self, index: int, progress: Progress) -> None:
        """Print nothing yet."""

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Store the cell and print its outcome."""
        from simulator.many.run_progress import end_note  # noqa: PLC0415 - keeps the start quick

        self._ended += 1
        if outcome.result is not None:
            self._store.put(self._cells[index], outcome.result.summary)
        count = f"[{self._ended}/{len(self._cells)}]"
        typer.echo(f"{count} {self._cells[index].label}: {end_note(outcome)}", err=True)


def _run(
    cells: Sequence[SweepCell], store: CellStore, processes: int | None
) -> tuple[list[CellResult], dict[str, str]]:
    """Run the missing cells; return finished cells in order, and the errors of others."""
    from simulator.many.parallel import first_bad_input, run_all  # noqa: PLC0415 - keeps the start quick

    missing = [cell for cell in cells if store.find(cell) is None]
    kept = len(cells) - len(missing)
    if kept:
        typer.echo(f"{kept} of {len(cells)} cells were finished before", err=True)
    outcomes = run_all(
        [cell.request for cell in missing],
        processes=process_count(processes, len(missing)),
        listener=_Storing(missing, store),
    )
    message = first_bad_input(outcomes) if outcomes else ""
    if message and not kept:
        raise InputError(message)
    failed = {c.label: o.error for c, o in zip(missing, outcomes, strict=True) if o.error}
    found = [store.find(cell) for cell in cells]
    return [result for result in found if result is not None], failed


def _write(results: Sequence[CellResult], out: Path, *, subtitle: str) -> None:
    from simulator.report.sweep_page import write_sweep_report  # noqa: PLC0415 - keeps the start quick
    from simulator.staging import staged_file  # noqa: PLC0415 - keeps the start quick

    if not results:
        return
    rows = [_row(result) for result in results]
    with staged_file(out / "sweep.csv") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_sweep_report(results, out / "report.html", subtitle=subtitle)


def _row(result: CellResult) -> dict[str, Any]:
    return {
        "rate_per_hour": result.rate_per_hour,
        **{key: value for key, value in result.figures.items() if key != "rate_per_hour"},
    }


def _print(
    results: Sequence[CellResult], failed: dict[str, str], out: Path, *, json_output: bool
) -> None:
    report = str(out / "report.html") if results else None
    if json_output:
        shown = {"cells": [_row(r) for r in results], "failed": failed, "report": report}
        typer.echo(json.dumps(shown, indent=2))
        return
    if results:
        _print_table(results)
    for label, error in failed.items():
        typer.echo(f"failed: {label}: {error}", err=True)
    if report:
        typer.echo(f"\nreport: {report}")


def _print_table(results: Iterable[CellResult]) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps the start quick
    from rich.table import Table  # noqa: PLC0415 - keeps the start quick
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    from simulator.many.sweep import curves_by_policy  # noqa: PLC0415 - keeps the start quick

    by_policy = curves_by_policy(results, "average_jct_s")
    rates = sorted({point.rate_per_hour for points in by_policy.values() for point in points})
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for rate in rates:
        table.add_column(f"{rate:g}/h", justify="right")
    for policy, points in by_policy.items():
        at = {point.rate_per_hour: _spread(point) for point in points}
        table.add_row(Text(policy), *(at.get(rate, "-") for rate in rates))
    console = Console()
    console = console if console.is_terminal else Console(width=240)
    console.print("average JCT in hours: mean (lowest to highest seed)", style="bold")
    console.print(table)


def _spread(point: Point) -> str:
    mean, low, high = (value / 3600 for value in (point.mean, point.low, point.high))
    return f"{mean:,.2f}" if point.seeds < 2 else f"{mean:,.2f} ({low:,.2f} to {high:,.2f})"
