"""Ways to run a model, for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli.display.output import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.plans.ranking import BestPlan
    from planner.plans.training import LayeredTraining, Training

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
    "swap_s": "swap",
    "update_s": "update",
}


def _usd_per_million(
    training: Training | LayeredTraining, way: BestPlan, prices: Mapping[str, float]
) -> float | None:
    """Return the price of a million tokens; None if it is unknown."""
    price = prices.get(way.worker_type)
    if not price or not way.fits:
        return None
    tokens = training.batch * training.model.sequence
    return way.step_s / 3600 * way.workers * price / tokens * 1e6


def headline(training: Training | LayeredTraining) -> str:
    """Return the model and its step in a line."""
    model = training.model
    tokens = f" with {model.sequence} tokens" if model.sequence > 1 else ""
    return (
        f"{model.name}: {_in_words(model.parameters)} parameters, {model.layers} layers; "
        f"steps of {training.batch} samples{tokens}, {training.precision}"
    )


def _in_words(number: int) -> str:
    """Return a number in billions or millions, with three digits."""
    for size, word in ((10**9, "billion"), (10**6, "million")):
        if number >= 0.9995 * size:
            return f"{float(f'{number / size:.3g}'):,g} {word}"
    return f"{number:,}"


def ways_table(
    training: Training | LayeredTraining, ways: Sequence[BestPlan], prices: Mapping[str, float]
) -> Any:
    """Return the ways that fit, a line each."""
    tokens = training.batch * training.model.sequence
    unit = "tokens" if training.model.sequence > 1 else "samples"
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
                f"±{way.doubt:.0%}",
                f"{tokens / way.step_s:,.0f}",
                *(f"{_part(way, name):.0%}" for name in shown),
                f"{sum(way.memory.values()) / 1e9:.1f}",
                "" if usd is None else f"{usd:.3g}",
            )
        )
    headings = (
        *("type", ">workers", "plan", ">steps/s", ">doubt", f">{unit}/s"),
        *(f">{_PARTS[name]}" for name in shown),
        *(">GB", f">USD/M {unit}"),
    )
    return table(
        headings, rows, spare=(*(_PARTS[name] for name in shown[::-1]), "doubt", f"USD/M {unit}")
    )


def _part(way: BestPlan, name: str) -> float:
    return way.parts[name] / way.step_s if way.fits else 0.0


def remarks(ways: Sequence[BestPlan]) -> Iterator[str]:
    """Yield why ways cannot run, and the price of memory for those that can."""
    for way in ways:
        where = f"{way.workers} {way.worker_type}"
        if not way.fits:
            yield f"{where}: {way.reason}"
            continue
        if len(set(way.stages)) > 1:
            yield f"{where}: stages of {_layers(way.stages)}"
        if way.unbounded is not None:
            costs = way.step_s / way.unbounded_step_s - 1
            if costs >= _COSTS:
                fastest = str(way.unbounded)
                if way.unbounded == way.plan:
                    fastest += f" with stages of {_layers(way.unbounded_stages)}"
                yield (
                    f"{where}: {fastest} would be fastest and needs "
                    f"{way.unbounded_lacking / 1e9:.1f} GB too much; {way.plan} fits and costs "
                    f"{costs:.0%}"
                )


def _layers(stages: Sequence[int]) -> str:
    return f"{', '.join(map(str, stages))} layers"


def to_json(
    training: Training | LayeredTraining, ways: Sequence[BestPlan], prices: Mapping[str, float]
) -> dict[str, Any]:
    """Return the ways as an object for JSON."""
    from planner.plans.training import Training  # noqa: PLC0415 - keeps the start quick

    model = training.model
    shape = asdict(training.model) if isinstance(training, Training) else {}
    return {
        "model": {"name": model.name, "layers": model.layers, "sequence": model.sequence}
        | shape
        | {"parameters": model.parameters},
        "batch": training.batch,
        "precision": training.precision,
        "ways": [
            {
                "worker_type": way.worker_type,
                "workers": way.workers,
                "fits": way.fits,
                "reason": way.reason,
                "plan": asdict(way.plan) if way.plan else None,
                "stages": list(way.stages),
                "is_measured": way.is_measured,
                "steps_per_s": 1 / way.step_s,
                "doubt": way.doubt,
                "parts_s": dict(way.parts),
                "memory_bytes": dict(way.memory),
                "host_memory_bytes": way.host_memory,
                "lacking_bytes": way.lacking,
                "usd_per_million_tokens": _usd_per_million(training, way, prices),
                "unbounded_plan": asdict(way.unbounded) if way.unbounded else None,
                "unbounded_stages": list(way.unbounded_stages),
                "unbounded_steps_per_s": 1 / way.unbounded_step_s if way.unbounded else None,
                "unbounded_lacking_bytes": way.unbounded_lacking,
            }
            for way in ways
        ],
    }
