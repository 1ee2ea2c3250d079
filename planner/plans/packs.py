"""Packs of layers that take turns on workers, for models larger than the memory of all workers.

After Harmony (Li et al., VLDB'22): weights of a pack come from the host once in each pass for all
microbatches, the backward pass computes the activations within a pack again, and the host updates
the weights of a pack as soon as its gradients are there. Each worker runs all packs on its part of
the batch (data parallel), or packs go round the workers (pipeline).

Letters: L layers, W workers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import FloatArray

#: Ends of packs, ascending; the last is the number of layers.
Ends: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """Layers with their measured times and memory.

    Attributes:
        weight_bytes: (L,) of their weights and buffers, which come and go together.
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

    def is_measured(self, samples: int) -> bool:
        """Return whether all measurements reach a microbatch."""
        some = self.forward_s, self.backward_s, self.forward_memory, self.backward_memory
        return all(min(one) <= samples <= max(one) for one in some)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapLinks:
    """Bandwidths of one node in bytes/s, and what a pack costs.

    Attributes:
        swap: between host and workers, each direction, shared by all workers.
        peer: between two workers, each direction.
        host: of the host's memory, shared by all workers.
        pack_s: seconds that a worker needs to drop a pack.
    """

    swap: float
    peer: float
    host: float
    pack_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPlan:
    """How a model is cut for both passes.

    The packs of the forward pass end where the last pack of the backward pass begins, which runs
    both passes at once. A microbatch of the forward pass holds whole ones of the backward pass.

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
    """Return the swaps of a step if each microbatch brings its layers, or if each pack comes once.

    Source: Harmony, section 3, table of swap volumes, with updates on the workers. ``step_s`` has
    them on the host, where gradients go out and no state of the optimiser moves.

    Args:
        packed: whether packs come once for all microbatches, and are updated at once.
        pipeline: whether layers are distributed over workers, else each worker has all.
        workers: W.
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
    model: PackedModel, plan: PackedPlan, *, workers: int, batch: int, links: SwapLinks
) -> float:
    """Return the seconds of a step, from a simulation of its packs on workers and links.

    Args:
        model: the layers.
        plan: of both passes.
        workers: W.
        batch: samples of a step; data-parallel workers have equal parts of it.
        links: of the node.

    Raises:
        InputError: it is no plan of the model, or does not split the batch.
    """
    _check(model, plan, workers, batch)
    return _Step(model, plan, workers=workers, batch=batch, links=links).run()


def _check(model: PackedModel, plan: PackedPlan, workers: int, batch: int) -> None:
    ours, theirs = plan.forward_samples, plan.backward_samples
    ends = plan.backward
    if not ends or ends[-1] != model.layers or plan.forward[-1:] != ends[:-1][-1:]:
        raise InputError(
            f"packs end at {plan.forward} and {ends}; the latter must end at {model.layers}, "
            "and the former where the last of the latter begins"
        )
    parts = 1 if plan.pipeline else workers
    if batch % (parts * ours) or ours % theirs:
        raise InputError(
            f"a batch of {batch} on {workers} workers has no whole microbatches of {ours} samples "
            f"that hold whole ones of {theirs}"
        )


class _Step:
    """One step on streams: each does one thing after another, as soon as its inputs are there.

    Streams of a worker: swap in and out, compute, peer in and out, and its part of the host. Data
    parallel workers do the same, so one of them stands for all.
    """

    def __init__(
        self,
        model: PackedModel,
        plan: PackedPlan,
        *,
        workers: int,
        batch: int,
        links: SwapLinks,
    ) -> None:
        self._model, self._plan, self._workers, self._links = model, plan, workers, links
        self._ranks = workers if plan.pipeline else 1
        #: workers that share the host: those with packs.
        packs = len(plan.forward) + len(plan.backward)
        self._sharing = min(workers, packs) if plan.pipeline else workers
        self._batch = batch if plan.pipeline else batch // workers
        #: (worker, stream) -> when it is free.
        self._free: dict[tuple[int, str], float] = {}
        #: worker -> when its last pack was dropped.
        self._dropped = [0.0] * self._ranks
        #: layer -> when the stored input of each microbatch of the backward pass is there.
        self._stored: dict[int, list[float]] = {}

    def run(self) -> float:
        plan = self._plan
        forward, backward = packs_of(plan.forward), packs_of(plan.backward)[::-1]
        handed: list[float] = [0.0] * (self._batch // plan.forward_samples)
        sender: int | None = None
        for k, (first, end) in enumerate(forward):
            regroups = k == len(forward) - 1 and self._regroups
            handed = self._forward(k % self._ranks, (first, end), handed, sender, regroups=regroups)
            sender = None if regroups else k % self._ranks
        for k, (first, end) in enumerate(backward, len(forward)):
            rank, last = k % self._ranks, k == len(forward)
            handed = self._backward(rank, (first, end), handed, sender, last=last)
            sender = rank
        return max(self._free.values())

    # -- passes -----------------------------------------------------------------------------------

    def _forward(
        self,
        rank: int,
        pack: tuple[int, int],
        handed: list[float],
        sender: int | None,
        *,
        regroups: bool,
    ) -> list[float]:
        """Return when each microbatch of a pack's output is there for the next pack."""
        model, samples, (first, end) = self._model, self._plan.forward_samples, pack
        times, ready = at_microbatch(model.forward_s, samples), self._fetch(rank, first, end)
        cuts = [first for first, _ in packs_of(self._plan.backward)]
        stored = [layer for layer in cuts if first <= layer < end]
        parts = sorted({first, *stored, end})
        done: list[float] = []
        for made in handed:
            ready = self._receive(rank, sender, first, samples, max(made, ready))
            for begin, until in pairwise(parts):
                if begin in stored:
                    self._store(rank, begin, samples, ready)
                    ready = max(ready, self._free[rank, "out"])
                ready = self._do(rank, "compute", float(times[begin:until].sum()), ready)
            if self._ranks == 1:
                ready = self._do(rank, "out", self._swap_s(end, samples), ready)
            done += self._regroup(rank, end, ready) if regroups else [ready]
        self._drop(rank, ready)
        return done

    @property
    def _regroups(self) -> bool:
        """Whether other microbatches of another worker follow the forward pass."""
        plan = self._plan
        return self._ranks > 1 and plan.forward_samples != plan.backward_samples

    def _regroup(self, rank: int, layer: int, made: float) -> list[float]:
        """Return when the host has the microbatches of the backward pass of a layer's input."""
        ours, theirs = self._plan.forward_samples, self._plan.backward_samples
        out = self._do(rank, "out", self._swap_s(layer, ours), made)
        seconds = self._message_s(layer, theirs)
        return [self._do(rank, "host", seconds, out) for _ in range(ours // theirs)]

    def _backward(
        self,
        rank: int,
        pack: tuple[int, int],
        handed: list[float],
        sender: int | None,
        *,
        last: bool,
    ) -> list[float]:
        """Return when each microbatch of the gradient of a pack's input is computed."""
        model, samples, (first, end) = self._model, self._plan.backward_samples, pack
        forward_s = float(at_microbatch(model.forward_s, samples)[first:end].sum())
        both_s = float(at_microbatch(model.backward_s, samples)[first:end].sum())
        ready = self._fetch(rank, first, end)
        done = []
        count = self._batch // samples
        for i in range(count):
            if last:
                made = handed[i * len(handed) // count]
                ready = self._receive(rank, sender, first, samples, max(made, ready))
                ready = self._do(rank, "compute", forward_s, ready)
            else:
                stored = max(ready, self._stored[first][i])
                ready = self._do(rank, "in", self._swap_s(first, samples), stored)
                ready = self._do(rank, "compute", forward_s, ready)
                ready = self._receive(rank, sender, end, samples, max(handed[i], ready))
            ready = self._do(rank, "compute", both_s - forward_s, ready)
            if self._ranks == 1 and first:
                ready = self._do(rank, "out", self._swap_s(first, samples), ready)
            done.append(ready)
        weights = float(model.weight_bytes[first:end].sum())
        if self._ranks == 1 and self._workers > 1:
            part = 2 * (self._workers - 1) / self._workers
            ready = self._do(rank, "compute", part * weights / self._links.peer, ready)
        out = self._do(rank, "out", weights * self._sharing / self._links.swap, ready)
        self._drop(rank, out)
        self._do(rank, "host", float(model.update_s[first:end].sum()), out)
        return done

    # -- parts ------------------------------------------------------------------------------------

    def _fetch(self, rank: int, first: int, end: int) -> float:
        """Bring the weights of a pack, once the one before is dropped."""
        weights = float(self._model.weight_bytes[first:end].sum())
        seconds = weights * self._sharing / self._links.swap
        return self._do(rank, "in", seconds, self._dropped[rank])

    def _drop(self, rank: int, ready: float) -> None:
        self._dropped[rank] = self._do(rank, "compute", self._links.pack_s, ready)

    def _receive(
        self, rank: int, sender: int | None, layer: int, samples: int, ready: float
    ) -> float:
        """Bring the input of a layer, or its gradient, from another worker or from the host."""
        if sender is None or sender == rank:
            return self._do(rank, "in", self._swap_s(layer, samples), ready)
        seconds = self._bytes(layer, samples) / self._links.peer
        both = (sender, "peer out"), (rank, "peer in")
        end = max(ready, *(self._free.get(stream, 0.0) for stream in both)) + seconds
        self._free |= dict.fromkeys(both, end)
        return end

    def _store(self, rank: int, layer: int, samples: int, ready: float) -> None:
        """Keep the input of a layer on the host, for the microbatches of the backward pass."""
        out = self._do(rank, "out", self._swap_s(layer, samples), ready)
        theirs = self._plan.backward_samples
        goes = self._ranks > 1 and self._keeper_of(layer) != rank
        for _ in range(samples // theirs):
            seconds = self._message_s(layer, theirs) if goes else 0.0
            self._stored.setdefault(layer, []).append(self._do(rank, "host", seconds, out))

    def _message_s(self, layer: int, samples: int) -> float:
        """Return the seconds in which the host's memory is read and written."""
        return 2 * self._bytes(layer, samples) * self._sharing / self._links.host

    def _keeper_of(self, layer: int) -> int:
        """Return the worker that runs the backward pass of the pack that begins with a layer."""
        backward = [first for first, _ in packs_of(self._plan.backward)][::-1]
        return (len(self._plan.forward) + backward.index(layer)) % self._ranks

    def _bytes(self, layer: int, samples: int) -> float:
        return samples * float(self._model.input_bytes[layer])

    def _swap_s(self, layer: int, samples: int) -> float:
        return self._bytes(layer, samples) * self._sharing / self._links.swap

    def _do(self, rank: int, stream: str, seconds: float, ready: float) -> float:
        end = max(self._free.get((rank, stream), 0.0), ready) + seconds
        self._free[rank, stream] = end
        return end


def packs_of(ends: Ends) -> list[tuple[int, int]]:
    """Return the first layer and the end of each pack."""
    return list(pairwise((0, *ends)))


def at_microbatch(measured: Mapping[int, FloatArray], samples: int) -> FloatArray:
    """Return figures at a microbatch, between two measured ones on the line through both.

    Raises:
        InputError: the measurements do not reach it.
    """
    if samples in measured:
        return measured[samples]
    sizes = sorted(measured)
    if not sizes[0] < samples < sizes[-1]:
        raise InputError(
            f"a microbatch of {samples} samples was not measured; there are {sizes[0]} to "
            f"{sizes[-1]}"
        )
    place = bisect_left(sizes, samples)
    low, high = sizes[place - 1], sizes[place]
    share = (samples - low) / (high - low)
    return measured[low] + share * (measured[high] - measured[low])
