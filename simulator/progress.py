"""The progress of a run, for displays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run.

    Attributes:
        now_s: simulated seconds.
        jobs_done: jobs of the window that have ended.
        jobs: jobs of the window.
    """

    now_s: float
    jobs_done: int
    jobs: int
