"""Questions to the policy, and the effects of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import true_entries
from scheduler.domain.problem import Problem
from scheduler.engine.limits.quotas import most_held
from scheduler.engine.rounds.candidates import NEGLIGIBLE
from scheduler.engine.rounds.migration import spread_credit
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.facts.events import AllocationComputed
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Caps
    from scheduler.engine.rounds.equivalence import EquivalentConfigurations
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.leases import PlannedLease
    from scheduler.engine.tables.pairs import PairTable


def build_problem(
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
    """Build the allocation problem of the jobs that may run; None if there are no such jobs.

    Without any worker type there is no problem, however many jobs wait.

    Args:
        jobs: the job table.
        table: configurations by profile.
        entities: all known entities.
        capacity: (K,) workers in service.
        cost_usd_per_hour: (K,) price of one worker.
        now_s: the time of the snapshot.
        left_out: (N,) jobs that are not part of the problem.
        caps: quotas over all jobs; None if there are no quotas.
        round_length_s: seconds for which workers are granted at a time.
        usage_s: (E,) decayed usage of entities; None if it is not counted.
        completed_worker_s: (C,) worker-seconds that the last completed jobs took in all.
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
    """Return the caps that the jobs together could exceed; None if there are no such caps."""
    bind = caps.asked(most_held(table)[profile]) > caps.limit
    return caps.only(bind) if bind.any() else None


def apply_allocation(
    answer: AllocationComputed,
    jobs: JobTable,
    pairs: PairTable,
    planned: Collection[PlannedLease],
    equivalent: EquivalentConfigurations,
    *,
    round_length_s: float,
    carry_credit: bool = True,
) -> None:
    """Put an allocation in force; credits carry over if X still wants the configuration.

    Jobs that have left since the question are skipped. Jobs that came since keep X = 0, and may use
    idle workers, since the policy did not rule it out.

    Args:
        answer: the allocation, and the job numbers of its rows.
        jobs: the job table; X, credits, ranks and ``no_backfill`` change.
        pairs: the pair table; its entries are replaced, except running ones.
        planned: leases about to be granted; their pairs must stay in the table.
        equivalent: configurations of equal value; credit moves to those of them that X wants now.
        round_length_s: no job starts further ahead of the new X than this plus its time beyond its
            turns.
        carry_credit: whether credits outlive the allocation that gave them.
    """
    allocation = answer.allocation
    rows = jobs.rows_of(answer.job_number)
    known = np.flatnonzero(rows != NONE)
    x, credit_s = jobs.x, jobs.credit_s
    # One job of many counts makes all rows wide; what is 0 stays 0 and is left out.
    asked, column = true_entries(allocation.x > 0.0)
    row = rows[asked]
    there = row != NONE
    x[:] = 0.0
    x[row[there], column[there]] = np.minimum(allocation.x[asked, column], 1.0)[there]
    spread_credit(jobs, equivalent)
    row, column = true_entries(credit_s != 0.0)
    credit = credit_s[row, column]
    # A configuration that X no longer wants loses its claim; one ahead of X stays ahead.
    credit = np.where(x[row, column] > NEGLIGIBLE, credit, np.minimum(credit, 0.0))
    # The bound is wider by the time that a protected job had beyond its turns.
    credit_s[row, column] = np.maximum(credit, -round_length_s - jobs["ahead_s"][row])
    if not carry_credit:
        credit_s[:] = 0.0
    jobs["rank"][:] = np.inf
    if allocation.rank is not None:
        jobs["rank"][rows[known]] = allocation.rank[known]
    jobs["x_only"][:] = 0
    if allocation.no_backfill is not None:
        jobs["x_only"][rows[known]] = allocation.no_backfill[known]
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
