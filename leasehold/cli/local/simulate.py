"""``leasehold simulate``: replay a trace under one policy."""

from __future__ import annotations

import json
import math
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path  # noqa: TC003  typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from leasehold.cli import options
from leasehold.cli.options import parse_params
from leasehold.cli.progress import progress_bar, simulated_time
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.forecast_score import ForecastScore
    from simulator.request import SimulationRequest
    from simulator.result import Summary


def simulate(
    trace: options.Trace,
    *,
    cluster: options.ClusterSpec,
    throughputs: options.SomeThroughputs = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Name: see `leasehold policies list`.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", help="Replay the service as this file configures it."),
    ] = None,
    projects: Annotated[
        str | None,
        typer.Option("--projects", help="YAML file with limits of projects; with --config."),
    ] = None,
    orders: Annotated[
        str | None,
        typer.Option("--orders", help="YAML file with users' orders over time; with --config."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="KEY=VALUE of the policy; repeatable.")
    ] = None,
    trace_format: options.TraceFormat = "auto",
    agnostic: Annotated[
        bool, typer.Option("--agnostic", help="Hide that worker types differ.")
    ] = False,
    space_sharing: Annotated[
        bool, typer.Option("--space-sharing", help="Let two jobs share workers.")
    ] = False,
    window: options.Window = None,
    until: options.Until = None,
    round_length: Annotated[
        float | None, typer.Option("--round-length", help="Seconds of a round; 360 by default.")
    ] = None,
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
        Path | None, typer.Option("--out", help="Folder for results and an HTML report.")
    ] = None,
    forecasts: Annotated[
        int,
        typer.Option(
            "--forecasts",
            min=0,
            help="Forecast the completion of so many jobs at their submission, and score it.",
        ),
    ] = 0,
    futures: Annotated[
        int, typer.Option("--futures", min=1, help="Futures drawn for each; with --forecasts.")
    ] = 20,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Of the intervals; with --forecasts.")
    ] = 0.9,
    chrome_trace: Annotated[
        bool, typer.Option("--chrome-trace", help="Also write a trace for Perfetto under --out.")
    ] = False,
    json_output: options.Json = False,
) -> None:
    """Replay a trace under one policy and print its costs and metrics."""
    from simulator.forecast_score import ForecastScore  # noqa: PLC0415 - keeps the start quick
    from simulator.request import (  # noqa: PLC0415 - keeps the start quick
        ForecastOptions,
        parse_window,
    )
    from simulator.run import simulate as run  # noqa: PLC0415 - keeps the start quick
    from simulator.staging import check_replaceable  # noqa: PLC0415 - keeps the start quick

    if chrome_trace and out is None:
        raise ParameterError("--chrome-trace writes a file under --out; give --out DIR too")
    inputs: dict[str, Any] = {
        "trace": trace,
        "trace_format": trace_format,
        "throughputs": options.table_of(throughputs, models, locality=locality),
        "cluster": cluster,
        "window": parse_window(window) if window else None,
        "until_s": math.inf if until is None else until,
        "workers_per_node": workers_per_node,
        "overheads": overheads,
        "failures": failures,
        "seed": seed,
        "reference_worker_type": reference,
        "derive_counts": derive_counts,
        "locality": locality,
        "batches": batches,
        "models": models,
        "hardware": hardware,
        "limit": limit,
        "record": out is not None,
        "forecasts": ForecastOptions(
            jobs=forecasts, futures=futures, confidence=confidence, seed=seed
        ),
    }
    request = _request(
        inputs,
        config=config,
        projects=projects,
        orders=orders,
        policy=policy,
        params=param or [],
        agnostic=agnostic,
        space_sharing=space_sharing,
        round_length_s=round_length,
    )
    if out is not None:
        check_replaceable(out)  # before hours of simulation, not after
    # The output of a policy is no part of the JSON.
    apart = redirect_stdout(sys.stderr) if json_output else nullcontext()
    with progress_bar(request.label) as report, apart:
        result = run(request, report)
    if out is not None:
        from simulator.report.files import write_result  # noqa: PLC0415 - keeps the start quick

        write_result(result, out, report=True, chrome_trace=chrome_trace)
    for warning in result.warnings:
        typer.echo(f"leasehold: warning: {warning}", err=True)
    if json_output:
        figures: dict[str, Any] = result.summary.to_dict()
        if forecasts:
            figures["forecasts"] = ForecastScore.of(result.forecasts).to_dict()
        typer.echo(json.dumps(figures, indent=2))
        return
    Console().print(_table(result.summary))
    if forecasts:
        Console().print(_forecast_table(ForecastScore.of(result.forecasts), confidence))
    if out is not None:
        typer.echo(f"Report: {out / 'report.html'}")


def _request(
    inputs: Mapping[str, Any],
    *,
    config: str | None,
    projects: str | None,
    orders: str | None,
    policy: str | None,
    params: list[str],
    agnostic: bool,
    space_sharing: bool,
    round_length_s: float | None,
) -> SimulationRequest:
    """Return the request: for a policy by its name, or a service by its configuration."""
    from simulator.request import SimulationRequest  # noqa: PLC0415 - keeps the start quick

    if config is None:
        if policy is None:
            raise ParameterError("--policy is missing; name one, or give --config FILE")
        if projects is not None:
            raise ParameterError("--projects needs --config: only the service enforces quotas")
        if orders is not None:
            raise ParameterError("--orders needs --config: only the service takes orders")
        return SimulationRequest(
            policy=policy,
            params=parse_params(params),
            agnostic=agnostic,
            space_sharing=space_sharing,
            round_length_s=360.0 if round_length_s is None else round_length_s,
            **inputs,
        )
    given = {
        "--policy": policy,
        "--param": params,
        "--agnostic": agnostic,
        "--space-sharing": space_sharing,
        "--round-length": round_length_s,
    }
    _refuse_beside_config([flag for flag, value in given.items() if value])
    from leasehold.config.replays import read_service  # noqa: PLC0415 - keeps the start quick

    service = read_service(config, projects=projects, orders=orders)
    return SimulationRequest.of_service(service, **inputs)


def _refuse_beside_config(given: list[str]) -> None:
    if given:
        raise ParameterError(f"{given[0]} and --config: the configuration says it; set it there")


def _table(summary: Summary) -> Table:
    title = f"{summary.policy} on {summary.cluster} (profile {summary.profile})"
    table = Table(show_header=False, title=title)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in summary.to_dict().items():
        if name in {"policy", "cluster", "profile", "until_s"}:
            continue
        if name == "jobs_completed" and math.isfinite(summary.until_s):
            name = f"jobs_completed by {summary.until_s:,g} s"  # noqa: PLW2901  only shown so
        table.add_row(*_row(name, value))
    return table


def _forecast_table(score: ForecastScore, confidence: float) -> Table:
    table = Table(show_header=False, title="forecasts at submission, beside what came")
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("jobs forecast and completed", str(score.jobs))
    table.add_row("mean error", f"{score.mean_error:.1%}")
    table.add_row("99th percentile of errors", f"{score.p99_error:.1%}")
    table.add_row("mean error if no job came later", f"{score.mean_error_alone:.1%}")
    table.add_row(f"{confidence:.0%} intervals that held", f"{score.coverage:.1%}")
    table.add_row("median width of an interval", f"{score.median_width:.1%}")
    return table


def _row(name: str, value: str | float | None) -> tuple[str, str]:
    if value is None:
        return name, "-"
    if isinstance(value, str | int):
        return name, str(value)
    if name == "makespan_s":
        return name, f"{value:,.0f}  ({simulated_time(value)})"
    if name.endswith("jct_s"):
        return name, f"{value:,.0f}  ({value / 3600:.2f} h)"
    if name.startswith("solve_"):
        return name, f"{value:.6f}"
    return name, f"{value:,.3f}"
