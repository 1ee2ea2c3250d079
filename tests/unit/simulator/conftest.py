"""Runs that are small enough to be worked out by hand."""

import heapq
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from leasehold_testing.answers import equal_shares
from planner.agnostic import flattened
from policies.base import Policy
from policies.testing import make_table
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.configuration import ConfigurationTable
from scheduler.domain.jobs.job import Job
from scheduler.engine.settings import EngineSettings
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel, FailureProcess
from simulator.world.overheads import Overhead, Overheads

#: The order of jobs follows from X alone, so that it can be computed by hand.
BY_HAND = {"round_length_s": 100.0, "keep_bonus": 0.0, "behind_rounds": 1.0, "ahead_rounds": 0.0}


@dataclass(frozen=True, kw_only=True)
class EqualShares(Policy):
    name: ClassVar[str] = "equal_shares"

    def allocate(self, problem):
        return equal_shares(problem)


@dataclass(frozen=True, kw_only=True)
class AlwaysTogether(Policy):
    """The first two jobs share workers all the time; a job without company runs alone."""

    name: ClassVar[str] = "always_together"

    def allocate(self, problem):
        if problem.jobs < 2:
            return equal_shares(problem)
        return Allocation(
            x=np.zeros_like(problem.throughput),
            pair_jobs=np.array([[0, 1]]),
            pair_index=np.array([0]),
            pair_x=np.array([1.0]),
        )


class ScriptedFailures(FailureProcess):
    """Failures at given times instead of drawn ones."""

    def __init__(self, workers, changes, job_failures_s, speed):
        super().__init__(FailureModel(), workers, np.random.default_rng(0))
        self._heap = list(changes)
        heapq.heapify(self._heap)
        self._job_failures_s = list(job_failures_s)
        self.jobs_fail = True
        self.speed = np.array(speed) if speed else np.ones(workers)

    def pop(self):
        _, worker, lost = heapq.heappop(self._heap)
        return worker, lost

    def draw_job_failure_s(self):
        return self._job_failures_s.pop(0) if self._job_failures_s else float("inf")


def seen_as_alike(table):
    assert not table.has_pairs
    profiles = (replace(p, configurations=flattened(p.configurations)) for p in table.profiles)
    return ConfigurationTable.build(table.worker_types, tuple(profiles))


@pytest.fixture
def simulation():
    """Return a function that composes a run; rounds of 100 s, no bonus for held workers."""

    def compose(
        *totals,
        cluster="type-0:1",
        rates=((2.0,),),
        gangs=None,
        shared=None,
        profiles=None,
        arrivals=None,
        policy=None,
        overhead=None,
        changes=(),
        job_failures_s=(),
        checkpoint_interval_s=600.0,
        speed=(),
        prices=None,
        deadlines=None,
        max_failures=3,
        window=None,
        hidden=False,
        **settings,
    ):
        workers = parse_cluster_spec(cluster, workers_per_node=4, prices=prices)
        table = make_table(rates, scale_factor=gangs, shared=shared)
        rows = profiles or [0] * len(totals)
        jobs = [
            Job(
                job_id=f"job-{i}",
                job_type=f"profile-{row}",
                total_steps=float(total),
                scale_factor=table.profiles[row].scale_factor,
                arrival_s=float(arrivals[i]) if arrivals else 0.0,
                deadline_s=deadlines[i] if deadlines else None,
                max_failures=max_failures,
            )
            for i, (total, row) in enumerate(zip(totals, rows, strict=True))
        ]
        settings = BY_HAND | settings
        run = Simulation(
            cluster=workers,
            jobs=jobs,
            profiles=rows,
            table=table,
            believed=seen_as_alike(table) if hidden else None,
            policy=policy or EqualShares(),
            settings=EngineSettings(**settings),
            overheads=Overheads(default=overhead or Overhead()),
            failures=FailureModel(checkpoint_interval_s=checkpoint_interval_s),
            window=window,
            record=True,
        )
        if changes or job_failures_s or speed:
            run._failures = ScriptedFailures(workers.workers, changes, job_failures_s, speed)
            run._workers._speed = run._failures.speed
            run._workers._uniform = not speed
        return run

    return compose


@pytest.fixture
def always_together():
    return AlwaysTogether()


@pytest.fixture
def ends(simulation):
    """Return a function that runs and returns when each job ended."""

    def run(*totals, **options):
        return [job.end_s for job in simulation(*totals, **options).run().jobs]

    return run
