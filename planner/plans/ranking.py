"""The fastest plans of a model that fit, for each worker type and number of workers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.plans.memory import worker_memory
from planner.plans.plan import Plan, enumerate_plans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planner.plans.calibration import Calibration
    from planner.plans.hardware import Accelerator
    from planner.plans.transformer import Transformer

#: Part of a worker's memory that a plan may fill; the rest is lost to fragments.
USABLE: Final = 0.94


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way in which a model could run.

    Attributes:
        worker_type: name of the worker type.
        workers: their number.
        plan: the split; None if there is none, since a size does not divide.
        step_s: seconds of a step; infinite if nothing fits.
        parts: seconds of the step by part; see ``StepTimes``.
        memory: bytes of the fullest worker by use; see ``Memory``.
        lacking: bytes that the plan needs beyond the worker's memory; 0 if it fits.
        unbounded: the plan that would be fastest if memory were no bound; None if it is ``plan``.
        unbounded_step_s: seconds of its step.
        unbounded_lacking: bytes that it needs beyond the worker's memory.
    """

    worker_type: str
    workers: int
    plan: Plan | None
    step_s: float
    parts: Mapping[str, float]
    memory: Mapping[str, float]
    lacking: float = 0.0
    unbounded: Plan | None = None
    unbounded_step_s: float = 0.0
    unbounded_lacking: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return self.plan is not None and self.lacking <= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A model and how it is trained.

    Attributes:
        model: the model.
        batch: samples of a step.
        precision: of the products of matrices.
        is_fused: whether a fused kernel computes attention.
    """

    model: Transformer
    batch: int
    precision: str = "fp16"
    is_fused: bool = True


def rank(
    training: Training,
    workers: Mapping[str, Accelerator],
    counts: Iterable[int],
    calibrations: Mapping[str, Calibration],
) -> Iterator[Way]:
    """Yield the best way for each worker type and count.

    Args:
        training: the model and its step.
        workers: worker type -> its accelerator.
        counts: numbers of workers.
        calibrations: worker type -> its rates and corrections.
    """
    counts = tuple(counts)
    for name, hardware in workers.items():
        for count in counts:
            yield best_way(training, name, hardware, count, calibrations[name])


def best_way(
    training: Training,
    worker_type: str,
    hardware: Accelerator,
    count: int,
    calibration: Calibration,
) -> Way:
    """Return the fastest plan that fits; if none fits, the one that lacks least memory."""
    model, batch = training.model, training.batch
    plans = enumerate_plans(model, workers=count, batch=batch, per_node=hardware.per_node)
    if not len(plans):
        return Way(
            worker_type=worker_type,
            workers=count,
            plan=None,
            step_s=np.inf,
            parts={},
            memory={},
        )
    times = calibration.step_times(
        model, plans, hardware, batch=batch, precision=training.precision
    )
    memory = worker_memory(model, plans, batch=batch, is_fused=training.is_fused)
    total_s = times.total_s
    lacking = memory.total - USABLE * hardware.memory_gb * 1e9
    fastest = int(total_s.argmin())
    fit = np.flatnonzero(lacking <= 0)
    chosen = int(fit[total_s[fit].argmin()]) if len(fit) else int(lacking.argmin())
    is_bound = chosen != fastest and total_s[fastest] < total_s[chosen]
    return Way(
        worker_type=worker_type,
        workers=count,
        plan=plans[chosen],
        step_s=float(total_s[chosen]) if len(fit) else np.inf,
        parts={one.name: float(getattr(times, one.name)[chosen]) for one in fields(times)},
        memory={one.name: float(getattr(memory, one.name)[chosen]) for one in fields(memory)},
        lacking=max(float(lacking[chosen]), 0.0),
        unbounded=plans[fastest] if is_bound else None,
        unbounded_step_s=float(total_s[fastest]),
        unbounded_lacking=max(float(lacking[fastest]), 0.0),
    )
