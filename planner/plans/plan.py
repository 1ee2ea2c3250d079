"""Plans: how a model is split over workers, and which splits there are."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain.splits import split_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plans.transformer import Transformer
    from scheduler.domain.arrays import IntArray

#: Samples of a microbatch that are tried.
MICROBATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
#: Chunks of layers per worker that are tried for the interleaved schedule.
CHUNKS: Final = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One split.

    Attributes:
        tensor: workers that share each matrix.
        pipeline: stages of layers, one after another.
        data: copies of the model that share the batch.
        microbatch: samples that pass a stage at once.
        chunks: chunks of layers of each stage; more than 1 is the interleaved schedule.
        recompute: whether activations within a layer are computed again in the backward pass.
        zero: stage of ZeRO: copies share nothing (0), the optimiser's state (1), gradients too (2),
            weights too (3) (Rajbhandari et al., SC'20).
        offload: whether the optimiser and its state are on the host, and gradients are sent there
            (Ren et al., ATC'21).
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    microbatch: int = 1
    chunks: int = 1
    recompute: bool = False
    zero: int = 0
    offload: bool = False

    @property
    def workers(self) -> int:
        """Workers of the plan."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        """Return it in a few words, such as ``tp4 pp2 b1 recompute``."""
        return split_in_words(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans:
    """Q plans as columns, (Q,) each; see ``Plan``."""

    tensor: IntArray
    pipeline: IntArray
    data: IntArray
    microbatch: IntArray
    chunks: IntArray
    recompute: IntArray
    zero: IntArray
    offload: IntArray

    @classmethod
    def of(cls, plans: list[Plan]) -> Plans:
        """Return plans as columns."""
        return cls(
            **{
                one.name: np.array([int(getattr(plan, one.name)) for plan in plans], dtype=np.int64)
                for one in fields(cls)
            }
        )

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator[Plan]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Plan:
        values: dict[str, Any] = {one.name: int(getattr(self, one.name)[i]) for one in fields(self)}
        flags = {name: bool(values[name]) for name in ("recompute", "offload")}
        return Plan(**values | flags)

    @property
    def workers(self) -> IntArray:
        """Workers of each plan."""
        return self.tensor * self.pipeline * self.data


def enumerate_plans(
    model: Transformer, *, workers: int, batch: int, per_node: int, has_host: bool = False
) -> Plans:
    """Return the splits of a model over some workers.

    A tensor is shared within a node alone: beyond it every layer would wait for the network several
    times (Narayanan et al., SC'21, section 3.2, takeaway 1). Stages have equal numbers of layers,
    and every copy the same number of microbatches.

    Args:
        model: the model.
        workers: their number.
        batch: samples of a step, of all copies together.
        per_node: workers of a node.
        has_host: whether the optimiser may be on the host.
    """
    found = _plans(model, workers=workers, batch=batch, per_node=per_node, has_host=has_host)
    return Plans.of(list(found))


def _plans(
    model: Transformer, *, workers: int, batch: int, per_node: int, has_host: bool
) -> Iterator[Plan]:
    for tensor in divisors(workers):
        if not _may_share(model, tensor, workers=workers, per_node=per_node):
            continue
        for pipeline in divisors(workers // tensor):
            data = workers // (tensor * pipeline)
            if model.layers % pipeline or batch % data:
                continue
            for microbatch in MICROBATCHES:
                if (batch // data) % microbatch:
                    continue
                chunks = _chunks(model, pipeline, batch // data // microbatch)
                shares = sharing(pipeline, data, has_host=has_host)
                for count, recompute, (zero, offload) in product(chunks, (False, True), shares):
                    yield Plan(
                        tensor=tensor,
                        pipeline=pipeline,
                        data=data,
                        microbatch=microbatch,
                        chunks=count,
                        recompute=recompute,
                        zero=zero,
                        offload=offload,
                    )


def _may_share(model: Transformer, tensor: int, *, workers: int, per_node: int) -> bool:
    """Return whether a tensor group can split the heads and columns, and stays within a node."""
    if model.key_value_heads % tensor or model.feed_forward % tensor or tensor > per_node:
        return False
    return workers <= per_node or per_node % tensor == 0


def _chunks(model: Transformer, pipeline: int, microbatches: int) -> list[int]:
    """Return numbers of chunks; interleaving takes microbatches in groups of ``pipeline``."""
    if pipeline == 1 or microbatches % pipeline:
        return [1]
    return [v for v in CHUNKS if model.layers % (pipeline * v) == 0]


def sharing(pipeline: int, data: int, *, has_host: bool) -> list[tuple[int, bool]]:
    """Return stages of ZeRO, each without and, if it is usual, with the optimiser on the host.

    With a pipeline, gradients are summed once a step. With the optimiser on the host, each copy
    sends its share of the gradients there.
    """
    if pipeline > 1:
        return [(0, False), (1, False)] if data > 1 else [(0, False)]
    stages = [(0, False)] if data == 1 else [(stage, False) for stage in range(4)]
    return [*stages, (0 if data == 1 else 2, True)] if has_host else stages


def divisors(number: int) -> list[int]:
    """Return the numbers that divide it, ascending."""
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return small + [number // k for k in reversed(small) if k * k != number]
