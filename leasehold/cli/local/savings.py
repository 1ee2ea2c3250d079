"""``leasehold savings``: savings of policies over a plain queue, in one report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.cli import exit_codes, multi_options, options
from leasehold.cli.display.output import print_shown, table
from leasehold.cli.local.compare import print_warnings, run_requests
from scheduler.errors import ParameterError
from simulator.many.parallel import check_policies, process_count
from simulator.many.policy_items import parse_policies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from simulator.many.parallel import RunOutcome
    from simulator.many.savings import PolicyFigures
    from simulator.request import SimulationRequest
    from traces.trace import Trace

_QUEUE = "plain queue"


def savings(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...", help="The trace; or several that differ in their job types only."
        ),
    ],
    *,
    throughputs: options.Throughputs,
    cluster: options.ClusterSpec,
    policies: multi_options.Policies = ["max_min_fairness"],  # noqa: B006 - typer copies it
    trace_format: options.TraceFormat = "auto",
    round_length: options.RoundLength = 360.0,
    workers_per_node: options.WorkersPerNode = 4,
    overheads: options.OverheadFile = "default",
    strict_order: Annotated[
        bool,
        typer.Option("--strict-order", help="No job of the queue starts before an earlier one."),
    ] = False,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Of the intervals, above 0 and below 1.")
    ] = 0.9,
    seed: options.Seed = 0,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    limit: options.Limit = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the HTML report and savings.json.")
    ] = Path("leasehold-savings"),
    processes: multi_options.Processes = None,
    json_output: options.Json = False,
) -> None:
    """Replay a trace in a plain queue and under policies, and compare their use."""
    from simulator.many.savings import check_same_jobs  # noqa: PLC0415 - keeps the start quick
    from simulator.staging import check_replaceable  # noqa: PLC0415 - keeps the start quick
    from traces.cluster import read_cluster  # noqa: PLC0415 - keeps the start quick
    from traces.reader import read_trace  # noqa: PLC0415 - keeps the start quick
    from traces.tables.throughputs import read_throughputs  # noqa: PLC0415 - keeps the start quick

    if not 0 < confidence < 1:
        raise ParameterError(f"--confidence is {confidence}; it must be above 0 and below 1")
    check_replaceable(out)  # before hours of simulation, not after
    known = read_throughputs(throughputs, derive_counts=derive_counts)
    machines = read_cluster(cluster, workers_per_node=workers_per_node)
    draws = [
        read_trace(
            name,
            format=trace_format,
            throughputs=known,
            seed=seed,
            reference_worker_type=reference,
            limit=limit,
        )
        for name in traces
    ]
    check_same_jobs(draws)
    requests = _make_requests(
        draws,
        policies,
        strict_order=strict_order,
        throughputs=known,
        cluster=machines,
        round_length_s=round_length,
        overheads=overheads,
        seed=seed,
        record=True,
    )
    outcomes = _run(requests, processes)
    failed = {
        label: outcome.error
        for label, of_label in outcomes.items()
        for outcome in of_label
        if outcome.error
    }
    figures = _compare(outcomes, machines, confidence=confidence, seed=seed)
    assumptions = _list_assumptions(
        draws, known, machines, overheads=overheads, strict_order=strict_order
    )
    if figures and (left_out := len(draws[0].jobs) - figures[0].jobs):
        assumptions.append(
            f"{left_out:,} of {len(draws[0].jobs):,} jobs are left out: they did not complete in "
            "every run."
        )
    shown = {
        "policies": [asdict(one) for one in figures],
        "assumptions": assumptions,
        "failed": failed,
        "report": str(out / "report.html") if figures else None,
    }
    if figures:
        days = draws[0].span_s / 86_400.0
        subtitle = f"{len(draws[0].jobs):,} jobs over {days:,.1f} days on {machines.spec}"
        _write(figures, shown, out, subtitle=subtitle, confidence=confidence)
    if json_output:
        typer.echo(json.dumps(shown, indent=2))
    else:
        _print(figures, shown, confidence=confidence)
    if failed:
        raise typer.Exit(exit_codes.FAILED)


def _make_requests(
    draws: Sequence[Trace], policies: Sequence[str], *, strict_order: bool, **options: Any
) -> dict[str, list[SimulationRequest]]:
    """Return the requests of the queue and of each policy, one for each trace, by label."""
    from simulator.many.savings import make_queue_trace  # noqa: PLC0415 - keeps the start quick
    from simulator.request import SimulationRequest  # noqa: PLC0415 - keeps the start quick

    of_policies = [
        [
            SimulationRequest(
                trace=trace,
                policy=item.name,
                params=item.params,
                agnostic=item.agnostic,
                space_sharing=item.space_sharing,
                **options,
            )
            for trace in draws
        ]
        for item in parse_policies(policies)
    ]
    check_policies([requests[0] for requests in of_policies])
    of_queue = [
        SimulationRequest(
            trace=make_queue_trace(trace),
            policy="fifo",
            params={"backfill": str(not strict_order).lower()},
            agnostic=True,
            **options,
        )
        for trace in draws
    ]
    return {_QUEUE: of_queue, **{requests[0].label: requests for requests in of_policies}}


def _run(
    requests: Mapping[str, Sequence[SimulationRequest]], processes: int | None
) -> dict[str, list[RunOutcome]]:
    """Run the requests of each label and return their outcomes by label."""
    from simulator.inputs import name_of  # noqa: PLC0415 - keeps the start quick

    flat = [(label, request) for label, some in requests.items() for request in some]
    several = len(flat) > len(requests)
    outcomes = run_requests(
        [request for _, request in flat],
        process_count(processes, len(flat)),
        labels=[f"{x}, {name_of(request.trace)}" if several else x for x, request in flat],
    )
    print_warnings(o.result for o in outcomes if o.result is not None)
    by_label: dict[str, list[RunOutcome]] = {label: [] for label in requests}
    for (label, _), outcome in zip(flat, outcomes, strict=True):
        by_label[label].append(outcome)
    return by_label


def _compare(
    outcomes: Mapping[str, Sequence[RunOutcome]],
    cluster: Cluster,
    *,
    confidence: float,
    seed: int,
) -> list[PolicyFigures]:
    """Return the figures of the queue and of each policy without a failed run."""
    from simulator.many.savings import compare_with_queue, sum_use_by_job  # noqa: PLC0415 - keeps the start quick

    prices = {kind.name: kind.cost_usd_per_hour for kind in cluster.worker_types}
    uses = {}
    for label, of_label in outcomes.items():
        results = [outcome.result for outcome in of_label if outcome.result is not None]
        if len(results) == len(of_label):
            uses[label] = [sum_use_by_job(result, prices) for result in results]
    if _QUEUE not in uses or len(uses) < 2:
        return []
    draws = list(zip(*uses.values(), strict=True))
    return compare_with_queue(list(uses), draws, confidence=confidence, seed=seed)


def _list_assumptions(
    draws: Sequence[Trace],
    throughputs: ThroughputTable,
    cluster: Cluster,
    *,
    overheads: str,
    strict_order: bool,
) -> list[str]:
    """Return the assumptions behind the figures, a sentence each."""
    source = (throughputs.source or "as given").splitlines()[0].rstrip(".")
    free = [kind.name for kind in cluster.worker_types if not kind.cost_usd_per_hour]
    restarts = "no time" if overheads == "none" else f"the times of --overheads {overheads}"
    sentences = (
        "The queue is first come, first served, and never preempts a job.",
        "No job of the queue starts before an earlier one."
        if strict_order
        else "A later job of the queue may start on workers that an earlier one cannot use.",
        "The queue does not know that worker types differ.",
        f"The queue fills worker types in the order {', '.join(cluster.type_names)}.",
        "A queue that plans starts for waiting jobs, or has priorities, gives other figures.",
        "Users submit the same jobs at the same times under every policy.",
        "Each job runs at the throughput that the table has for it.",
        f"Source of the throughput table: {source}.",
        f"Launches and restarts take {restarts}, in the queue too.",
        f"No price is known for {', '.join(free)}: it counts as 0 USD." if free else "",
        *dict.fromkeys(note for trace in draws for note in trace.notes),
    )
    return [sentence for sentence in sentences if sentence]


def _write(
    figures: Sequence[PolicyFigures],
    shown: Mapping[str, Any],
    out: Path,
    *,
    subtitle: str,
    confidence: float,
) -> None:
    from simulator.report.savings_page import render_savings_page  # noqa: PLC0415 - keeps the start quick
    from simulator.staging import staged_directory  # noqa: PLC0415 - keeps the start quick

    page = render_savings_page(
        figures, subtitle=subtitle, assumptions=shown["assumptions"], confidence=confidence
    )
    with staged_directory(out, kind="savings") as folder:
        (folder / "report.html").write_text(page, encoding="utf-8")
        text = json.dumps(shown, indent=2) + "\n"
        (folder / "savings.json").write_text(text, encoding="utf-8")


def _print(
    figures: Sequence[PolicyFigures], shown: Mapping[str, Any], *, confidence: float
) -> None:
    from simulator.report.savings_page import (  # noqa: PLC0415 - keeps the start quick
        COLUMNS,
        describe_intervals,
        format_figures,
    )

    if figures:
        rows = [(one.policy, *format_figures(one)) for one in figures]
        print_shown(table(["", *(f">{title}" for title in COLUMNS)], rows), "")
        print_shown(describe_intervals(figures, confidence), "", "Assumptions:")
        print_shown(*(f"- {text}" for text in shown["assumptions"]))
    for label, error in shown["failed"].items():
        typer.echo(f"failed: {label}: {error}", err=True)
    if figures:
        typer.echo(f"\nreport: {shown['report']}")
