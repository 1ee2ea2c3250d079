"""Average JCT on saturated clusters: Gavel's two traces and fresh ones.

Each case runs under least_remaining_work and under the policies that come out best of Gavel's:
max-min fairness with space sharing and, with gangs, the largest sum of throughputs. The better of
these is the rival; it runs on our engine, which serves it better than Gavel's own.
Fresh traces come from the same distributions and are measured over the same positions. The lower
bound runs every job alone on its fastest workers, from its arrival on.

    python benchmarks/jct.py [--seeds 5] [--only SUBSTRING] [--jobs N] [--json]

Reads the shared data folder (see benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from simulator.request import SimulationRequest
from simulator.run import simulate
from traces import read_throughputs, read_trace, write_trace
from traces.generators.generate import generate

OURS = "least_remaining_work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A saturated cluster.

    Attributes:
        trace: Gavel's trace.
        cluster: worker types and counts.
        window: positions that are measured.
        jobs: length of a fresh trace.
        rate_per_hour: its arrivals.
        multi: whether it has gangs.
        rivals: the policies that come out best of Gavel's here, and whether they share workers.
    """

    trace: str
    cluster: str
    window: tuple[int, int]
    jobs: int
    rate_per_hour: float
    multi: bool
    rivals: tuple[tuple[str, bool], ...]


LOADS = {
    "single": Load(
        trace="sat_single_n1000_rate0.60_seed0",
        cluster="v100:4,p100:4,k80:4",
        window=(500, 700),
        jobs=1000,
        rate_per_hour=0.60,
        multi=False,
        rivals=(("max_min_fairness", True),),
    ),
    "multi": Load(
        trace="sat_multi_n600_rate0.58_seed0",
        cluster="v100:8,p100:8,k80:8",
        window=(250, 400),
        jobs=600,
        rate_per_hour=0.58,
        multi=True,
        rivals=(("max_min_fairness", True), ("max_throughput", False)),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case; times in hours, CPU in seconds. ``gavel`` is Gavel's own best, nan if fresh."""

    case: str
    bound: float
    jct: float
    rho_max: float
    p95: float
    cpu_s: float
    rival: str
    rival_jct: float
    rival_rho_max: float
    gavel: float

    @property
    def gain(self) -> float:
        """Average JCT over the best that Gavel has there: its own figure, or else the rival's."""
        return self.jct / (self.rival_jct if math.isnan(self.gavel) else self.gavel)


def shared_data() -> Path:
    """Return Gavel's folder of the shared data, or end with a message."""
    given = os.environ.get("LEASEHOLD_SHARED_DATA")
    folder = (Path(given) if given else Path(__file__).parents[2] / "shared" / "data") / "gavel"
    if not folder.is_dir():
        sys.exit(f"{folder} does not exist; set LEASEHOLD_SHARED_DATA")
    return folder


def lower_bound_h(trace: str, load: Load) -> float:
    """Return the mean time of the measured jobs, each alone on its fastest workers."""
    table = read_throughputs(str(shared_data() / "simulation_throughputs.json"))
    jobs = sorted(read_trace(trace, throughputs=table).jobs, key=lambda job: job.arrival_s)
    types = [part.partition(":")[0] for part in load.cluster.split(",")]
    times = [
        job.total_steps
        / max(table.isolated[job.job_type, job.scale_factor].get(name, 0.0) for name in types)
        for job in jobs[slice(*load.window)]
    ]
    return sum(times) / len(times) / 3600


def gavels_best_h(trace: str) -> float:
    """Return the least average JCT that Gavel reached on a trace."""
    with (shared_data() / "results.csv").open(encoding="utf-8") as file:
        scores = [float(r["average_jct_s"]) for r in csv.DictReader(file) if r["trace"] == trace]
    return min(scores) / 3600


def run(kind: str, seed: int | None) -> Row:
    """Run a case: Gavel's trace, or the fresh one of a seed."""
    load = LOADS[kind]
    throughputs = str(shared_data() / "simulation_throughputs.json")
    with tempfile.TemporaryDirectory() as folder:
        if seed is None:
            path = str(shared_data() / "traces" / f"{load.trace}.trace")
        else:
            path = str(Path(folder) / "fresh.csv")
            fresh = generate(
                "gavel",
                jobs=load.jobs,
                throughputs=read_throughputs(throughputs),
                rate_per_hour=load.rate_per_hour,
                multi=load.multi,
                seed=seed,
            )
            write_trace(fresh, path)
        ours, *others = (
            simulate(
                SimulationRequest(
                    trace=path,
                    throughputs=throughputs,
                    cluster=load.cluster,
                    policy=policy,
                    space_sharing=packed,
                    window=load.window,
                )
            ).summary
            for policy, packed in ((OURS, True), *load.rivals)
        )
        rival = min(others, key=lambda summary: summary.average_jct_s)
        return Row(
            case=load.trace if seed is None else f"{kind}, seed {seed}",
            bound=lower_bound_h(path, load),
            jct=ours.average_jct_s / 3600,
            rho_max=ours.rho_max,
            p95=ours.p95_jct_s / 3600,
            cpu_s=ours.cpu_s,
            rival=rival.policy,
            rival_jct=rival.average_jct_s / 3600,
            rival_rho_max=rival.rho_max,
            gavel=gavels_best_h(load.trace) if seed is None else math.nan,
        )


def markdown(rows: list[Row]) -> str:
    """Return the table."""
    lines = [
        (
            "| case | lower bound h | our JCT h | p95 h | worst rho | CPU s | rival | its JCT h "
            "| its worst rho | Gavel's best h | ours / best |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gavel = "" if math.isnan(row.gavel) else f"{row.gavel:.2f}"
        lines.append(
            f"| {row.case} | {row.bound:.2f} | {row.jct:.2f} | {row.p95:.1f} | {row.rho_max:.2f} "
            f"| {row.cpu_s:.1f} | {row.rival} | {row.rival_jct:.2f} | {row.rival_rho_max:.2f} "
            f"| {gavel} | {row.gain:.3f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="fresh traces of each kind")
    parser.add_argument("--only", choices=sorted(LOADS), help="one kind of load")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seeds = [None, *range(1, arguments.seeds + 1)]
    cases = [(kind, s) for kind in LOADS if arguments.only in {None, kind} for s in seeds]
    with ProcessPoolExecutor(max_workers=arguments.jobs) as pool:
        rows = []
        for row in pool.map(run, *zip(*cases, strict=True)):
            rows.append(row)
            print(f"{row.gain:.3f} {row.case}", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps([asdict(row) | {"gain": row.gain} for row in rows], indent=2))
    else:
        print(markdown(rows))
    return 0 if all(row.gain < 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
