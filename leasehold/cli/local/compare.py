"""``leasehold compare``: a trace under several policies, one table and one report."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.cli import exit_codes, multi_options, options
from scheduler.errors import InputError
from simulator.many.parallel import check_policies, process_count
from simulator.many.policy_items import parse_policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from simulator.many.parallel import RunOutcome
    from simulator.request import SimulationRequest
    from simulator.result import SimulationResult


def compare(
    trace: options.Trace,
    *,
    cluster: options.ClusterSpec,
    throughputs: options.SomeThroughputs = None,
    policies: multi_options.Policies,
    agnostic: multi_options.Agnostic = False,
    space_sharing: multi_options.SpaceSharing = False,
    trace_format: options.TraceFormat = "auto",
    window: options.Window = None,
    until: options.Until = None,
    round_length: options.RoundLength = 360.0,
    workers_per_node: options.WorkersPerNode = 4,
    overheads: options.OverheadFile = "none",
    failures: options.FailureFile = None,
    seed: options.Seed = 0,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    locality: options.Locality = False,
    batches: options.Batches = None,
    models: options.Models = None,
    hardware: options.HardwareFile = None,
    limit: options.Limit = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the HTML report and each policy's files.")
    ] = Path("leasehold-comparison"),
    chrome_trace: Annotated[
        bool, typer.Option("--chrome-trace", help="Also write a trace for Perfetto per policy.")
    ] = False,
    processes: multi_options.Processes = None,
    json_output: options.Json = False,
) -> None:
    """Replay a trace under several policies, each in a process, and write one report."""
    from simulator.request import SimulationRequest, parse_window  # noqa: PLC0415  --help is quick
    from simulator.staging import check_replaceable  # noqa: PLC0415 - keeps the start quick

    requests = [
        SimulationRequest(
            trace=trace,
            trace_format=trace_format,
            throughputs=options.table_of(throughputs, models, locality=locality),
            cluster=cluster,
            policy=item.name,
            params=item.params,
            agnostic=agnostic or item.agnostic,
            space_sharing=space_sharing or item.space_sharing,
            window=parse_window(window) if window else None,
            until_s=math.inf if until is None else until,
            round_length_s=round_length,
            workers_per_node=workers_per_node,
            overheads=overheads,
            failures=failures,
            seed=seed,
            reference_worker_type=reference,
            derive_counts=derive_counts,
            locality=locality,
            batches=batches,
            models=models,
            hardware=hardware,
            limit=limit,
            record=True,
        )
        for item in parse_policies(policies)
    ]
    check_policies(requests)
    check_replaceable(out)  # before hours of simulation, not after
    outcomes = run_requests(requests, process_count(processes, len(requests)))
    results = [o.result for o in outcomes if o.result is not None]
    failed = {o.request.label: o.error for o in outcomes if o.result is None}
    if results:
        _write(results, out, chrome_trace=chrome_trace)
    _print(results, failed, out, json_output=json_output)
    if failed:
        raise typer.Exit(exit_codes.FAILED)


def run_requests(
    requests: Sequence[SimulationRequest],
    processes: int,
    *,
    labels: Sequence[str] | None = None,
) -> list[RunOutcome]:
    """Run simulations in parallel and show their progress.

    Args:
        requests: the simulations.
        processes: simulations at the same time.
        labels: names of the runs; the labels of their policies by default.

    Raises:
        InputError: all of them failed because of the same input.
    """
    from simulator.many.parallel import first_bad_input, run_all  # noqa: PLC0415 - keeps the start quick
    from simulator.many.run_progress import show_progress  # noqa: PLC0415 - keeps the start quick

    with show_progress(labels or [request.label for request in requests]) as listener:
        outcomes = run_all(requests, processes=processes, listener=listener)
    message = first_bad_input(outcomes)
    if message:  # the same for all: printed once, as in every other command
        raise InputError(message)
    return outcomes


def _write(results: Sequence[SimulationResult], out: Path, *, chrome_trace: bool) -> None:
    from simulator.report.chrome_trace import write_chrome_trace  # noqa: PLC0415 - keeps the start quick
    from simulator.report.files import write_files  # noqa: PLC0415 - keeps the start quick
    from simulator.report.page import write_report  # noqa: PLC0415 - keeps the start quick
    from simulator.staging import staged_directory  # noqa: PLC0415 - keeps the start quick

    with staged_directory(out, kind="comparison") as folder:
        for result in results:
            part = folder / folder_name(result.summary.policy)
            part.mkdir()
            write_files(result, part)
            if chrome_trace:
                write_chrome_trace(result, part / "trace.json")
        write_report(results, folder / "report.html", runs=folder / "runs.json")
        _write_summaries(results, folder / "summary.csv")


def folder_name(label: str) -> str:
    """Return a policy's label as a folder name, without characters that a shell would quote."""
    return re.sub(r"[^\w.+=,-]+", "-", label)


def _write_summaries(results: Sequence[SimulationResult], path: Path) -> None:
    rows = [result.summary.to_dict(timings=False) for result in results]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def print_warnings(results: Iterable[SimulationResult]) -> None:
    """Print the warnings of runs to stderr."""
    for result in results:
        for warning in result.warnings:
            typer.echo(f"leasehold: warning: {result.summary.policy}: {warning}", err=True)


def _print(
    results: Sequence[SimulationResult], failed: Mapping[str, str], out: Path, *, json_output: bool
) -> None:
    print_warnings(results)
    report = str(out / "report.html") if results else None
    if json_output:
        shown = {
            "results": [result.summary.to_dict() for result in results],
            "failed": dict(failed),
            "report": report,
        }
        typer.echo(json.dumps(shown, indent=2))
        return
    if results:
        from simulator.tables.summaries import print_summaries  # noqa: PLC0415 - keeps the start quick

        print_summaries([result.summary for result in results])
    for label, error in failed.items():
        typer.echo(f"failed: {label}: {error}", err=True)
    if report:
        typer.echo(f"\nreport: {report}")
