"""Large models that run at several worker counts, beside the same jobs at the count they ask for.

Made-up models with steps/s per worker that differ by count and worker type: some need several
workers to fit, some run on one worker type only. ``small``: 244 jobs in six hours on 64 workers of
two types; ``large``: 1,220 longer ones on 1,280 workers of four. Each policy runs the trace rigid
and elastic, with launches that are cheap (20 s with the checkpoint) and dear (300 s).

    python benchmarks/large_models.py [--only large] [--launches cheap] [--jobs elastic]
                                      [--policies fifo,goodput] [--seed 1] [--json]

"Done" counts the jobs that end within the six hours, mean JCT is of all jobs. Efficiency is steps/s
per worker over that at the model's best count on the worker type, by worker-seconds under leases.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.throughputs.throughput import ThroughputTable
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces.trace import Trace, TraceJob

if TYPE_CHECKING:
    from simulator.result import LeaseSpan

HOURS = 6.0
COUNTS = (2, 4, 8, 16)
MODELS = 12
LAUNCHES = {
    "cheap": "default: {launch_s: 10, checkpoint_s: 5, restore_s: 5}",
    "dear": "default: {launch_s: 180, checkpoint_s: 30, restore_s: 90}",
}
#: Those that are run by default.
POLICIES = (
    "fifo",
    "fifo:backfill=false",
    "shortest_job_first",
    "tiresias",
    "gittins",
    "allox",
    "least_remaining_work",
    "goodput",
    "max_min_fairness",
    "finish_time_fairness",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A cluster and its load.

    Attributes:
        workers: worker type -> workers.
        jobs: that arrive within the six hours.
        work_h: median worker-hours of a job on its best workers, at their best count.
    """

    workers: dict[str, int]
    jobs: int
    work_h: float


SIZES = {
    "small": Size(workers={"a": 32, "b": 32}, jobs=244, work_h=1.2),
    "large": Size(workers={"a": 320, "b": 320, "c": 320, "d": 320}, jobs=1220, work_h=4.8),
}
#: Of each worker type: speed of a worker, memory, and seconds of communication over those of work.
SPEED = {"a": 1.0, "b": 0.6, "c": 0.8, "d": 0.4}
MEMORY = {"a": 80.0, "b": 40.0, "c": 48.0, "d": 80.0}
TALK = {"a": 0.6, "b": 1.2, "c": 2.0, "d": 0.8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy on one trace; see the module. Times in hours."""

    size: str
    launches: str
    policy: str
    jobs: str
    done: int
    mean_jct_h: float
    starts: int
    preemptions: int
    efficiency_mean: float
    efficiency_median: float
    cpu_s: float


def table_of(size: Size, seed: int) -> ThroughputTable:
    """Draw the models; each (model, count) has a figure for every worker type, 0: does not run."""
    rng = np.random.default_rng((seed, 1))
    types = list(size.workers)
    isolated: dict[tuple[str, int], dict[str, float]] = {}
    for m in range(MODELS):
        memory, talk = rng.choice([60.0, 120.0, 240.0]), rng.uniform(0.05, 0.4)
        speed = dict(zip(types, rng.uniform(0.7, 1.3, len(types)).tolist(), strict=True))
        only = types[m] if m < 2 else None  # two models run on one worker type only
        for count in COUNTS:
            row = {}
            for name in types:
                part = memory / (count * MEMORY[name])  # of the memory that the weights take
                runs = only in {None, name} and part <= 1.0
                tight = 1.0 - 0.4 * max(part - 0.5, 0.0)  # activations are computed again
                efficiency = tight / (1.0 + talk * TALK[name] * (count / COUNTS[0] - 1.0))
                rate = count * SPEED[name] * speed[name] * efficiency
                row[name] = round(float(rate), 4) if runs else 0.0
            isolated[f"model-{m}", count] = row
    return ThroughputTable(isolated=isolated, source=f"large models, seed {seed}")


def jobs_of(size: Size, table: ThroughputTable, seed: int) -> list[TraceJob]:
    """Draw the jobs; ``scale_factor`` is the count that each asks for."""
    rng = np.random.default_rng((seed, 2))
    arrivals = np.sort(rng.uniform(0.0, HOURS * 3600.0, size.jobs))
    jobs = []
    for i, arrival_s in enumerate(arrivals.tolist()):
        model = f"model-{rng.integers(MODELS)}"
        counts = [n for n in COUNTS if any(table.isolated[model, n].values())]
        best = max(table.isolated[model, n][w] / n for w in table.worker_types for n in counts)
        worker_s = size.work_h * 3600.0 * rng.lognormal(0.0, 1.1)
        jobs.append(
            TraceJob(
                job_id=f"job-{i}",
                job_type=model,
                total_steps=worker_s * best,
                scale_factors=(int(rng.choice(counts)),),
                arrival_s=arrival_s,
            )
        )
    return jobs


def elastic(job: TraceJob, table: ThroughputTable) -> TraceJob:
    """Return the job at every count at which it runs."""
    counts = tuple(n for n in COUNTS if any(table.isolated[job.job_type, n].values()))
    return replace(job, scale_factors=counts)


def efficiency_of(span: LeaseSpan, table: ThroughputTable) -> float:
    """Return steps/s per worker of a lease, over those at the best count on its worker type."""
    rates = {n: table.steps_per_s(span.job_type, n, span.worker_type) / n for n in COUNTS}
    return rates[len(span.workers)] / max(rates.values())


def run(size: str, launches: str, policy: str, seed: int, *, stretch: bool) -> Row:
    """Run a policy on a trace, rigid or elastic."""
    cluster, table = SIZES[size], table_of(SIZES[size], seed)
    jobs = jobs_of(cluster, table, seed)
    if stretch:
        jobs = [elastic(job, table) for job in jobs]
    name, *parameters = policy.split(":")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "overheads.yaml"
        path.write_text(LAUNCHES[launches], encoding="utf-8")
        result = simulate(
            SimulationRequest(
                trace=Trace(jobs=tuple(jobs)),
                throughputs=table,
                cluster=",".join(f"{w}:{n}" for w, n in cluster.workers.items()),
                workers_per_node=8,
                policy=name,
                params=dict(p.split("=", 1) for p in parameters),
                overheads=str(path),
                record=True,
            )
        )
    efficiency = np.array([efficiency_of(span, table) for span in result.leases])
    held_s = np.array([len(s.workers) * (s.end_s - s.start_s) for s in result.leases])
    order = np.argsort(efficiency)
    middle = np.searchsorted(np.cumsum(held_s[order]), held_s.sum() / 2)
    return Row(
        size=size,
        launches=launches,
        policy=policy,
        jobs="elastic" if stretch else "rigid",
        done=sum(job.end_s is not None and job.end_s <= HOURS * 3600 for job in result.jobs),
        mean_jct_h=result.summary.average_jct_s / 3600,
        starts=sum(job.attempts for job in result.jobs),
        preemptions=result.summary.preemptions,
        efficiency_mean=float(efficiency @ held_s / held_s.sum()),
        efficiency_median=float(efficiency[order][middle]),
        cpu_s=result.summary.cpu_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(SIZES), default="small")
    parser.add_argument("--launches", default="", help="cheap or dear; both by default")
    parser.add_argument("--policies", help="comma-separated, parameters as name:key=value")
    parser.add_argument("--jobs", default="", help="rigid or elastic; both by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    policies = options.policies.split(",") if options.policies else POLICIES
    rows = []
    for launches in (name for name in LAUNCHES if options.launches in name):
        for policy in policies:
            for kind in (name for name in ("rigid", "elastic") if options.jobs in name):
                row = run(options.only, launches, policy, options.seed, stretch=kind == "elastic")
                rows.append(row)
                if not options.json:
                    print(
                        f"{row.size:5} {launches:5} {policy:22} {kind:7} {row.done:5} done, mean "
                        f"JCT {row.mean_jct_h:6.2f} h, {row.starts:5} starts, "
                        f"{row.preemptions:5} preemptions, efficiency {row.efficiency_mean:4.0%} "
                        f"(median {row.efficiency_median:4.0%}), {row.cpu_s:5.1f} CPU s",
                        flush=True,
                    )
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
