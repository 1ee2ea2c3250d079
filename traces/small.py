"""The bundled trace: sixty jobs for a demonstration on t4:4,v100:4,a100:4.

To write it again: ``python -m traces.small traces/data/small.csv``. The jobs are those of a team of
today: job types of the bundled table, a third of them light ones that gain little from a fast GPU
(host-bound), which is what a scheduler aware of unlike GPUs can use. Durations on an A100 are
``60 x 10^U(1.2, 2.7)`` s, gangs of 1, 2 and 4 with the odds 8 : 1 : 1, Poisson arrivals at 4 jobs
per hour, which is more than the cluster can serve at that time: a queue builds up and drains.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from scheduler.domain.job import Job
from traces.bundle import bundled
from traces.distributions import poisson_arrivals
from traces.native import write_trace
from traces.throughputs import read_throughputs
from traces.trace import Trace

_JOBS, _RATE_PER_HOUR, _REFERENCE = 60, 4.0, "a100"
_ENTITIES = {
    "vision": ("ResNet-50", "EfficientNet", "ViT", "Stable"),
    "language": ("BERT", "GPT", "T5", "Llama", "Mistral", "Whisper"),
    "products": ("DLRM", "GraphSAGE", "PPO"),
}


def small_trace(seed: int = 0) -> Trace:
    """Return the sixty jobs; a sixth of them have a deadline of 3 to 12 times their duration."""
    rng = np.random.default_rng(seed)
    table = read_throughputs(bundled("throughputs"))
    arrivals = poisson_arrivals(rng, _JOBS, _RATE_PER_HOUR).round()
    jobs = []
    for i, arrival_s in enumerate(arrivals.tolist()):
        entity = str(rng.choice(list(_ENTITIES)))
        size = int(rng.choice([1, 2, 4], p=[0.8, 0.1, 0.1]))
        models = [m for m in table.job_types if m.startswith(_ENTITIES[entity])]
        models = [m for m in models if table.steps_per_s(m, size, _REFERENCE) > 0.0]
        job_type = str(rng.choice(models))
        duration_s = float(60.0 * 10.0 ** rng.uniform(1.2, 2.7))
        steps = float(round(duration_s * table.steps_per_s(job_type, size, _REFERENCE)))
        job = Job(
            job_id=f"{entity}-{i:02d}",
            job_type=job_type,
            total_steps=steps,
            scale_factor=size,
            arrival_s=arrival_s,
            entity=entity,
        )
        if rng.random() < 1 / 6:
            slack = float(rng.uniform(3.0, 12.0))
            job = replace(job, deadline_s=float(round(arrival_s + slack * duration_s)))
        jobs.append(job)
    note = "A made-up workload for demonstrations (traces/small.py); durations refer to an a100."
    return Trace(jobs=tuple(jobs), source="small", format="csv", notes=(note,))


if __name__ == "__main__":
    write_trace(small_trace(), sys.argv[1])
