"""Old names of ``TraceJob`` and ``ParsedTrace``; they go with the release after 0.3.0."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from traces.trace import ParsedTrace as Drafts
from traces.trace import TraceJob

__all__ = ["Draft", "Drafts"]


def Draft(  # noqa: N802 - it was a class
    *,
    scale_factor: int,
    scale_factors: tuple[int, ...] = (),
    checkpoints: bool = True,
    conditions: Any = None,
    **given: Any,
) -> TraceJob:
    """Return the job of a line.

    Args:
        scale_factor: workers that the job holds at once.
        scale_factors: worker counts at which the job can run; empty for a single one.
        checkpoints: whether the job saves its work when it is preempted.
        conditions: further fields, as attributes; an empty project is the default one.
        given: fields of ``TraceJob``.
    """
    warnings.warn(
        "traces.draft goes with the release after 0.3.0; give a traces.trace.TraceJob",
        DeprecationWarning,
        stacklevel=2,
    )
    if conditions is not None:
        given |= {name: value for name, value in vars(conditions).items() if value != ""}
    job = TraceJob(scale_factors=scale_factors or (scale_factor,), **given)
    return job if checkpoints else replace(job, checkpoint_dir=None)
