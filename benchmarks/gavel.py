"""Replay Gavel's traces under the same policies and put the figures beside Gavel's own.

Reads ``results.csv`` and the traces of the shared data folder (see benchmarks/README.md). Every row
of it is one simulation here: same trace, cluster, window and policy, rounds of 360 s, no overheads.

Usage: python benchmarks/gavel.py [--only SUBSTRING ...] [--jobs N] [--json] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from simulator.request import SimulationRequest
from simulator.run import simulate

#: Gavel's policy -> (our policy, agnostic, space sharing).
POLICIES = {
    "allox": ("allox", False, False),
    "fifo": ("fifo", True, False),
    "fifo+fixed": ("fifo", True, False),
    "fifo_perf": ("fifo", False, False),
    "fifo_packed": ("fifo", False, True),
    "finish_time_fairness": ("finish_time_fairness", True, False),
    "finish_time_fairness_perf": ("finish_time_fairness", False, False),
    "finish_time_fairness_packed+fixed": ("finish_time_fairness", False, True),
    "gandiva": ("gandiva", False, True),
    "isolated": ("isolated", False, False),
    "max_min_fairness": ("max_min_fairness", True, False),
    "max_min_fairness_perf": ("max_min_fairness", False, False),
    "max_min_fairness_packed": ("max_min_fairness", False, True),
    "max_min_fairness_packed+fixed": ("max_min_fairness", False, True),
    "max_min_fairness_water_filling": ("water_filling", True, False),
    "max_min_fairness_water_filling_perf": ("water_filling", False, False),
    "max_sum_throughput_perf": ("max_throughput", False, False),
    "min_total_duration": ("makespan", True, False),
    "min_total_duration_perf": ("makespan", False, False),
    "min_total_duration_packed+fixed": ("makespan", False, True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the comparison; times in hours, CPU in seconds."""

    trace: str
    gavel_policy: str
    policy: str
    windowed: bool
    gavel_jct_h: float
    jct_h: float
    gavel_end_h: float
    end_h: float
    rho_max: float
    gavel_cpu_s: float | None
    cpu_s: float

    @property
    def metric(self) -> str:
        """The objective of the policy: the end of a whole trace for makespan, else the average JCT.

        A run with a window ends with the window's last job, while later jobs are still there; that
        end is no makespan.
        """
        return "end" if self.policy.startswith("makespan") and not self.windowed else "jct"

    @property
    def ratio(self) -> float:
        """Ours over Gavel's; at most 1 is at least as good."""
        if self.metric == "end":
            return self.end_h / self.gavel_end_h
        return self.jct_h / self.gavel_jct_h


def shared_data() -> Path:
    """Return the folder of shared data, or end with a message."""
    given = os.environ.get("LEASEHOLD_SHARED_DATA")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    if not (folder / "gavel").is_dir():
        sys.exit(f"{folder} has no folder 'gavel'; set LEASEHOLD_SHARED_DATA")
    return folder


def request_of(row: dict[str, str], folder: Path, **rounds: Any) -> SimulationRequest:
    """Make the simulation that corresponds to a row of Gavel's results."""
    policy, agnostic, packed = POLICIES[row["policy"]]
    counts = row["cluster_v100:p100:k80"].split(":")
    spec = ",".join(f"{t}:{n}" for t, n in zip(("v100", "p100", "k80"), counts, strict=True))
    window = (int(row["window_start"]), int(row["window_end"])) if row["window_start"] else None
    return SimulationRequest(
        trace=str(next((folder / "traces").glob(f"{row['trace']}*.trace"))),
        throughputs=str(folder / "simulation_throughputs.json"),
        cluster=spec,
        policy=policy,
        agnostic=agnostic,
        space_sharing=packed,
        window=window,
        **rounds,
    )


def run(row: dict[str, str], **rounds: Any) -> Row:
    request = request_of(row, shared_data() / "gavel", **rounds)
    summary = simulate(request).summary
    return Row(
        trace=row["trace"],
        gavel_policy=row["policy"],
        policy=request.label,
        windowed=request.window is not None,
        gavel_jct_h=float(row["average_jct_s"]) / 3600,
        jct_h=summary.average_jct_s / 3600,
        gavel_end_h=float(row["end_s"]) / 3600,
        end_h=summary.makespan_s / 3600,
        rho_max=summary.rho_max,
        gavel_cpu_s=float(row["cpu_s"]) if row["cpu_s"] else None,
        cpu_s=summary.cpu_s,
    )


def as_dict(row: Row) -> dict[str, object]:
    fields = {name: getattr(row, name) for name in Row.__slots__}
    return {**fields, "metric": row.metric, "ratio": row.ratio}


def markdown(rows: list[Row]) -> str:
    lines = [
        (
            "| trace | Gavel's policy | ours | Gavel JCT h | our JCT h | Gavel end h | our end h "
            "| ratio | worst rho | Gavel CPU s | our CPU s |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cpu = "" if row.gavel_cpu_s is None else f"{row.gavel_cpu_s:.1f}"
        lines.append(
            f"| {row.trace} | {row.gavel_policy} | {row.policy} | {row.gavel_jct_h:.2f} "
            f"| {row.jct_h:.2f} | {row.gavel_end_h:.1f} | {row.end_h:.1f} "
            f"| {row.ratio:.3f} ({row.metric}) | {row.rho_max:.2f} | {cpu} | {row.cpu_s:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="substrings of 'trace policy'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--forget",
        action="store_true",
        help="rounds that forget at each new allocation, as Gavel's",
    )
    parser.add_argument("--behind", type=float, default=4.0, help="behind_rounds")
    parser.add_argument("--ahead", type=float, default=1.0, help="ahead_rounds")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    with (shared_data() / "gavel" / "results.csv").open(encoding="utf-8") as file:
        wanted = [
            row
            for row in csv.DictReader(file)
            if all(part in f"{row['trace']} {row['policy']} " for part in arguments.only)
        ]
    rows = []
    rounds = {
        "carry_credit": not arguments.forget,
        "behind_rounds": arguments.behind,
        "ahead_rounds": arguments.ahead,
    }
    with ProcessPoolExecutor(max_workers=arguments.jobs) as pool:
        for row in pool.map(partial(run, **rounds), wanted):
            rows.append(row)
            print(
                f"{'ok   ' if row.ratio <= 1 else 'WORSE'} {row.ratio:.3f} {row.metric} "
                f"{row.trace} {row.gavel_policy} ({row.cpu_s:.1f} s)",
                file=sys.stderr,
                flush=True,
            )
    print(
        json.dumps([as_dict(row) for row in rows], indent=2) if arguments.json else markdown(rows)
    )
    if arguments.markdown:
        arguments.markdown.write_text(markdown(rows), encoding="utf-8")
    return 0 if all(row.ratio <= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
