"""``leasehold plan``: the ways in which a model could run on a cluster, with speed and memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.cli import exit_codes, options
from leasehold.cli.display.output import print_json, print_shown
from leasehold.cli.display.ways import headline, remarks, to_json, ways_table
from leasehold.cli.local.planned_model import read_training
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plans.hardware import Accelerator, Hardware
    from planner.plans.plan import Plan
    from planner.plans.ranking import BestPlan
    from planner.plans.training import LayeredTraining, Training
    from scheduler.domain.cluster import Cluster


def plan(
    model: Annotated[
        str,
        typer.Argument(
            help="A config.json for Hugging Face or its folder; a list of layers as YAML, JSON or "
            "CSV; or module:function for PyTorch."
        ),
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
            help="Tokens of a sample; by default what the file says, at most 4096.",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers", metavar="N,N", help="Worker counts; 1, 2, 4 and so on by default."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision", help="fp32, tf32, fp16, bf16 or fp8; by default the layers' or fp16."
        ),
    ] = None,
    hardware: options.HardwareFile = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="megatron|deepspeed|torchtitan",
            help="Print the plan for a framework, if one worker type and count are given.",
        ),
    ] = None,
    json_output: options.Json = False,
) -> None:
    """Show how a model could run on each worker type: plan, speed, memory and cost."""
    from traces.cluster import read_cluster  # noqa: PLC0415 - keeps the start quick

    training = read_training(model, batch=batch, sequence=sequence, precision=precision)
    found = read_cluster(cluster)
    is_file = Path(cluster).suffix in {".yaml", ".yml"} or Path(cluster).is_file()
    if framework is not None and json_output:
        raise InputError("--format has a form of its own; leave out --json")
    allows = _check_framework(framework, training)
    ways, prices = _ways(training, found, workers, hardware, nodes_count=is_file, allows=allows)
    if framework is not None:
        _print_arguments(framework, training, ways)
    elif json_output:
        print_json(to_json(training, ways, prices))
    else:
        print_shown(headline(training), "", ways_table(training, ways, prices), "")
        for line in remarks(ways):
            print_shown(line)
    if not any(way.fits for way in ways):
        raise typer.Exit(exit_codes.REFUSED)


def _check_framework(
    framework: str | None, training: Training | LayeredTraining
) -> Callable[[Plan], bool] | None:
    """Return whether a framework can carry out a plan, as a function; None without a framework.

    Raises:
        InputError: there is no such framework, or it cannot train the model.
    """
    if framework is None:
        return None
    from planner.plans.formats import (  # noqa: PLC0415 - keeps the start quick
        FRAMEWORKS,
        can_carry_out,
        check_model,
    )

    if framework not in FRAMEWORKS:
        raise InputError(f"--format is '{framework}'; it may be {', '.join(FRAMEWORKS)}")
    check_model(framework, training)
    return partial(can_carry_out, framework, training)


def _print_arguments(
    framework: str, training: Training | LayeredTraining, ways: list[BestPlan]
) -> None:
    """Print the one way that fits for a framework; if none does, say why as errors.

    Raises:
        InputError: several fit.
    """
    from planner.plans.formats import write_arguments  # noqa: PLC0415 - keeps the start quick

    fit = [way for way in ways if way.fits]
    if not fit:
        for line in remarks(ways):
            typer.echo(line, err=True)
        return
    if len(fit) > 1:
        first = fit[-1]
        raise InputError(
            f"--format prints one plan, and {len(fit)} ways fit; name one, such as --cluster "
            f"{first.worker_type}:{first.workers} --workers {first.workers}"
        )
    (way,) = fit
    assert way.plan is not None
    text, notes = write_arguments(framework, training, way.plan)
    print_shown(text)
    for note in notes:
        typer.echo(note, err=True)


def _ways(
    training: Training | LayeredTraining,
    cluster: Cluster,
    workers: str | None,
    hardware: str | None,
    *,
    nodes_count: bool,
    allows: Callable[[Plan], bool] | None,
) -> tuple[list[BestPlan], dict[str, float]]:
    """Return the best way for each worker type and count, and the prices of worker types.

    Args:
        training: the model and its step.
        cluster: the worker types and their numbers.
        workers: worker counts, as given.
        hardware: a user's file of accelerators.
        nodes_count: whether the cluster's nodes are real ones; else the catalogue's count.
        allows: returns whether a plan may be chosen; None if all may.

    Raises:
        InputError: no worker type can be used.
    """
    import msgspec  # noqa: PLC0415 - keeps the start quick

    from planner.plans.hardware import read_hardware  # noqa: PLC0415 - keeps the start quick
    from planner.plans.ranking import BestPlan  # noqa: PLC0415 - keeps the start quick
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
        best = _planner(training, name, accelerator, allows)
        for count in _counts(workers, capacity):
            if count > capacity:
                reason = f"the cluster has {capacity}"
                ways.append(BestPlan(worker_type=name, workers=count, reason=reason))
            else:
                ways.append(best(count))
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


def _planner(
    training: Training | LayeredTraining,
    name: str,
    accelerator: Accelerator,
    allows: Callable[[Plan], bool] | None,
) -> Callable[[int], BestPlan]:
    """Return a function from a worker count to the best plan on workers of a type."""
    from planner.plans.calibration import uncalibrated  # noqa: PLC0415 - keeps the start quick
    from planner.plans.ranking import (  # noqa: PLC0415 - keeps the start quick
        best_layered_plan,
        best_plan,
    )
    from planner.plans.stages import LayeredPlans  # noqa: PLC0415 - keeps the start quick
    from planner.plans.training import Training  # noqa: PLC0415 - keeps the start quick

    usual = uncalibrated()
    if isinstance(training, Training):
        return partial(best_plan, training, name, accelerator, calibration=usual, allows=allows)
    layered = LayeredPlans(training, name, accelerator, usual.rates)
    return partial(best_layered_plan, layered, allows=allows)


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
