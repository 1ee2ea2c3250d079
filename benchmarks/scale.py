"""Large replays in one process: the paper-scale run and all of Philly.

Measures CPU seconds and peak memory, each run in a fresh process with compiled kernels warm.

Usage: python benchmarks/scale.py [paper|philly] [--policy NAME] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
from dataclasses import replace
from typing import Any

from gavel import shared_data

from simulator.request import SimulationRequest
from simulator.run import simulate

#: What each run may take: CPU s, peak MB.
LIMITS = {"paper": (15.0, None), "philly": (600.0, 2000.0)}


def requests(policy: str) -> dict[str, SimulationRequest]:
    data = shared_data()
    paper = SimulationRequest(
        trace=str(data / "gavel/traces/cont_single_n7000_rate4.4_seed0.trace"),
        throughputs=str(data / "gavel/simulation_throughputs.json"),
        cluster="v100:36,p100:36,k80:36",
        policy=policy,
        window=(4000, 5000),
    )
    philly = SimulationRequest(
        trace=str(data / "philly/philly.csv"),
        throughputs="bundled",
        cluster="t4:498,a10g:498,v100:498,l40s:498,a100:498",
        policy=policy,
        workers_per_node=8,
        reference_worker_type="v100",
    )
    return {"paper": paper, "philly": philly}


def measure(request: SimulationRequest) -> dict[str, Any]:
    """Run in this process; the first 20 jobs beforehand load and compile everything."""
    simulate(replace(request, limit=20, window=None))
    summary = simulate(request).summary.to_dict()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**summary, "peak_mb": peak_mb}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", help="paper, philly; both by default")
    parser.add_argument("--policy", default="max_min_fairness")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    for name, request in requests(arguments.policy).items():
        if arguments.which and name not in arguments.which:
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[name] = pool.apply(measure, (request,))
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print(
            "| run | jobs | rounds | solves | median solve ms | CPU s | limit | peak MB | JCT h |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for name, row in found.items():
            print(
                f"| {name} | {row['jobs_completed']} | {row['rounds']} | {row['solves']} "
                f"| {row['solve_median_s'] * 1e3:.2f} | {row['cpu_s']:.1f} | {LIMITS[name][0]:.0f} "
                f"| {row['peak_mb']:.0f} | {row['average_jct_s'] / 3600:.2f} |"
            )
    over = [name for name, row in found.items() if row["cpu_s"] > LIMITS[name][0]]
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
