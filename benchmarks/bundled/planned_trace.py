"""The bundled trace of models: sixty trainings of 1.5 to 70 billion parameters.

To write it again: ``python benchmarks/bundled/planned_trace.py traces/data/planned.csv``.

Made up, of the models in ``traces/data/models.yaml``, for the bundled cluster ``mixed``. Small
models are more frequent than large ones. A job may run on 1, 2, 4, 8 or 16 workers of any type. Its
steps take ``60 x 10^U(0.8, 2.2)`` s on eight H100 by the planner, and jobs arrive at 6 per hour
(Poisson). That is more than the cluster serves at that time: a queue builds up and drains.
"""

from __future__ import annotations

import sys

import numpy as np

from planner.planned import Place, find_plan
from planner.plans.hardware import read_hardware
from simulator.models import read_models
from traces.bundle import bundled
from traces.generators.distributions import poisson_arrivals
from traces.readers.native import write_trace
from traces.trace import Trace, TraceJob

_JOBS, _RATE_PER_HOUR = 60, 6.0
_COUNTS = (1, 2, 4, 8, 16)
_REFERENCE = Place("h100", 8, 8)
#: Odds of the models, as in the file: by size.
_ODDS = np.array([6.0, 6.0, 5.0, 5.0, 4.0, 2.0, 2.0])


def planned_trace(seed: int = 0) -> Trace:
    """Return the sixty jobs."""
    rng = np.random.default_rng(seed)
    models = read_models(str(bundled("models")))
    speeds = {
        name: find_plan(model, read_hardware(), _REFERENCE).steps_per_s
        for name, model in models.items()
    }
    jobs = []
    for i, arrival_s in enumerate(poisson_arrivals(rng, _JOBS, _RATE_PER_HOUR).round().tolist()):
        name = str(rng.choice(list(models), p=_ODDS / _ODDS.sum()))
        duration_s = float(60.0 * 10.0 ** rng.uniform(0.8, 2.2))
        jobs.append(
            TraceJob(
                job_id=f"model-{i:02d}",
                job_type=name,
                total_steps=float(round(duration_s * speeds[name]) or 1),
                scale_factors=_COUNTS,
                arrival_s=arrival_s,
            )
        )
    note = "A made-up workload for demonstrations; simulate it with --models bundled."
    return Trace(jobs=tuple(jobs), source="planned", format="csv", notes=(note,))


if __name__ == "__main__":
    write_trace(planned_trace(), sys.argv[1])
