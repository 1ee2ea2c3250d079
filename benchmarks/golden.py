"""Objective values of Gavel's recorded instances, ours beside Gavel's.

Six instances of 8, 32 and 128 jobs, with and without gangs, solved through the policies. Gavel's
equal share always sums to 1, so our max-min value is multiplied by the sum of our share.

Usage: python benchmarks/golden.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from gavel import shared_data

from policies.registry import make_policy
from policies.shares import equal_share
from policies.testing import make_problem, make_table

if TYPE_CHECKING:
    from pathlib import Path

#: Gavel's key -> (our policy, +1 if larger is better).
OBJECTIVES = {
    "max_min_fairness_perf_objective": ("max_min_fairness", 1),
    "max_sum_throughput_objective": ("max_throughput", 1),
    "min_total_duration_perf_T_s": ("makespan", -1),
    "finish_time_fairness_perf_max_rho": ("finish_time_fairness", -1),
}


def problem_of(entry: dict[str, Any], folder: Path) -> Any:
    rates = json.loads((folder / "simulation_throughputs.json").read_text(encoding="utf-8"))
    types = list(entry["cluster"])
    keys = sorted({(job["job_type"], job["scale_factor"]) for job in entry["jobs"]})
    rows = [[rates[t][str(key)]["null"] for t in types] for key in keys]
    return make_problem(
        make_table(rows, scale_factor=[scale for _, scale in keys]),
        capacity=list(entry["cluster"].values()),
        profile=[keys.index((job["job_type"], job["scale_factor"])) for job in entry["jobs"]],
        remaining_steps=[job["total_steps"] for job in entry["jobs"]],
        age_s=[job["time_since_start"] for job in entry["jobs"]],
    )


def compare(entry: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    problem = problem_of(entry, folder)
    largest = max(entry["cluster"].values())
    waiting = sum(job["scale_factor"] > largest for job in entry["jobs"])
    found = []
    for key, (policy, sign) in OBJECTIVES.items():
        ours = make_policy(policy).allocate(problem).objective
        if policy == "max_min_fairness":
            ours *= float(equal_share(problem).sum())
        if policy == "finish_time_fairness":  # Gavel's share is also for gangs that cannot run
            ours *= 1.0 - waiting / problem.jobs
        theirs = entry[key]
        found.append(
            {
                "jobs": entry["N"],
                "gangs": entry["multi"],
                "policy": policy,
                "gavel": theirs,
                "ours": ours,
                "at_least_as_good": sign * (ours - theirs) >= -1e-4 * abs(theirs),
                "gangs_that_cannot_run": waiting,
            }
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    folder = shared_data() / "gavel"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    rows = [row for entry in golden for row in compare(entry, folder)]
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        print("| jobs | gangs | policy | Gavel | ours | at least as good |")
        print("|---|---|---|---|---|---|")
        for row in rows:
            good = "yes" if row["at_least_as_good"] else "no"
            if good == "no" and row["gangs_that_cannot_run"]:
                good = f"no: {row['gangs_that_cannot_run']} gangs exceed the cluster"
            print(
                f"| {row['jobs']} | {'yes' if row['gangs'] else 'no'} | {row['policy']} "
                f"| {row['gavel']:.6g} | {row['ours']:.6g} | {good} |"
            )
    worse = [r for r in rows if not r["at_least_as_good"] and not r["gangs_that_cannot_run"]]
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
