"""Serve jobs in an order, each entirely: shared by the policies that only rank jobs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.allocation import Allocation
from scheduler.domain.arrays import distinct_columns

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.problem import Problem

#: Steps/s per worker of an efficient count, over those of the best count on the same worker type.
#: ``benchmarks/large_models.py --only small --launches cheap`` with 0.6, 0.7, 0.8, 0.85, 0.95:
#: 78, 97, 112, 124 and 126 jobs are done under fifo, 182, 188, 195, 196 and 197 under
#: shortest_job_first; 49 and 161 if each job takes all that it can use.
EFFICIENT = 0.85


def serve_in_order(
    problem: Problem,
    order: IntArray,
    *,
    preferred: IntArray | None = None,
    backfill: bool = True,
    may_use_remaining_work: bool = True,
    by_lengths: bool | None = None,
) -> Allocation:
    """Run jobs in order, each in the configuration with room in which it finishes first.

    A job that can run on several worker counts is first offered the efficient ones. At an
    efficient count each worker does at least ``EFFICIENT`` of its throughput at the job's best
    count on that worker type. A second pass offers all counts to the jobs that found no room, in
    order. Then running jobs are offered the free workers, in order, if they then finish sooner.

    A job that leaves its present configuration pays its restart. So it moves to faster workers only
    if it then finishes sooner. If the table has pairs, the jobs that found no room then share the
    workers of running jobs, in order. A pair is used only if the two together do more than either
    alone (their normalised throughputs sum to more than 1).

    Args:
        problem: N jobs.
        order: (N,) positions, the first to be served first.
        preferred: (N,) configuration that a job takes while there is room for it; -1 for any.
        backfill: whether jobs behind a job without room may get workers that it can use. If not,
            these workers stay idle. A job that no worker in service can run blocks no other job.
        may_use_remaining_work: whether the policy may know how long jobs take. If not, a job's
            expected remaining time is the time that it has run, at least one round.
        by_lengths: its old name; goes with the release after 0.3.0.

    Returns:
        Fractions of 0 or 1, and the order as ``rank``.
    """
    if by_lengths is not None:
        old = "serve_in_order's by_lengths is now called may_use_remaining_work"
        warnings.warn(old, DeprecationWarning, stacklevel=2)
        may_use_remaining_work = by_lengths
    from policies.kernels.greedy import place  # noqa: PLC0415  numba takes 0.4 s to import

    anything = np.full(problem.jobs, -1, dtype=np.int64)
    blocks = np.zeros(problem.jobs, dtype=np.bool_)
    if not backfill:
        blocks = best_throughput(problem) > 0
    profile, throughput, demand, capacity = under_quotas(problem)
    choice = place(
        order,
        profile,
        throughput,
        demand,
        capacity,
        problem.remaining_steps if may_use_remaining_work else _steps_by_age(problem),
        problem.restart_s,
        problem.held,
        anything if preferred is None else preferred,
        blocks,
        _types_in_use(throughput, demand, capacity, len(problem.capacity)),
        EFFICIENT,
    )
    rank = np.empty(problem.jobs)
    rank[order] = np.arange(problem.jobs)
    if problem.table.has_pairs and (choice < 0).any():
        answer = _with_sharing(problem, order, choice, rank, blocks)
    else:
        answer = _allocation(problem, choice, rank)
    no_backfill = None if backfill else np.ones(problem.jobs, dtype=bool)
    return replace(answer, no_backfill=no_backfill, may_use_remaining_work=may_use_remaining_work)


def _types_in_use(
    throughput: FloatArray, demand: IntArray, capacity: FloatArray, types: int
) -> BoolArray:
    """Return (U, K) worker types of the configurations that fit the whole capacity."""
    fits = (throughput > 0) & (demand <= capacity).all(axis=2)
    result: BoolArray = np.any(fits[:, :, None] & (demand[:, :, :types] > 0), axis=1)
    return result


def _steps_by_age(problem: Problem) -> FloatArray:
    """Return (N,) remaining steps if jobs run on for as long as they have run, at least a round."""
    round_steps = best_throughput(problem) * problem.round_length_s
    result: FloatArray = np.maximum(problem.total_steps - problem.remaining_steps, round_steps)
    return result


def under_quotas(problem: Problem) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
    """Return the tables of the jobs, with a capacity row for each quota after the worker types.

    Returns:
        (N,) row of each job, and by row (U, J) steps/s and (U, J, K) demand; and (K,) capacity.
    """
    table, caps = problem.table, problem.caps
    if caps is None:
        return problem.profile, table.throughput, table.demand, problem.capacity
    kinds = np.stack((problem.profile, caps.group))
    first, row = distinct_columns(kinds)
    kinds = kinds[:, first]
    demand = caps.widened(kinds[1], table.demand[kinds[0]])
    capacity = np.concatenate((problem.capacity, np.maximum(caps.limit, 0.0)))
    return row, table.throughput[kinds[0]], demand, capacity


def _quotas_for_guests(
    problem: Problem, choice: IntArray, offers: Offers
) -> tuple[IntArray, BoolArray, IntArray, FloatArray]:
    """Return the last arguments of ``share``: (N,), (G, Q), (E, Q) and (Q,)."""
    caps, table = problem.caps, problem.table
    if caps is None:
        group = np.zeros(problem.jobs, dtype=np.int64)
        held = np.zeros((len(offers.row), 0), dtype=np.int64)
        return group, np.zeros((1, 0), dtype=bool), held, np.zeros(0)
    runs = np.flatnonzero(choice >= 0)
    demand = table.demand[problem.profile[runs], choice[runs]]
    used = caps.held(caps.group[runs], demand).sum(axis=0)
    held = table.pair_demand[offers.row] @ caps.counts.T.astype(np.int64)
    return caps.group, caps.member, held, caps.limit - used


def first_come_first_served(problem: Problem, *keys: FloatArray) -> IntArray:
    """Return (N,) positions by the keys, the first key foremost, then in order of arrival.

    Args:
        problem: N jobs.
        keys: arrays (N,), ascending.
    """
    order: IntArray = np.lexsort((problem.job_number, *keys[::-1]))
    return order


def best_throughput(problem: Problem) -> FloatArray:
    """Return (N,) steps/s in the fastest configuration that fits the capacity; 0 without any."""
    table = problem.table
    fits = (table.demand <= problem.capacity).all(axis=2)
    best = np.where(fits, table.throughput, 0.0).max(axis=1, initial=0.0)
    result: FloatArray = best[problem.profile]
    return result


def usual_way(problem: Problem) -> tuple[FloatArray, IntArray]:
    """Return the throughput and worker count of each job while other jobs wait.

    They are those of its fastest efficient configuration that fits the capacity. For a job with one
    count this is its fastest configuration.

    Returns:
        (N,) steps/s, 0 without any; and (N,) workers.
    """
    table = problem.table
    fits = (table.demand <= problem.capacity).all(axis=2)
    rate = np.where(fits, table.throughput, 0.0)
    workers = np.maximum(table.demand.sum(axis=2), 1)
    rate = np.where(are_efficient(rate, table.demand), rate, 0.0)
    rows, choice = np.arange(len(rate)), rate.argmax(axis=1)
    return rate[rows, choice][problem.profile], workers[rows, choice][problem.profile]


def are_efficient(rate: FloatArray, demand: IntArray) -> BoolArray:
    """Return (U, J) configurations that do at least ``EFFICIENT`` of the best per worker.

    It compares the worker counts of a profile on the same worker type.

    Args:
        rate: (U, J) steps/s; 0 if a job does not run there.
        demand: (U, J, K) workers held.
    """
    workers = demand.sum(axis=2)
    each = rate / np.maximum(workers, 1)
    best = np.zeros_like(each)
    mine = np.zeros_like(each)
    for j in range(each.shape[1]):
        scaled = demand * workers[:, [j], None] == demand[:, [j]] * workers[:, :, None]
        same = np.where(scaled.all(axis=2), each[:, [j]], 0.0)
        best = np.maximum(best, same)
        mine = np.maximum(mine, np.where(workers == workers[:, [j]], same, 0.0))
    result: BoolArray = mine >= EFFICIENT * best
    return result


def remaining_time_s(problem: Problem) -> FloatArray:
    """Return (N,) remaining seconds on the job's fastest workers; inf if the job cannot run."""
    with np.errstate(divide="ignore"):
        result: FloatArray = problem.remaining_steps / best_throughput(problem)
    return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offers:
    """For each profile, the hosts with which a waiting job gains from sharing, best first.

    Attributes:
        start: (U + 1,) first offer to each profile.
        partner: (E,) the host's profile.
        configuration: (E,) the configuration that the host runs in alone on the same workers.
        row: (E,) row of the table's pairs.
        guest_second: (E,) whether the guest is the second member of that row.
        gain: (E,) sum of the two normalised throughputs.
    """

    start: IntArray
    partner: IntArray
    configuration: IntArray
    row: IntArray
    guest_second: IntArray
    gain: FloatArray


@lru_cache(maxsize=4)  # a pure function of a frozen table, which is compared by identity
def same_workers(table: ConfigurationTable) -> IntArray:
    """Return (P, 2) the configuration in which a pair's member holds the same workers alone."""
    result: IntArray = _rates_alone(table).argmax(axis=2)
    return result


def _rates_alone(table: ConfigurationTable) -> FloatArray:
    """Return (P, 2, J) steps/s of a pair's members alone on the same workers, 0 on others."""
    same = (table.demand[table.pair_profiles] == table.pair_demand[:, None, None, :]).all(axis=3)
    result: FloatArray = np.where(same, table.throughput[table.pair_profiles], 0.0)
    return result


@lru_cache(maxsize=4)  # as above
def offers_of(table: ConfigurationTable) -> Offers:
    """Return the offers of a table's pairs."""
    profiles, shared = table.pair_profiles, table.pair_throughput
    alone = _rates_alone(table).max(axis=2, initial=0.0)
    configuration = same_workers(table)
    pays = (alone > 0).all(axis=1)
    gain = (shared / np.where(alone > 0, alone, 1.0)).sum(axis=1)
    rows = np.flatnonzero(pays & (gain > 1.0 + 1e-9))
    mixed = rows[profiles[rows, 0] != profiles[rows, 1]]
    row = np.concatenate((rows, mixed))
    guest = np.concatenate((np.ones(len(rows)), np.zeros(len(mixed)))).astype(np.int64)
    to = profiles[row, guest]
    by = np.lexsort((row, -gain[row], to))
    row, guest, to = row[by], guest[by], to[by]
    return Offers(
        start=np.searchsorted(to, np.arange(len(table.profiles) + 1)),
        partner=profiles[row, 1 - guest],
        configuration=configuration[row, 1 - guest],
        row=row,
        guest_second=guest,
        gain=gain[row],
    )


def _with_sharing(
    problem: Problem, order: IntArray, choice: IntArray, rank: FloatArray, blocks: BoolArray
) -> Allocation:
    from policies.kernels.greedy import share  # noqa: PLC0415  numba takes 0.4 s to import

    offers = offers_of(problem.table)
    host, offer = share(
        order,
        problem.profile,
        choice,
        offers.start,
        offers.partner,
        offers.configuration,
        problem.table.pair_demand[offers.row] > 0,
        problem.table.throughput.shape[1],
        blocks,
        _types_in_use(
            problem.table.throughput, problem.table.demand, problem.capacity, len(problem.capacity)
        ),
        *_quotas_for_guests(problem, choice, offers),
    )
    guests = order[host[order] >= 0]
    hosts, used = host[guests], offer[guests]
    choice[hosts] = -1
    second = offers.guest_second[used] == 1
    jobs = np.where(second[:, None], np.stack((hosts, guests), 1), np.stack((guests, hosts), 1))
    return Allocation(
        x=_fractions(problem, choice),
        pair_jobs=jobs,
        pair_index=offers.row[used],
        pair_x=np.ones(len(jobs)),
        rank=rank,
        solver="greedy",
    )


def _allocation(problem: Problem, choice: IntArray, rank: FloatArray) -> Allocation:
    return Allocation.singles(_fractions(problem, choice), rank=rank, solver="greedy")


def _fractions(problem: Problem, choice: IntArray) -> FloatArray:
    x = np.zeros((problem.jobs, problem.table.throughput.shape[1]))
    running = np.flatnonzero(choice >= 0)
    x[running, choice[running]] = 1.0
    return x
