"""Fidelity: average JCT through real processes in real time, beside the simulator's.

For each policy a real daemon with SQLite and three agents run the same jobs, scaled to seconds:
Poisson arrivals, single jobs and gangs of two that span two agents, checkpoints, preemptions. The
costs of launching, checkpointing, restoring and ending are measured in the run itself: the
scheduler's history is compared with the records of the jobs' own processes. They are written to
an overhead file.
Then the simulator replays the jobs from their submission: with overheads drawn lease by
lease from those measured, many times; with the file, whose overheads are their means; with none.

Rounds amplify small differences: a lease that starts a tenth of a second later may put another job
first in the next round. So one live run is one draw, and the spread of the replays, which differ in
nothing but such tenths, says how far from their mean it may lie.

    python benchmarks/fidelity.py --policies max_min_fairness,fifo --json fidelity.json

Takes two and a half minutes per policy. Exits with 1 if the average over all runs is off by more
than the tolerance, a job failed, or a step was lost or done twice. The jobs mostly sleep, but a
busy machine shows: the figures are then of a machine on which launches take long.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "live_demo"))

from cluster import LiveCluster, Times
from forecast import Drawn, cluster_of, measure_by_scale, overheads_of, simulate
from watching import LiveRun
from workload import GANG, SINGLE, Work, draw_work

from simulator.world.overheads import Overhead, Overheads, read_overheads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from forecast import Measured
    from watching import Lived

    from simulator.result import SimulationResult

#: One worker of each type a node, so that every gang spans two agents.
NODES = dict.fromkeys(("ada", "bert", "carl"), "v100:1,p100:1,k80:1")
TIMES = Times(round_length_s=6.0, plan_lead_s=2.5)
#: Replays with new draws of overheads.
REPLAYS = 30
POLICIES = "max_min_fairness,finish_time_fairness,least_remaining_work"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policies", default=POLICIES, help=f"by default {POLICIES}")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--gap", type=float, default=1.6, help="mean seconds between arrivals")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the jobs")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity"), help="overhead files")
    parser.add_argument(
        "--tolerance", type=float, default=0.03, help="of the ratio over all runs; else exit with 1"
    )
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for policy, seed in itertools.product(options.policies.split(","), options.seeds):
        work = draw_work(
            count=options.jobs,
            mean_gap_s=options.gap,
            least_s=5.0,
            most_s=15.0,
            seed=seed,
            types=(*SINGLE, *SINGLE[:2], *GANG),
        )
        row = run(policy, work, options.out, seed_of_work=seed)
        rows.append(row)
        print(_line(row), flush=True)
        for fault in row["faults"]:
            print(f"  FAULT: {fault}")
    live_s, simulated_s = (fmean(row[key] for row in rows) for key in ("live_s", "simulated_s"))
    off = live_s / simulated_s - 1.0
    print(_summary(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 1 if any(row["faults"] for row in rows) or not abs(off) <= options.tolerance else 0


def run(policy: str, work: Sequence[Work], out: Path, *, seed_of_work: int) -> dict[str, Any]:
    """Run the jobs live under a policy and replay them; returns every figure."""
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leasehold-fidelity-") as name:
        folder = Path(name)
        with LiveCluster(folder=folder, nodes=NODES, policy=policy, times=TIMES) as live:
            warm_up(live, folder)
            lived = LiveRun(cluster=live, work=work, folder=folder / "jobs").run()
            cluster = cluster_of(live)
    took_s = time.monotonic() - begin_s
    file = out / f"overheads-{policy}.yaml"
    write_overheads(overheads_of(lived, TIMES), file)

    def replay(overheads: Overheads, drawn: Drawn | None = None) -> SimulationResult:
        return simulate(
            lived, cluster, policy=policy, times=TIMES, overheads=overheads, drawn=drawn
        )

    by_scale = measure_by_scale(lived, TIMES)
    replays = [replay(Overheads(), Drawn(by_scale, seed=seed)) for seed in range(REPLAYS)]
    averages_s = [result.summary.average_jct_s for result in replays]
    fixed = replay(read_overheads(str(file)))
    free = replay(Overheads(default=Overhead(notice_s=0.0)))
    live_s = fmean(job.jct_s or math.nan for job in lived)
    return {
        "policy": policy,
        "seed": seed_of_work,
        "jobs": len(lived),
        "live_s": live_s,
        "simulated_s": fmean(averages_s),
        "simulated_std_s": stdev(averages_s),
        "ratio": live_s / fmean(averages_s),
        "ratio_fixed_overheads": live_s / fixed.summary.average_jct_s,
        "ratio_without_overheads": live_s / free.summary.average_jct_s,
        "live_attempts": sum(len(job.attempts) for job in lived),
        "simulated_attempts": fmean(sum(o.attempts for o in r.jobs) for r in replays),
        "overheads_file": str(file),
        "measured": measured(by_scale),
        "took_s": took_s,
        "faults": [fault for job in lived for fault in job.faults()],
        "by_job": _by_job(lived, replays),
    }


def warm_up(live: LiveCluster, folder: Path) -> None:
    """Run a short job and wait until no round runs: the first question waits for the solver.

    It would begin the first round, and so all others, some tenths of a second late.
    """
    job = Work(name="warm-up", job_type=SINGLE[0], total_steps=20, arrival_s=0.0)
    LiveRun(cluster=live, work=(job,), folder=folder / "warm-up").run()
    while live.get("/v1/cluster")["round_ends_s"] is not None:
        live.check()
        time.sleep(0.1)


def measured(by_scale: Mapping[int, Measured]) -> dict[str, Any]:
    """Return mean and standard deviation of each stretch, by scale factor."""
    return {
        str(scale): {
            name: {"mean": float(np.mean(v)), "std": float(np.std(v)), "n": len(v)}
            for name, v in asdict(found).items()
            if v
        }
        for scale, found in by_scale.items()
    }


def write_overheads(overheads: Overheads, path: Path) -> None:
    """Write a file that the simulator reads."""
    document = {
        "default": asdict(overheads.default),
        "job_types": {name: asdict(entry) for name, entry in overheads.by_job_type.items()},
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def _by_job(lived: Sequence[Lived], replays: Sequence[SimulationResult]) -> list[dict[str, Any]]:
    simulated_s: dict[str, list[float]] = defaultdict(list)
    for result in replays:
        for outcome in result.jobs:
            simulated_s[outcome.job_id].append(outcome.jct_s or math.nan)
    return [
        {
            "name": job.work.name,
            "live_s": job.jct_s,
            "simulated_s": fmean(simulated_s[job.job_id]),
            "live_attempts": len(job.attempts),
        }
        for job in lived
    ]


def _line(row: dict[str, Any]) -> str:
    simulated = f"{row['simulated_s']:.2f} ± {row['simulated_std_s']:.2f} s"
    first = (
        f"{row['policy']:<22} {row['jobs']} jobs: average JCT live {row['live_s']:.2f} s, "
        f"simulated {simulated}, ratio {row['ratio']:.3f} "
        f"(mean overheads {row['ratio_fixed_overheads']:.3f}, none "
        f"{row['ratio_without_overheads']:.3f}); leases {row['live_attempts']} / "
        f"{row['simulated_attempts']:.0f}; {row['took_s']:.0f} s"
    )
    parts = [first]
    for scale, found in row["measured"].items():
        figures = ", ".join(f"{k} {v['mean']:.3f} ± {v['std']:.3f}" for k, v in found.items())
        parts.append(f"  gangs of {scale}: {figures}")
    return "\n".join(parts)


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    live_s, simulated_s = (fmean(row[key] for row in rows) for key in ("live_s", "simulated_s"))
    spread = math.sqrt(sum(row["simulated_std_s"] ** 2 for row in rows)) / len(rows) / simulated_s
    return (
        f"all {len(rows)} runs: live {live_s:.2f} s, simulated {simulated_s:.2f} s, ratio "
        f"{live_s / simulated_s:.3f}, give or take {100 * spread:.1f} % (standard deviation)"
    )


if __name__ == "__main__":
    sys.exit(main())
