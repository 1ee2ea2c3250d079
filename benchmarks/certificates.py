"""How good rounds are, by their certificates: beside the best whole assignment and the fluid one.

Gavel's traces with gangs under policies of unlike kinds. The gap is the part of the best value that
another choice of whole workers could have gained at most; the fluid one is the same if workers
could be divided, so with what gangs cost that do not fit.

    python benchmarks/certificates.py [--only SUBSTRING] [--json]

Reads the shared data folder (see benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from jct import shared_data

from simulator.request import SimulationRequest
from simulator.run import simulate
from traces import read_throughputs, read_trace

TRACES: dict[str, tuple[str, str, tuple[int, int] | None]] = {
    "sat_multi": ("sat_multi_n600_rate0.58_seed0", "v100:8,p100:8,k80:8", (250, 400)),
    "static_multi": ("static_multi_n200_seed0", "v100:12,p100:12,k80:12", None),
    "sat_single": ("sat_single_n1000_rate0.60_seed0", "v100:4,p100:4,k80:4", (500, 700)),
}
POLICIES = (
    *(("max_min_fairness", False), ("max_min_fairness", True), ("makespan", False)),
    *(("isolated", False), ("least_remaining_work", True), ("fifo", False)),
    *(("finish_time_fairness", False),),
)


def run(trace: str, policy: str, *, shares: bool) -> dict[str, Any]:
    """Replay a trace under a policy and return what its rounds were worth."""
    name, cluster, window = TRACES[trace]
    data = shared_data()
    table = read_throughputs(str(data / "simulation_throughputs.json"))
    found = read_trace(str(data / "traces" / f"{name}.trace"), throughputs=table)
    summary = simulate(
        SimulationRequest(
            trace=found,
            throughputs=table,
            cluster=cluster,
            policy=policy,
            space_sharing=shares,
            window=window,
        )
    ).summary
    return {
        "trace": trace,
        "policy": policy + ("+packed" if shares else ""),
        "rounds": summary.rounds,
        "gap": summary.round_gap,
        "gap_p99": summary.round_gap_p99,
        "fluid_gap": summary.round_fluid_gap,
        "off_rounds": summary.off_rounds,
        "jct_h": summary.average_jct_s / 3600,
        "rho_max": summary.rho_max,
        "preemptions": summary.preemptions,
        "cpu_s": summary.cpu_s,
    }


def main() -> None:
    """Print a row per trace and policy."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="part of 'trace policy' of the rows to run")
    parser.add_argument("--json", action="store_true", help="print JSON, an object a line")
    options = parser.parse_args()
    for trace in TRACES:
        for policy, shares in POLICIES:
            if options.only not in f"{trace} {policy}":
                continue
            row = run(trace, policy, shares=shares)
            if options.json:
                unknown = {key: None for key in row if row[key] != row[key]}  # JSON knows no NaN
                print(json.dumps(row | unknown), flush=True)
                continue
            gaps = "a round by lag alone, "
            if not math.isnan(row["gap"]):
                gaps = f"gap {row['gap']:.2%}, p99 {row['gap_p99']:.2%}, "
                gaps += f"fluid {row['fluid_gap']:.2%}, "
            print(
                f"{row['trace']:13} {row['policy']:28} {row['rounds']:6} rounds, {gaps}"
                f"{row['off_rounds']:5.2f} rounds off X; JCT {row['jct_h']:6.2f} h, worst rho "
                f"{row['rho_max']:.2f}, {row['preemptions']} preemptions, {row['cpu_s']:.0f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
