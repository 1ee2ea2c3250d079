"""Migration: among rounds of equal value, the one in which the fewest jobs move.

Promises of time in configurations of equal value are one promise (``equivalence``). Two jobs swap
their choices if that is of equal value to both and at least one of them can stay. If no job waits,
a job moves only for a gain that exceeds the doubt of its throughputs and the cost of the restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import true_entries
from scheduler.domain.configuration import margin
from scheduler.engine.rounds.kernels import choose_staying, swap_equals
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps
    from scheduler.engine.limits.node_exclusions import Exclusions
    from scheduler.engine.rounds.equivalence import EquivalentConfigurations
    from scheduler.engine.tables.jobs import JobTable


def sum_equivalent(values: FloatArray, group: IntArray) -> FloatArray:
    """Return (R, J) the sums of (R, J) values over each group of equal configurations."""
    sums = np.zeros_like(values)
    np.add.at(sums, (np.arange(len(values))[:, None], group), values)
    result: FloatArray = np.take_along_axis(sums, group, axis=1)
    return result


def spread_credit(jobs: JobTable, equivalent: EquivalentConfigurations) -> None:
    """Spread credits over configurations of equal value in proportion to X.

    Otherwise the credits would drift apart without bound, and become claims when throughputs
    change.
    """
    if not equivalent.any:
        return
    profile, width = jobs["profile"], equivalent.group.shape[1]
    # A job of many counts makes the tables wide, and most entries of the others are 0.
    used = (jobs.x[:, :width] != 0.0) | (jobs.credit_s[:, :width] != 0.0)
    row, column = true_entries(used & equivalent.shared[profile][:, None])
    x, credit_s = jobs.x[row, column], jobs.credit_s[row, column]
    alike = row * width + equivalent.group[profile[row], column]
    _, of = np.unique(alike, return_inverse=True)
    total = np.bincount(of, x)[of]
    spread = np.bincount(of, credit_s)[of] * x / np.where(total > 0.0, total, 1.0)
    jobs.credit_s[row, column] = np.where(total > 0.0, spread, credit_s)


def swap_equivalent(
    choice: IntArray,
    jobs: JobTable,
    equivalent: EquivalentConfigurations,
    exclusions: Exclusions | None,
    caps: Caps | None = None,
) -> None:
    """Swap choices of equal value between jobs, so that more jobs can stay.

    Each job keeps a choice of equal value, and the workers in use stay the same. Jobs under a quota
    take no part: their use of the quota might change.

    Args:
        choice: (N,) single configuration of each job, NONE without one; changed in place.
        jobs: the job table.
        equivalent: configurations of equal value.
        exclusions: configurations that jobs cannot have; None if there are no bars.
        caps: quotas; None if there are no quotas.
    """
    profile, held = jobs.ints("profile"), jobs.ints("configuration")
    may = equivalent.shared[profile] & (choice != NONE) & (choice != held)
    if caps is not None:
        capped: BoolArray = np.any(caps.member, axis=1, keepdims=True)[:, 0]
        may &= ~capped[caps.group]
    swap_equals(
        np.flatnonzero(may),
        profile,
        held,
        choice,
        equivalent.group,
        equivalent.slot,
        np.zeros((0, 0), dtype=bool) if exclusions is None else exclusions.configuration,
    )


def suppress_moves(
    choice: IntArray,
    free: IntArray,
    jobs: JobTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    *,
    length_s: float,
    negligible: float,
    caps: Caps | None = None,
) -> IntArray:
    """Let jobs keep their workers if no job waits and a move has no certain gain.

    Jobs that only exchange workers hold the same ones together, so they can stay under any X. A
    job that would leave other workers idle stays only in three cases, so that policies that use
    prices keep their effect: X gives time to its held configuration too; both are of equal value;
    or, because of the restart, it would end no sooner elsewhere and cost no less. A job that loses
    all work when it is preempted, and has restarted before, is not drawn into an exchange, nor are
    the jobs that come for its workers.

    Args:
        choice: (N,) single configuration of each job, NONE without one; changed in place.
        free: (K + Q,) workers that are left over, and room in each quota; changed in place.
        jobs: the job table.
        table: configurations by profile.
        equivalent: configurations of equal value.
        length_s: of the round.
        negligible: smaller fractions of X count as 0.
        caps: quotas; None if there are no quotas.

    Returns:
        (N,) configuration that was due, if a job stays; NONE otherwise.
    """
    turn_of: IntArray = np.full(len(choice), NONE, dtype=np.int64)
    held = jobs.ints("configuration")
    rows = ((held != NONE) & (choice != NONE) & (held != choice)).nonzero()[0]
    if not len(rows):
        return turn_of
    here, there, profile = held[rows], choice[rows], jobs.ints("profile")[rows]
    same = equivalent.group[profile, here] == equivalent.group[profile, there]
    gain = table.throughput[profile, there] / np.maximum(table.throughput[profile, here], 1e-300)
    doubt = margin(equivalent.doubt[profile, here], equivalent.doubt[profile, there])
    lost = _lost(jobs, table, equivalent, rows, there, length_s=length_s)
    sure = doubt >= 0.0
    futile = sure & _is_futile(jobs, table, equivalent, rows, there)
    content = same | futile | (sure & (gain * (1.0 - lost) <= np.exp(doubt)))
    loses = (jobs["attempts"][rows] > 1) & (jobs["steps_safe"][rows] <= 0)
    if not (loses.any() or content.any()):
        return turn_of
    more = table.demand[profile, here] - table.demand[profile, there]
    if caps is not None:
        more = caps.widened(caps.group[rows], more)
    wanted = same | futile | (jobs.x[rows, here] > negligible)
    stays = choose_staying(more, content, wanted, loses, gain, free)
    choice[rows[stays]] = here[stays]
    turn_of[rows[stays]] = there[stays]
    return turn_of


def _is_futile(
    jobs: JobTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    rows: IntArray,
    there: IntArray,
) -> BoolArray:
    """Return (R,) jobs that, because of the restart, end no sooner and cost no less elsewhere."""
    profile, held = jobs.ints("profile")[rows], jobs.ints("configuration")[rows]
    left, restart_s = jobs.steps_left()[rows], jobs.restarts_s[rows, there]
    stays_s = left / np.maximum(table.throughput[profile, held], 1e-300)
    moves_s = left / np.maximum(table.throughput[profile, there], 1e-300) + restart_s
    dearer = equivalent.price[profile, held] * stays_s > equivalent.price[profile, there] * moves_s
    result: BoolArray = (restart_s > 0.0) & (moves_s >= stays_s) & ~dearer
    return result


def _lost(
    jobs: JobTable,
    table: ConfigurationTable,
    equivalent: EquivalentConfigurations,
    rows: IntArray,
    there: IntArray,
    *,
    length_s: float,
) -> FloatArray:
    """Return (R,) the part of its time in the new configuration that a job loses by the restart.

    That time is X's longest stretch there, or the time until the job would be done where it is.
    """
    restart_s = jobs.restarts_s[rows, there]
    if not restart_s.any():
        return restart_s
    profile, held = jobs.ints("profile")[rows], jobs.ints("configuration")[rows]
    group = equivalent.group[profile]
    share = sum_equivalent(jobs.x[rows, : group.shape[1]], group)[np.arange(len(rows)), there]
    left_s = jobs.steps_left()[rows] / np.maximum(table.throughput[profile, held], 1e-300)
    stretch_s = np.minimum(length_s / np.maximum(1.0 - share, 1e-9), left_s)
    lost: FloatArray = np.minimum(restart_s / np.maximum(stretch_s, 1e-9), 1.0)
    return lost
