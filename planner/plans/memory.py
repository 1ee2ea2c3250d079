"""The memory of the fullest worker under many plans at once, by use.

Letters: Q plans, b microbatch, s sequence, h hidden size, t tensor, p pipeline and d data size, v
chunks, m microbatches of a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from planner.plans.plan import Plans
    from planner.plans.training import Training
    from scheduler.domain.arrays import FloatArray

#: Bytes of the framework's context, its kernels and its communication buffers.
RESERVE: Final = 2e9
#: Uses of a worker's own memory; see ``Memory``.
USES: Final = ("weights", "gradients", "optimiser", "activations", "reserve")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """Bytes of the fullest worker, (Q,) each.

    Attributes:
        weights: weights of its stage.
        gradients: their gradients.
        optimiser: the optimiser's state.
        activations: kept for the backward pass, of all microbatches in flight, and outputs of the
            head.
        reserve: of the framework and its allocator.
        host: of the host's memory that a worker fills; not part of the total.
    """

    weights: FloatArray
    gradients: FloatArray
    optimiser: FloatArray
    activations: FloatArray
    reserve: FloatArray
    host: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bytes of the worker's own memory."""
        return sum((getattr(self, name) for name in USES), np.zeros(1))


def worker_memory(training: Training, plans: Plans, *, reserve: float = RESERVE) -> Memory:
    """Return the memory of the fullest worker under each plan: of the first or the last stage.

    Args:
        training: the model and its step.
        plans: Q plans.
        reserve: bytes that are not the model's.
    """
    model = training.model
    p, v = (np.asarray(x, dtype=float) for x in (plans.pipeline, plans.chunks))
    m = training.batch / (plans.data * plans.microbatch)
    layers = model.layers / p * model.layer_parameters
    is_whole = plans.pipeline == 1
    embedding, head = float(model.embedding_parameters), float(model.last_parameters)
    # Stages warm up with 2 (p - 1 - rank) + (v - 1) p + 1 chunks (Narayanan et al., SC'21, and
    # their schedule); without chunks that is p microbatches on the first stage and 1 on the last.
    chunks = np.where(v > 1, (v - 1) * p, 0.0)
    warm = np.where(v > 1, 2.0, 1.0) * (p - 1)
    first = _stage(
        training,
        plans,
        parameters=layers + np.where(is_whole, embedding + model.head_parameters, embedding),
        flight=np.minimum(m, (warm + chunks + 1) / v),
        has_head=is_whole,
        reserve=reserve,
    )
    last = _stage(
        training,
        plans,
        parameters=layers + head,
        flight=np.minimum(m, (chunks + 1) / v),
        has_head=~is_whole,
        reserve=reserve,
    )
    is_first = is_whole | (first.total >= last.total)
    return Memory(
        **{
            one.name: np.where(is_first, getattr(first, one.name), getattr(last, one.name))
            for one in fields(Memory)
        }
    )


def _stage(
    training: Training,
    plans: Plans,
    *,
    parameters: FloatArray,
    flight: FloatArray,
    has_head: FloatArray,
    reserve: float,
) -> Memory:
    """Return the memory of a worker of a stage with (Q,) parameters and microbatches in flight."""
    model, size = training.model, training.number_bytes
    t, d = plans.tensor, plans.data
    held = parameters / t
    share = [np.where(plans.zero >= stage, d, 1.0) for stage in (1, 2, 3)]
    # Shared weights of a layer and of the next one are gathered whole, and gradients of a layer
    # are whole until they are added.
    layer = model.layer_parameters / t
    gathered = np.where(plans.zero == 3, 2 * size * layer, 0.0)
    added = np.where(plans.zero >= 2, size * layer, 0.0)

    tokens = plans.microbatch * model.sequence
    whole = tokens * (model.kept_whole + model.kept_split / t) * (size / 2)
    if not training.is_fused:
        scores = 5 * plans.microbatch * model.heads * float(model.sequence) ** 2 / t
        whole = whole + scores * (size / 2)
    kept = np.where(plans.recompute, size * tokens * model.hidden, whole)
    again = np.where(plans.recompute, whole, 0.0)
    # The outputs of the head, and their softmax in full precision.
    outputs = np.where(has_head, tokens * model.vocabulary * (size + 4) / t, 0.0)
    # With the optimiser on the host, a worker has only the gradients of the layer that it computes.
    gradients = size * held / share[1]
    state = training.optimiser_bytes * held / share[0]
    on_worker = np.where(plans.offload, 0.0, 1.0)
    return Memory(
        weights=size * held / share[2] + gathered,
        gradients=gradients * on_worker + np.where(plans.offload, size * layer, added),
        optimiser=state * on_worker,
        activations=flight * model.layers / plans.pipeline * kept + again + outputs,
        reserve=np.full(len(plans), reserve),
        host=(gradients + state) * (1 - on_worker),
    )
