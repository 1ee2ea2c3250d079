"""The simulator's forecast of a live run: same jobs, throughputs and rounds, measured overheads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.oracle import build_table
from policies.registry import make_policy
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.jobs.job import Job
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overhead, Overheads, overhead_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cluster import LiveCluster, Times
    from watching import Lived

    from scheduler.domain.lease import Leases
    from simulator.result import SimulationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of each stretch of a lease that is not training, one entry per lease.

    Attributes:
        launch_s: from the grant of a job's first lease to its first step.
        relaunch_s: the same of later leases, which load a checkpoint.
        notice_s: from the plan that ends the lease to the end of the last step.
        checkpoint_s: from there until the scheduler knows that the workers are free.
        complete_s: the same for the end of the job.
        pace: steps/s over the figure of the throughput table.
    """

    launch_s: list[float]
    relaunch_s: list[float]
    notice_s: list[float]
    checkpoint_s: list[float]
    complete_s: list[float]
    pace: list[float]

    def overhead(self) -> Overhead:
        """Return the means, as the simulator wants them."""
        launch_s = _mean(self.launch_s)
        relaunch_s = _mean(self.relaunch_s, launch_s)
        return Overhead(
            launch_s=min(launch_s, relaunch_s),
            restore_s=max(relaunch_s - launch_s, 0.0),
            notice_s=max(_mean(self.notice_s), 0.0),
            checkpoint_s=_mean(self.checkpoint_s),
            complete_s=_mean(self.complete_s),
        )


def measure(lived: Iterable[Lived], times: Times) -> Measured:
    """Compare the records of the scheduler and of the jobs' own processes for each lease."""
    result = Measured(
        launch_s=[], relaunch_s=[], notice_s=[], checkpoint_s=[], complete_s=[], pace=[]
    )
    for job in lived:
        trail = {line["lease"]: line for line in job.trail if line["rank"] == 0}
        for attempt in job.attempts:
            line = trail.get(attempt["lease_id"])
            if line is None or line["first"] is None:
                continue
            launch = result.launch_s if attempt["attempt"] == 1 else result.relaunch_s
            launch.append(line["began_s"] - attempt["start_s"])
            leaving_s = attempt["ended_s"] - line["ended_s"]
            if attempt["end_reason"] == "completed":
                result.complete_s.append(leaving_s)
            elif attempt["end_reason"] == "released":
                result.checkpoint_s.append(leaving_s)
                told_s = attempt["deadline_s"] - times.plan_lead_s
                result.notice_s.append(line["ended_s"] - told_s)
            steps, took_s = line["steps"] - line["first"], line["ended_s"] - line["began_s"]
            pace = job.work.job_type.paces[attempt["worker_type"]]
            if steps >= 20:
                result.pace.append(steps / took_s / pace)
    return result


def measure_by_scale(lived: Sequence[Lived], times: Times) -> dict[int, Measured]:
    """Return the measurements of jobs by the workers that they hold at once."""
    by_scale: dict[int, list[Lived]] = defaultdict(list)
    for job in lived:
        by_scale[job.work.job_type.scale_factor].append(job)
    return {scale: measure(jobs, times) for scale, jobs in sorted(by_scale.items())}


def overheads_of(lived: Sequence[Lived], times: Times) -> Overheads:
    """Return what restarts cost on average: of single jobs, and of gangs by their job types."""
    means = {scale: found.overhead() for scale, found in measure_by_scale(lived, times).items()}
    return Overheads(
        default=means[min(means)],
        by_job_type={
            job.work.job_type.name: means[job.work.job_type.scale_factor] for job in lived
        },
    )


def cluster_of(live: LiveCluster) -> Cluster:
    """Return the cluster with its workers numbered as the scheduler has numbered them."""
    nodes = sorted(live.get("/v1/nodes")["nodes"], key=lambda n: n["workers"][0]["index"])
    parts = tuple(
        Node(name=n["name"], workers=tuple(w["worker_type"] for w in n["workers"])) for n in nodes
    )
    types = dict.fromkeys(worker for node in parts for worker in node.workers)
    return Cluster(worker_types=tuple(WorkerType(name=t) for t in types), nodes=parts)


def simulate(
    lived: Sequence[Lived],
    cluster: Cluster,
    *,
    policy: str,
    times: Times,
    overheads: Overheads,
    shared: Sequence[str] = (),
    drawn: Drawn | None = None,
) -> SimulationResult:
    """Replay a live run from its submissions and their times.

    Args:
        lived: the jobs.
        cluster: the cluster of the run.
        policy: that was in force.
        times: of rounds and leases.
        overheads: of every lease.
        shared: job types of which any two run on one worker as fast as alone.
        drawn: in place of them, overheads that differ from lease to lease as those measured do.
    """
    begin_s = min(job.submitted_s for job in lived)
    ordered = sorted(lived, key=lambda job: job.submitted_s)
    jobs = [
        Job(
            job_id=job.job_id,
            job_type=job.work.job_type.name,
            total_steps=float(job.work.total_steps),
            scale_factor=job.work.job_type.scale_factor,
            arrival_s=job.submitted_s - begin_s,
            restart_s=times.restart_s,
        )
        for job in ordered
    ]
    keys_of = [
        CatalogueKey(job_type=job.job_type, scale_factors=(job.scale_factor,)) for job in jobs
    ]
    keys = list(dict.fromkeys(keys_of))
    paces = {
        (j.work.job_type.name, j.work.job_type.scale_factor): j.work.job_type.paces for j in lived
    }
    rates = {key: pace for key, pace in paces.items() if key[0] in shared}
    table = ThroughputTable(
        isolated=paces,
        shared={
            (one, other): {name: (mine[name], its[name]) for name in mine}
            for one, mine in rates.items()
            for other, its in rates.items()
        },
    )
    return _Replay(
        cluster=cluster,
        jobs=jobs,
        profiles=[keys.index(key) for key in keys_of],
        table=build_table(cluster, table, keys, space_sharing=bool(shared)),
        policy=make_policy(policy, {}),
        settings=EngineSettings(round_length_s=times.round_length_s, plan_lead_s=times.plan_lead_s),
        overheads=overheads,
        failures=FailureModel(),
        record=True,
        drawn=drawn,
    ).run()


class Drawn:
    """Overheads drawn, lease by lease, from those that were measured.

    Args:
        measured: by scale factor.
        seed: of the draws.
    """

    def __init__(self, measured: Mapping[int, Measured], *, seed: int) -> None:
        self._measured = measured
        self._rng = np.random.default_rng(seed)

    def overhead(self, scale_factor: int, attempt: int) -> Overhead:
        """Return what one lease costs."""
        found = self._measured[scale_factor]
        launches_s = found.launch_s if attempt == 1 else found.relaunch_s or found.launch_s
        leaving = list(zip(found.notice_s, found.checkpoint_s, strict=True)) or [(0.0, 0.0)]
        notice_s, checkpoint_s = leaving[self._rng.integers(len(leaving))]
        return Overhead(
            launch_s=self._one_of(launches_s),
            notice_s=max(notice_s, 0.0),
            checkpoint_s=checkpoint_s,
            complete_s=self._one_of(found.complete_s),
        )

    def _one_of(self, values: list[float]) -> float:
        return values[self._rng.integers(len(values))] if values else 0.0


class _Replay(Simulation):
    """A simulation in which each lease may have overheads of its own."""

    def __init__(self, *, drawn: Drawn | None, **parts: Any) -> None:
        super().__init__(**parts)
        self._drawn = drawn

    def _grant(self, leases: Leases) -> None:
        if self._drawn is not None:
            jobs = self._positions(leases.job_ids)
            scales = [self._jobs[i].scale_factor for i in jobs.tolist()]
            pairs = zip(scales, leases.attempt.tolist(), strict=True)
            drawn = [self._drawn.overhead(scale, attempt) for scale, attempt in pairs]
            self._overheads[jobs] = overhead_rows(drawn)
        super()._grant(leases)


def _mean(values: list[float], otherwise: float = 0.0) -> float:
    return fmean(values) if values else otherwise
