"""Equal shares: the part of an evenly divided cluster, the reference for normalised throughput."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.fitting import fitting
from policies.greedy import are_efficient, under_quotas
from policies.parameters import parameter
from scheduler.domain.fair_share import factors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.problem import Problem


def sharers(problem: Problem) -> int:
    """Return how many jobs share the cluster: those that workers in service can run.

    A job that fits nowhere now uses no workers, so it does not reduce the share of other jobs.
    """
    table, able = problem.table, fitting(problem).able
    if table.has_pairs:
        able = able.copy()
        together = np.all(table.pair_demand <= problem.capacity, axis=1, keepdims=True)
        gains: BoolArray = together & (table.pair_throughput > 0)
        present = np.zeros(len(able), dtype=bool)
        present[problem.profile] = True
        gains &= np.all(present[table.pair_profiles], axis=1, keepdims=True)
        able[table.pair_profiles[gains]] = True
    return max(int(np.count_nonzero(able[problem.profile])), 1)


def equal_share(problem: Problem) -> FloatArray:
    """Return (K,) the fraction of time on each worker type that each of N jobs would get.

    N are the jobs that can run, see ``sharers``.

    x_k = W_k / N, scaled down if they sum to more than 1 (Gavel, OSDI 2020, section 4.1).
    """
    share = part_of_cluster(problem)
    result: FloatArray = share / max(float(share.sum()), 1.0)
    return result


def best_by_type(problem: Problem, *, share: FloatArray | None) -> tuple[FloatArray, IntArray]:
    """Return each job's best configuration on each worker type, among those that its quotas allow.

    A job that no single type can run has one mixed configuration, listed at each of its types.

    Args:
        problem: N jobs.
        share: (K,) workers of the job's share. The best configuration is the one with the highest
            throughput per worker, or a faster one that holds no more than the share. None: the
            fastest efficient one, see ``are_efficient``.

    Returns:
        (N, K) its steps/s, 0 without one; (N, K) the configuration.
    """
    row, throughput, demand, capacity = under_quotas(problem)
    fits = (demand <= capacity).all(axis=2)
    held = demand[:, :, : len(problem.capacity)]
    rate = np.where(fits, throughput, 0.0)
    alone = np.where(np.count_nonzero(held, axis=2) == 1, rate, 0.0)
    together = np.where(np.arange(rate.shape[1]) == rate.argmax(axis=1)[:, None], rate, 0.0)
    rate = np.where((alone > 0).any(axis=1, keepdims=True), alone, together)
    by_type = np.where(held > 0, rate[:, :, None], 0.0)  # (R, J, K)
    if share is None:
        value = np.where(are_efficient(rate, held)[:, :, None], by_type, 0.0)
    else:
        value = by_type / np.maximum(held.sum(axis=2), 1)[:, :, None]
        thrifty = np.take_along_axis(by_type, value.argmax(axis=1)[:, None], axis=1)
        within = np.all(held <= share + 1e-9, axis=2, keepdims=True) & (by_type > 0)
        value = np.where(within & (by_type >= thrifty), value.max(initial=0.0) + by_type, value)
    choice = value.argmax(axis=1)
    found = np.take_along_axis(by_type, choice[:, None], axis=1)[:, 0]
    return found[row], choice[row]


def part_of_cluster(problem: Problem) -> FloatArray:
    """Return (K,) the workers of each type that are 1/N of the cluster, see ``sharers``."""
    result: FloatArray = problem.capacity / sharers(problem)
    return result


def equal_share_throughput(problem: Problem) -> FloatArray:
    """Return (N,) steps/s on an equal share of every worker type on which the job runs.

    A job with several configurations on a type counts with the one of highest throughput per
    worker, as if it held its reference count of workers. A job that runs only on mixed types counts
    with its best configuration. nan marks a job that no configuration can run.
    """
    fits = fitting(problem)
    rates = fits.thriftiest @ equal_share(problem)
    if not (rates > 0).all():
        best = fits.rate.max(axis=1, initial=0.0)
        best = best * min(1.0, float(problem.capacity.sum()) / sharers(problem))
        rates = np.where(rates > 0, rates, np.where(best > 0, best, np.nan))
    result: FloatArray = rates[problem.profile]
    return result


def isolated_throughput(problem: Problem) -> FloatArray:
    """Return (N,) steps/s on the workers that 1/N of the cluster buys, without quotas.

    N are the jobs that can run, see ``sharers``. A gang of s workers gets 1/s of the time that a
    single worker gets (Gavel's isolated policy). Time fractions are then scaled down if they sum to
    more than 1. A job that runs only on mixed types counts with the configuration of highest
    throughput per worker, see ``mixed_part``. nan marks a job that no configuration can run.
    """
    share = part_of_cluster(problem)
    whole = float(share.sum())
    row = np.maximum(whole / problem.scale_factor, 1.0) * problem.scale_factor
    rates = (fitting(problem).thriftiest @ share)[problem.profile] / row
    if not (rates > 0).all():
        steps_per_s, choice = best_by_type(replace(problem, caps=None), share=np.zeros_like(share))
        jobs, k = np.arange(problem.jobs), steps_per_s.argmax(axis=1)
        demand = problem.demand[jobs, choice[jobs, k]]
        mixed = steps_per_s[jobs, k] * mixed_part(problem, demand)
        rates = np.where(rates > 0, rates, np.where(mixed > 0, mixed, np.nan))
    result: FloatArray = rates
    return result


def mixed_part(problem: Problem, demand: IntArray) -> FloatArray:
    """Return (N,) the fraction of time in which 1/N of each worker type serves mixed gangs.

    As for other jobs, the share buys at most the worker time of the reference count.

    Args:
        problem: N jobs.
        demand: (N, K) workers that each job holds.
    """
    share = part_of_cluster(problem)
    part = np.where(demand > 0, share / np.maximum(demand, 1), np.inf).min(axis=1)
    result: FloatArray = np.minimum(part, problem.scale_factor / np.maximum(demand.sum(axis=1), 1))
    return result


def usage_half_life() -> float:
    """Declare the parameter ``usage_half_life_s``; ``Policy.half_life_s`` reads it by that name."""
    found: float = parameter(
        0.0,
        ge=0.0,
        lt=math.inf,
        help="Half-life of entities' past use, which counts against them; 0: it does not count.",
    )
    return found


def usage_factors(problem: Problem, weights: Sequence[float]) -> FloatArray:
    """Return (E,) factors by which past usage changes the entities' weights; 1 without usage.

    Args:
        problem: with the entities' usage, or without.
        weights: (E,) of the entities.
    """
    if problem.entity_usage_s is None:
        return np.ones(len(weights))
    competes = np.zeros(len(weights), dtype=bool)
    competes[problem.entity] = True
    return factors(np.array(weights, dtype=float), problem.entity_usage_s, competes)
