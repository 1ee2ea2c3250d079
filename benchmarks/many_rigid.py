"""Many rigid jobs on a large cluster: CPU seconds of a replay, here and in another checkout.

1,000 of the made-up large models of ``large_models.py``, each at the one count from 2 to 16 that it
asks for, arrive within six hours at 1,280 workers of four types. A trace and a throughput table are
written, and each policy replays them in a process of its own, with compiled kernels warm.

    python benchmarks/many_rigid.py [--policies goodput,max_throughput] [--jobs 1000] [--seed 1]
                                    [--against CHECKOUT] [--repeat 1] [--json]

``--against`` replays the same files with the code of another checkout, the two in turns, and
prints the ratios of CPU seconds and of the mean JCT.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

# ruff: noqa: PLC0415  a child imports what its checkout has, and no more

HERE = Path(__file__).resolve().parents[1]
POLICIES = ("goodput", "least_remaining_work", "max_throughput")
#: Median worker-hours of a job.
WORK_H = 4.8
#: As in ``large_models.py``: 20 s with the checkpoint.
LAUNCHES = "default: {launch_s: 10, checkpoint_s: 5, restore_s: 5}"


def write_inputs(folder: Path, jobs: int, seed: int, work_h: float = WORK_H) -> str:
    """Write ``trace.csv``, ``table.csv`` and ``overheads.yaml``; return the cluster."""
    from large_models import SIZES, jobs_of, table_of

    from traces.readers.native import write_trace
    from traces.tables.throughputs import write_throughputs
    from traces.trace import Trace

    size = replace(SIZES["large"], jobs=jobs, work_h=work_h)
    table = table_of(size, seed)
    write_trace(Trace(jobs=tuple(jobs_of(size, table, seed))), folder / "trace.csv")
    write_throughputs(table, folder / "table.csv")
    (folder / "overheads.yaml").write_text(LAUNCHES, encoding="utf-8")
    return ",".join(f"{name}:{count}" for name, count in size.workers.items())


def replay(folder: Path, cluster: str, policy: str) -> dict[str, Any]:
    """Replay in this process; the first 20 jobs beforehand load and compile everything."""
    from simulator.request import SimulationRequest
    from simulator.run import simulate

    request = SimulationRequest(
        trace=str(folder / "trace.csv"),
        throughputs=str(folder / "table.csv"),
        overheads=str(folder / "overheads.yaml"),
        cluster=cluster,
        workers_per_node=8,
        policy=policy,
    )
    simulate(replace(request, limit=20))
    before = time.process_time()
    result = simulate(request)
    return {
        "cpu_s": time.process_time() - before,
        "mean_jct_s": result.summary.average_jct_s,
        "preemptions": result.summary.preemptions,
        "end_s": {job.job_id: job.end_s for job in result.jobs},
    }


def measure(checkout: Path, folder: Path, cluster: str, policy: str) -> dict[str, Any]:
    """Replay in a process with the code of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(folder)]
    done = subprocess.run(
        [*command, "--cluster", cluster, "--policies", policy],
        env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def compare(options: argparse.Namespace, policy: str, folder: Path, cluster: str) -> dict[str, Any]:
    """Return the least CPU seconds of some replays, and the answers of the last."""
    checkouts = {"here": HERE, **({"against": options.against} if options.against else {})}
    least: dict[str, dict[str, Any]] = {}
    for _ in range(options.repeat):
        for name, checkout in checkouts.items():
            row = measure(checkout, folder, cluster, policy)
            if name in least:
                row["cpu_s"] = min(row["cpu_s"], least[name]["cpu_s"])
            least[name] = row
    ends = [row.pop("end_s") for row in least.values()]
    result = {"policy": policy, **least}
    if options.against:
        here, other = least["here"], least["against"]
        result["cpu_ratio"] = here["cpu_s"] / other["cpu_s"]
        result["jct_ratio"] = here["mean_jct_s"] / other["mean_jct_s"]
        result["equal_ends"] = sum(end == ends[1].get(job) for job, end in ends[0].items())
    return result


def show(row: dict[str, Any]) -> str:
    """Return a row as a line of text."""
    text = f"{row['policy']:22}"
    for name in ("here", "against"):
        if name in row:
            one = row[name]
            text += f" {name}: {one['cpu_s']:8.1f} CPU s, JCT {one['mean_jct_s'] / 3600:6.3f} h,"
            text += f" {one['preemptions']:5} preemptions;"
    if "cpu_ratio" in row:
        text += f" CPU {row['cpu_ratio']:.4f}, JCT {row['jct_ratio']:.4f},"
        text += f" {row['equal_ends']} jobs end alike"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--work-h", type=float, default=WORK_H, help="median worker-hours of a job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout to replay with")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cluster", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(replay(options.child, options.cluster, options.policies)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        cluster = write_inputs(Path(name), options.jobs, options.seed, options.work_h)
        for policy in options.policies.split(","):
            rows.append(compare(options, policy, Path(name), cluster))
            if not options.json:
                print(show(rows[-1]), flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
