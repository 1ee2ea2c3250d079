"""Job tables in mid-run, drawn at random, for tests of the round mechanism."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from policies.testing import make_table
from scheduler.domain.jobs.job import Job
from scheduler.engine.rounds.equivalence import EquivalentConfigurations
from scheduler.engine.tables.jobs import RUNNING, JobTable

if TYPE_CHECKING:
    from scheduler.domain.arrays import IntArray
    from scheduler.domain.configuration import ConfigurationTable


@st.composite
def rounds(
    draw: st.DrawFn,
) -> tuple[JobTable, ConfigurationTable, EquivalentConfigurations, IntArray]:
    """Draw a job table in mid-run: held configurations fit the workers, X and credits are any."""
    rng = np.random.default_rng(draw(st.integers(0, 10**9)))
    types = int(rng.integers(1, 5))
    gangs = rng.choice([1, 1, 2, 3], size=4)
    speeds = rng.choice([1.0, 1.03, 1.5, 0.0], size=(4, types), p=[0.5, 0.2, 0.2, 0.1])
    speeds[:, 0] = 1.0
    doubt = draw(st.sampled_from([0.0, 0.05, 1.0, math.inf]))
    table = make_table(speeds.tolist(), scale_factor=gangs.tolist(), doubt=doubt)
    capacity = rng.integers(0, 8, size=types)
    jobs = JobTable(width=table.throughput.shape[1])
    count = draw(st.integers(1, 14))
    for i in range(count):
        profile = int(rng.integers(4))
        restart_s = float(rng.choice([0.0, 30.0, 1e3]))
        job = Job(
            job_id=str(i), job_type="any", total_steps=1e4, scale_factor=1, restart_s=restart_s
        )
        jobs.add(job, number=i, profile=profile, entity=0)
    free = capacity.copy()
    for row in range(count):
        ways = table.throughput[jobs["profile"][row]]
        taken = int(rng.choice(np.flatnonzero(ways > 0)))
        demand = table.demand[jobs["profile"][row], taken]
        if rng.random() < 0.7 and (demand <= free).all():
            free -= demand
            jobs["configuration"][row], jobs["status"][row] = taken, RUNNING
            jobs["charged"][row] = rng.random() < 0.8
        jobs["attempts"][row] = rng.integers(0, 4)
        jobs["steps_safe"][row] = rng.choice([0.0, 10.0])
        jobs.x[row] = rng.dirichlet(np.full(len(ways), 0.7)) * (ways > 0)
        jobs.credit_s[row] = rng.normal(0.0, 80.0, size=len(ways)) * (ways > 0)
    return jobs, table, EquivalentConfigurations.of(table, np.zeros(types)), capacity
