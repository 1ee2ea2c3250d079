"""Large replays in one process, the paper-scale run and all of Philly, and one very large round.

Measures CPU seconds and peak memory, each run in a fresh process with compiled kernels warm. The
round is one of 100,000 active jobs on 10,000 workers of twelve types, drawn by a seed.

Usage: python benchmarks/scale.py [paper|philly|round] [--policy NAME] [--jobs N ...] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gavel import shared_data

from policies.registry import make_policy
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.engine.engine import Engine
from scheduler.engine.settings import EngineSettings
from simulator.request import SimulationRequest
from simulator.run import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What each run may take: CPU s, peak MB. Of the round: each one.
LIMITS = {"paper": (15.0, None), "philly": (600.0, 2000.0), "round": (2.0, 1000.0)}
#: The large round: worker types, job types, gangs and how frequent they are, rounds planned.
TYPES, JOB_TYPES, GANGS, GANG_ODDS, ROUNDS = 12, 26, (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05), 4


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
        derive_counts=True,
    )
    return {"paper": paper, "philly": philly}


def measure(request: SimulationRequest) -> dict[str, Any]:
    """Run in this process; the first 20 jobs beforehand load and compile everything."""
    simulate(replace(request, limit=20, window=None))
    summary = simulate(request).summary.to_dict()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**summary, "peak_mb": peak_mb}


class LargeRound:
    """An engine with very many active jobs; their leases end at once if they are revoked."""

    def __init__(self, jobs: int, policy: str, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        per_type = -(-jobs // (10 * TYPES))  # ten jobs for each worker
        spec = ",".join(f"t{k}:{per_type}" for k in range(TYPES))
        self.engine = Engine(parse_cluster_spec(spec), EngineSettings())
        self.policy = make_policy(policy)
        self.answer_cpu_s = 0.0
        steps_per_s = rng.lognormal(0.0, 0.7, (JOB_TYPES, TYPES))
        profiles = tuple(
            Profile(
                job_type=f"j{u}",
                scale_factor=gang,
                configurations=tuple(
                    Configuration(
                        demand=tuple(gang if k == own else 0 for k in range(TYPES)),
                        throughput=float(steps_per_s[u, own]) * gang**0.9,
                    )
                    for own in range(TYPES)
                ),
            )
            for u in range(JOB_TYPES)
            for gang in GANGS
        )
        table = ConfigurationTable.build(tuple(f"t{k}" for k in range(TYPES)), profiles)
        job_type = rng.integers(JOB_TYPES, size=jobs)
        gang = rng.choice(len(GANGS), p=GANG_ODDS, size=jobs)
        hours = rng.lognormal(1.0, 1.2, size=jobs)
        submitted = (
            ev.JobSubmitted(
                job=Job(
                    job_id=str(n),
                    job_type=f"j{job_type[n]}",
                    scale_factor=GANGS[gang[n]],
                    total_steps=float(3600.0 * hours[n]),
                ),
                profile=int(job_type[n] * len(GANGS) + gang[n]),
            )
            for n in range(jobs)
        )
        self._settle([ev.ConfigurationsChanged(table=table), *submitted], 0.0)

    def plan(self) -> None:
        """Go on to the next round."""
        assert self.engine.round_end_s is not None
        self._settle([], self.engine.round_end_s)

    def _settle(self, events: Iterable[ev.Event], now: float) -> None:
        while True:
            commands = self.engine.handle_columns(*events, now=now)
            events = [event for command in commands for event in self._perform(command)]
            if not events:
                return

    def _perform(self, command: do.Command | do.Batch) -> list[ev.Event]:
        if isinstance(command, do.ComputeAllocation):
            begin = time.process_time()
            allocation = self.policy.allocate(command.problem)
            self.answer_cpu_s += time.process_time() - begin
            return [
                ev.AllocationComputed(
                    generation=command.generation,
                    job_number=command.problem.job_number,
                    allocation=allocation,
                )
            ]
        if isinstance(command, do.RevokeLeases):
            ids = command.lease_ids
            return [ev.LeasesReleased(lease_ids=ids, steps_done=np.zeros(len(ids)))]
        return []


def measure_round(jobs: int, policy: str) -> dict[str, Any]:
    """Plan some rounds and carry them out; the slowest counts."""
    large = LargeRound(TYPES, policy)  # compiles and loads everything
    large.plan()
    begin = time.process_time()
    large = LargeRound(jobs, policy)
    began_cpu_s = time.process_time() - begin
    each = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        large.plan()
        each.append(time.process_time() - begin)
    proven = large.engine.certificate
    assert proven is not None
    return {
        "jobs": len(large.engine.jobs),
        "workers": large.engine.fleet.workers,
        "leases": len(large.engine.book.leases),
        "began_cpu_s": began_cpu_s,
        "answer_cpu_s": large.answer_cpu_s,
        "each_cpu_s": each,
        "cpu_s": max(each),
        "gap": proven.gap,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", help="paper, philly, round; all by default")
    parser.add_argument("--policy", default="max_min_fairness")
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000], help="of each round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    replays = requests(arguments.policy) if set(arguments.which) != {"round"} else {}
    runs: list[tuple[str, Any, tuple[Any, ...]]] = [
        *((name, measure, (request,)) for name, request in replays.items()),
        *(("round", measure_round, (jobs, arguments.policy)) for jobs in arguments.jobs),
    ]
    found: list[tuple[str, dict[str, Any]]] = []
    for name, function, given in runs:
        if not arguments.which or name in arguments.which:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found.append((name, pool.apply(function, given)))
    if arguments.json:
        print(json.dumps([{"run": name, **row} for name, row in found], indent=2))
    else:
        show(found)
    return 1 if any(too_much(name, row) for name, row in found) else 0


def too_much(name: str, row: dict[str, Any]) -> bool:
    """Return whether a run took more than its bound."""
    cpu_s, peak_mb = LIMITS[name]
    return bool(row["cpu_s"] > cpu_s or (peak_mb is not None and row["peak_mb"] > peak_mb))


def show(found: list[tuple[str, dict[str, Any]]]) -> None:
    """Print tables: of replays, and of large rounds."""
    replays = [(name, row) for name, row in found if name != "round"]
    if replays:
        print(
            "| run | jobs | rounds | solves | median solve ms | CPU s | limit | peak MB | JCT h |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
    for name, row in replays:
        print(
            f"| {name} | {row['jobs_completed']} | {row['rounds']} | {row['solves']} "
            f"| {row['solve_median_s'] * 1e3:.2f} | {row['cpu_s']:.1f} | {LIMITS[name][0]:.0f} "
            f"| {row['peak_mb']:.0f} | {row['average_jct_s'] / 3600:.2f} |"
        )
    rounds = [row for name, row in found if name == "round"]
    if rounds:
        print("| jobs | workers | leases | answer CPU s | round CPU s | limit | peak MB | gap |")
        print("|---|---|---|---|---|---|---|---|")
    for row in rounds:
        print(
            f"| {row['jobs']} | {row['workers']} | {row['leases']} | {row['answer_cpu_s']:.2f} "
            f"| {row['cpu_s']:.2f} | {LIMITS['round'][0]:.0f} | {row['peak_mb']:.0f} "
            f"| {row['gap']:.4f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
