"""Savings of policies over a plain queue: GPU-hours, USD and job completion times.

All runs replay the same jobs, so the figures are compared job by job. Jobs that arrive on one day
compete for the same workers and are not independent. The intervals therefore come from a block
bootstrap, which resamples days instead of jobs (Künsch, "The jackknife and the bootstrap for
general stationary observations", Annals of Statistics 1989).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.arrays import FloatArray, IntArray
    from simulator.result import LeaseSpan, SimulationResult
    from traces.trace import Trace

#: A block is a day. A trace of no more days than this is cut into as many equal blocks.
_DAY_S: Final = 86_400.0
_MIN_BLOCKS: Final = 20
#: With fewer blocks than this that have jobs, there is no interval.
_MIN_USED_BLOCKS: Final = 5
_RESAMPLES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAmount:
    """A saving with its interval.

    Attributes:
        value: the saving in the replays; negative if the policy used more.
        low: lower bound of the interval; None if the trace is too short for one.
        high: upper bound.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UseByJob:
    """Worker time, cost and completion time of the N jobs of a run, in order of arrival.

    Attributes:
        arrival_s: (N,) arrival.
        jct_s: (N,) job completion time; NaN if the job did not complete.
        gpu_s: (N,) worker-seconds held; two jobs that share a worker count half each.
        usd: (N,) price of these worker-seconds.
        preemptions: of all jobs.
    """

    arrival_s: FloatArray
    jct_s: FloatArray
    gpu_s: FloatArray
    usd: FloatArray
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What the jobs used less under a policy than in the queue.

    Attributes:
        gpu_hours: GPU-hours.
        usd: their price.
        mean_jct: fraction of the queue's mean JCT.
    """

    gpu_hours: SavedAmount
    usd: SavedAmount
    mean_jct: SavedAmount


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of one policy, over the jobs that completed in every run.

    Attributes:
        policy: its label.
        jobs: number of compared jobs.
        gpu_hours: GPU-hours that they held.
        usd: price of these GPU-hours.
        mean_jct_s: their mean JCT.
        p95_jct_s: the 95th percentile of their JCT.
        preemptions: of all jobs.
        saved: the comparison with the queue; None for the queue itself.
    """

    policy: str
    jobs: int
    gpu_hours: float
    usd: float
    mean_jct_s: float
    p95_jct_s: float
    preemptions: float
    saved: Savings | None = None


def make_queue_trace(trace: Trace) -> Trace:
    """Return the trace with jobs that run to their end once they have started, in one queue.

    Under ``fifo``, blind to worker types, this is a plain queue. Elastic jobs hold the worker count
    of their ``scale_factor``.
    """
    jobs = (
        replace(job, preemptible=False, entity="", scale_factors=(job.scale_factor,))
        for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


def check_same_jobs(traces: Sequence[Trace]) -> None:
    """Check that all traces have the same jobs at the same times; job types may differ.

    Raises:
        InputError: a trace has other jobs than the first one.
    """
    first, *others = ([(j.job_id, j.arrival_s, j.scale_factor) for j in t.jobs] for t in traces)
    for trace, jobs in zip(traces[1:], others, strict=True):
        if jobs != first:
            raise InputError(
                f"trace {trace.source} has other jobs than {traces[0].source}; give traces that "
                "differ in their job types only"
            )


def sum_use_by_job(result: SimulationResult, prices: Mapping[str, float]) -> UseByJob:
    """Sum up the leases of each job.

    Args:
        result: of a run that recorded its leases.
        prices: worker type -> USD per hour of one worker.
    """
    row = {job.job_id: i for i, job in enumerate(result.jobs)}
    price_per_s = np.array([prices[name] for name in result.worker_types]) / 3600.0
    gpu_s, usd = np.zeros(len(row)), np.zeros(len(row))
    shared_s = _shared_seconds(result.leases)
    for i, lease in enumerate(result.leases):
        held_s = lease.end_s - lease.start_s - 0.5 * shared_s[i]
        gpu_s[row[lease.job_id]] += held_s * len(lease.workers)
        types = [result.worker_type_of[worker] for worker in lease.workers]
        usd[row[lease.job_id]] += held_s * price_per_s[types].sum()
    jct_s = [np.nan if job.jct_s is None else job.jct_s for job in result.jobs]
    return UseByJob(
        arrival_s=np.array([job.arrival_s for job in result.jobs]),
        jct_s=np.array(jct_s),
        gpu_s=gpu_s,
        usd=usd,
        preemptions=result.summary.preemptions,
    )


def _shared_seconds(leases: Sequence[LeaseSpan]) -> dict[int, float]:
    """Return position of a lease -> seconds in which a second job held the same workers."""
    seconds: dict[int, float] = defaultdict(float)
    open_leases: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, lease in enumerate(leases):  # in order of start
        if not lease.shared:
            continue
        others = [k for k in open_leases[lease.workers] if leases[k].end_s > lease.start_s]
        for k in others:
            overlap_s = min(leases[k].end_s, lease.end_s) - lease.start_s
            seconds[i] += overlap_s
            seconds[k] += overlap_s
        open_leases[lease.workers] = [*others, i]
    return seconds


def compare_with_queue(
    labels: Sequence[str],
    draws: Sequence[Sequence[UseByJob]],
    *,
    confidence: float = 0.9,
    seed: int = 0,
) -> list[PolicyFigures]:
    """Compare policies with the queue.

    Letters: D traces, P runs of each, N jobs, B blocks, R resamples.

    Args:
        labels: of the P runs: first the queue, then the policies.
        draws: the runs of each trace, which has the same jobs; figures are means over the traces.
        confidence: of the intervals.
        seed: of the bootstrap.

    Raises:
        InputError: no job completed in every run.
    """
    runs = [use for draw in draws for use in draw]
    done = np.logical_and.reduce([np.isfinite(use.jct_s) for use in runs])
    if not done.any():
        raise InputError(f"no job completed under each of {', '.join(labels)}")
    #: (D, P, N, 3) GPU-seconds, USD and JCT.
    used = np.array([np.stack((use.gpu_s, use.usd, use.jct_s), axis=1)[done] for use in runs])
    used = used.reshape(len(draws), len(labels), -1, 3)
    block = _number_blocks(runs[0].arrival_s[done])
    sums = np.add.reduceat(used, np.flatnonzero(np.diff(block, prepend=-1)), axis=2)
    totals = sums.sum(axis=2).mean(axis=0)
    #: Savings are GPU-hours, USD and a fraction.
    scale = np.array([totals[0, 0] / 3600.0, totals[0, 1], 1.0])
    value = _saved_part(totals[:1], totals) * scale
    interval = _make_interval(sums, confidence, np.random.default_rng(seed))
    figures = []
    for p, label in enumerate(labels):
        amounts = [
            SavedAmount(
                value=float(value[p, i]),
                low=None if interval is None else float(interval[0, p, i] * scale[i]),
                high=None if interval is None else float(interval[1, p, i] * scale[i]),
            )
            for i in range(3)
        ]
        gpu_hours, usd, mean_jct = amounts
        figures.append(
            PolicyFigures(
                policy=label,
                jobs=int(done.sum()),
                gpu_hours=float(totals[p, 0]) / 3600.0,
                usd=float(totals[p, 1]),
                mean_jct_s=float(used[:, p, :, 2].mean()),
                p95_jct_s=float(np.percentile(used[:, p, :, 2], 95)),
                preemptions=float(np.mean([draw[p].preemptions for draw in draws])),
                saved=Savings(gpu_hours=gpu_hours, usd=usd, mean_jct=mean_jct) if p else None,
            )
        )
    return figures


def _number_blocks(arrival_s: FloatArray) -> IntArray:
    """Return (N,) the block of each job, ascending. Blocks without jobs are left out."""
    since_s = arrival_s - arrival_s.min()
    number = since_s // _DAY_S
    if number.max() < _MIN_BLOCKS:
        part_s = max(float(since_s.max()) / _MIN_BLOCKS, 1.0)
        number = np.minimum(since_s // part_s, _MIN_BLOCKS - 1)
    blocks: IntArray = np.unique(number, return_inverse=True)[1]
    return blocks


def _make_interval(
    sums: FloatArray, confidence: float, rng: np.random.Generator
) -> FloatArray | None:
    """Return (2, P, 3): bounds of the saved parts of the queue's sums; None with few blocks.

    Args:
        sums: (D, P, B, 3) over the jobs of each block.
        confidence: of the interval.
        rng: draws the blocks of each resample.
    """
    draws, _, blocks, _ = sums.shape
    if blocks < _MIN_USED_BLOCKS:
        return None
    resamples = max(1, _RESAMPLES // draws)
    counts = rng.multinomial(blocks, np.full(blocks, 1.0 / blocks), resamples)
    resampled = counts @ sums  # (D, P, R, 3)
    tail = (1.0 - confidence) / 2.0
    parts = _saved_part(resampled[:, :1], resampled)
    bounds: FloatArray = np.quantile(parts, (tail, 1.0 - tail), axis=(0, 2))
    return bounds


def _saved_part(queue: FloatArray, policy: FloatArray) -> FloatArray:
    """Return the saved part of the queue's use; 0 if the queue used nothing."""
    return np.divide(queue - policy, queue, out=np.zeros_like(policy), where=queue > 0)
