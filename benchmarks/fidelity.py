"""Fidelity: average JCT through real processes in real time, beside the simulator's.

For each policy a real daemon with SQLite and three agents run the same jobs, scaled to seconds:
Poisson arrivals, single jobs and gangs of two that span two agents, checkpoints, preemptions. What
launching, checkpointing, restoring and ending cost is measured in the run itself, by comparing the
scheduler's history with what the jobs' own processes write down; it is written to an overhead file.
Then the simulator replays the jobs from when they were submitted, with that file and with none.

    python benchmarks/fidelity.py --policies max_min_fairness,fifo --json fidelity.json

Takes a minute and a half per policy. The jobs mostly sleep, but a busy machine shows: the figures
are then of a machine on which launches take long.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "live_demo"))

from cluster import LiveCluster, Times
from forecast import cluster_of, measure, overheads_of, simulate
from watching import LiveRun
from workload import GANG, SINGLE, draw_work

from simulator.overheads import Overhead, Overheads, read_overheads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watching import Lived
    from workload import Work

    from simulator.result import SimulationResult

#: One worker of each type a node, so that every gang spans two agents.
NODES = dict.fromkeys(("ada", "bert", "carl"), "v100:1,p100:1,k80:1")
TIMES = Times(round_length_s=6.0, plan_lead_s=2.5)
POLICIES = "max_min_fairness,finish_time_fairness,least_remaining_work"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policies", default=POLICIES, help=f"by default {POLICIES}")
    parser.add_argument("--jobs", type=int, default=36)
    parser.add_argument("--gap", type=float, default=1.6, help="mean seconds between arrivals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/fidelity"), help="overhead files")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    work = draw_work(
        count=options.jobs,
        mean_gap_s=options.gap,
        least_s=5.0,
        most_s=15.0,
        seed=options.seed,
        types=(*SINGLE, *SINGLE[:2], *GANG),
    )
    rows = []
    for policy in options.policies.split(","):
        row = run(policy, work, options.out)
        rows.append(row)
        print(_line(row), flush=True)
        for fault in row["faults"]:
            print(f"  FAULT: {fault}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 1 if any(row["faults"] for row in rows) else 0


def run(policy: str, work: Sequence[Work], out: Path) -> dict[str, Any]:
    """Run the jobs live under a policy and replay them; returns every figure."""
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leasehold-fidelity-") as name:
        folder = Path(name)
        with LiveCluster(folder=folder, nodes=NODES, policy=policy, times=TIMES) as live:
            lived = LiveRun(cluster=live, work=work, folder=folder / "jobs").run()
            cluster = cluster_of(live)
    took_s = time.monotonic() - begin_s
    file = out / f"overheads-{policy}.yaml"
    write_overheads(overheads_of(lived, TIMES), file)
    with_costs, without = (
        simulate(lived, cluster, policy=policy, times=TIMES, overheads=overheads)
        for overheads in (read_overheads(str(file)), Overheads(default=Overhead(notice_s=0.0)))
    )
    live_s = fmean(job.jct_s or math.nan for job in lived)
    simulated_s = with_costs.summary.average_jct_s
    return {
        "policy": policy,
        "jobs": len(lived),
        "live_s": live_s,
        "simulated_s": simulated_s,
        "ratio": live_s / simulated_s,
        "ratio_without_overheads": live_s / without.summary.average_jct_s,
        "live_attempts": sum(len(job.attempts) for job in lived),
        "simulated_attempts": sum(outcome.attempts for outcome in with_costs.jobs),
        "overheads_file": str(file),
        "measured": measured(lived),
        "took_s": took_s,
        "faults": [fault for job in lived for fault in job.faults()],
        "by_job": _by_job(lived, with_costs),
    }


def measured(lived: Sequence[Lived]) -> dict[str, Any]:
    """Return mean and standard deviation of each stretch, by scale factor."""
    by_scale: dict[int, list[Lived]] = defaultdict(list)
    for job in lived:
        by_scale[job.work.job_type.scale_factor].append(job)
    return {
        str(scale): {
            name: {"mean": float(np.mean(v)), "std": float(np.std(v)), "n": len(v)}
            for name, v in asdict(measure(jobs, TIMES)).items()
            if v
        }
        for scale, jobs in sorted(by_scale.items())
    }


def write_overheads(overheads: Overheads, path: Path) -> None:
    """Write a file that the simulator reads."""
    document = {
        "default": asdict(overheads.default),
        "job_types": {name: asdict(entry) for name, entry in overheads.by_job_type.items()},
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def _by_job(lived: Sequence[Lived], simulated: SimulationResult) -> list[dict[str, Any]]:
    outcomes = {outcome.job_id: outcome for outcome in simulated.jobs}
    return [
        {
            "name": job.work.name,
            "live_s": job.jct_s,
            "simulated_s": outcomes[job.job_id].jct_s,
            "live_attempts": len(job.attempts),
            "simulated_attempts": outcomes[job.job_id].attempts,
        }
        for job in lived
    ]


def _line(row: dict[str, Any]) -> str:
    first = (
        f"{row['policy']:<22} {row['jobs']} jobs: average JCT live {row['live_s']:6.2f} s, "
        f"simulated {row['simulated_s']:6.2f} s, ratio {row['ratio']:.3f} "
        f"(without overheads {row['ratio_without_overheads']:.3f}); "
        f"leases {row['live_attempts']} / {row['simulated_attempts']}; {row['took_s']:.0f} s"
    )
    parts = [first]
    for scale, found in row["measured"].items():
        figures = ", ".join(f"{k} {v['mean']:.3f} ± {v['std']:.3f}" for k, v in found.items())
        parts.append(f"  gangs of {scale}: {figures}")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
