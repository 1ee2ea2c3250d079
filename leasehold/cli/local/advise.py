"""``leasehold advise``: which worker types to add or drop, found by replays of the load."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.cli import exit_codes, multi_options, options
from leasehold.cli.display.output import print_shown, table
from leasehold.cli.local.compare import run_requests
from leasehold.cli.options import parse_params
from scheduler.errors import InputError, ParameterError
from scheduler.views.times import parse_span
from simulator.many.parallel import process_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from simulator.many.cluster_search import ClusterSpace, Counts, Goal, ReplayedCluster
    from simulator.request import SimulationRequest


def advise(
    trace: options.Trace,
    *,
    throughputs: options.Throughputs,
    cluster: options.ClusterSpec,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD/H", help="Find the shortest JCT at this cost."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="SPAN", help="Find the lowest cost at this JCT."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="mean|p95", help="Which JCT counts.")
    ] = "mean",
    types: Annotated[
        str | None,
        typer.Option("--types", metavar="A,B", help="Worker types to try beside the present ones."),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="Name: see `leasehold policies list`.")
    ] = "max_min_fairness",
    param: Annotated[
        list[str] | None, typer.Option("--param", help="KEY=VALUE of the policy; repeatable.")
    ] = None,
    replays: Annotated[
        int, typer.Option("--replays", metavar="N", min=1, help="Clusters to replay at most.")
    ] = 40,
    trace_format: options.TraceFormat = "auto",
    window: options.Window = None,
    round_length: options.RoundLength = 360.0,
    workers_per_node: options.WorkersPerNode = 4,
    overheads: options.OverheadFile = "none",
    seed: options.Seed = 0,
    reference: options.Reference = None,
    derive_counts: options.DeriveCounts = False,
    limit: options.Limit = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the HTML report and advice.json.")
    ] = Path("leasehold-advice"),
    processes: multi_options.Processes = None,
    json_output: options.Json = False,
) -> None:
    """Replay a load on clusters around the present one, and compare cost and JCT."""
    from simulator.many.cluster_search import search_clusters  # noqa: PLC0415 - keeps the start quick
    from simulator.report.advice_page import render_advice_page  # noqa: PLC0415 - keeps the start quick
    from simulator.request import SimulationRequest, parse_window  # noqa: PLC0415 - keeps the start quick
    from simulator.staging import check_replaceable, staged_directory  # noqa: PLC0415 - keeps the start quick
    from traces.cluster import read_cluster  # noqa: PLC0415 - keeps the start quick
    from traces.reader import read_trace  # noqa: PLC0415 - keeps the start quick
    from traces.tables.throughputs import read_throughputs  # noqa: PLC0415 - keeps the start quick

    goal = _goal(metric, budget, target)
    check_replaceable(out)  # before hours of simulation, not after
    known = read_throughputs(throughputs, derive_counts=derive_counts)
    present = read_cluster(cluster, workers_per_node=workers_per_node)
    space = _space(present, known, types)
    start = tuple(map(int, present.capacity)) + (0,) * (len(space.types) - len(present.capacity))
    read = read_trace(
        trace,
        format=trace_format,
        throughputs=known,
        seed=seed,
        reference_worker_type=reference,
        limit=limit,
    )
    base = SimulationRequest(
        trace=read,
        throughputs=known,
        cluster=present,
        policy=policy,
        params=parse_params(param or []),
        window=parse_window(window) if window else None,
        round_length_s=round_length,
        overheads=overheads,
        seed=seed,
    )
    base.make_policy()  # before anything runs
    replay = _Replay(base, space, jobs=len(read.jobs), processes=processes)
    clusters = search_clusters(start, space, goal, replay, max_replays=replays)
    found, interrupted = _collect(clusters, replay)
    for spec, error in replay.failed.items():
        typer.echo(f"failed: {spec}: {error}", err=True)
    if space.spec(start) in replay.failed:
        raise typer.Exit(exit_codes.FAILED)
    shown = _to_json(found, space, goal, failed=replay.failed, report=out / "report.html")
    headline = _describe_result(found, space, goal)
    subtitle = f"{len(read.jobs):,} jobs under {base.label}; present cluster {space.spec(start)}"
    page = render_advice_page(found, space, goal, headline=headline, subtitle=subtitle)
    with staged_directory(out, kind="advice") as folder:
        (folder / "report.html").write_text(page, encoding="utf-8")
        (folder / "advice.json").write_text(json.dumps(shown, indent=2) + "\n", encoding="utf-8")
    if json_output:
        typer.echo(json.dumps(shown, indent=2))
    else:
        print_shown(headline, "", _table(found, space, goal), "")
        print_shown(f"{len(found)} clusters were replayed with {len(read.jobs):,} jobs.", "")
        typer.echo(f"report: {shown['report']}")
    if interrupted:
        raise typer.Exit(exit_codes.INTERRUPTED)
    if replay.failed:
        raise typer.Exit(exit_codes.FAILED)


def _collect(
    clusters: Iterable[ReplayedCluster], replay: _Replay
) -> tuple[list[ReplayedCluster], bool]:
    """Return the replayed clusters, and whether Ctrl-C ended the search."""
    found: list[ReplayedCluster] = []
    try:
        for cluster in clusters:
            found.append(cluster)
            if len(found) == 1 and replay.failed:  # no cluster can be compared with the present one
                break
    except KeyboardInterrupt:
        if not found:
            raise
        typer.echo(f"leasehold: interrupted after {len(found)} replays", err=True)
        return found, True
    return found, False


def _goal(metric: str, budget: float | None, target: str | None) -> Goal:
    from simulator.many.cluster_search import METRICS, Goal  # noqa: PLC0415 - keeps the start quick

    if metric not in METRICS:
        raise ParameterError(f"--metric is '{metric}'; give {' or '.join(METRICS)}")
    if budget is not None and target is not None:
        raise ParameterError(f"--budget {budget:g} and --target {target} exclude each other")
    if budget is not None and not 0 < budget < math.inf:
        raise ParameterError(f"--budget is {budget:g}; give USD per hour, above 0")
    target_s = None if target is None else parse_span(target, name="--target")
    if target_s == 0:
        raise ParameterError(f"--target is '{target}'; give a span above 0, such as 6h")
    return Goal(metric=metric, budget_usd_per_hour=budget, target_s=target_s)


def _space(present: Cluster, known: ThroughputTable, types: str | None) -> ClusterSpace:
    """Return the clusters to search: the present worker types, and those of ``--types``."""
    from simulator.many.cluster_search import ClusterSpace  # noqa: PLC0415 - keeps the start quick
    from traces.cluster import read_prices  # noqa: PLC0415 - keeps the start quick

    stated = {k.name: k.cost_usd_per_hour for k in present.worker_types if k.cost_usd_per_hour}
    prices = read_prices() | stated
    added = [name.strip() for name in types.split(",")] if types is not None else []
    names = tuple(dict.fromkeys((*present.type_names, *added)))
    for name in names:
        option = "--types" if name in added else "--cluster"
        if name not in known.worker_types:
            raise InputError(
                f"{option} names worker type '{name}', which is not in the throughput table; it "
                f"knows {', '.join(known.worker_types)}"
            )
        if not prices.get(name):
            raise InputError(
                f"{option} names worker type '{name}', which has no price; give its "
                "cost_usd_per_hour in the YAML file of --cluster"
            )
    return ClusterSpace(
        types=names,
        prices=tuple(prices[name] for name in names),
        node_workers=max(len(node.workers) for node in present.nodes),
    )


class _Replay:
    """Replays the load on clusters, several at once.

    Attributes:
        failed: cluster, as ``type:count`` pairs -> why its replay failed.
    """

    def __init__(
        self, base: SimulationRequest, space: ClusterSpace, *, jobs: int, processes: int | None
    ) -> None:
        self._base, self._space, self._jobs, self._processes = base, space, jobs, processes
        self.failed: dict[str, str] = {}

    def __call__(self, clusters: Sequence[Counts]) -> list[ReplayedCluster]:
        """Return the figures of each cluster."""
        from simulator.many.cluster_search import summarise_replay  # noqa: PLC0415 - keeps the start quick

        specs = [self._space.spec(counts) for counts in clusters]
        outcomes = run_requests(
            [replace(self._base, cluster=self._space.cluster(counts)) for counts in clusters],
            process_count(self._processes, len(clusters)),
            labels=specs,
        )
        found = []
        for counts, spec, outcome in zip(clusters, specs, outcomes, strict=True):
            if outcome.error:
                self.failed[spec] = outcome.error
            summary = None if outcome.result is None else outcome.result.summary
            found.append(summarise_replay(counts, self._space, summary, self._jobs))
        return found


def _describe_result(found: Sequence[ReplayedCluster], space: ClusterSpace, goal: Goal) -> str:
    """Return the result of the search in one sentence."""
    from simulator.report.advice_page import (  # noqa: PLC0415 - keeps the start quick
        describe_changes,
        format_jct,
    )

    best = goal.find_best(found)
    if best is None:
        return f"Clusters around {space.spec(found[0].counts)}"
    limit = (
        f"at most {goal.budget_usd_per_hour:,.2f} USD per hour"
        if goal.budget_usd_per_hour is not None
        else f"a {goal.metric} JCT of at most {format_jct(goal.target_s or 0.0)} h"
    )
    figures = (
        f"{space.spec(best.counts)} ({describe_changes(found[0], best, space)}), "
        f"{best.usd_per_hour:,.2f} USD per hour, "
        f"{goal.metric} JCT {format_jct(best.jct_s(goal.metric))} h"
    )
    if goal.is_met(best):
        return f"Best cluster with {limit}: {figures}"
    return f"No replayed cluster completes every job with {limit}. The nearest is {figures}"


def _table(found: Sequence[ReplayedCluster], space: ClusterSpace, goal: Goal) -> RenderableType:
    from simulator.report.advice_page import (  # noqa: PLC0415 - keeps the start quick
        COLUMNS,
        choose_rows,
        format_cluster,
    )

    change, *figures = COLUMNS
    return table(
        ("cluster", change, *(f">{title}" for title in figures)),
        [
            (space.spec(cluster.counts), *format_cluster(found[0], cluster, space))
            for cluster in choose_rows(found, goal)
        ],
    )


def _to_json(
    found: Sequence[ReplayedCluster],
    space: ClusterSpace,
    goal: Goal,
    *,
    failed: Mapping[str, str],
    report: Path,
) -> dict[str, Any]:
    """Return the result as an object for JSON."""
    from simulator.many.cluster_search import (  # noqa: PLC0415 - keeps the start quick
        find_changes,
        find_frontier,
    )

    def row(cluster: ReplayedCluster) -> dict[str, Any]:
        changes = find_changes(found[0].counts, cluster.counts, space.types)
        figures = {"cluster": space.spec(cluster.counts), "changes": changes, **asdict(cluster)}
        del figures["counts"]
        return {key: None if value == math.inf else value for key, value in figures.items()}

    best = goal.find_best(found)
    return {
        "advice": row(best) if best is not None and goal.is_met(best) else None,
        "present": row(found[0]),
        "frontier": [row(cluster) for cluster in find_frontier(found, goal.metric)],
        "replayed": [row(cluster) for cluster in found],
        "failed": dict(failed),
        "report": str(report),
    }
