"""``leasehold plan``: the ways in which a model could run on a cluster, with speed and memory."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path  # noqa: TC003  typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli import exit_codes, options
from leasehold.cli.display.output import print_json, print_shown, table
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.plans.hardware import Accelerator
    from planner.plans.plan import Plan
    from planner.plans.ranking import Training, Way
    from planner.plans.transformer import Transformer

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
        int, typer.Option("--batch", metavar="N", min=1, help="Samples of a step, in all.")
    ],
    sequence: Annotated[
        int | None,
        typer.Option(
            "--sequence",
            metavar="N",
            min=1,
            help="Tokens of a sample; the model's most by default.",
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
    from planner.plans.calibration import uncalibrated  # noqa: PLC0415 - keeps the start quick
    from planner.plans.hardware import read_hardware  # noqa: PLC0415 - keeps the start quick
    from planner.plans.ranking import Training, rank  # noqa: PLC0415 - keeps the start quick
    from traces.cluster import read_cluster  # noqa: PLC0415 - keeps the start quick

    read = _read_model(model, sequence)
    found = read_cluster(cluster)
    catalogue = read_hardware(hardware)
    accelerators = {name: catalogue.find(name) for name in found.type_names}
    capacity = dict(zip(found.type_names, map(int, found.capacity), strict=True))
    training = Training(model=read, batch=batch, precision=precision)
    ways = [
        way
        for name, accelerator in accelerators.items()
        for way in rank(
            training,
            {name: accelerator},
            _counts(workers, capacity[name]),
            {name: uncalibrated()},
        )
    ]
    prices = {one.name: one.cost_usd_per_hour for one in found.worker_types}
    if json_output:
        print_json(_to_json(training, ways, prices))
    else:
        print_shown(_headline(training), "", _table(training, ways, prices), "")
        for line in _remarks(ways, accelerators):
            print_shown(line)
    if not any(way.fits for way in ways):
        raise typer.Exit(exit_codes.REFUSED)


def _read_model(path: Path, sequence: int | None) -> Transformer:
    from planner.plans.hugging_face import read_config  # noqa: PLC0415 - keeps the start quick

    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
    return [count for count in counts if count <= capacity]


def describe(plan: Plan) -> str:
    """Return a plan in a few words."""
    sizes = [
        f"{name}{size}"
        for name, size in (("t", plan.tensor), ("p", plan.pipeline), ("d", plan.data))
        if size > 1
    ]
    words = [" ".join(sizes) or "whole", f"b{plan.microbatch}"]
    if plan.chunks > 1:
        words.append(f"v{plan.chunks}")
    if plan.recompute:
        words.append("recompute")
    if plan.shard:
        words.append(f"zero{plan.shard}")
    return " ".join(words)


def _usd_per_million(training: Training, way: Way, prices: Mapping[str, float]) -> float:
    tokens = training.batch * training.model.sequence
    return way.step_s / 3600 * way.workers * prices[way.worker_type] / tokens * 1e6


def _headline(training: Training) -> str:
    model = training.model
    return (
        f"{model.name}: {model.parameters / 1e9:.3g} billion parameters, {model.layers} layers; "
        f"steps of {training.batch} samples with {model.sequence} tokens, {training.precision}"
    )


def _table(training: Training, ways: Sequence[Way], prices: Mapping[str, float]) -> Any:
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
                describe(way.plan) if way.plan else "",
                f"{1 / way.step_s:.3g}",
                f"{tokens / way.step_s:,.0f}",
                *(f"{_part(way, name):.0%}" for name in shown),
                f"{sum(way.memory.values()) / 1e9:.1f}",
                f"{usd:.2f}" if usd else "",
            )
        )
    headings = (
        *("type", ">workers", "plan", ">steps/s", ">tokens/s"),
        *(f">{_PARTS[name]}" for name in shown),
        *(">GB", ">USD/M tokens"),
    )
    return table(headings, rows, spare=(*(_PARTS[name] for name in shown[::-1]), "USD/M tokens"))


def _part(way: Way, name: str) -> float:
    return way.parts[name] / way.step_s if way.fits else 0.0


def _remarks(ways: Sequence[Way], accelerators: Mapping[str, Accelerator]) -> Iterator[str]:
    """Yield what does not fit, and what memory costs those that do."""
    for way in ways:
        where = f"{way.workers} {way.worker_type}"
        if way.plan is None:
            yield f"{where}: the model, or the batch, cannot be split evenly over {way.workers}"
        elif not way.fits:
            has = accelerators[way.worker_type].memory_gb
            yield (
                f"{where}: {way.lacking / 1e9:.1f} GB too much for the {has:g} GB of each, even "
                f"with {describe(way.plan)}"
            )
        elif way.unbounded is not None:
            costs = way.step_s / way.unbounded_step_s - 1
            if costs >= 0.01:
                yield (
                    f"{where}: {describe(way.unbounded)} would be fastest and has "
                    f"{way.unbounded_lacking / 1e9:.1f} GB too much; {describe(way.plan)} fits and "
                    f"costs {costs:.0%}"
                )


def _to_json(
    training: Training, ways: Sequence[Way], prices: Mapping[str, float]
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
                "plan": asdict(way.plan) if way.plan else None,
                "step_s": way.step_s if math.isfinite(way.step_s) else None,
                "parts_s": dict(way.parts),
                "memory_bytes": dict(way.memory),
                "lacking_bytes": way.lacking,
                "usd_per_million_tokens": (
                    _usd_per_million(training, way, prices) if way.fits else None
                ),
            }
            for way in ways
        ],
    }
