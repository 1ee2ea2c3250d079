"""The search for the fastest plan of a model whose layers take turns on workers.

Letters: L layers, W workers.
"""

from __future__ import annotations

import enum
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner.plans.packs import PackedPlan, at_microbatch, packs_of, step_s
from planner.plans.plan import divisors
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from planner.plans.packs import Ends, PackedModel, SwapLinks
    from scheduler.domain.arrays import FloatArray


class Rule(enum.Enum):
    """A rule by which layers are cut into packs."""

    EQUAL_TIME = enum.auto()  #: the fewest packs of about equal time that fit
    EQUAL_MEMORY = enum.auto()  #: the fewest packs of about equal memory that fit
    FILLED = enum.auto()  #: packs as full as possible, the last one first


def best_packed_plan(
    model: PackedModel,
    *,
    pipeline: bool,
    workers: int,
    batch: int,
    memory: float,
    links: SwapLinks,
    rules: Collection[Rule] = tuple(Rule),
) -> tuple[float, PackedPlan] | None:
    """Return the seconds of the fastest step and its plan; None if the rules find none.

    Each pair of microbatches is tried with packs by each rule.

    Args:
        model: the layers.
        pipeline: whether packs go round the workers.
        workers: W.
        batch: samples of a step.
        memory: bytes that a pack may fill with its layers and the input of the first. Leave room
            for its output, and for inputs that are on their way.
        links: of the node.
        rules: by which packs are cut.

    Raises:
        InputError: data-parallel workers cannot have equal parts of the batch.
    """
    if not pipeline and batch % workers:
        raise InputError(f"a batch of {batch} has no equal parts for {workers} workers")
    own = batch if pipeline else batch // workers
    found = (
        (step_s(model, plan, workers=workers, batch=batch, links=links), plan)
        for plan in _candidates(model, pipeline, own, memory, rules)
    )
    return min(found, key=lambda pair: pair[0], default=None)


class _Figures(NamedTuple):
    """Of a microbatch on each layer.

    Attributes:
        seconds: (L,)
        own_bytes: (L,) without the layer's input.
        inputs: (L,) bytes of the input.
    """

    seconds: FloatArray
    own_bytes: FloatArray
    inputs: FloatArray

    def before(self, layer: int) -> _Figures:
        """Return those of the layers before one."""
        return _Figures(*(figures[:layer] for figures in self))

    def fits(self, ends: Ends, memory: float) -> bool:
        """Return whether each pack fits; it brings the input of its first layer alone."""
        packs = packs_of(ends)
        return all(self.own_bytes[a:b].sum() + self.inputs[a] < memory for a, b in packs)


def _candidates(
    model: PackedModel, pipeline: bool, batch: int, memory: float, rules: Collection[Rule]
) -> Iterator[PackedPlan]:
    sizes = [size for size in divisors(batch) if model.is_measured(size)]
    figures = {size: _figures(model.forward_s, model.forward_memory, model, size) for size in sizes}
    for theirs in sizes:
        alone = _figures(model.backward_s, model.backward_memory, model, theirs)
        for backward in _cuts(alone, memory, rules):
            wholes = [size for size in sizes if size % theirs == 0]
            for ours in wholes if len(backward) > 1 else [theirs]:
                before = figures[ours].before((0, *backward)[-2])
                same = [backward[:-1]] if before.fits(backward[:-1], memory) else []
                for forward in dict.fromkeys(_cuts(before, memory, rules) + same):
                    yield PackedPlan(
                        pipeline=pipeline,
                        forward=forward,
                        forward_samples=ours,
                        backward=backward,
                        backward_samples=theirs,
                    )


def _figures(
    seconds: Mapping[int, FloatArray],
    memory: Mapping[int, FloatArray],
    model: PackedModel,
    samples: int,
) -> _Figures:
    inputs = samples * model.input_bytes
    return _Figures(
        at_microbatch(seconds, samples), at_microbatch(memory, samples) - inputs, inputs
    )


def _cuts(figures: _Figures, memory: float, rules: Collection[Rule]) -> list[Ends]:
    """Return the ends of packs by each of the rules that finds some; no packs if no layers."""
    if not len(figures.seconds):
        return [()]
    cuts = {
        Rule.EQUAL_TIME: lambda: _balanced(figures.seconds, figures, memory),
        Rule.EQUAL_MEMORY: lambda: _balanced(figures.own_bytes, figures, memory),
        Rule.FILLED: lambda: _filled_from_the_end(figures, memory),
    }
    return list(dict.fromkeys(ends for rule in rules if (ends := cuts[rule]())))


def _balanced(shares: FloatArray, figures: _Figures, memory: float) -> Ends:
    """Return the fewest packs of about equal shares that fit; empty if none do.

    A pack ends where the sum of shares passes a multiple of the mean, as Harmony's authors cut.
    """
    sums = np.cumsum(shares)
    for count in range(max(ceil(figures.own_bytes.sum() / memory), 1), len(shares) + 1):
        marks = np.arange(1, count) * (sums[-1] / count)
        ends = (*np.searchsorted(sums, marks).tolist(), len(shares))
        if all(a < b for a, b in packs_of(ends)) and figures.fits(ends, memory):
            return ends
    return ()


def _filled_from_the_end(figures: _Figures, memory: float) -> Ends:
    """Return packs that are as full as possible, the last one first; empty if none do."""
    ends, held = [len(figures.own_bytes)], 0.0
    for layer in reversed(range(len(figures.own_bytes))):
        size, given = float(figures.own_bytes[layer]), float(figures.inputs[layer])
        if held + size + given >= memory and held:
            ends.append(layer + 1)
            held = 0.0
        if size + given >= memory:
            return ()
        held += size
    return tuple(ends[::-1])
