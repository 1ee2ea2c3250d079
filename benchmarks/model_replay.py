"""Planned configurations beside counts by hand: JCT and use on traces of models.

The bundled trace of models and fresh ones of the same kind, on the bundled cluster ``mixed``. "By
hand": each job holds the smallest number of workers on which a plan of its model fits on some
worker type, and runs on the types where it does. "Widely": the smallest number that fits on as many
types as any. "Planned": it may hold 1, 2, 4, 8 or 16 workers of any type. All run the fastest plan
of their workers. Beside them the jobs that plain data parallelism, without shares or the host's
memory, cannot run: no worker type holds their model, its gradients and its optimiser on one worker,
even if activations are recomputed.

    python benchmarks/model_replay.py [--seeds 3] [--overheads default] [--json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bundled.planned_trace import planned_trace

from planner.planned import Place, find_plan
from planner.plans.document import read_model
from planner.plans.hardware import read_hardware
from planner.plans.memory import worker_memory
from planner.plans.plan import Plan, Plans
from planner.plans.ranking import usable_memory
from scheduler.domain.throughputs.throughput import ThroughputTable
from simulator.models import read_models
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces import read_cluster
from traces.bundle import bundled

if TYPE_CHECKING:
    from scheduler.domain.cluster import Cluster
    from traces.trace import Trace

POLICIES = ("max_min_fairness", "finish_time_fairness", "least_remaining_work")


def types_of(model: str, counts: tuple[int, ...], cluster: Cluster) -> dict[int, int]:
    """Return number of workers -> worker types on which a model fits."""
    places = {
        count: [Place(name, most, count) for name, most in cluster.most_on_a_node.items()]
        for count in counts
    }
    hardware = read_hardware()
    return {
        count: sum(bool(find_plan(model, hardware, place).plan) for place in some)
        for count, some in places.items()
    }


def by_hand(trace: Trace, models: dict[str, str], cluster: Cluster, *, widely: bool) -> Trace:
    """Return a trace whose jobs hold one number of workers, see above."""
    counts = trace.jobs[0].scale_factors
    chosen = {}
    for name, model in models.items():
        types = types_of(model, counts, cluster)
        least = max(types.values()) if widely else 1
        chosen[name] = min(count for count, found in types.items() if found >= least)
    jobs = (replace(job, scale_factors=(chosen[job.job_type],)) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def fits_one_worker(model: str, cluster: Cluster) -> bool:
    """Return whether a worker type has the memory for a whole model and its training."""
    training: Any = read_model(json.loads(model), name="model", place="model")
    plan = Plan(tensor=1, pipeline=1, data=1, microbatch=1, recompute=True)
    needed = float(worker_memory(training, Plans.of([plan])).total[0])
    return any(needed <= usable_memory(read_hardware().find(n)) for n in cluster.type_names)


def run(seed: int, overheads: str) -> dict[str, Any]:
    """Return the figures of one trace."""
    models, cluster = read_models(str(bundled("models"))), read_cluster(str(bundled("mixed")))
    trace = planned_trace(seed)
    stuck = [job for job in trace.jobs if not fits_one_worker(models[job.job_type], cluster)]
    row: dict[str, Any] = {"seed": seed, "jobs": len(trace.jobs), "not_data_parallel": len(stuck)}
    variants = {
        "by_hand": by_hand(trace, models, cluster, widely=False),
        "widely": by_hand(trace, models, cluster, widely=True),
        "planned": trace,
    }
    for policy in POLICIES:
        for name, some in variants.items():
            request = SimulationRequest(
                trace=some,
                throughputs=ThroughputTable(isolated={}),
                cluster=cluster,
                models=str(bundled("models")),
                policy=policy,
                overheads=overheads,
            )
            found = simulate(request).summary
            row[f"{policy}/{name}"] = {
                "jct_h": found.average_jct_s / 3600,
                "makespan_h": found.makespan_s / 3600,
                "utilisation": found.utilisation,
                "cost_usd": found.cost_usd,
                "preemptions": found.preemptions,
                "completed": found.jobs_completed,
            }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="traces; 0 is the bundled one")
    parser.add_argument("--overheads", default="default", help="a file, or none")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        row = run(seed, options.overheads)
        rows.append(row)
        if options.json:
            continue
        print(
            f"seed {seed}: {row['jobs']} jobs, of which {row['not_data_parallel']} cannot run with "
            "plain data parallelism"
        )
        for policy in POLICIES:
            for name in ("by_hand", "widely", "planned"):
                found = row[f"{policy}/{name}"]
                print(
                    f"  {policy}, {name}: mean JCT {found['jct_h']:.2f} h, makespan "
                    f"{found['makespan_h']:.1f} h, {found['utilisation']:.0%} of workers in use, "
                    f"USD {found['cost_usd']:,.0f}, {found['preemptions']} preemptions",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
