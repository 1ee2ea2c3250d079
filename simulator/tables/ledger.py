"""The ledger: the measurements of a run, collected while it goes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.jobs.job import JobStatus
from simulator.request import IDEAL
from simulator.result import (
    AllocationSeries,
    JobOutcome,
    LeaseSpan,
    Series,
    SimulationResult,
    Summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.lease import Lease, Leases
    from scheduler.domain.problem import Problem
    from scheduler.engine.rounds.certificate import Certificate


@dataclass(slots=True)
class _Entry:
    """The record of one job during the run."""

    position: int
    job: Job
    profile: int
    share_at_arrival: float = 0.0
    end_s: float | None = None
    #: when it ended, for any reason.
    over_s: float | None = None
    rho: float | None = None
    status: JobStatus = JobStatus.WAITING
    arrived: bool = False


class Ledger:
    """Records arrivals, leases, ends and samples; turns them into a result."""

    def __init__(
        self,
        cluster: Cluster,
        table: ConfigurationTable,
        jobs: Sequence[Job],
        profiles: Sequence[int],
        *,
        overheads: NDArray[np.void],
        window: tuple[int, int] | None,
        record: bool,
        scale_factors: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        """Begin with an empty record.

        Args:
            cluster: the workers.
            table: the true throughputs.
            jobs: N jobs, in order of arrival.
            profiles: (N,) their rows of the table.
            overheads: (N,) lease costs of each job, as ``columns`` makes them.
            window: (first, end) positions of the jobs that are measured; None for all.
            record: keep leases and series.
            scale_factors: (N,) worker counts at which each job can run; None if each has one.
        """
        self._scale_factors = scale_factors or [(job.scale_factor,) for job in jobs]
        self._overheads = overheads
        self._cluster = cluster
        self._table = table
        self._window = window
        self._record = record
        self._entries = [
            _Entry(position=i, job=job, profile=profile)
            for i, (job, profile) in enumerate(zip(jobs, profiles, strict=True))
        ]
        self._by_id = {entry.job.job_id: entry for entry in self._entries}
        #: (N,) leases of each job so far, start of the first one, whether it holds one now, and its
        #: preemptions.
        self._attempts: IntArray = np.zeros(len(jobs), dtype=np.int64)
        self._start_s: FloatArray = np.full(len(jobs), np.nan)
        self._running: BoolArray = np.zeros(len(jobs), dtype=bool)
        self._preemptions: IntArray = np.zeros(len(jobs), dtype=np.int64)
        #: (N,) when the newest lease of each job began, and the workers under it.
        self._lease_s: FloatArray = np.zeros(len(jobs))
        self._lease_workers: FloatArray = np.zeros(len(jobs))
        #: (N,) seconds for which each job has held workers under ended leases.
        self._run_s: FloatArray = np.zeros(len(jobs))
        #: worker-seconds under ended leases, and those that launches and restores took.
        self._held_s = self._launching_s = 0.0
        self._active = 0
        #: scale factor -> time integral of a 1/n share's size, in seconds per worker.
        self._share = {job.scale_factor: 0.0 for job in jobs}
        self._busy_s: FloatArray = np.zeros(len(cluster.worker_types))
        self._spans: list[LeaseSpan] = []
        #: the job types of the jobs, without digests of models.
        self._types = {job.job_type for job in jobs}
        #: lease id -> the plan by which its job runs, if there is one.
        self._plans: dict[int, str] = {}
        #: id of an open lease -> the lease; and those of them that have shared their workers.
        self._open: dict[int, Lease] = {}
        self._shared: set[int] = set()
        self._samples: list[tuple[float, list[int], int, int]] = []
        self._answers: list[tuple[float, FloatArray, dict[str, float]]] = []
        self.solve_s: list[float] = []
        #: (gap, gap if workers could be divided, distance from X) of each planned round.
        self._proofs: list[tuple[float, float, float]] = []
        self._last_proof: Certificate | None = None
        self.extended = 0
        self.outbid = 0
        self.counts: Counter[str] = Counter()
        #: measured jobs that have not ended.
        self.to_go = sum(1 for entry in self._entries if self._measured(entry.position))
        self.ended = 0

    @property
    def measured(self) -> int:
        """Jobs in the window."""
        return sum(1 for entry in self._entries if self._measured(entry.position))

    def _measured(self, position: int) -> bool:
        return self._window is None or self._window[0] <= position < self._window[1]

    # -- during the run ---------------------------------------------------------------------------

    def pass_time(self, elapsed_s: float, busy: IntArray) -> None:
        """Account for a stretch of time in which nothing changed."""
        self._busy_s += busy * elapsed_s
        if self._active:
            workers = self._cluster.workers
            for scale in self._share:
                self._share[scale] += elapsed_s / max(self._active * scale, workers)

    def note(self, kind: str, subject: str, at_s: float) -> None:
        """Add an entry of the engine's history."""
        self.counts[kind] += 1
        entry = self._by_id.get(subject)
        if entry is None:
            return
        if kind == "requeue_requested" and entry.status in _ENDS.values():
            self._reopen(entry)
        elif kind == "job_admitted":
            entry.arrived = True
            entry.share_at_arrival = self._share[entry.job.scale_factor]
            self._active += 1
        elif kind == "job_preempted":
            self._preemptions[entry.position] += 1
        elif kind in _ENDS:
            self._end(entry, _ENDS[kind], at_s)

    def _end(self, entry: _Entry, status: JobStatus, at_s: float) -> None:
        entry.status, entry.over_s = status, at_s
        self._active -= 1 if entry.arrived else 0
        self.ended += 1
        self.to_go -= 1 if self._measured(entry.position) else 0
        if status is JobStatus.COMPLETED:
            entry.end_s = at_s
            entry.rho = self._isolated_steps(entry) / entry.job.total_steps

    def _reopen(self, entry: _Entry) -> None:
        """Reopen a job that has ended."""
        entry.status, entry.end_s, entry.rho, entry.arrived = JobStatus.WAITING, None, None, False
        entry.over_s = None
        self.ended -= 1
        self.to_go += 1 if self._measured(entry.position) else 0

    def _isolated_steps(self, entry: _Entry) -> float:
        """Steps that a 1/n share of every worker type would have done in the job's JCT.

        The share's row is scaled to at most one worker gang, as in Gavel (section 4.2) and Themis.
        """
        scale = entry.job.scale_factor
        received = self._share[scale] - entry.share_at_arrival
        rate = _thriftiest_by_type(self._table, entry.profile, scale) @ self._cluster.capacity
        return float(rate * received)

    def preempted(self, jobs: IntArray) -> None:
        """Record preemptions of jobs, by their positions; like one history entry for each."""
        self.counts["job_preempted"] += len(jobs)
        self._preemptions[jobs] += 1

    def granted(
        self, leases: Leases, jobs: IntArray, sharing: Iterable[int], plans: Mapping[int, str]
    ) -> None:
        """Record the start of leases.

        Args:
            leases: n leases that begin at the same time.
            jobs: (n,) positions of their jobs.
            sharing: leases that share their workers from now on.
            plans: lease id -> the plan by which its job runs, for those with one.
        """
        self._attempts[jobs] += 1
        self._start_s[jobs] = np.fmin(self._start_s[jobs], leases.start_s)
        self._running[jobs] = True
        self._lease_s[jobs] = leases.start_s
        self._lease_workers[jobs] = [len(workers) for workers in leases.workers]
        if self._record:
            self._open.update((lease.lease_id, lease) for lease in leases)
            self._shared.update(sharing)
            self._plans.update(plans)

    def over(self, lease_ids: Iterable[int], jobs: IntArray, at_s: float, reason: str) -> None:
        """Record the end of leases; ``jobs`` (n,) are the positions of their jobs."""
        self._running[jobs] = False
        cost = self._overheads[jobs]
        held_s = at_s - self._lease_s[jobs]
        launching_s = cost["launch_s"] + cost["restore_s"] * (self._attempts[jobs] > 1)
        self._run_s[jobs] += held_s
        self._held_s += float(held_s @ self._lease_workers[jobs])
        self._launching_s += float(np.minimum(launching_s, held_s) @ self._lease_workers[jobs])
        if self._record:
            for lease_id in lease_ids:
                self._close(lease_id, at_s, reason)

    @property
    def launching(self) -> float:
        """Part of the worker-seconds under leases that launches and restores took, 0 to 1."""
        return self._launching_s / self._held_s if self._held_s > 0 else 0.0

    def _close(self, lease_id: int, at_s: float, reason: str) -> None:
        lease = self._open.pop(lease_id)
        shared = lease_id in self._shared
        self._shared.discard(lease_id)
        if at_s > lease.start_s:
            self._spans.append(self._span(lease, at_s, reason, shared=shared))

    def _span(self, lease: Lease, end_s: float, reason: str, *, shared: bool) -> LeaseSpan:
        kinds = {int(self._cluster.worker_type_of[worker]) for worker in lease.workers}
        return LeaseSpan(
            job_id=lease.job_id,
            job_type=self._by_id[lease.job_id].job.job_type,
            workers=lease.workers,
            worker_type=" + ".join(sorted(self._cluster.type_names[kind] for kind in kinds)),
            start_s=lease.start_s,
            end_s=end_s,
            shared=shared,
            reason=reason,
            plan=self._plans.pop(lease.lease_id, ""),
        )

    def sample(self, now: float, busy: Sequence[int], running: int) -> None:
        """Record the state of the cluster after all events at ``now``."""
        if self._record:
            row = (now, list(busy), self._active - running, running)
            if self._samples and self._samples[-1][0] == now:
                self._samples[-1] = row
            else:
                self._samples.append(row)

    def answered(self, now: float, problem: Problem, allocation: Allocation) -> None:
        """Record an allocation."""
        if not self._record:
            return
        by_type: dict[str, float] = {}
        held = np.einsum("nj,njk->n", allocation.x, problem.demand)
        if len(allocation.pair_x):
            half = problem.table.pair_demand[allocation.pair_index].sum(axis=1) / 2.0
            for member in (0, 1):
                np.add.at(held, allocation.pair_jobs[:, member], half * allocation.pair_x)
        for profile, workers in zip(problem.profile.tolist(), held.tolist(), strict=True):
            name = self._name(problem.table.profiles[profile].job_type)
            by_type[name] = by_type.get(name, 0.0) + workers
        self._answers.append((now, allocation.usage(problem), by_type))

    def _name(self, job_type: str) -> str:
        """Return a job type as the jobs have it: without the digest of a model."""
        return job_type if job_type in self._types else job_type.rpartition("@")[0] or job_type

    def times(self) -> Iterator[tuple[str, float | None, float | None]]:
        """Yield every job's id, first start and completion; None for times that do not exist."""
        for entry in self._entries:
            yield entry.job.job_id, self._first_start_s(entry), entry.end_s

    def _first_start_s(self, entry: _Entry) -> float | None:
        start_s = float(self._start_s[entry.position])
        return None if math.isnan(start_s) else start_s

    # -- at the end -------------------------------------------------------------------------------

    def result(
        self,
        now: float,
        *,
        label: str,
        rounds: int,
        seed: int,
        wall_s: float,
        cpu_s: float,
        settings: Mapping[str, str],
        profile: str = IDEAL,
        until_s: float = math.inf,
        warnings: tuple[str, ...] = (),
    ) -> SimulationResult:
        """Make the result of a run that ended at ``now``."""
        for lease_id in list(self._open):
            self._close(lease_id, now, "open")
        summary = self._summary(
            now,
            label=label,
            profile=profile,
            until_s=until_s,
            rounds=rounds,
            seed=seed,
            wall_s=wall_s,
            cpu_s=cpu_s,
        )
        return SimulationResult(
            summary=summary,
            jobs=tuple(
                self._outcome(entry, now)
                for entry in self._entries
                if entry.arrived or entry.status is JobStatus.REFUSED
            ),
            leases=tuple(sorted(self._spans, key=lambda span: (span.start_s, span.workers))),
            series=self._series(),
            allocations=self._allocation_series(),
            worker_types=self._cluster.type_names,
            capacity=tuple(int(count) for count in self._cluster.capacity),
            worker_type_of=tuple(self._cluster.worker_type_of.tolist()),
            node_of_worker=tuple(
                self._cluster.nodes[v].name for v in self._cluster.node_of.tolist()
            ),
            seed=seed,
            settings=settings,
            warnings=warnings,
        )

    def _outcome(self, entry: _Entry, now: float) -> JobOutcome:
        status = entry.status
        if status is JobStatus.WAITING and self._running[entry.position]:
            status = JobStatus.RUNNING
        job = entry.job
        return JobOutcome(
            job_id=job.job_id,
            job_type=job.job_type,
            scale_factor=job.scale_factor,
            weight=job.weight,
            entity=job.entity,
            arrival_s=job.arrival_s,
            start_s=self._first_start_s(entry),
            end_s=entry.end_s,
            status=str(status),
            rho=entry.rho,
            measured=self._measured(entry.position),
            attempts=int(self._attempts[entry.position]),
            preemptions=int(self._preemptions[entry.position]),
            deadline_s=job.deadline_s,
            scale_factors=self._scale_factors[entry.position],
            waited_s=self._waited_s(entry, now),
        )

    def _waited_s(self, entry: _Entry, now: float) -> float:
        i, over_s = entry.position, now if entry.over_s is None else entry.over_s
        running_s = over_s - float(self._lease_s[i]) if self._running[i] else 0.0
        there_s = over_s - entry.job.arrival_s
        return max(0.0, there_s - float(self._run_s[i]) - running_s)

    def _summary(
        self,
        now: float,
        *,
        label: str,
        profile: str,
        until_s: float,
        rounds: int,
        seed: int,
        wall_s: float,
        cpu_s: float,
    ) -> Summary:
        entries = [entry for entry in self._entries if self._measured(entry.position)]
        done = [entry for entry in entries if entry.end_s is not None]
        jct = np.array([entry.end_s - entry.job.arrival_s for entry in done if entry.end_s])
        rho = np.array([entry.rho for entry in done if entry.rho is not None])
        late = sum(1 for entry in entries if _late(entry, now))
        capacity = self._cluster.workers * now
        could = self.extended + self.outbid
        return Summary(
            policy=label,
            cluster=self._cluster.spec,
            window="all" if self._window is None else f"{self._window[0]}:{self._window[1]}",
            jobs=len(entries),
            jobs_completed=len(done),
            average_jct_s=float(jct.mean()) if len(jct) else math.nan,
            p50_jct_s=float(np.percentile(jct, 50)) if len(jct) else math.nan,
            p95_jct_s=float(np.percentile(jct, 95)) if len(jct) else math.nan,
            makespan_s=now,
            utilisation=float(self._busy_s.sum() / capacity) if capacity else math.nan,
            rho_mean=float(rho.mean()) if len(rho) else math.nan,
            rho_max=float(rho.max()) if len(rho) else math.nan,
            cost_usd=float(self._busy_s @ self._cluster.cost_usd_per_hour) / 3600.0,
            slo_violations=late,
            preemptions=self.counts["job_preempted"],
            launching=self.launching,
            lease_extension_rate=self.extended / could if could else math.nan,
            rounds=rounds,
            **self._proven(),
            solves=len(self.solve_s),
            solve_median_s=float(np.median(self.solve_s)) if self.solve_s else math.nan,
            solve_p99_s=float(np.percentile(self.solve_s, 99)) if self.solve_s else math.nan,
            wall_s=wall_s,
            cpu_s=cpu_s,
            seed=seed,
            profile=profile,
            until_s=until_s,
        )

    def planned(self, proven: Certificate | None) -> None:
        """Record the certificate of the last planned round, once."""
        if proven is None or proven is self._last_proof:
            return
        self._last_proof = proven
        self._proofs.append((proven.gap, proven.fluid_gap, proven.off_rounds))

    def _proven(self) -> dict[str, float]:
        """Return the summary's figures about the quality of rounds."""
        if not self._proofs:
            return {}
        gap, fluid, off = np.array(self._proofs).T
        known = np.isfinite(gap)
        figures = {"off_rounds": off.mean()}
        if known.any():
            figures |= {
                "round_gap": gap[known].mean(),
                "round_gap_p99": np.percentile(gap[known], 99),
                "round_fluid_gap": fluid[known].mean(),
            }
        return {name: round(float(figure), 6) for name, figure in figures.items()}

    def _series(self) -> Series:
        kinds = len(self._cluster.worker_types)
        return Series(
            time_s=np.array([row[0] for row in self._samples], dtype=float),
            busy=np.array([row[1] for row in self._samples], dtype=np.int64).reshape(-1, kinds),
            waiting=np.array([row[2] for row in self._samples], dtype=np.int64),
            running=np.array([row[3] for row in self._samples], dtype=np.int64),
        )

    def _allocation_series(self) -> AllocationSeries:
        kinds = len(self._cluster.worker_types)
        names = tuple(sorted({name for _, _, by_type in self._answers for name in by_type}))
        return AllocationSeries(
            time_s=np.array([row[0] for row in self._answers], dtype=float),
            share=np.array([row[1] for row in self._answers], dtype=float).reshape(-1, kinds),
            by_job_type=names,
            share_by_job_type=np.array(
                [[row[2].get(name, 0.0) for name in names] for row in self._answers], dtype=float
            ).reshape(len(self._answers), len(names)),
        )


_ENDS = {
    "job_completed": JobStatus.COMPLETED,
    "job_cancelled": JobStatus.CANCELLED,
    "job_failed": JobStatus.FAILED,
    "job_refused": JobStatus.REFUSED,
}


def _late(entry: _Entry, now: float) -> bool:
    deadline_s = entry.job.deadline_s
    return deadline_s is not None and (now if entry.end_s is None else entry.end_s) > deadline_s


def _thriftiest_by_type(table: ConfigurationTable, profile: int, count: int) -> FloatArray:
    """Return (K,) the most steps/s of ``count`` workers of each type, at their best efficiency."""
    result: FloatArray = np.zeros(len(table.worker_types))
    for j, rate in enumerate(table.throughput[profile]):
        kinds = np.flatnonzero(table.demand[profile, j])
        if len(kinds) == 1:
            here = rate / (table.demand[profile, j].sum() / count)
            result[kinds[0]] = max(result[kinds[0]], here)
    return result
