"""Measurements of a job with a changeable batch, as its agent reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.errors import InputError
from scheduler.protocol import bounds
from scheduler.protocol.reading import Reader, short_form

#: Workers, samples per worker and pass, seconds of a pass, and of the pass that exchanges.
StepTime = tuple[int, float, float, float]
_WHAT: Final = "workers, samples per worker and pass, and two times in seconds, all above 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A job's measurements of its steps and gradients.

    Absolute, so that a lost or repeated report changes nothing.

    Attributes:
        noise_scale_samples: gradient noise scale; None before the first measurement.
        batch_samples: of the current step.
        step_times: how long steps took, by the batches that were run under this lease.
    """

    noise_scale_samples: float | None
    batch_samples: int
    step_times: tuple[StepTime, ...] = ()


def read_learning(item: Reader, name: str) -> Learning:
    """Read a field with a job's measurements.

    Raises:
        InputError: a figure is impossible, or there are more than a job may report.
    """
    told = Reader.of(item.data[name], item.where(name))
    return Learning(
        noise_scale_samples=told.optional(
            "noise_scale_samples",
            lambda noise: told.number(noise, at_least=0.0, at_most=float(bounds.MOST_COUNT)),
        ),
        batch_samples=told.integer("batch_samples", at_least=1),
        step_times=_step_times(told, "step_times"),
    )


def _step_times(told: Reader, name: str) -> tuple[StepTime, ...]:
    values = told.data.get(name)
    if not isinstance(values, list) or len(values) > bounds.MOST_STEP_TIMES:
        raise told.refuse(name, f"a list of at most {bounds.MOST_STEP_TIMES} step times")
    return tuple(_step_time(told, value) for value in values)


def _step_time(told: Reader, value: object) -> StepTime:
    if isinstance(value, list) and len(value) == 4 and all(map(_is_number, value)):
        workers, per_worker, pass_s, last_pass_s = value
        least_s, most_s = bounds.SHORTEST_S, bounds.LONGEST_S
        if (
            isinstance(workers, int)
            and 1 <= workers <= bounds.MOST_RANKS
            and 0.0 < per_worker <= bounds.MOST_COUNT
            and least_s <= pass_s <= most_s
            and least_s <= last_pass_s <= most_s
        ):
            return workers, float(per_worker), float(pass_s), float(last_pass_s)
    raise InputError(f"a step time of '{told.path}' is {short_form(value)}; it must be {_WHAT}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
