"""Rates of a worker type from measured steps, and a correction of the remaining errors.

The constants of ``planner.plans.cost`` are fitted first. The remaining errors depend on the shape
of a layer's work rather than on the schedule, so a Gaussian process over that shape (Rasmussen and
Williams, Gaussian Processes for Machine Learning, section 2.2) corrects the times near measured
shapes, and leaves those far from them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from planner.plans.cost import Rates, StepTimes, step_times
from planner.plans.plan import Plan, Plans
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.plans.hardware import Accelerator
    from planner.plans.training import Training
    from scheduler.domain.arrays import FloatArray

#: Starts of the fit for the time in which the host launches a layer: it has no gradient unless it
#: is the longer one.
_LAUNCHES_S: Final = (3e-4, 3e-3)
#: Weight of the start against a measurement's relative error.
_PRIOR: Final = 0.05
#: Relative errors above this count less; some measurements are outliers.
_OUTLIER: Final = 0.05
#: Doublings of hidden size, tensor size, microbatch and sequence over which a correction fades.
_SCALES: Final = np.array([0.5, 0.5, 0.5, 1.0])
#: Standard deviations of the logarithm: of the corrected errors, and between runs of one plan.
_CORRECTED: Final = 0.15
_NOISE: Final = 0.015


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step.

    Attributes:
        training: the model and its step.
        plan: its split.
        step_s: its seconds.
        per_node: its workers in a node; None for the usual number.
    """

    training: Training
    plan: Plan
    step_s: float
    per_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Rates and corrections of a worker type.

    Attributes:
        rates: the constants.
        shapes: (P, 4) shapes of measured layers.
        weights: (P,) the correction's weights of them.
    """

    rates: Rates
    shapes: FloatArray
    weights: FloatArray

    def step_times(self, training: Training, plans: Plans, hardware: Accelerator) -> StepTimes:
        """Return the time of a step under each plan; the arguments are those of ``step_times``."""
        found = step_times(training, plans, hardware, self.rates)
        if not len(self.shapes):
            return found
        return found.scaled(np.exp(_near(_shapes(training, plans), self.shapes) @ self.weights))


def uncalibrated() -> Calibration:
    """Return the usual rates, without any measurement."""
    return Calibration(rates=Rates(), shapes=np.zeros((0, 4)), weights=np.zeros(0))


def calibrate(steps: Sequence[MeasuredStep], hardware: Accelerator) -> Calibration:
    """Return rates and corrections from P measured steps.

    Raises:
        InputError: there are none, or a time is not positive.
    """
    if not steps:
        raise InputError("there are no measured steps; measure at least one")
    measured_s = np.array([one.step_s for one in steps])
    if not (np.isfinite(measured_s) & (measured_s > 0)).all():
        raise InputError("a measured step has no positive time; leave it out")
    groups = _by_training(steps, hardware)

    def predicted_s(rates: Rates) -> FloatArray:
        found = np.empty(len(steps))
        for training, plans, nodes, at in groups:
            found[at] = step_times(training, plans, nodes, rates).total_s
        return found

    rates = min(
        (_fit(launch_s, predicted_s, measured_s) for launch_s in _LAUNCHES_S),
        key=lambda one: one[0],
    )[1]
    shapes = np.empty((len(steps), 4))
    for training, plans, _, at in groups:
        shapes[at] = _shapes(training, plans)
    left = np.log(measured_s / predicted_s(rates))
    noise = _NOISE**2 / _CORRECTED**2 * np.eye(len(steps))
    weights = np.asarray(np.linalg.solve(_near(shapes, shapes) + noise, left), dtype=float)
    return Calibration(rates=rates, shapes=shapes, weights=weights)


def _fit(
    launch_s: float, predicted_s: Callable[[Rates], FloatArray], measured_s: FloatArray
) -> tuple[float, Rates]:
    from scipy.optimize import least_squares  # noqa: PLC0415 - plans need no fit

    names = [one.name for one in fields(Rates)]
    start = Rates(launch_s=launch_s, shared_launch_s=launch_s)
    begin = np.log([getattr(start, name) for name in names])

    def rates_of(logs: FloatArray) -> Rates:
        return Rates(**dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def residuals(logs: FloatArray) -> FloatArray:
        errors = np.log(predicted_s(rates_of(logs)) / measured_s)
        return np.concatenate((errors, _PRIOR * (logs - begin)))

    found = least_squares(residuals, begin, loss="soft_l1", f_scale=_OUTLIER)
    return float(found.cost), rates_of(found.x)


def _by_training(
    steps: Sequence[MeasuredStep], hardware: Accelerator
) -> list[tuple[Training, Plans, Accelerator, list[int]]]:
    """Return steps by training and nodes: the plans of each, and their places."""
    found: dict[tuple[Training, int], list[int]] = {}
    for i, one in enumerate(steps):
        found.setdefault((one.training, one.per_node or hardware.per_node), []).append(i)
    return [
        (
            training,
            Plans.of([steps[i].plan for i in at]),
            msgspec.structs.replace(hardware, per_node=per_node),
            at,
        )
        for (training, per_node), at in found.items()
    ]


def _shapes(training: Training, plans: Plans) -> FloatArray:
    """Return (Q, 4) shapes of a layer's work, as logarithms to base 2."""
    model = training.model
    columns = (model.hidden, plans.tensor, plans.microbatch, model.sequence)
    return np.asarray(np.log2(np.stack([np.broadcast_to(x, len(plans)) for x in columns], axis=1)))


def _near(some: FloatArray, others: FloatArray) -> FloatArray:
    """Return how near shapes are to one another, from 0 to 1."""
    apart = (some[:, None, :] - others[None, :, :]) / _SCALES
    return np.asarray(np.exp(-0.5 * np.sum(apart**2, axis=-1)))
