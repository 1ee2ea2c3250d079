"""The memory of a worker under many plans at once, by use.

Letters: Q plans, b microbatch, s sequence, h hidden size, a heads, t tensor, p pipeline and d data
size, v chunks, m microbatches of a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from planner.plans.plan import Plans
    from planner.plans.transformer import Transformer
    from scheduler.domain.arrays import FloatArray

#: Bytes of a parameter in mixed precision with Adam: a weight and a gradient in half precision; a
#: weight and two moments in full precision (Rajbhandari et al., SC'20, section 3.1).
_WEIGHT: Final = 2
_GRADIENT: Final = 2
_OPTIMISER: Final = 12
#: Bytes of an output of the head: half precision, and its softmax in full precision.
_LOGIT: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """Bytes of the fullest worker, (Q,) each.

    Attributes:
        weights: weights of its stage.
        gradients: their gradients.
        optimiser: the optimiser's state.
        activations: kept for the backward pass, of all microbatches in flight.
        reserve: of the framework and its allocator.
    """

    weights: FloatArray
    gradients: FloatArray
    optimiser: FloatArray
    activations: FloatArray
    reserve: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bytes in all."""
        return sum((getattr(self, one.name) for one in fields(self)), np.zeros(1))


def worker_memory(
    model: Transformer, plans: Plans, *, batch: int, is_fused: bool = True, reserve: float = 2e9
) -> Memory:
    """Return the memory of the fullest worker under each plan.

    Args:
        model: the model.
        plans: Q plans.
        batch: samples of a step.
        is_fused: whether a fused kernel computes attention, so that its weights are not kept.
        reserve: bytes that are not the model's.
    """
    t, p, d = (np.asarray(x, dtype=float) for x in (plans.tensor, plans.pipeline, plans.data))
    b, v = plans.microbatch.astype(float), plans.chunks.astype(float)
    m = batch / (d * b)
    layers = model.layers / p
    # The first stage has the embedding, the last one the head, which needs it, too.
    stage = (layers * model.layer_parameters + model.embedding_parameters) / t
    parts = [np.where(plans.shard >= k, d, 1.0) for k in (1, 2, 3)]

    tokens = b * model.sequence
    whole = _layer_bytes(model, tokens, t, is_fused=is_fused)
    input_bytes = 2 * tokens * model.hidden
    kept = np.where(plans.recompute, input_bytes, whole)
    # 1F1B keeps at most p microbatches; interleaving keeps some more (Narayanan et al., SC'21).
    flight = np.minimum(m, p * np.where(v > 1, 1 + (p - 1) / (p * v), 1.0))
    logits = np.where(p == 1, tokens * model.vocabulary * _LOGIT / t, 0.0)
    return Memory(
        weights=_WEIGHT * stage / parts[2],
        gradients=_GRADIENT * stage / parts[1],
        optimiser=_OPTIMISER * stage / parts[0],
        activations=flight * layers * kept + np.where(plans.recompute, whole, 0.0) + logits,
        reserve=np.full(len(plans), reserve),
    )


def _layer_bytes(
    model: Transformer, tokens: FloatArray, t: FloatArray, *, is_fused: bool
) -> FloatArray:
    """Return the bytes of the activations that a layer keeps for a microbatch.

    s b h (10 + 24 / t + 5 a s / (h t)), of which the last part goes with a fused attention
    (Korthikanti et al., MLSys'23, section 4.1).
    """
    weights = 0.0 if is_fused else 5 * model.heads * model.sequence / model.hidden
    return tokens * model.hidden * (10 + (24 + weights) / t)
