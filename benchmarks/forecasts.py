"""Completion times promised at submission, beside what came: error, coverage, and mean JCT.

The virtual clusters of PCS (OSDI'24), with its recorded errors beside ours; a week of Philly.
Jobs of PCS run on 1, 2, 4 .. as many workers as they allow, on 64 of one type, as there.

    python benchmarks/forecasts.py --data ../shared/data 2869ce --policy max_min_fairness
    python benchmarks/forecasts.py --data ../shared/data philly --jobs 200
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from dataclasses import replace
from pathlib import Path

from scheduler.domain.throughputs.throughput import ThroughputTable
from simulator.forecast_score import ForecastScore
from simulator.request import ForecastOptions, SimulationRequest
from simulator.run import simulate
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace, TraceJob

#: Mean error in percent, by trace and policy, as PCS recorded it (its simulator, its policies).
RECORDED = {
    ("0e4a51", "srsf"): 26.619,
    ("2869ce", "srsf"): 11.166,
    ("2869ce", "fair_share"): 14.129,
    ("6c71a0", "srsf"): 18.358,
    ("ee9e8c", "srsf"): 69.837,
}
BESIDE = {"least_remaining_work": "srsf", "max_min_fairness": "fair_share"}
DAY_S = 86_400.0


def pcs(data: Path, name: str, limit: int | None) -> SimulationRequest:
    """Return a virtual cluster of PCS, without a policy yet."""
    speedups: dict[tuple[str, int], dict[str, float]] = {}
    with (data / "pcs" / "speedups.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            speedups[row["model"], int(row["gpus"])] = {"gpu": float(row["speedup"])}
    with (data / "pcs" / "traces" / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[:limit]
    jobs = tuple(
        TraceJob(
            job_id=row["job"],
            job_type=row["model"],
            total_steps=float(row["work_gpu_s"]),
            arrival_s=float(row["arrival_s"]),
            scale_factors=_counts(int(row["max_gpus"])),
        )
        for row in rows
    )
    return SimulationRequest(
        trace=Trace(jobs=jobs, source=name),
        throughputs=ThroughputTable(isolated=speedups),
        cluster="gpu:64",
        workers_per_node=64,
        policy="",
        round_length_s=60.0,
    )


def _counts(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4 .. and the largest count itself; nothing for one worker alone."""
    if most == 1:
        return ()
    return (*(2**i for i in range(math.ceil(math.log2(most)))), most)


def philly(data: Path) -> SimulationRequest:
    """Return the week of Philly that begins 30 days after its first job, without a policy yet."""
    throughputs = read_throughputs("bundled", derive_counts=True)
    trace = read_trace(
        str(data / "philly" / "philly.csv"), throughputs=throughputs, reference_worker_type="v100"
    )
    begin_s = trace.jobs[0].arrival_s + 30 * DAY_S
    jobs = tuple(
        replace(job, arrival_s=job.arrival_s - begin_s)
        for job in trace.jobs
        if begin_s <= job.arrival_s < begin_s + 7 * DAY_S
    )
    return SimulationRequest(
        trace=Trace(jobs=jobs, source="a week of Philly"),
        throughputs=throughputs,
        cluster="t4:128,a10g:128,v100:128,l40s:128,a100:128",
        workers_per_node=8,
        policy="",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="+", help="names of PCS's traces, or philly")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--policy", action="append", help="repeatable; two by default")
    parser.add_argument("--jobs", type=int, default=240, help="forecast so many jobs of each")
    parser.add_argument("--limit", type=int, help="read only so many jobs of a trace of PCS")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for name in options.traces:
        request = (
            philly(options.data) if name == "philly" else pcs(options.data, name, options.limit)
        )
        for policy in options.policy or list(BESIDE):
            asked = replace(request, policy=policy, forecasts=ForecastOptions(jobs=options.jobs))
            result = simulate(asked)
            score = ForecastScore.of(result.forecasts)
            row = {
                "trace": name,
                "policy": policy,
                "mean_jct_s": result.summary.average_jct_s,
                **score.to_dict(),
                "recorded_error": RECORDED.get((name, BESIDE.get(policy, "")), math.nan) / 100,
                "cpu_s": result.summary.cpu_s,
            }
            found.append(row)
            if not options.json:
                print(
                    f"{name:8} {policy:22} JCT {row['mean_jct_s']:12,.0f} s  {score.jobs} jobs: "
                    f"error {score.mean_error:.1%} (no later jobs: {score.mean_error_alone:.1%}, "
                    f"recorded: {row['recorded_error']:.1%}), 99th {score.p99_error:.0%}, "
                    f"held {score.coverage:.1%}, width {score.median_width:.1%}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
