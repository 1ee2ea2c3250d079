"""Expected lengths of jobs: as declared, or longer if they have run longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import ALMOST_DONE
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.state import ControlState


def revised_lengths(state: ControlState, steps: Mapping[int, float]) -> ev.LengthsRevised | None:
    """Return new lengths of overrunning jobs; the engine needs them before their progress.

    A job that has run for nearly its whole length is expected to run for as long again. Otherwise
    it would always seem nearly done, and some policies would serve it first.

    Args:
        state: of control.
        steps: lease id -> steps done by the clock.

    Returns:
        The event with the new lengths in steps; None if no job overruns.
    """
    lease_ids = sorted(steps)
    rows = state.engine.state.rows_under(np.array(lease_ids, dtype=np.int64)).tolist()
    total = state.engine.jobs["total_steps"]
    longer = {
        state.leases.by_id[lease_id].lease.job_id: 2.0 * steps[lease_id]
        for lease_id, row in zip(lease_ids, rows, strict=True)
        if row != NONE and steps[lease_id] >= ALMOST_DONE * total[row]
    }
    if not longer:
        return None
    return ev.LengthsRevised(job_ids=tuple(longer), total_steps=np.array(list(longer.values())))
