"""The bundled trace: sixty jobs for a demonstration on t4:4,v100:4,a100:4.

To write it again: ``python benchmarks/bundled/small_trace.py traces/data/small.csv``.

Made up, of job types of the bundled table. Two in five gain little from a fast GPU because they
wait for their host. Most of the others gain much, and one in ten of those needs the memory of an
A100. A scheduler that knows which is which can use the slow GPUs well. Durations on an A100 are
``60 x 10^U(1.2, 2.7)`` s, gangs of 1, 2 and 4 have the odds 8 : 1 : 1, and jobs arrive at 4 per
hour (Poisson). That is more than the cluster serves at that time: a queue builds up and drains.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from traces.bundle import bundled
from traces.generators.distributions import poisson_arrivals
from traces.readers.native import write_trace
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace, TraceJob

if TYPE_CHECKING:
    from scheduler.domain.throughputs.throughput import ThroughputTable

_JOBS, _RATE_PER_HOUR, _REFERENCE, _SMALLEST = 60, 4.0, "a100", "t4"
_LARGE = 0.1  # of the jobs of an entity that has such models
_ENTITIES = {
    "vision": ("ResNet-50", "EfficientNet", "ViT", "Stable"),
    "language": ("BERT", "GPT", "T5", "Llama", "Mistral", "Whisper"),
    "products": ("DLRM", "GraphSAGE", "PPO"),
}
_SHARES = (0.3, 0.3, 0.4)


def small_trace(seed: int = 0) -> Trace:
    """Return the sixty jobs; a sixth of them have a deadline of 3 to 12 times their duration."""
    rng = np.random.default_rng(seed)
    table = read_throughputs(bundled("throughputs"))
    arrivals = poisson_arrivals(rng, _JOBS, _RATE_PER_HOUR).round().tolist()
    jobs = tuple(_job(rng, table, i, arrival_s) for i, arrival_s in enumerate(arrivals))
    note = "A made-up workload for demonstrations; durations refer to an a100."
    return Trace(jobs=jobs, source="small", format="csv", notes=(note,))


def _job(rng: np.random.Generator, table: ThroughputTable, i: int, arrival_s: float) -> TraceJob:
    entity = str(rng.choice(list(_ENTITIES), p=_SHARES))
    size = int(rng.choice([1, 2, 4], p=[0.8, 0.1, 0.1]))
    job_type = _job_type(rng, table, entity, size)
    duration_s = float(60.0 * 10.0 ** rng.uniform(1.2, 2.7))
    job = TraceJob(
        job_id=f"{entity}-{i:02d}",
        job_type=job_type,
        total_steps=float(round(duration_s * table.steps_per_s(job_type, size, _REFERENCE))),
        scale_factors=(size,),
        arrival_s=arrival_s,
        entity=entity,
    )
    if rng.random() >= 1 / 6:
        return job
    slack = float(rng.uniform(3.0, 12.0))
    return replace(job, deadline_s=float(round(arrival_s + slack * duration_s)))


def _job_type(rng: np.random.Generator, table: ThroughputTable, entity: str, size: int) -> str:
    models = [m for m in table.job_types if m.startswith(_ENTITIES[entity])]
    models = [m for m in models if table.steps_per_s(m, size, _REFERENCE) > 0.0]
    fits = [m for m in models if table.steps_per_s(m, size, _SMALLEST) > 0.0]
    large = [m for m in models if m not in fits]
    return str(rng.choice(large if large and rng.random() < _LARGE else fits))


if __name__ == "__main__":
    write_trace(small_trace(), sys.argv[1])
