"""Gangs that may run on fewer workers: mean JCT beside the same gangs as they are.

Gavel's saturated trace with gangs and fresh ones, as in ``jct.py``. "Down": each gang of n may also
run at 1, 2, 4 .. of its n workers; "down and up": at 1, 2, 4 or 8, as many as the largest gang has;
as fast as the table says there. Under least_remaining_work with space sharing, with what restarts
cost.

    python benchmarks/elastic.py [--seeds 5] [--overheads default] [--only SUBSTRING] [--json]

Reads the shared data folder (see benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jct import LOADS, OURS, shared_data

from scheduler.domain.jobs.job import counts_between
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces import read_throughputs, read_trace
from traces.generators.generate import generate

if TYPE_CHECKING:
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.trace import Trace, TraceJob

LOAD = LOADS["multi"]


def trace_of(seed: int | None, throughputs: ThroughputTable) -> Trace:
    """Return Gavel's trace, or the fresh one of a seed."""
    if seed is None:
        path = shared_data() / "traces" / f"{LOAD.trace}.trace"
        return read_trace(str(path), throughputs=throughputs)
    return generate(
        "gavel",
        jobs=LOAD.jobs,
        throughputs=throughputs,
        rate_per_hour=LOAD.rate_per_hour,
        multi=True,
        seed=seed,
    )


def run(seed: int | None, overheads: str) -> dict[str, Any]:
    """Run a trace with its gangs as they are, and with gangs that stretch."""
    throughputs = read_throughputs(str(shared_data() / "simulation_throughputs.json"))
    trace = trace_of(seed, throughputs)
    most = max(job.scale_factor for job in trace.jobs)
    variants = {
        "rigid": trace.jobs,
        "down": tuple(_elastic(job, job.scale_factor) for job in trace.jobs),
        "down_and_up": tuple(_elastic(job, most) for job in trace.jobs),
    }
    row: dict[str, Any] = {"trace": LOAD.trace if seed is None else f"fresh, seed {seed}"}
    for name, some in variants.items():
        found = replace(trace, jobs=some)
        result = simulate(
            SimulationRequest(
                trace=found,
                throughputs=throughputs,
                cluster=LOAD.cluster,
                policy=OURS,
                space_sharing=True,
                overheads=overheads,
                window=LOAD.window,
            )
        )
        summary = result.summary
        row |= {
            f"{name}_jct_h": summary.average_jct_s / 3600,
            f"{name}_rho_max": summary.rho_max,
            f"{name}_preemptions": summary.preemptions,
            f"{name}_cpu_s": summary.cpu_s,
        }
    return row


def _elastic(job: TraceJob, most: int) -> TraceJob:
    """Return a gang that may run at fewer and more workers; other jobs as they are."""
    if job.scale_factor == 1:
        return job
    return replace(job, scale_factors=counts_between(1, most))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="fresh traces beside Gavel's")
    parser.add_argument("--overheads", default="default", help="a file, or none")
    parser.add_argument("--only", default="", help="traces whose name has this in it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for seed in (None, *range(1, options.seeds + 1)):
        name = LOAD.trace if seed is None else f"fresh, seed {seed}"
        if options.only not in name:
            continue
        row = run(seed, options.overheads)
        rows.append(row)
        if not options.json:
            rigid = row["rigid_jct_h"]
            texts = [
                f"{name} {row[f'{name}_jct_h']:.2f} h ({row[f'{name}_jct_h'] / rigid:.3f}), worst "
                f"rho {row[f'{name}_rho_max']:.2f}, {row[f'{name}_preemptions']} preemptions"
                for name in ("rigid", "down", "down_and_up")
            ]
            print(f"{row['trace']}: {'; '.join(texts)}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
