"""Plans of a model that is a list of layers: cutting it into stages, time and memory.

The slowest stage sets the pace of a pipeline (Strati et al., SOSP'25, section 4).

Letters: Q plans, L layers, b microbatch, t tensor, p pipeline and d data size, m microbatches of a
copy.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, fields
from functools import cache, lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.plans.cost import StepTimes, copies_s, passing_s
from planner.plans.hardware import plain_name
from planner.plans.layers import LayerTimes
from planner.plans.memory import RESERVE, Memory
from planner.plans.plan import MICROBATCHES, Plan, Plans, divisors, sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.plans.cost import Rates
    from planner.plans.hardware import Accelerator
    from planner.plans.training import LayeredTraining
    from scheduler.domain.arrays import FloatArray, IntArray

#: Halvings of the bound of a cut.
_HALVINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """A plan with its stages.

    Attributes:
        plan: the split.
        stages: numbers of layers of its p stages.
    """

    plan: Plan
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTimes:
    """Seconds of m microbatches that pass p stages.

    Attributes:
        pace: the stage that sets the pace.
        compute_s: that it computes.
        pipeline_s: in which it exchanges activations and their gradients with a neighbour.
        bubble_s: that it waits for the first microbatch, and after the last.
    """

    pace: int
    compute_s: float
    pipeline_s: float
    bubble_s: float


def pipeline_times(
    microbatches: int, compute_s: FloatArray, boundary_s: FloatArray
) -> PipelineTimes:
    """Return the times of a pipeline.

    A stage does not compute while it exchanges data. It sends to one neighbour while it receives
    from the other one, so only its slower boundary counts.

    Args:
        microbatches: m.
        compute_s: (p,) seconds of the two passes of a microbatch, of the slowest copy.
        boundary_s: (p - 1,) seconds of its activations and of their gradients between two stages.
    """
    beside = np.concatenate(([0.0], boundary_s, [0.0]))
    exchange_s = np.maximum(beside[:-1], beside[1:])
    pace = int(np.argmax(compute_s + exchange_s))
    once_s = float(compute_s.sum() + boundary_s.sum())
    return PipelineTimes(
        pace=pace,
        compute_s=float(microbatches * compute_s[pace]),
        pipeline_s=float(microbatches * exchange_s[pace]),
        bubble_s=once_s - float(compute_s[pace] + exchange_s[pace]),
    )


def cut(
    costs: FloatArray, stages: int, reach: Callable[[int, int], int] | None = None
) -> tuple[int, ...]:
    """Return numbers of layers of p stages so that the dearest stage is as cheap as possible.

    Each stage gets a layer at least. With a bound on its cost, each stage takes as many layers as
    it can, since fewer layers never cost the stages behind less; the bound is found by bisection.

    Args:
        costs: (L,) of the layers, at least 0.
        stages: p, at most L.
        reach: stage, its first layer -> the end of the layers that it may have; all if None.

    Returns:
        (p,) numbers of layers; empty if ``reach`` allows no cut.
    """
    sums: list[float] = np.concatenate(([0.0], np.cumsum(costs))).tolist()

    def fill(bound: float) -> tuple[int, ...]:
        def end(stage: int, begin: int) -> int:
            last = bisect_right(sums, sums[begin] + bound) - 1
            return last if reach is None else min(last, reach(stage, begin))

        return _fill(len(costs), stages, end)

    return _least_bound(fill, float(costs.max()), sums[-1] * (1 + 1e-9))


def _fill(layers: int, stages: int, reach: Callable[[int, int], int]) -> tuple[int, ...]:
    """Return stages of as many layers as each may have; empty if they are too few for all."""
    found: list[int] = []
    begin = 0
    for i in range(stages):
        end = min(reach(i, begin), layers - (stages - 1 - i))
        if end <= begin:
            return ()
        found.append(end - begin)
        begin = end
    return tuple(found) if begin == layers else ()


def _least_bound(
    fill: Callable[[float], tuple[int, ...]], low: float, high: float
) -> tuple[int, ...]:
    """Return the cut of about the least bound that has one; empty if the highest has none."""
    best = fill(high)
    for _ in range(_HALVINGS if best else 0):
        middle = (low + high) / 2
        found = fill(middle)
        best, low, high = (found, low, middle) if found else (best, middle, high)
    return best


def _passes_s(times: LayerTimes, *, recompute: bool) -> FloatArray:
    """Return (L,) seconds of both passes of a microbatch."""
    return times.forward_s * (1 + recompute) + times.backward_s


def _begins(staged: StagedPlan) -> IntArray:
    """Return (p,) the first layer of each stage."""
    return np.concatenate(([0], np.cumsum(staged.stages)[:-1])).astype(np.int64)


class LayeredPlans:
    """Plans of a model on workers of a type.

    Args:
        training: the model and its step.
        worker_type: its name.
        hardware: its accelerator.
        rates: of the workers, for what was not measured.

    Raises:
        InputError: the workers do not compute in the model's precision.
    """

    def __init__(
        self, training: LayeredTraining, worker_type: str, hardware: Accelerator, rates: Rates
    ) -> None:
        self.training = training
        self.worker_type = worker_type
        self.hardware = hardware
        self.rates = rates
        self._measured = training.model.measured.get(plain_name(worker_type), {})
        self._flops = hardware.flops(training.precision)
        self.times = lru_cache(maxsize=None)(self._times)
        self._cut_by_time = lru_cache(maxsize=None)(self._cut_by_time_once)

    @property
    def is_measured(self) -> bool:
        """Whether the model's layers were measured on such workers."""
        return bool(self._measured)

    def missing(self) -> str:
        """Return why no time can be predicted; an empty text if one can."""
        if self._measured or self.training.model.flops.any():
            return ""
        return "the model's layers have no flops, and were not measured on such workers"

    def unsplittable(self, workers: int) -> str:
        """Return why there is no plan on some workers."""
        reason = (
            f"{self.training.model.layers} layers and a batch of {self.training.batch} cannot be "
            f"split evenly over {workers} workers"
        )
        if not self._measured:
            return reason
        sizes = ", ".join(f"tp{tensor} b{samples}" for tensor, samples in sorted(self._measured))
        return f"{reason}; measured are {sizes}"

    def _times(self, tensor: int, microbatch: int) -> LayerTimes:
        """Return the measured times, or those that follow from FLOPs and bytes."""
        if self._measured:
            return self._measured[tensor, microbatch]
        model = self.training.model
        forward_s = microbatch * model.flops / (self._flops * self.rates.matrices)
        moved = microbatch * model.kept_bytes
        forward_s = forward_s + moved / self._memory_rate + self.rates.kernels_s
        return LayerTimes(
            forward_s=forward_s,
            backward_s=2 * forward_s,
            update_s=None,
            parameters=model.layer_parameters,
            kept_bytes=model.kept_bytes,
        )

    @property
    def _memory_rate(self) -> float:
        return self.hardware.memory_gb_per_s * 1e9 * self.rates.memory

    def enumerate(self, workers: int, usable: float) -> list[StagedPlan]:
        """Return the plans on some workers.

        Layers are cut so that the slowest stage is as fast as possible. If that needs too much
        memory, the fastest cut that fits is taken. If none fits, the cut with the emptiest fullest
        stage is taken.

        Args:
            workers: their number.
            usable: bytes of a worker that a plan may fill.
        """
        found = []
        for plan in self._plans(workers):
            by_time = StagedPlan(
                plan=plan,
                stages=self._cut_by_time(
                    plan.tensor, plan.microbatch, plan.pipeline, plan.recompute
                ),
            )
            found.append(by_time)
            has_others = 1 < plan.pipeline < self.training.model.layers
            if has_others and self.memory([by_time]).total[0] > usable:
                found.append(StagedPlan(plan=plan, stages=self._cut_by_memory(plan, usable)))
        return found

    def _plans(self, workers: int) -> list[Plan]:
        sizes = sorted(self._measured) or [(1, b) for b in MICROBATCHES]
        batch, per_node = self.training.batch, self.hardware.per_node
        found = []
        for tensor, microbatch in sizes:
            if workers % tensor or tensor > per_node or (workers > per_node and per_node % tensor):
                continue
            for pipeline in divisors(workers // tensor):
                data = workers // (tensor * pipeline)
                if pipeline > self.training.model.layers or batch % (data * microbatch):
                    continue
                shares = sharing(pipeline, data, has_host=False)
                for recompute, (zero, _) in product((False, True), shares):
                    found.append(
                        Plan(
                            tensor=tensor,
                            pipeline=pipeline,
                            data=data,
                            microbatch=microbatch,
                            recompute=recompute,
                            zero=zero,
                        )
                    )
        return found

    def _cut_by_time_once(
        self, tensor: int, microbatch: int, pipeline: int, recompute: bool
    ) -> tuple[int, ...]:
        return cut(_passes_s(self.times(tensor, microbatch), recompute=recompute), pipeline)

    def _cut_by_memory(self, plan: Plan, usable: float) -> tuple[int, ...]:
        """Return the fastest cut that fits, or the emptiest if none does."""
        flight = self._in_flight(plan)

        @cache
        def memory_from(begin: int) -> tuple[FloatArray, FloatArray]:
            """Return the bytes of a stage for each end, without and for a microbatch in flight."""
            *fixed, each = self._uses(
                plan,
                lambda x: np.cumsum(x[begin:]),
                lambda x: np.maximum.accumulate(x[begin:]),
            )
            return np.asarray(sum(fixed)), each

        @cache
        def memory_of(stage: int, begin: int) -> list[float]:
            """Return the bytes of a stage for each end."""
            fixed, each = memory_from(begin)
            found: list[float] = (fixed + flight[stage] * each).tolist()
            return found

        def reach(bound: float, stage: int, begin: int) -> int:
            return begin + bisect_right(memory_of(stage, begin), bound)

        def emptiest(bound: float) -> tuple[int, ...]:
            return _fill(self.training.model.layers, plan.pipeline, partial(reach, bound))

        if emptiest(usable - RESERVE):
            times = self.times(plan.tensor, plan.microbatch)
            passes_s = _passes_s(times, recompute=plan.recompute)
            return cut(passes_s, plan.pipeline, cache(partial(reach, usable - RESERVE)))
        fixed, each = memory_from(0)
        return _least_bound(emptiest, 0.0, float((fixed + flight[0] * each)[-1]))

    def _uses(
        self,
        plan: Plan,
        sums: Callable[[FloatArray], FloatArray],
        largest: Callable[[FloatArray], FloatArray],
    ) -> tuple[FloatArray, ...]:
        """Return (S,) bytes of S stages by use.

        The uses are weights, gradients, optimiser, activations that are kept once, and activations
        of each microbatch in flight.

        Args:
            plan: the split.
            sums: (L,) figures of the layers -> (S,) their sums.
            largest: (L,) figures of the layers -> (S,) the largest ones.
        """
        training, times = self.training, self.times(plan.tensor, plan.microbatch)
        share = [plan.data if plan.zero >= stage else 1 for stage in (1, 2, 3)]
        size = training.number_bytes
        parameters, layer = sums(times.parameters), largest(times.parameters)
        # Shared weights of a layer and of the next one are gathered whole, and gradients of a layer
        # are whole until they are added.
        weights = size / share[2] * parameters + (2 * size if plan.zero == 3 else 0) * layer
        gradients = size / share[1] * parameters + (size if plan.zero >= 2 else 0) * layer
        kept = plan.microbatch * times.kept_bytes
        if plan.recompute:  # inputs are kept, and the layer that is computed again
            inputs = np.concatenate(([0.0], training.model.output_bytes[:-1]))
            once, each = largest(kept), plan.microbatch * sums(inputs)
        else:
            once, each = np.zeros(len(layer)), sums(kept)
        return weights, gradients, training.optimiser_bytes / share[0] * parameters, once, each

    def _microbatches(self, plan: Plan) -> int:
        return self.training.batch // (plan.data * plan.microbatch)

    def _in_flight(self, plan: Plan) -> FloatArray:
        """Return (p,) microbatches in flight on each stage: one, and one per stage that follows."""
        left = np.arange(plan.pipeline, 0, -1)
        return np.minimum(left, self._microbatches(plan)).astype(float)

    def step_times(self, staged: Sequence[StagedPlan]) -> StepTimes:
        """Return the time of a step under Q plans."""
        plans = Plans.of([one.plan for one in staged])
        size = self.training.number_bytes
        compute, exchange, bubble, held, update = (np.zeros(len(staged)) for _ in range(5))
        byte_s = passing_s(np.ones(len(staged)), plans, self.hardware, self.rates)
        for i, one in enumerate(staged):
            found = self.pipeline_times(one, float(byte_s[i]))
            compute[i], exchange[i] = found.compute_s, found.pipeline_s
            bubble[i] = found.bubble_s
            times, begins = self.times(one.plan.tensor, one.plan.microbatch), _begins(one)
            held[i] = np.add.reduceat(times.parameters, begins).max()
            if times.update_s is not None:
                update[i] = np.add.reduceat(times.update_s, begins).max()
            else:
                rate = self.hardware.memory_gb_per_s * 1e9 * self.rates.update
                update[i] = held[i] * self.training.updated_bytes / rate
        m = self.training.batch / (plans.data * plans.microbatch)
        shared = np.where(plans.zero > 0, plans.data, 1.0)
        nothing = np.zeros(len(staged))
        return StepTimes(
            compute_s=compute,
            launch_s=nothing,
            tensor_s=nothing,
            pipeline_s=exchange,
            bubble_s=bubble,
            data_s=copies_s(held * size, m, plans, self.hardware, self.rates),
            swap_s=nothing,
            update_s=update / shared + self.rates.step_s,
        )

    def pipeline_times(self, staged: StagedPlan, byte_s: float) -> PipelineTimes:
        """Return the times of a plan's pipeline.

        Args:
            staged: the plan.
            byte_s: seconds in which a byte of the activations passes to the next stage.
        """
        plan, begins = staged.plan, _begins(staged)
        m = self._microbatches(plan)
        times = self.times(plan.tensor, plan.microbatch)
        passes_s = _passes_s(times, recompute=plan.recompute)
        parameters = np.add.reduceat(times.parameters, begins)
        # Gradients of each microbatch but the first are added to those before.
        added = 3 * self.training.number_bytes * parameters * (m - 1) / m
        stage_s = np.add.reduceat(passes_s, begins) + added / self._memory_rate
        outputs = plan.microbatch * self.training.model.output_bytes[begins[1:] - 1]
        return pipeline_times(m, stage_s, 2 * byte_s * outputs)

    def memory(self, staged: Sequence[StagedPlan], *, reserve: float = RESERVE) -> Memory:
        """Return the memory of the fullest worker under Q plans."""
        found = [self._fullest(one) for one in staged]
        columns = np.array(found).reshape(len(staged), 4)
        names = [one.name for one in fields(Memory)][:4]
        return Memory(
            **{name: columns[:, i] for i, name in enumerate(names)},
            reserve=np.full(len(staged), reserve),
            host=np.zeros(len(staged)),
        )

    def _fullest(self, staged: StagedPlan) -> FloatArray:
        """Return (4,) uses of the fullest stage."""
        begins = _begins(staged)
        *fixed, once, each = self._uses(
            staged.plan,
            lambda x: np.add.reduceat(x, begins),
            lambda x: np.maximum.reduceat(x, begins),
        )
        stages = np.array([*fixed, once + self._in_flight(staged.plan) * each])
        return np.asarray(stages[:, stages.sum(axis=0).argmax()])
