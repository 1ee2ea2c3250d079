"""Results to report on, made by a first-come-first-served loop in place of the simulator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from simulator.result import (
    AllocationSeries,
    JobOutcome,
    LeaseSpan,
    Series,
    SimulationResult,
    Summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = ("a100", "v100", "t4")
JOB_TYPES = tuple(f"Model {letter} (batch size {8 << i})" for i, letter in enumerate("ABCDEFGHIJ"))


def make_result(
    policy: str = "fifo", *, jobs: int = 40, seed: int = 0, speed: float = 1.0, per_type: int = 4
) -> SimulationResult:
    """Run jobs of one worker each on the worker that is free first, in two leases each."""
    random = np.random.default_rng(seed)
    workers = per_type * len(TYPES)
    free_at = np.zeros(workers)
    outcomes, leases, arrival_s = [], [], 0.0
    for number in range(jobs):
        arrival_s += float(random.exponential(900))
        worker = int(np.argmin(free_at))
        start_s = max(arrival_s, float(free_at[worker]))
        length_s = float(random.lognormal(8.5, 1.0)) / speed
        end_s = start_s + length_s
        free_at[worker] = end_s
        job_id, job_type = f"job-{number}", JOB_TYPES[number % len(JOB_TYPES)]
        cut_s = start_s + length_s / 2
        for begin, end, reason in ((start_s, cut_s, "released"), (cut_s, end_s, "completed")):
            leases.append(
                LeaseSpan(
                    job_id=job_id,
                    job_type=job_type,
                    workers=(worker,),
                    worker_type=TYPES[worker // per_type],
                    start_s=begin,
                    end_s=end,
                    shared=False,
                    reason=reason,
                )
            )
        outcomes.append(
            JobOutcome(
                job_id=job_id,
                job_type=job_type,
                scale_factor=1,
                weight=1.0,
                entity="",
                arrival_s=arrival_s,
                start_s=start_s,
                end_s=end_s,
                status="completed",
                rho=(end_s - arrival_s) / length_s * 0.8,
                measured=True,
                attempts=2,
                preemptions=1,
                deadline_s=None,
            )
        )
    leases.sort(key=lambda lease: (lease.start_s, lease.workers))
    return SimulationResult(
        summary=_summary(policy, outcomes, leases, workers, seed),
        jobs=tuple(outcomes),
        leases=tuple(leases),
        series=_series(outcomes, leases, per_type),
        allocations=_allocations(leases, per_type),
        worker_types=TYPES,
        capacity=(per_type,) * len(TYPES),
        worker_type_of=tuple(w // per_type for w in range(workers)),
        node_of_worker=tuple(f"{TYPES[w // per_type]}-{w % per_type // 4}" for w in range(workers)),
        seed=seed,
        settings={"trace": "made-up.csv", "round_length_s": "360"},
    )


def _summary(policy, outcomes, leases, workers, seed) -> Summary:
    jct = np.array([job.jct_s for job in outcomes])
    rho = np.array([job.rho for job in outcomes])
    makespan_s = max(job.end_s for job in outcomes)
    busy_s = sum(lease.end_s - lease.start_s for lease in leases)
    return Summary(
        policy=policy,
        cluster=",".join(f"{name}:{workers // len(TYPES)}" for name in TYPES),
        window="all",
        jobs=len(outcomes),
        jobs_completed=len(outcomes),
        average_jct_s=float(jct.mean()),
        p50_jct_s=float(np.median(jct)),
        p95_jct_s=float(np.percentile(jct, 95)),
        makespan_s=makespan_s,
        utilisation=busy_s / (makespan_s * workers),
        rho_mean=float(rho.mean()),
        rho_max=float(rho.max()),
        cost_usd=busy_s / 3600 * 1.5,
        slo_violations=0,
        preemptions=len(outcomes),
        lease_extension_rate=0.5,
        rounds=math.ceil(makespan_s / 360),
        solves=len(outcomes),
        solve_median_s=0.001,
        solve_p99_s=0.002,
        wall_s=1.0,
        cpu_s=1.0,
        seed=seed,
    )


def _series(outcomes, leases, per_type) -> Series:
    times = np.unique([t for lease in leases for t in (lease.start_s, lease.end_s)])
    busy = np.zeros((len(times), len(TYPES)), dtype=np.int64)
    waiting = np.zeros(len(times), dtype=np.int64)
    for lease in leases:
        busy[(times >= lease.start_s) & (times < lease.end_s), lease.workers[0] // per_type] += 1
    for job in outcomes:
        waiting[(times >= job.arrival_s) & (times < job.start_s)] += 1
    return Series(time_s=times, busy=busy, waiting=waiting, running=busy.sum(axis=1))


def _allocations(leases, per_type) -> AllocationSeries:
    times = np.unique([lease.start_s for lease in leases])
    share = np.zeros((len(times), len(TYPES)))
    by_type = np.zeros((len(times), len(JOB_TYPES)))
    for lease in leases:
        now = (times >= lease.start_s) & (times < lease.end_s)
        share[now, lease.workers[0] // per_type] += 1
        by_type[now, JOB_TYPES.index(lease.job_type)] += 1
    return AllocationSeries(
        time_s=times, share=share, by_job_type=JOB_TYPES, share_by_job_type=by_type
    )


@pytest.fixture
def result_of() -> Callable[..., SimulationResult]:
    """Return the maker of results."""
    return make_result


@pytest.fixture
def results() -> list[SimulationResult]:
    """Return three policies' results of the same jobs."""
    speeds = {"max_min_fairness": 1.0, "fifo": 0.8, "max_throughput+packed": 1.3}
    return [make_result(name, speed=speed) for name, speed in speeds.items()]
