"""Measurements of a job with a changeable batch, as its agent reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from scheduler.protocol import bounds, fields

#: Workers, samples per worker and pass, seconds of a pass, and of the pass that exchanges.
StepTime = tuple[
    Annotated[int, Meta(ge=1, le=bounds.MOST_RANKS)],
    Annotated[float, Meta(gt=0.0, le=float(bounds.MOST_COUNT))],
    Annotated[float, Meta(ge=bounds.SHORTEST_S, le=bounds.LONGEST_S)],
    Annotated[float, Meta(ge=bounds.SHORTEST_S, le=bounds.LONGEST_S)],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A job's measurements of its steps and gradients.

    Absolute, so that a lost or repeated report changes nothing.

    Attributes:
        noise_scale_samples: gradient noise scale; None before the first measurement.
        batch_samples: of the current step.
        step_times: how long steps took, by the batches that were run under this lease.
    """

    noise_scale_samples: Annotated[float, Meta(ge=0.0, le=float(bounds.MOST_COUNT))] | None = None
    batch_samples: fields.Positive
    step_times: Annotated[tuple[StepTime, ...], Meta(max_length=bounds.MOST_STEP_TIMES)] = ()
