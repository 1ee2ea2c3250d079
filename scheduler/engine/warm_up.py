"""Compile the engine's kernels before the first request needs them."""

from __future__ import annotations

import numpy as np

from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.engine.engine import Engine
from scheduler.engine.rounds.kernels import choose_staying, search_core
from scheduler.engine.settings import EngineSettings


def warm_up() -> None:
    """Run a round on a cluster of three workers.

    One of the jobs gets only left-over workers, and one waits.

    The first call after an installation takes seconds; later calls load compiled code from disk.
    """
    engine = Engine(parse_cluster_spec("a:2,b:1"), EngineSettings(round_length_s=1.0))
    configurations = tuple(
        Configuration(demand=demand, throughput=1.0) for demand in ((1, 0), (0, 1))
    )
    profile = Profile(job_type="any", scale_factor=1, configurations=configurations)
    table = ConfigurationTable.build(("a", "b"), (profile,))
    jobs = (Job(job_id=str(n), job_type="any", total_steps=9.0) for n in range(4))
    submitted = (ev.JobSubmitted(job=job, profile=0) for job in jobs)
    engine.handle(ev.ConfigurationsChanged(table=table), *submitted, now=0.0)
    allocation = Allocation.singles(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))
    answer = ev.AllocationComputed(
        generation=engine.generation, job_number=np.arange(4), allocation=allocation
    )
    engine.handle(answer, now=0.0)
    engine.handle(now=1.0)
    # A job that gains less by a move than the uncertainty of the throughputs.
    one, yes = np.ones((1, 2), dtype=np.int64), np.ones(1, dtype=bool)
    choose_staying(one, yes, yes, yes, np.ones(1), np.ones(2, dtype=np.int64))
    # A round with gangs that do not fit one by one.
    two = np.arange(2)
    search_core(np.zeros(1), np.ones((1, 1), dtype=np.int64), two, two[1:], np.ones(1), 1.0, 2)
