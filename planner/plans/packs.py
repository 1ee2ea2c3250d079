"""Packs of layers that take turns on workers, for models larger than the memory of all workers.

After Harmony (Li et al., VLDB'22): weights of a pack come from the host once for all microbatches
of a step, the backward pass computes the activations within a pack again, and the host updates the
weights of a pack as soon as its gradients are there. Each worker runs all packs on its part of the
batch (data parallel), or packs go round the workers (pipeline).

Letters: L layers, N workers, D samples of a step.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from planner.plans.plan import divisors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from scheduler.domain.arrays import FloatArray

#: Ends of packs, ascending; the last is the number of layers.
Ends: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """Layers with their measured times and memory.

    Attributes:
        weight_bytes: (L,) of their weights.
        input_bytes: (L,) of their input, per sample.
        forward_s: microbatch -> (L,) seconds.
        backward_s: microbatch -> (L,) seconds, with the second forward pass.
        update_s: (L,) seconds of their update on the host.
        forward_memory: microbatch -> (L,) bytes of a layer alone.
        backward_memory: likewise.
    """

    weight_bytes: FloatArray
    input_bytes: FloatArray
    forward_s: Mapping[int, FloatArray]
    backward_s: Mapping[int, FloatArray]
    update_s: FloatArray
    forward_memory: Mapping[int, FloatArray]
    backward_memory: Mapping[int, FloatArray]

    @property
    def layers(self) -> int:
        """L."""
        return len(self.weight_bytes)

    @property
    def largest_microbatch(self) -> int:
        """The largest microbatch with measurements."""
        return max(self.forward_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapLinks:
    """Bandwidths of one node in bytes/s, and what a pack costs.

    Attributes:
        swap: between host and workers, each direction, shared by all workers.
        peer: between two workers, each direction.
        message: of the host's memory, shared by all workers.
        pack_s: seconds that a worker needs to drop a pack.
    """

    swap: float
    peer: float
    message: float
    pack_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How a model is cut for both passes.

    The last pack of the backward pass needs no pack of the forward pass: it runs both at once.

    Attributes:
        pipeline: whether packs go round the workers.
        forward: ends of the packs of the forward pass.
        forward_samples: of a microbatch.
        backward: ends of the packs of the backward pass.
        backward_samples: of a microbatch.
    """

    pipeline: bool
    forward: Ends
    forward_samples: int
    backward: Ends
    backward_samples: int


class Rule(enum.Enum):
    """A rule by which layers are cut into packs."""

    EQUAL_TIME = enum.auto()  #: the fewest packs of about equal time that fit
    EQUAL_MEMORY = enum.auto()  #: the fewest packs of about equal memory that fit
    FILLED = enum.auto()  #: packs as full as possible, the last one first


class Traffic(NamedTuple):
    """Bytes that a step moves, in multiples of the whole model's.

    Attributes:
        weights: between host and workers.
        gradients: likewise.
        optimiser: likewise.
        inputs: of layers, likewise.
        peer: inputs between two workers.
        reduced: gradients that are added up between workers.
    """

    weights: float
    gradients: float
    optimiser: float
    inputs: float
    peer: float = 0.0
    reduced: float = 0.0


def swap_traffic(
    *, packed: bool, pipeline: bool, workers: int, microbatches: int, layers: int
) -> Traffic:
    """Return what a step swaps if each microbatch brings its layers, or if each pack comes once.

    Source: Harmony, section 3, table of swap volumes.

    Args:
        packed: whether packs come once for all microbatches, and are updated at once.
        pipeline: whether layers are distributed over workers, else each worker has all.
        workers: N.
        microbatches: of all workers together.
        layers: L.
    """
    copies = 1 if pipeline else workers
    inputs = 2.0 * microbatches
    if packed:
        own = {"peer": float(microbatches)} if pipeline else {"reduced": float(workers)}
        return Traffic(3.0 * copies, 0.0, 2.0 * copies, inputs, **own)
    weights, gradients = 4.0 * microbatches + 2 * copies, 2.0 * microbatches + 2 * copies
    if pipeline:
        peer = (workers - 1) * microbatches / layers
        return Traffic(weights, gradients, 2.0, inputs, peer=peer)
    return Traffic(weights, gradients, 2.0 * copies, inputs, reduced=float(workers))


def step_s(
    model: PackedModel, packing: Packing, *, workers: int, batch: int, links: SwapLinks
) -> float:
    """Return the seconds of a step, from a simulation of its packs on workers and links.

    Args:
        model: the layers.
        packing: of both passes.
        workers: N.
        batch: D; data-parallel workers have equal parts of it.
        links: of the node.
    """
    return _Step(model, packing, workers=workers, batch=batch, links=links).run()


class _Step:
    """One step on streams: each does one thing after another, as soon as its inputs are there.

    Streams of a worker: swap in and out, compute, peer in and out, and its part of the host. Data
    parallel workers do the same, so one of them stands for all.
    """

    def __init__(
        self,
        model: PackedModel,
        packing: Packing,
        *,
        workers: int,
        batch: int,
        links: SwapLinks,
    ) -> None:
        self._model, self._packing, self._workers, self._links = model, packing, workers, links
        self._ranks = workers if packing.pipeline else 1
        self._batch = batch if packing.pipeline else batch // workers
        #: (worker, stream) -> when it is free.
        self._free: dict[tuple[int, str], float] = {}
        #: worker -> when its last pack was dropped.
        self._dropped = [0.0] * self._ranks
        #: layer -> when the stored input of each microbatch of the backward pass is there.
        self._stored: dict[int, list[float]] = {}

    def run(self) -> float:
        packs = _packs(self._packing.forward)
        rounds = list(enumerate(packs))
        handed, sender = [0.0] * (self._batch // self._packing.forward_samples), -1
        for k, (first, end) in rounds:
            handed = self._forward(k % self._ranks, first, end, handed, sender)
            sender = k % self._ranks
        backward = _packs(self._packing.backward)[::-1]
        for k, (first, end) in enumerate(backward, len(rounds)):
            rank = k % self._ranks
            last = k == len(rounds)
            handed = self._backward(rank, first, end, handed, sender, last=last)
            sender = rank
        return max(self._free.values())

    # -- passes -----------------------------------------------------------------------------------

    def _forward(
        self, rank: int, first: int, end: int, handed: list[float], sender: int
    ) -> list[float]:
        """Return when each microbatch of a pack's output is computed."""
        model, samples = self._model, self._packing.forward_samples
        times, ready = _at(model.forward_s, samples), self._fetch(rank, first, end)
        cuts = [first for first, _ in _packs(self._packing.backward)]
        stored = [layer for layer in cuts if first <= layer < end]
        parts = sorted({first, *stored, end})
        done = []
        for made in handed:
            ready = self._receive(rank, sender, first, samples, max(made, ready))
            for begin, until in pairwise(parts):
                if begin in stored:
                    self._store(rank, begin, samples, ready)
                    ready = max(ready, self._free[rank, "out"])
                ready = self._do(rank, "compute", float(times[begin:until].sum()), ready)
            if self._ranks == 1:
                ready = self._do(rank, "out", self._swap_s(end, samples), ready)
            done.append(ready)
        if self._regroups(end):
            done = [there for made in done for there in self._regroup(rank, end, made)]
        self._drop(rank, ready)
        return done

    def _regroups(self, end: int) -> bool:
        """Return whether a pack's output goes to other microbatches of another worker."""
        packing = self._packing
        return (
            self._ranks > 1
            and packing.forward_samples != packing.backward_samples
            and end == packing.forward[-1]
        )

    def _regroup(self, rank: int, layer: int, made: float) -> Iterator[float]:
        """Yield when the host has the microbatches of the backward pass of a layer's input."""
        ours, theirs = self._packing.forward_samples, self._packing.backward_samples
        out = self._do(rank, "out", self._swap_s(layer, ours), made)
        for _ in range(ours // theirs):
            yield self._do(rank, "host", self._message_s(layer, theirs), out)

    def _backward(
        self, rank: int, first: int, end: int, handed: list[float], sender: int, *, last: bool
    ) -> list[float]:
        """Return when each microbatch of the gradient of a pack's input is computed."""
        model, samples = self._model, self._packing.backward_samples
        forward_s = float(_at(model.forward_s, samples)[first:end].sum())
        backward_s = float(_at(model.backward_s, samples)[first:end].sum()) - forward_s
        ready = self._fetch(rank, first, end)
        done = []
        count = self._batch // samples
        source = -1 if last and first and self._regroups(first) else sender
        for i in range(count):
            if last:
                made = handed[i * len(handed) // count]
                ready = self._receive(rank, source, first, samples, max(made, ready))
                ready = self._do(rank, "compute", forward_s, ready)
            else:
                stored = max(ready, self._stored[first][i])
                ready = self._do(rank, "in", self._swap_s(first, samples), stored)
                ready = self._do(rank, "compute", forward_s, ready)
                ready = self._receive(rank, sender, end, samples, max(handed[i], ready))
            ready = self._do(rank, "compute", backward_s, ready)
            if self._ranks == 1 and first:
                ready = self._do(rank, "out", self._swap_s(first, samples), ready)
            done.append(ready)
        weights = float(model.weight_bytes[first:end].sum())
        if self._ranks == 1 and self._workers > 1:
            part = 2 * (self._workers - 1) / self._workers
            ready = self._do(rank, "compute", part * weights / self._links.peer, ready)
        out = self._do(rank, "out", weights * self._workers / self._links.swap, ready)
        self._drop(rank, out)
        self._do(rank, "host", float(model.update_s[first:end].sum()), out)
        return done

    # -- parts ------------------------------------------------------------------------------------

    def _fetch(self, rank: int, first: int, end: int) -> float:
        """Bring the weights of a pack, once the one before is dropped."""
        weights = float(self._model.weight_bytes[first:end].sum())
        seconds = weights * self._workers / self._links.swap
        return self._do(rank, "in", seconds, self._dropped[rank])

    def _drop(self, rank: int, ready: float) -> None:
        self._dropped[rank] = self._do(rank, "compute", self._links.pack_s, ready)

    def _receive(self, rank: int, sender: int, layer: int, samples: int, ready: float) -> float:
        """Bring the input of a layer, or its gradient, from the host or from the last worker."""
        if sender in {-1, rank}:
            return self._do(rank, "in", self._swap_s(layer, samples), ready)
        seconds = self._bytes(layer, samples) / self._links.peer
        both = (sender, "peer out"), (rank, "peer in")
        end = max(ready, *(self._free.get(stream, 0.0) for stream in both)) + seconds
        self._free |= dict.fromkeys(both, end)
        return end

    def _store(self, rank: int, layer: int, samples: int, ready: float) -> None:
        """Keep the input of a layer on the host, for the microbatches of the backward pass."""
        out = self._do(rank, "out", self._swap_s(layer, samples), ready)
        theirs = self._packing.backward_samples
        goes = self._ranks > 1 and self._keeper_of(layer) != rank
        for _ in range(samples // theirs):
            seconds = self._message_s(layer, theirs) if goes else 0.0
            self._stored.setdefault(layer, []).append(self._do(rank, "host", seconds, out))

    def _message_s(self, layer: int, samples: int) -> float:
        """Return the seconds in which the host's memory is read and written."""
        return 2 * self._bytes(layer, samples) * self._workers / self._links.message

    def _keeper_of(self, layer: int) -> int:
        """Return the worker that runs the backward pass of the pack that begins with a layer."""
        backward = [first for first, _ in _packs(self._packing.backward)][::-1]
        return (len(_packs(self._packing.forward)) + backward.index(layer)) % self._ranks

    def _bytes(self, layer: int, samples: int) -> float:
        """Return the bytes between two layers, or 0 behind the last one."""
        sizes = self._model.input_bytes
        return samples * float(sizes[layer]) if layer < len(sizes) else 0.0

    def _swap_s(self, layer: int, samples: int) -> float:
        return self._bytes(layer, samples) * self._workers / self._links.swap

    def _do(self, rank: int, stream: str, seconds: float, ready: float) -> float:
        end = max(self._free.get((rank, stream), 0.0), ready) + seconds
        self._free[rank, stream] = end
        return end


# -- search ---------------------------------------------------------------------------------------


def best_packing(
    model: PackedModel,
    *,
    pipeline: bool,
    workers: int,
    batch: int,
    memory: float,
    links: SwapLinks,
    rules: Collection[Rule] = tuple(Rule),
) -> tuple[float, Packing] | None:
    """Return the seconds of the fastest step and its packing; None if a layer does not fit.

    Each pair of microbatches is tried with packs by each rule. A microbatch of the forward pass
    holds whole ones of the backward pass.

    Args:
        model: the layers.
        pipeline: whether packs go round the workers.
        workers: N.
        batch: D.
        memory: bytes of a worker.
        links: of the node.
        rules: by which packs are cut.
    """
    own = batch if pipeline else batch // workers
    found = (
        (step_s(model, packing, workers=workers, batch=batch, links=links), packing)
        for packing in _candidates(model, pipeline, own, memory, rules)
    )
    return min(found, key=lambda pair: pair[0], default=None)


class _Figures(NamedTuple):
    """Of a microbatch on each layer: seconds, bytes without the layer's input, and of the input."""

    seconds: FloatArray
    fixed: FloatArray
    inputs: FloatArray

    def before(self, layer: int) -> _Figures:
        """Return those of the layers before one."""
        return _Figures(*(figures[:layer] for figures in self))

    def fits(self, ends: Ends, memory: float) -> bool:
        """Return whether each pack fits; it brings the input of its first layer alone."""
        packs = _packs(ends)
        return all(self.fixed[a:b].sum() + self.inputs[a] < memory for a, b in packs)


def _candidates(
    model: PackedModel, pipeline: bool, batch: int, memory: float, rules: Collection[Rule]
) -> Iterator[Packing]:
    sizes = [size for size in divisors(batch) if size <= model.largest_microbatch]
    for theirs in sizes:
        figures = _figures(model.backward_s, model.backward_memory, model, theirs)
        for backward in _cuts(figures, memory, rules):
            for ours in (size for size in sizes if size % theirs == 0):
                figures = _figures(model.forward_s, model.forward_memory, model, ours)
                before = figures.before((0, *backward)[-2])
                same = [backward[:-1]] if before.fits(backward[:-1], memory) else []
                for forward in dict.fromkeys(_cuts(before, memory, rules) + same):
                    yield Packing(
                        pipeline=pipeline,
                        forward=forward,
                        forward_samples=ours if forward else theirs,
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
    return _Figures(_at(seconds, samples), _at(memory, samples) - inputs, inputs)


def _cuts(figures: _Figures, memory: float, rules: Collection[Rule]) -> list[Ends]:
    """Return the ends of packs by each of the rules that finds some; no packs if no layers."""
    if not len(figures.seconds):
        return [()]
    cuts = {
        Rule.EQUAL_TIME: lambda: _balanced(figures.seconds, figures, memory),
        Rule.EQUAL_MEMORY: lambda: _balanced(figures.fixed, figures, memory),
        Rule.FILLED: lambda: _filled_from_the_end(figures, memory),
    }
    return list(dict.fromkeys(ends for rule in rules if (ends := cuts[rule]())))


def _balanced(weights: FloatArray, figures: _Figures, memory: float) -> Ends:
    """Return the fewest packs of about equal weight that fit; empty if none do."""
    sums = np.cumsum(weights)
    for count in range(max(ceil(figures.fixed.sum() / memory), 1), len(weights) + 1):
        marks = np.arange(1, count) * (sums[-1] / count)
        ends = (*np.searchsorted(sums, marks).tolist(), len(weights))
        if all(a < b for a, b in _packs(ends)) and figures.fits(ends, memory):
            return ends
    return ()


def _filled_from_the_end(figures: _Figures, memory: float) -> Ends:
    """Return packs that are as full as possible, the last one first; empty if none do."""
    ends, held = [len(figures.fixed)], 0.0
    for layer in reversed(range(len(figures.fixed))):
        size, given = float(figures.fixed[layer]), float(figures.inputs[layer])
        if held + size + given >= memory and held:
            ends.append(layer + 1)
            held = 0.0
        if size + given >= memory:
            return ()
        held += size
    return tuple(ends[::-1])


def _packs(ends: Ends) -> list[tuple[int, int]]:
    """Return the first layer and the end of each pack."""
    return list(pairwise((0, *ends)))


def _at(measured: Mapping[int, FloatArray], samples: int) -> FloatArray:
    """Return figures at a microbatch, between two measured ones on the line through both."""
    if samples in measured:
        return measured[samples]
    sizes = sorted(measured)
    place = min(max(bisect_left(sizes, samples), 1), len(sizes) - 1)
    low, high = sizes[place - 1], sizes[place]
    share = (samples - low) / (high - low)
    return measured[low] + share * (measured[high] - measured[low])
