"""The fastest plan of a model that fits, for a worker type and a number of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from planner.plans.memory import USES, worker_memory
from planner.plans.plan import Plan, Plans, enumerate_plans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.plans.calibration import Calibration
    from planner.plans.cost import StepTimes
    from planner.plans.hardware import Accelerator
    from planner.plans.memory import Memory
    from planner.plans.stages import LayeredPlans
    from planner.plans.training import Training

#: Part of a worker's memory that a plan may fill; the rest is lost to fragments.
USABLE: Final = 0.94
#: Relative standard deviation of a predicted time: from FLOPs and bytes, and from layers that were
#: measured on such workers (``benchmarks/planning.py``, with nothing calibrated).
PREDICTED: Final = 0.6
FROM_LAYERS: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlan:
    """The best plan on some workers, or the reason why they cannot run the model.

    Attributes:
        worker_type: name of the worker type.
        workers: their number.
        reason: why it cannot run; empty if it can.
        plan: the split; None if no split is possible.
        stages: numbers of layers of its stages, if the model is a list of layers.
        is_measured: whether its time follows from layers that were measured on such workers.
        step_s: seconds of a step; infinite if it cannot run.
        parts: seconds of the step by part; see ``StepTimes``.
        memory: bytes of the fullest worker by use; see ``Memory``.
        host_memory: bytes of the host's memory for it.
        lacking: bytes that the plan needs beyond the usable memory; 0 if it fits.
        unbounded: the plan that would be fastest if memory were no bound, maybe ``plan`` with other
            stages; None if no plan is faster.
        unbounded_stages: numbers of layers of its stages, if the model is a list of layers.
        unbounded_step_s: seconds of its step.
        unbounded_lacking: bytes that it needs beyond the usable memory.
    """

    worker_type: str
    workers: int
    reason: str = ""
    plan: Plan | None = None
    stages: tuple[int, ...] = ()
    is_measured: bool = False
    step_s: float = math.inf
    parts: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    host_memory: float = 0.0
    lacking: float = 0.0
    unbounded: Plan | None = None
    unbounded_stages: tuple[int, ...] = ()
    unbounded_step_s: float = 0.0
    unbounded_lacking: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return not self.reason

    @property
    def doubt(self) -> float:
        """Relative standard deviation of its time."""
        return FROM_LAYERS if self.is_measured else PREDICTED


def best_plan(
    training: Training,
    worker_type: str,
    hardware: Accelerator,
    count: int,
    *,
    calibration: Calibration,
    allows: Callable[[Plan], bool] | None = None,
) -> BestPlan:
    """Return the fastest plan that fits; if none fits, the one that lacks least memory.

    Args:
        training: the model and its step.
        worker_type: name of the worker type.
        hardware: its accelerator.
        count: number of workers.
        calibration: rates and corrections of the worker type.
        allows: returns whether a plan may be chosen; all may by default.

    Raises:
        InputError: the workers do not compute in the training's precision.
    """
    plans = enumerate_plans(
        training.model,
        workers=count,
        batch=training.batch,
        per_node=hardware.per_node,
        has_host=hardware.host_gb_per_s > 0,
    )
    is_there = len(plans) > 0
    if allows is not None:
        plans = Plans.of([plan for plan in plans if allows(plan)])
    if is_there and not len(plans):
        return BestPlan(worker_type=worker_type, workers=count, reason=_none_allowed(count))
    if not len(plans):
        reason = (
            f"{training.model.layers} layers, {training.model.key_value_heads} heads and a batch "
            f"of {training.batch} cannot be split evenly over {count} workers"
        )
        return BestPlan(worker_type=worker_type, workers=count, reason=reason)
    times = calibration.step_times(training, plans, hardware)
    chosen, found = _choose(plans, times, worker_memory(training, plans), hardware)
    return BestPlan(worker_type=worker_type, workers=count, plan=plans[chosen], **found)


def best_layered_plan(
    layered: LayeredPlans, count: int, allows: Callable[[Plan], bool] | None = None
) -> BestPlan:
    """Return the same for a model that is a list of layers.

    Args:
        layered: its plans on workers of a type.
        count: number of workers.
        allows: returns whether a plan may be chosen; all may by default.
    """
    worker_type, hardware = layered.worker_type, layered.hardware
    reason = layered.missing()
    staged = [] if reason else layered.enumerate(count, usable_memory(hardware))
    if allows is not None and staged:
        staged = [one for one in staged if allows(one.plan)]
        reason = "" if staged else _none_allowed(count)
    if not staged:
        reason = reason or layered.unsplittable(count)
        return BestPlan(worker_type=worker_type, workers=count, reason=reason)
    plans = Plans.of([one.plan for one in staged])
    times, memory = layered.step_times(staged), layered.memory(staged)
    chosen, found = _choose(plans, times, memory, hardware)
    fastest = int(times.total_s.argmin())
    return BestPlan(
        worker_type=worker_type,
        workers=count,
        plan=plans[chosen],
        stages=staged[chosen].stages,
        unbounded_stages=staged[fastest].stages if "unbounded" in found else (),
        is_measured=layered.is_measured,
        **found,
    )


def _none_allowed(count: int) -> str:
    return f"none of the plans for {count} workers can be carried out so"


def usable_memory(hardware: Accelerator) -> float:
    """Return the bytes of a worker that a plan may fill."""
    return USABLE * hardware.memory_gb * 1e9


def _choose(
    plans: Plans, times: StepTimes, memory: Memory, hardware: Accelerator
) -> tuple[int, dict[str, Any]]:
    """Return the place of the best of Q plans, and its speed and memory for ``BestPlan``."""
    total_s = times.total_s
    usable = usable_memory(hardware)
    lacking = memory.total - usable
    fastest = int(total_s.argmin())
    fit = np.flatnonzero(lacking <= 0)
    chosen = int(fit[total_s[fit].argmin()]) if len(fit) else int(lacking.argmin())
    found: dict[str, Any] = {
        "parts": {one.name: float(getattr(times, one.name)[chosen]) for one in fields(times)},
        "memory": {name: float(getattr(memory, name)[chosen]) for name in USES},
        "host_memory": float(memory.host[chosen]),
    }
    if not len(fit):
        lacks = float(lacking[chosen])
        found["lacking"] = lacks
        found["reason"] = (
            f"{lacks / 1e9:.1f} GB too much for the {usable / 1e9:.1f} GB that may be filled, even "
            f"with {plans[chosen]}"
        )
        return chosen, found
    found["step_s"] = float(total_s[chosen])
    if total_s[fastest] < total_s[chosen]:
        found["unbounded"] = plans[fastest]
    found["unbounded_step_s"] = float(total_s[fastest])
    found["unbounded_lacking"] = max(float(lacking[fastest]), 0.0)
    return chosen, found
