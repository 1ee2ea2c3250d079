"""Cost of a change of workers for each job, by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.jobs.job import restart_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.state.state import State


def restarts_in(
    table: ConfigurationTable, profile: int, restart_s: float, restarts: Mapping[str, float]
) -> FloatArray:
    """Return (J,) seconds that a change to each configuration of a profile costs a job.

    On workers of several types the cost is that of the most expensive type.

    Args:
        table: configurations by profile.
        profile: of the job.
        restart_s: the cost on workers that ``restarts`` does not name.
        restarts: see ``Job.restarts``.
    """
    result = np.full(table.throughput.shape[1], restart_s)
    for j, way in enumerate(table.profiles[profile].configurations if restarts else ()):
        held = [name for name, n in zip(table.worker_types, way.demand, strict=True) if n]
        costs = (restart_in(restart_s, restarts, name, sum(way.demand)) for name in held)
        result[j] = max(costs, default=restart_s)
    return result


def set_restarts(state: State, rows: Iterable[int]) -> None:
    """Store the restart costs that the jobs of some rows declare; jobs alike are computed once."""
    jobs = state.jobs
    known: dict[object, FloatArray] = {}
    for row in rows:
        job, profile = jobs.job_of[int(jobs["number"][row])], int(jobs["profile"][row])
        alike = profile, job.restart_s, *sorted(job.restarts.items())
        costs = known.get(alike)
        if costs is None:
            costs = known[alike] = restarts_in(state.table, profile, job.restart_s, job.restarts)
        jobs["restart_s"][row] = jobs.restarts_s[row] = job.usual_restart_s
        jobs.restarts_s[row, : len(costs)] = costs


def follow_table(state: State) -> None:
    """Compute the restart costs again for the configurations of a new table."""
    numbers = state.jobs["number"].tolist()
    set_restarts(state, [i for i, n in enumerate(numbers) if state.jobs.job_of[n].restarts])
