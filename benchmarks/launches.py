"""Launches that take long beside rounds: their cost, with and without a least time to hold.

A job keeps its workers until it has run for a multiple of what its launch takes; several multiples
are compared, ours is four. Each run has two, three or five jobs of unequal lengths on one or two
workers of one or two types: rigid jobs, gangs of two, and elastic jobs.

    python benchmarks/launches.py [--json] [--worth 0 4]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.oracle import build_table
from policies.registry import make_policy, policy_names
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.jobs.job import Job
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from scheduler.engine.state import preemption_protection
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overhead, Overheads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.result import SimulationResult

ROUND_S = 300.0
#: How long a launch takes, in rounds.
LAUNCHES = (0.0, 0.1, 0.5, 1.0, 1.3, 3.0)
#: Lengths of the jobs on one worker, or one gang, of the faster type.
LENGTHS_S = (1000.0, 700.0, 1500.0, 400.0, 2500.0)
COUNTS = (2, 3, 5)
#: A run that has not ended after so many times what all jobs need one after the other has no end.
LONGEST = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster, and how its jobs run there.

    Attributes:
        cluster: its spec; the second worker type is half as fast.
        rates: worker count -> steps/s on the faster type.
    """

    cluster: str
    rates: dict[int, float]


CASES = (
    Case(cluster="v:1", rates={1: 1.0}),
    Case(cluster="v:2", rates={1: 1.0}),
    Case(cluster="v:1,k:1", rates={1: 1.0}),
    Case(cluster="v:2", rates={2: 1.0}),
    Case(cluster="v:2,k:2", rates={2: 1.0}),
    Case(cluster="v:2", rates={1: 1.0, 2: 1.7}),
    Case(cluster="v:2,k:2", rates={1: 1.0, 2: 1.7}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one multiple does to launches of one length, over all cases and policies.

    Attributes:
        worth: for how many times its launch a job keeps its workers.
        launch: how long a launch takes, in rounds.
        endless: runs that did not end.
        makespan: of the runs that did, the largest makespan over that of ``fifo`` there.
        policy: the policy of the run.
        jct_s: mean completion time.
        rho: largest finish-time fairness of a job.
        launching: part of the time under leases that went into launches.
    """

    worth: float
    launch: float
    endless: int
    makespan: float
    policy: str
    jct_s: float
    rho: float
    launching: float


def run(case: Case, jobs: int, policy: str, launch_s: float) -> SimulationResult | None:
    """Return a run; None if it has no end."""
    counts = tuple(sorted(case.rates))
    cluster = parse_cluster_spec(case.cluster, workers_per_node=8)
    slower = {"v": 1.0, "k": 0.5}
    speeds = {
        n: {w: rate * slower[w] for w in cluster.type_names} for n, rate in case.rates.items()
    }
    table = ThroughputTable(isolated={("any", n): row for n, row in speeds.items()})
    lengths = LENGTHS_S[:jobs]
    simulation = Simulation(
        cluster=cluster,
        jobs=[
            Job(
                job_id=f"job-{i}",
                job_type="any",
                total_steps=length * case.rates[counts[0]],
                scale_factor=counts[0],
            )
            for i, length in enumerate(lengths)
        ],
        profiles=[0] * jobs,
        table=build_table(cluster, table, [CatalogueKey(job_type="any", scale_factors=counts)]),
        policy=make_policy(policy, {}),
        settings=EngineSettings(round_length_s=ROUND_S),
        overheads=Overheads(default=Overhead(launch_s=launch_s)),
        failures=FailureModel(),
        record=True,
    )
    result = simulation.run(until_s=LONGEST * sum(length + launch_s for length in lengths))
    return result if result.summary.jobs_completed == jobs else None


def measured(worth: float, launch: float) -> Row:
    """Return the effect of a multiple on launches of a length."""
    preemption_protection.WORTH = worth  # type: ignore[misc]  # the comparison needs it
    launch_s = launch * ROUND_S
    endless, worst, jct_s, rho, launching_s, held_s = 0, (0.0, ""), [], [], 0.0, 0.0
    for case in CASES:
        for jobs in COUNTS:
            base = run(case, jobs, "fifo", launch_s)
            for policy in policy_names():
                found = run(case, jobs, policy, launch_s)
                if found is None or base is None:
                    endless += 1
                    continue
                worst = max(worst, (found.summary.makespan_s / base.summary.makespan_s, policy))
                jct_s.append(found.summary.average_jct_s)
                rho.append(found.summary.rho_max)
                held = [span.end_s - span.start_s for span in found.leases]
                held_s += sum(held)
                launching_s += sum(min(s, launch_s) for s in held)
    return Row(
        worth=worth,
        launch=launch,
        endless=endless,
        makespan=worst[0],
        policy=worst[1],
        jct_s=float(np.mean(jct_s)),
        rho=float(np.nanmax(rho)),
        launching=launching_s / held_s,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--worth", type=float, nargs="+", default=[0.0, 4.0], help="multiples")
    chosen = parser.parse_args(arguments)
    rows = [measured(worth, launch) for worth in chosen.worth for launch in LAUNCHES]
    if chosen.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'worth':>5} {'launch':>6} {'endless':>7} {'makespan':>8} {'of':24}", end="")
    print(f"{'mean JCT':>9} {'worst rho':>9} {'launching':>9}")
    for row in rows:
        print(
            f"{row.worth:5.1f} {row.launch:6.1f} {row.endless:7d} {row.makespan:8.2f} "
            f"{row.policy:24}{row.jct_s:9.0f} {row.rho:9.2f} {row.launching:9.1%}"
        )


if __name__ == "__main__":
    main()
