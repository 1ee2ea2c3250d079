"""A shell around an engine on a small cluster, and allocations that a test dictates."""

import numpy as np
import pytest

from leasehold_testing.shell import VirtualShell
from policies.testing import make_table
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.jobs.job import Job
from scheduler.engine.settings import EngineSettings

#: The order of jobs follows from X alone, so that it can be computed by hand.
NO_BAND = {"behind_rounds": 1.0, "ahead_rounds": 0.0}


@pytest.fixture
def start():
    """Return a function that starts a shell: rounds of 100 s, one job type at 1 step/s."""

    def compose(
        cluster="type-0:2",
        rates=((1.0,),),
        gangs=None,
        shared=None,
        *,
        doubt=0.0,
        settings=None,
        **options,
    ):
        return VirtualShell(
            parse_cluster_spec(cluster, workers_per_node=4),
            make_table(rates, scale_factor=gangs, doubt=doubt, shared=shared),
            settings=EngineSettings(
                **({"round_length_s": 100.0, "keep_bonus": 0.0} | NO_BAND | (settings or {}))
            ),
            **options,
        )

    return compose


@pytest.fixture
def job():
    """Return a function that makes a job that lasts longer than most tests."""

    def make(job_id, total_steps=10_000.0, **values):
        return Job(job_id=job_id, job_type="profile", total_steps=total_steps, **values)

    return make


@pytest.fixture
def pair_up():
    """Return a policy: the first two jobs share all the time, the others have nothing."""

    def allocate(problem):
        if problem.jobs < 2:
            return Allocation.singles(np.ones_like(problem.throughput))
        return Allocation(
            x=np.zeros_like(problem.throughput),
            pair_jobs=np.array([[0, 1]]),
            pair_index=np.array([len(problem.table.pair_profiles) - 1]),
            pair_x=np.array([1.0]),
        )

    return allocate
