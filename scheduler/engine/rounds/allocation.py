"""Questions to the policy, and what its answers change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.problem import Problem
from scheduler.engine.limits.quotas import most_held
from scheduler.engine.rounds.candidates import NEGLIGIBLE
from scheduler.engine.rounds.migration import settle
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.facts.events import AllocationComputed
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Caps
    from scheduler.engine.rounds.equivalence import Alike
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.leases import PlannedLease
    from scheduler.engine.tables.pairs import PairTable


def pose(
    jobs: JobTable,
    table: ConfigurationTable,
    entities: tuple[Entity, ...],
    *,
    capacity: FloatArray,
    cost_usd_per_hour: FloatArray,
    now_s: float,
    left_out: BoolArray,
    caps: Caps | None = None,
    round_length_s: float = 0.0,
    usage_s: FloatArray | None = None,
    completed_worker_s: FloatArray | None = None,
) -> Problem | None:
    """Make the allocation problem of the jobs that may run; None if there are none.

    Without any worker type there is nothing to ask, however many jobs wait.

    Args:
        jobs: the job table.
        table: configurations by profile.
        entities: all entities known.
        capacity: (K,) workers in service.
        cost_usd_per_hour: (K,) price of one worker.
        now_s: the time of the snapshot.
        left_out: (N,) jobs that the policy does not decide about.
        caps: quotas over all jobs; None where there are none.
        round_length_s: for how long workers are granted at a time.
        usage_s: (E,) what entities have used of late; None where that is not counted.
        completed_worker_s: (C,) what the last completed jobs took in all.
    """
    if not len(capacity):
        return None
    asked = jobs.runnable(now_s) & ~left_out
    if not asked.any():
        return None
    rows = slice(None) if asked.all() else np.flatnonzero(asked)
    if caps is not None:
        caps = _that_can_bind(caps.of_jobs(rows), table, jobs.ints("profile")[rows])
    arrival_s, total = (jobs.floats(c)[rows] for c in ("arrival_s", "total_steps"))
    return Problem(
        now_s=now_s,
        table=table,
        capacity=capacity,
        cost_usd_per_hour=cost_usd_per_hour,
        job_number=jobs.ints("number")[rows],
        profile=jobs.ints("profile")[rows],
        scale_factor=jobs.ints("scale_factor")[rows],
        weight=jobs.floats("weight")[rows],
        total_steps=total,
        remaining_steps=jobs.steps_left()[rows],
        age_s=now_s - arrival_s,
        time_left_s=jobs.floats("deadline_s")[rows] - now_s,
        attained_worker_s=jobs.floats("attained_worker_s")[rows],
        entity=jobs.ints("entity")[rows],
        entities=entities,
        held=jobs.ints("configuration")[rows],
        restart_s=jobs.floats("restart_s")[rows],
        round_length_s=round_length_s,
        entity_usage_s=usage_s,
        caps=caps,
        restarts=np.maximum(jobs.ints("attempts")[rows] - 1, 0),
        completed_worker_s=completed_worker_s,
    )


def _that_can_bind(caps: Caps, table: ConfigurationTable, profile: IntArray) -> Caps | None:
    """Return the caps of which the jobs could hold more together; None where that are none."""
    bind = caps.asked(most_held(table)[profile]) > caps.limit
    return caps.only(bind) if bind.any() else None


def take_over(
    answer: AllocationComputed,
    jobs: JobTable,
    pairs: PairTable,
    planned: Collection[PlannedLease],
    alike: Alike,
    *,
    round_length_s: float,
    carry_credit: bool = True,
) -> None:
    """Put an allocation in force; credits carry over where a configuration is still wanted.

    Jobs that have left since the question are skipped, jobs that came since keep X = 0; that they
    are to wait while workers are idle, nobody has said.

    Args:
        answer: the allocation, and the job numbers of its rows.
        jobs: the job table; X, credits, ranks and who runs by X only change.
        pairs: the pair table; its entries are replaced, but for those that run.
        planned: leases about to be granted, whose pairs must stay known.
        alike: what is of equal value; a promise of it is kept in whichever of it X wants now.
        round_length_s: nobody starts further ahead of the new X than this, and than what it has had
            beyond its turns.
        carry_credit: whether credits outlive the allocation that gave them.
    """
    allocation = answer.allocation
    rows = jobs.rows_of(answer.job_number)
    known = np.flatnonzero(rows != NONE)
    x, credit_s = jobs.x, jobs.credit_s
    x[:] = 0.0
    within = np.minimum(np.maximum(allocation.x[known], 0.0), 1.0)
    x[rows[known], : within.shape[1]] = within
    settle(jobs, alike)
    # A configuration that X no longer wants has no claim left; one ahead of X stays ahead.
    np.minimum(credit_s, 0.0, out=credit_s, where=x <= NEGLIGIBLE)
    # But for whoever was kept beyond its turn: what it had of others is not forgiven.
    np.maximum(credit_s, -round_length_s - jobs["ahead_s"][:, None], out=credit_s)
    if not carry_credit:
        credit_s[:] = 0.0
    jobs["rank"][:] = np.inf
    if allocation.rank is not None:
        jobs["rank"][rows[known]] = allocation.rank[known]
    jobs["x_only"][:] = 0
    if allocation.x_only is not None:
        jobs["x_only"][rows[known]] = allocation.x_only[known]
    if not len(pairs) and not len(allocation.pair_x):
        return
    members = rows[allocation.pair_jobs]
    present = np.flatnonzero((members != NONE).all(axis=1))
    pairs.replace(
        jobs,
        planned,
        answer.job_number[allocation.pair_jobs[present]],
        allocation.pair_index[present],
        np.clip(allocation.pair_x[present], 0.0, 1.0),
    )
