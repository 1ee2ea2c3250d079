"""How far a run is, for whoever waits for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        now_s: simulated seconds.
        jobs_done: jobs of the window that have ended.
        jobs: jobs of the window.
    """

    now_s: float
    jobs_done: int
    jobs: int
