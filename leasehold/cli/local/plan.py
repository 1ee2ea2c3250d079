"""``leasehold plan``: the ways in which a model could run on a cluster, with speed and memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli import exit_codes, options
from leasehold.cli.display.output import print_json, print_shown, table
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.plans.hardware import Hardware
    from planner.plans.ranking import BestPlan
    from planner.plans.training import Training
    from planner.plans.transformer import Transformer
    from scheduler.domain.cluster import Cluster

#: A part of the time from which on the price of memory is said.
_COSTS: Final = 0.01
#: Parts of a step -> their headings.
_PARTS: Final = {
    "compute_s": "compute",
    "launch_s": "launch",
    "tensor_s": "tensor",
    "pipeline_s": "pipeline",
    "bubble_s": "bubble",
    "data_s": "data",
    "update_s": "update",
}


def plan(
    model: Annotated[
        Path, typer.Argument(help="The model's config.json for Hugging Face, or its folder.")
    ],
    *,
    cluster: options.ClusterSpec,
    batch: Annotated[
        int,
        typer.Option("--batch", metavar="N", min=1, max=2**31, help="Samples of a step, in all."),
    ],
    sequence: Annotated[
        int | None,
        typer.Option(
            "--sequence",
            metavar="N",
            min=1,
            max=2**24,
            help="Tokens of a sample; by default the model's longest, at most 4096.",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers", metavar="N,N", help="Worker counts; 1, 2, 4 and so on by default."
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", help="fp32, tf32, fp16, bf16 or fp8.")
    ] = "fp16",
    hardware: Annotated[
        Path | None,
        typer.Option("--hardware", help="YAML file of accelerators, beside the bundled ones."),
    ] = None,
    json_output: options.Json = False,
) -> None:
    """Show how a model could run on each worker type: plan, speed, memory and cost."""
    from planner.plans.training import Training  # noqa: PLC0415 - keeps the start quick
    from traces.cluster import read_cluster  # noqa: PLC0415 - keeps the start quick

    training = Training(model=_read_model(model, sequence), batch=batch, precision=precision)
    found = read_cluster(cluster)
    is_file = Path(cluster).suffix in {".yaml", ".yml"} or Path(cluster).is_file()
    ways, prices = _ways(training, found, workers, hardware, nodes_count=is_file)
    if json_output:
        print_json(_to_json(training, ways, prices))
    else:
        print_shown(_headline(training), "", _table(training, ways, prices), "")
        for line in _remarks(ways):
            print_shown(line)
    if not any(way.fits for way in ways):
        raise typer.Exit(exit_codes.REFUSED)


def _ways(
    training: Training,
    cluster: Cluster,
    workers: str | None,
    hardware: Path | None,
    *,
    nodes_count: bool,
) -> tuple[list[BestPlan], dict[str, float]]:
    """Return the best way for each worker type and count, and the prices of worker types.

    Args:
        training: the model and its step.
        cluster: the worker types and their numbers.
        workers: worker counts, as given.
        hardware: a user's file of accelerators.
        nodes_count: whether the cluster's nodes are real ones; else the catalogue's count.

    Raises:
        InputError: no worker type can be used.
    """
    import msgspec  # noqa: PLC0415 - keeps the start quick

    from planner.plans.calibration import uncalibrated  # noqa: PLC0415 - keeps the start quick
    from planner.plans.hardware import read_hardware  # noqa: PLC0415 - keeps the start quick
    from planner.plans.ranking import BestPlan, best_plan  # noqa: PLC0415 - keeps the start quick
    from traces.yaml_file import read_yaml  # noqa: PLC0415 - keeps the start quick

    own = None if hardware is None else read_yaml(hardware)
    catalogue = read_hardware(own, place=str(hardware))
    ways: list[BestPlan] = []
    prices: dict[str, float] = {}
    refused: list[InputError] = []
    sizes = zip(cluster.worker_types, map(int, cluster.capacity), strict=True)
    for kind, capacity in [(kind, size) for kind, size in sizes if size]:
        name = kind.name
        try:
            accelerator = catalogue.find(name)
            accelerator.flops(training.precision)
        except InputError as error:
            ways.append(BestPlan(worker_type=name, workers=capacity, reason=str(error)))
            refused.append(error)
            continue
        if nodes_count:
            most = max(node.workers.count(name) for node in cluster.nodes)
            accelerator = msgspec.structs.replace(accelerator, per_node=most)
        prices[name] = kind.cost_usd_per_hour or _list_price(catalogue, name)
        for count in _counts(workers, capacity):
            if count > capacity:
                reason = f"the cluster has {capacity}"
                ways.append(BestPlan(worker_type=name, workers=count, reason=reason))
            else:
                ways.append(best_plan(training, name, accelerator, count, uncalibrated()))
    if refused and not prices:
        raise refused[0]
    return ways, prices


def _list_price(catalogue: Hardware, name: str) -> float:
    """Return the list price of an accelerator by any of its names; 0 if there is none."""
    from traces.cluster import read_prices  # noqa: PLC0415 - keeps the start quick

    wanted = catalogue.find(name)
    for other, price in read_prices().items():
        if catalogue.has(other) and catalogue.find(other) is wanted:
            return price
    return 0.0


def _read_model(path: Path, sequence: int | None) -> Transformer:
    from planner.plans.hugging_face import read_config  # noqa: PLC0415 - keeps the start quick

    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{file} is a {type(config).__name__}; it must be an object")
    name = file.parent.resolve().name if file.name == "config.json" else file.stem
    try:
        return read_config(config, name=name, sequence=sequence)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _counts(wanted: str | None, capacity: int) -> list[int]:
    """Return worker counts: those asked for, else powers of two and the capacity."""
    if wanted is None:
        powers = [2**k for k in range(20) if 2**k < capacity]
        return [*powers, capacity]
    try:
        counts = sorted({int(word) for word in wanted.split(",")})
    except ValueError:
        counts = [0]
    if counts[0] < 1:
        raise InputError(f"--workers is '{wanted}'; give whole numbers from 1, such as 1,2,4,8")
    return counts


def _usd_per_million(
    training: Training, way: BestPlan, prices: Mapping[str, float]
) -> float | None:
    """Return the price of a million tokens; None if it is unknown."""
    price = prices.get(way.worker_type)
    if not price or not way.fits:
        return None
    tokens = training.batch * training.model.sequence
    return way.step_s / 3600 * way.workers * price / tokens * 1e6


def _headline(training: Training) -> str:
    model = training.model
    return (
        f"{model.name}: {model.parameters / 1e9:.3g} billion parameters, {model.layers} layers; "
        f"steps of {training.batch} samples with {model.sequence} tokens, {training.precision}"
    )


def _table(training: Training, ways: Sequence[BestPlan], prices: Mapping[str, float]) -> Any:
    tokens = training.batch * training.model.sequence
    shown = [name for name in _PARTS if any(_part(way, name) >= 0.005 for way in ways)]
    rows = []
    for way in ways:
        if not way.fits:
            continue
        usd = _usd_per_million(training, way, prices)
        rows.append(
            (
                way.worker_type,
                way.workers,
                str(way.plan),
                f"{1 / way.step_s:.3g}",
                f"{tokens / way.step_s:,.0f}",
                *(f"{_part(way, name):.0%}" for name in shown),
                f"{sum(way.memory.values()) / 1e9:.1f}",
                "" if usd is None else f"{usd:.3g}",
            )
        )
    headings = (
        *("type", ">workers", "plan", ">steps/s", ">tokens/s"),
        *(f">{_PARTS[name]}" for name in shown),
        *(">GB", ">USD/M tokens"),
    )
    return table(headings, rows, spare=(*(_PARTS[name] for name in shown[::-1]), "USD/M tokens"))


def _part(way: BestPlan, name: str) -> float:
    return way.parts[name] / way.step_s if way.fits else 0.0


def _remarks(ways: Sequence[BestPlan]) -> Iterator[str]:
    """Yield why ways cannot run, and the price of memory for those that can."""
    for way in ways:
        where = f"{way.workers} {way.worker_type}"
        if not way.fits:
            yield f"{where}: {way.reason}"
        elif way.unbounded is not None:
            costs = way.step_s / way.unbounded_step_s - 1
            if costs >= _COSTS:
                yield (
                    f"{where}: {way.unbounded} would be fastest and needs "
                    f"{way.unbounded_lacking / 1e9:.1f} GB too much; {way.plan} fits and costs "
                    f"{costs:.0%}"
                )


def _to_json(
    training: Training, ways: Sequence[BestPlan], prices: Mapping[str, float]
) -> dict[str, Any]:
    """Return the ways as an object for JSON."""
    return {
        "model": asdict(training.model) | {"parameters": training.model.parameters},
        "batch": training.batch,
        "precision": training.precision,
        "ways": [
            {
                "worker_type": way.worker_type,
                "workers": way.workers,
                "fits": way.fits,
                "reason": way.reason,
                "plan": asdict(way.plan) if way.plan else None,
                "steps_per_s": 1 / way.step_s,
                "parts_s": dict(way.parts),
                "memory_bytes": dict(way.memory),
                "lacking_bytes": way.lacking,
                "usd_per_million_tokens": _usd_per_million(training, way, prices),
                "unbounded_plan": asdict(way.unbounded) if way.unbounded else None,
                "unbounded_steps_per_s": 1 / way.unbounded_step_s if way.unbounded else None,
                "unbounded_lacking_bytes": way.unbounded_lacking,
            }
            for way in ways
        ],
    }
