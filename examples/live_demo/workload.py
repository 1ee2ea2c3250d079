"""The workload: worker types, job types with their throughputs, and jobs that arrive over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """A kind of training job.

    Attributes:
        name: key into the throughput table.
        paces: worker type -> steps/s of the whole job.
        scale_factor: workers that it holds at once.
    """

    name: str
    paces: Mapping[str, float]
    scale_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job to submit.

    Attributes:
        name: unique.
        job_type: its job type.
        total_steps: until it is complete.
        arrival_s: seconds after the first job.
    """

    name: str
    job_type: JobType
    total_steps: int
    arrival_s: float


#: Unlike models gain unlike amounts from newer GPUs: a scheduler can use that.
SINGLE = (
    JobType(name="vision", paces={"v100": 40.0, "p100": 20.0, "k80": 8.0}),
    JobType(name="language", paces={"v100": 30.0, "p100": 20.0, "k80": 10.0}),
    JobType(name="tabular", paces={"v100": 24.0, "p100": 20.0, "k80": 16.0}),
)
GANG = (
    JobType(name="vision of two", paces={"v100": 36.0, "p100": 18.0, "k80": 7.0}, scale_factor=2),
)


def draw_work(
    *,
    count: int,
    mean_gap_s: float,
    least_s: float,
    most_s: float,
    seed: int,
    types: tuple[JobType, ...] = SINGLE,
) -> tuple[Work, ...]:
    """Draw jobs that arrive as a Poisson process.

    Args:
        count: how many.
        mean_gap_s: seconds between two arrivals.
        least_s: shortest job, in seconds alone on its fastest worker type.
        most_s: longest.
        seed: of every draw.
        types: drawn from in turn, so that each has its part.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(mean_gap_s, count))
    arrivals -= arrivals[0]
    lengths_s = np.exp(rng.uniform(np.log(least_s), np.log(most_s), count))
    work = []
    for i in range(count):
        job_type = types[i % len(types)]
        steps = max(1, round(lengths_s[i] * max(job_type.paces.values())))
        work.append(
            Work(
                name=f"{job_type.name.split(' ')[0]}-{i + 1:02d}",
                job_type=job_type,
                total_steps=steps,
                arrival_s=float(arrivals[i]),
            )
        )
    return tuple(work)
