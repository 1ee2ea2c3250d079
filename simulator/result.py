"""The result of one simulation: a summary, every job's outcome, leases and series over time.

Values are picklable, so that a result can cross a process border. Everything except
``Summary.TIMINGS`` depends on the inputs and the seed only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

from simulator.request import IDEAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import FloatArray, IntArray
    from simulator.forecast_score import SubmissionForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The outcome of one job.

    Attributes:
        job_id: the job's name.
        job_type: key into the throughput table.
        scale_factor: workers that it held at once.
        weight: the importance that its user gave it.
        entity: team or user, or empty.
        arrival_s: when it was submitted.
        start_s: when its first lease began; None if it never ran.
        end_s: when its last step was done; None if it did not complete.
        status: value of ``JobStatus`` at the end of the run.
        rho: JCT over the JCT on a 1/n share of the cluster; None if it did not complete.
        measured: whether it lies inside the window of the summary.
        attempts: leases that it held.
        preemptions: leases that ended before the job did, without a failure.
        deadline_s: absolute time by which it should have been complete, or None.
        scale_factors: worker counts at which it could run, ascending.
        waited_s: seconds from its arrival to its end, or that of the run, without workers.
    """

    job_id: str
    job_type: str
    scale_factor: int
    weight: float
    entity: str
    arrival_s: float
    start_s: float | None
    end_s: float | None
    status: str
    rho: float | None
    measured: bool
    attempts: int
    preemptions: int
    deadline_s: float | None
    scale_factors: tuple[int, ...] = ()
    waited_s: float = math.nan

    @property
    def jct_s(self) -> float | None:
        """Seconds from arrival to completion, or None."""
        return None if self.end_s is None else self.end_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSpan:
    """One lease from its start to its end.

    Attributes:
        job_id: the job that held it.
        job_type: of that job.
        workers: worker indices held, ascending.
        worker_type: name of their type; of a mixed gang both, as ``a100 + v100``.
        start_s: when it was granted.
        end_s: when it ended, or the end of the run.
        shared: whether another job held the same workers as a pair.
        reason: value of ``EndReason``, or "open" if the run ended first.
        plan: plan of a source of configurations, by which the job ran; empty without one.
    """

    job_id: str
    job_type: str
    workers: tuple[int, ...]
    worker_type: str
    start_s: float
    end_s: float
    shared: bool
    reason: str
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """The cluster over time; each value holds from its time to the next.

    Letters: S samples (one per round or change of state), K worker types.

    Attributes:
        time_s: (S,) ascending.
        busy: (S, K) workers under a lease.
        waiting: (S,) admitted jobs without a lease.
        running: (S,) jobs with a lease.
    """

    time_s: FloatArray
    busy: IntArray
    waiting: IntArray
    running: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationSeries:
    """The policy's answers X over time; each holds from its time to the next.

    Letters: A answers, K worker types, B job types.

    Attributes:
        time_s: (A,) ascending.
        share: (A, K) workers of each type that X uses on average.
        by_job_type: names of the B job types.
        share_by_job_type: (A, B) workers of any type that X gives to each job type.
    """

    time_s: FloatArray
    share: FloatArray
    by_job_type: tuple[str, ...]
    share_by_job_type: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run, over the jobs of its window. Unknown figures are NaN.

    Attributes:
        policy: name and options, as requested.
        cluster: spec, ``type:count`` pairs.
        window: "A:B", or "all".
        jobs: jobs in the window.
        jobs_completed: of those, by the end of the run.
        average_jct_s: mean JCT of the completed ones.
        p50_jct_s: their median.
        p95_jct_s: their 95th percentile.
        makespan_s: the end of the run.
        utilisation: busy worker-seconds over all worker-seconds, 0 to 1.
        rho_mean: mean finish-time fairness.
        rho_max: the worst.
        cost_usd: price of the worker-seconds held.
        slo_violations: jobs in the window that were not complete by their deadline.
        preemptions: leases of any job that ended before the job did.
        launching: part of the worker-seconds under leases that launches and restores took, 0 to 1.
        lease_extension_rate: leases extended over leases that could have been, 0 to 1.
        rounds: rounds planned.
        round_gap: largest part of the best value that another choice of whole workers could gain,
            mean of the rounds; NaN if they follow X by lag alone.
        round_gap_p99: its 99th percentile.
        round_fluid_gap: the mean if workers could be divided.
        off_rounds: mean distance from X at the end of rounds, in rounds.
        solves: allocations computed.
        solve_median_s: median seconds of a solve.
        solve_p99_s: 99th percentile.
        wall_s: elapsed seconds of the whole run.
        cpu_s: its CPU seconds.
        seed: of every random draw.
        profile: ``ideal``, or the configuration of the service that was replayed.
        until_s: requested end of the run, even if jobs were left; infinity for no such time.
    """

    #: The figures that differ from run to run on equal inputs.
    TIMINGS: ClassVar[tuple[str, ...]] = ("solve_median_s", "solve_p99_s", "wall_s", "cpu_s")

    policy: str
    cluster: str
    window: str
    jobs: int
    jobs_completed: int
    average_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    makespan_s: float
    utilisation: float
    rho_mean: float
    rho_max: float
    cost_usd: float
    slo_violations: int
    preemptions: int
    launching: float = math.nan
    lease_extension_rate: float
    rounds: int
    round_gap: float = math.nan
    round_gap_p99: float = math.nan
    round_fluid_gap: float = math.nan
    off_rounds: float = math.nan
    solves: int
    solve_median_s: float
    solve_p99_s: float
    wall_s: float
    cpu_s: float
    seed: int
    profile: str = IDEAL
    until_s: float = math.inf

    def to_dict(self, *, timings: bool = True) -> dict[str, str | int | float | None]:
        """Return the figures in their fixed order, ready for JSON: NaN and infinity are None.

        Args:
            timings: whether to include the figures that differ from run to run.
        """
        return {
            f.name: _json_value(getattr(self, f.name))
            for f in fields(self)
            if timings or f.name not in self.TIMINGS
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationResult:
    """The complete result of one run.

    Attributes:
        summary: its figures.
        jobs: every job that was submitted, in order of arrival.
        leases: every lease, in order of start.
        series: the cluster over time.
        allocations: X over time.
        worker_types: (K,) names.
        capacity: (K,) workers of each type.
        worker_type_of: (W,) index of the type of each worker.
        node_of_worker: (W,) name of the node of each worker.
        seed: of every random draw.
        settings: further inputs, as text for reports.
        warnings: what readers of the figures must know, a sentence each.
        forecasts: of completion times at submission, in order of arrival, if requested.
    """

    summary: Summary
    jobs: tuple[JobOutcome, ...]
    leases: tuple[LeaseSpan, ...]
    series: Series
    allocations: AllocationSeries
    worker_types: tuple[str, ...]
    capacity: tuple[int, ...]
    worker_type_of: tuple[int, ...]
    node_of_worker: tuple[str, ...]
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    forecasts: tuple[SubmissionForecast, ...] = ()


def _json_value(value: str | float) -> str | int | float | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
