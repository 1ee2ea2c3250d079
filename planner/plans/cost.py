"""The time of a step under many plans at once.

A stage computes, exchanges activations within its tensor group, and passes them on; microbatches
follow one another through the stages; then the copies of the model sum their gradients and update
the weights. Formulas: Narayanan et al., SC'21 (traffic and bubbles); the rates that they need are
fitted on measurements (``planner.plans.calibration``).

Letters: Q plans, b microbatch, s sequence, h hidden size, t tensor, p pipeline and d data size, v
chunks, m microbatches of a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from planner.plans.hardware import Accelerator
    from planner.plans.plan import Plans
    from planner.plans.training import Training
    from scheduler.domain.arrays import FloatArray

#: Numbers that element-wise work moves, per byte that a layer keeps of a token: 10 h of 24 h.
_MOVED: Final = 10 / 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Parts of its published rates that a worker type reaches, fitted on measurements.

    The defaults are fitted on six throughputs of A100 (Narayanan et al., SC'21, tables 1 and 2).

    Attributes:
        matrices: part of the peak that large products of matrices reach.
        edge_columns: columns of each matrix that count in addition, for its edges.
        kernels_s: seconds by which the kernels of a layer, one pass, run longer than their work.
        memory: part of the memory's bandwidth that element-wise work reaches.
        scores: multiple of the bytes of attention's scores that are moved without a fused kernel.
        head: multiple of the head's time.
        launch_s: seconds in which the host launches the kernels of a layer, for a tensor size of 1.
        shared_launch_s: the same for larger tensor sizes.
        link: part of the bandwidth within a node that collectives reach with large messages.
        half_bytes: bytes of a message that reaches half of that.
        network: part of the bandwidth between nodes that sums of gradients reach.
        passing: the same of activations that pass from stage to stage.
        update: part of the memory's bandwidth that an update reaches.
        hidden: part of a backward pass behind which sums of gradients are hidden.
        host_link: part of the bandwidth to the host that copies reach.
        host_worker: bytes/s that the optimiser reads and writes on the host for one worker.
        host_node: the same for all workers of a node together.
        step_s: seconds of a step that no plan changes.
    """

    matrices: float = 0.68
    edge_columns: float = 81.0
    kernels_s: float = 1.1e-4
    memory: float = 0.88
    scores: float = 0.93
    head: float = 0.94
    launch_s: float = 3e-4
    shared_launch_s: float = 3e-4
    link: float = 0.98
    half_bytes: float = 2e6
    network: float = 0.77
    passing: float = 0.75
    update: float = 0.75
    hidden: float = 0.01
    host_link: float = 0.8
    host_worker: float = 50e9
    host_node: float = 100e9
    step_s: float = 0.005


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Parts of the seconds of a step, (Q,) each.

    Attributes:
        compute_s: products of matrices and element-wise work, recomputation included.
        launch_s: time by which the host launches kernels later than workers could run them.
        tensor_s: sums within tensor groups.
        pipeline_s: activations that pass from stage to stage.
        bubble_s: stages that wait for their first and after their last microbatch.
        data_s: sums of gradients over the copies, and weights that they share.
        swap_s: gradients that go to the host, and weights that come from there.
        update_s: the optimiser, and a constant.
    """

    compute_s: FloatArray
    launch_s: FloatArray
    tensor_s: FloatArray
    pipeline_s: FloatArray
    bubble_s: FloatArray
    data_s: FloatArray
    swap_s: FloatArray
    update_s: FloatArray

    @property
    def total_s(self) -> FloatArray:
        """Seconds of a step."""
        return sum((getattr(self, one.name) for one in fields(self)), np.zeros(1))

    def scaled(self, factor: FloatArray) -> StepTimes:
        """Return all parts times (Q,) factors."""
        return StepTimes(**{one.name: getattr(self, one.name) * factor for one in fields(self)})


def step_times(training: Training, plans: Plans, hardware: Accelerator, rates: Rates) -> StepTimes:
    """Return the time of a step under each plan.

    Args:
        training: the model and its step.
        plans: Q plans.
        hardware: the workers.
        rates: of the workers.

    Raises:
        InputError: the workers do not compute in the training's precision.
    """
    model, size = training.model, training.number_bytes
    t, p, d = (np.asarray(x, dtype=float) for x in (plans.tensor, plans.pipeline, plans.data))
    b, v = plans.microbatch.astype(float), plans.chunks.astype(float)
    m = training.batch / (d * b)
    repeats = 3.0 + plans.recompute
    tokens = b * model.sequence
    peak = hardware.flops(training.precision)
    memory = hardware.memory_gb_per_s * 1e9 * rates.memory

    products = 4 * b * float(model.sequence) ** 2 * model.heads * model.head_size
    matrices = b * model.layer_flops - products
    edges = 1 + rates.edge_columns * t / model.hidden
    scores = 0.0
    if not training.is_fused:
        scores = 6 * b * float(model.sequence) ** 2 * model.heads / t * rates.scores
    moved = tokens * (6 * model.hidden + _MOVED * model.kept_split / t)
    forward_s = (matrices * edges + products) / t / (rates.matrices * peak)
    forward_s += (moved + scores) * size / memory
    layer_s = repeats * (forward_s + rates.kernels_s)

    message = tokens * model.hidden * size
    sum_s = _sum_s(message, t, hardware, rates)
    exchange_s = 2 * (repeats - 1) * sum_s
    launch_s = np.where(t > 1, rates.shared_launch_s, rates.launch_s)
    busy_s = layer_s + exchange_s
    # Some kernels of a layer wait for the host, others for the kernels before.
    idle_s = np.hypot(launch_s, busy_s) - busy_s

    layers = model.layers / p
    head_s = rates.head * 3 * b * model.head_flops / t / (rates.matrices * peak)
    hop_s = 2 * passing_s(message, plans, hardware, rates)
    stage_s = layers * (layer_s + exchange_s + idle_s) + v * hop_s

    embedding, head = model.embedding_parameters, model.head_parameters
    ends = np.where(p > 1, max(embedding, model.last_parameters), embedding + head)
    held = (layers * model.layer_parameters + ends) / t
    share = held / np.where(plans.zero > 0, d, 1.0)
    copied_s = copies_s(held * size, m, plans, hardware, rates)
    backward_s = layers * layer_s * (repeats - 1) / repeats
    hidden_s = rates.hidden * backward_s * np.where(plans.zero >= 2, m, 1.0)
    return StepTimes(
        compute_s=m * (layers * layer_s + head_s),
        launch_s=m * layers * idle_s,
        tensor_s=m * layers * exchange_s,
        pipeline_s=m * v * hop_s,
        bubble_s=(p - 1) / v * stage_s,
        data_s=np.maximum(copied_s - hidden_s, 0.0),
        swap_s=np.where(plans.offload, _swap_s(share * size, m, hardware, rates), 0.0),
        update_s=_update_s(share * training.updated_bytes, plans, hardware, rates) + rates.step_s,
    )


def _swap_s(
    share: FloatArray, microbatches: FloatArray, hardware: Accelerator, rates: Rates
) -> FloatArray:
    """Return the seconds in which a share of the gradients goes to the host, and weights come back.

    Gradients of each microbatch are added there (Ren et al., ATC'21, section 4.1).
    """
    rate = max(hardware.host_gb_per_s, 1e-9) * 1e9 * rates.host_link
    return (microbatches + 1) * share / rate


def _update_s(updated: FloatArray, plans: Plans, hardware: Accelerator, rates: Rates) -> FloatArray:
    """Return the seconds in which the optimiser reads and writes some bytes for each worker."""
    beside = np.minimum(plans.workers, hardware.per_node)
    on_host = updated * (1 / rates.host_worker + beside / rates.host_node)
    on_worker = updated / (hardware.memory_gb_per_s * 1e9 * rates.update)
    return np.where(plans.offload, on_host, on_worker)


def _sum_s(message: FloatArray, t: FloatArray, hardware: Accelerator, rates: Rates) -> FloatArray:
    """Return the seconds of one sum of a message over a tensor group, by a ring."""
    inside = hardware.link_gb_per_s * rates.link * message / (message + rates.half_bytes)
    outside = hardware.network_gb_per_s * rates.network  # the group has the adapters of its nodes
    bandwidth = np.where(t <= hardware.per_node, inside, outside) * 1e9
    return 2 * (t - 1) / t * message / bandwidth


def passing_s(message: FloatArray, plans: Plans, hardware: Accelerator, rates: Rates) -> FloatArray:
    """Return the seconds in which (Q,) bytes pass from one stage to the next.

    Ranks are numbered by tensor, then copy, then stage, so the copies of a stage stand side by
    side; if stages stand on several nodes, the slowest of them pass on across the network.
    """
    share = np.where(
        plans.workers > hardware.per_node,
        hardware.network_gb_per_s
        / np.minimum(plans.tensor * plans.data, hardware.per_node)
        * rates.passing,
        hardware.link_gb_per_s * rates.link,
    )
    return np.where(plans.pipeline > 1, message / plans.tensor / (share * 1e9), 0.0)


def copies_s(
    held: FloatArray, microbatches: FloatArray, plans: Plans, hardware: Accelerator, rates: Rates
) -> FloatArray:
    """Return the seconds of a step in which copies share (Q,) bytes of weights or gradients.

    Bytes go round the copies by rings side by side: twice to sum gradients, once to add them and
    once to share the sums, or the weights that follow from them. Shared gradients are added for
    each microbatch; shared weights are also gathered for each pass of it (Rajbhandari et al.,
    SC'20, section 7).
    """
    t, d = plans.tensor, plans.data
    m = microbatches
    rounds = np.select([plans.zero < 2, plans.zero == 2], [np.full(len(m), 2.0), m + 1], 3 * m)
    fits = (t * d <= hardware.per_node) & (hardware.per_node % (t * d) == 0)
    rings = np.minimum(t, hardware.per_node)  # of a node; they share its adapters
    inside = hardware.link_gb_per_s * rates.link
    outside = hardware.network_gb_per_s / rings * rates.network
    is_inside = fits | (plans.workers <= hardware.per_node)
    return rounds * (d - 1) / d * held / (np.where(is_inside, inside, outside) * 1e9)
