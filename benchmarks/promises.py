"""Forecasts of a service in the middle of its work: how long one takes, and whether it comes true.

A replay of the service goes on for an hour; then a copy of its control is forecast, all in here.
With ``--score`` the replay goes on to its end, and promises are compared with results.

    python benchmarks/promises.py --jobs 1000
    python benchmarks/promises.py --jobs 120 --score
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from policies.registry import make_policy
from scheduler.control.facts.requests import PolicyChoice
from scheduler.control.state.settings import ControlSettings
from scheduler.engine.settings import EngineSettings
from scheduler.operator_settings import LearningSettings
from simulator.forecast.forecast import ForecastInput, forecast_packed
from simulator.replay import Replay
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overhead, Overheads
from traces.cluster import read_cluster
from traces.generators.generate import generate
from traces.tables.throughputs import read_throughputs

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER = "v100:64,a100:32,t4:32"
BEGIN_S = 3600.0


def replay_of(jobs: int, policy: str) -> Replay:
    """Return a replay of a service to which all jobs come at once."""
    throughputs = read_throughputs("bundled")
    trace = generate("gavel", jobs=jobs, throughputs=throughputs, rate_per_hour=1e6, seed=3)
    return Replay(
        cluster=read_cluster(CLUSTER, workers_per_node=8),
        trace=trace,
        throughputs=throughputs,
        policy=make_policy(policy, {}),
        settings=ControlSettings(
            engine=EngineSettings(
                round_length_s=360.0, plan_lead_s=15.0, refuse_what_cannot_fit=False
            ),
            policy=PolicyChoice(name=policy),
            learning=LearningSettings(learn=False),
        ),
        declared=throughputs,
        overheads=Overheads(default=Overhead(launch_s=10.0)),
        failures=FailureModel(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--policy", default="max_min_fairness")
    parser.add_argument("--score", action="store_true", help="hold it against what comes")
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    replay = replay_of(options.jobs, options.policy)
    replay.begin()
    while replay.now_s < BEGIN_S:
        replay.step()
    begin = time.process_time()
    asked = ForecastInput(control=replay.control.copied(), now_s=replay.now_s)
    copied = time.process_time()
    packed = asked.pack()
    went_out = time.process_time()
    found = forecast_packed(packed)
    ended = time.process_time()
    ends = {i: one.completion_s for i, one in found.times.items() if one.completion_s is not None}
    figures: dict[str, float] = {
        "jobs": len(asked.control.jobs),
        "running": len(asked.control.leases),
        "copy_s": copied - begin,
        "pack_s": went_out - copied,
        "packed_mb": len(packed) / 1e6,
        "forecast_cpu_s": ended - went_out,
        "work": found.work,
        "ends_known": len(ends),
        "hours_ahead": found.reached_s / 3600,
    }
    if options.score:
        figures |= score(replay, ends, since_s=asked.now_s)
    for name, value in figures.items():
        print(f"{name:16} {value:,.4g}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def score(replay: Replay, ends: Mapping[str, float], *, since_s: float) -> dict[str, float]:
    """Hold promised ends, in seconds from ``since_s``, against those that come."""
    while replay.to_go:
        replay.step()
    came = {i: end_s - since_s for i, _, end_s in replay.times() if end_s is not None}
    off = np.array([(end_s - came[i]) / came[i] for i, end_s in ends.items() if i in came])
    return {
        "promises": len(off),
        "mean_off": float(off.mean()),
        "median_abs_off": float(np.median(abs(off))),
        "p90_abs_off": float(np.quantile(abs(off), 0.9)),
    }


if __name__ == "__main__":
    main()
