"""The fastest plan of a model that fits, for a worker type and a number of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from planner.plans.memory import worker_memory
from planner.plans.plan import Plan, enumerate_plans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plans.calibration import Calibration
    from planner.plans.hardware import Accelerator
    from planner.plans.training import Training

#: Part of a worker's memory that a plan may fill; the rest is lost to fragments.
USABLE: Final = 0.94


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlan:
    """The best plan on some workers, or the reason why they cannot run the model.

    Attributes:
        worker_type: name of the worker type.
        workers: their number.
        reason: why it cannot run; empty if it can.
        plan: the split; None if no split is possible.
        step_s: seconds of a step; infinite if it cannot run.
        parts: seconds of the step by part; see ``StepTimes``.
        memory: bytes of the fullest worker by use; see ``Memory``.
        lacking: bytes that the plan needs beyond the usable memory; 0 if it fits.
        unbounded: the plan that would be fastest if memory were no bound; None if it is ``plan``.
        unbounded_step_s: seconds of its step.
        unbounded_lacking: bytes that it needs beyond the usable memory.
    """

    worker_type: str
    workers: int
    reason: str = ""
    plan: Plan | None = None
    step_s: float = math.inf
    parts: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    lacking: float = 0.0
    unbounded: Plan | None = None
    unbounded_step_s: float = 0.0
    unbounded_lacking: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return not self.reason


def best_plan(
    training: Training,
    worker_type: str,
    hardware: Accelerator,
    count: int,
    calibration: Calibration,
) -> BestPlan:
    """Return the fastest plan that fits; if none fits, the one that lacks least memory.

    Args:
        training: the model and its step.
        worker_type: name of the worker type.
        hardware: its accelerator.
        count: number of workers.
        calibration: rates and corrections of the worker type.

    Raises:
        InputError: the workers do not compute in the training's precision.
    """
    plans = enumerate_plans(
        training.model, workers=count, batch=training.batch, per_node=hardware.per_node
    )
    if not len(plans):
        reason = (
            f"{training.model.layers} layers, {training.model.key_value_heads} heads and a batch "
            f"of {training.batch} cannot be split evenly over {count} workers"
        )
        return BestPlan(worker_type=worker_type, workers=count, reason=reason)
    times = calibration.step_times(training, plans, hardware)
    memory = worker_memory(training, plans)
    total_s = times.total_s
    usable = USABLE * hardware.memory_gb * 1e9
    lacking = memory.total - usable
    fastest = int(total_s.argmin())
    fit = np.flatnonzero(lacking <= 0)
    chosen = int(fit[total_s[fit].argmin()]) if len(fit) else int(lacking.argmin())
    found: dict[str, Any] = {
        "worker_type": worker_type,
        "workers": count,
        "plan": plans[chosen],
        "parts": {one.name: float(getattr(times, one.name)[chosen]) for one in fields(times)},
        "memory": {one.name: float(getattr(memory, one.name)[chosen]) for one in fields(memory)},
    }
    if not len(fit):
        lacks = float(lacking[chosen])
        reason = (
            f"{lacks / 1e9:.1f} GB too much for the {usable / 1e9:.1f} GB that may be filled, even "
            f"with {plans[chosen]}"
        )
        return BestPlan(**found, reason=reason, lacking=lacks)
    is_bound = total_s[fastest] < total_s[chosen]
    return BestPlan(
        **found,
        step_s=float(total_s[chosen]),
        unbounded=plans[fastest] if is_bound else None,
        unbounded_step_s=float(total_s[fastest]),
        unbounded_lacking=max(float(lacking[fastest]), 0.0),
    )
