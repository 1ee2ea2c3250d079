"""Jobs with a changing batch, on Pollux's workloads: mean JCT beside the recorded ones.

160 jobs of six applications in eight hours on 16 nodes of four T4 (at a load of 1.0), eight
workloads per load. How fast a job learns at a placement and a batch, and how its gradient noise
grows by epoch, was measured by Pollux's authors (OSDI 2021, artifact). Every 60 s is decided, a
change of workers costs 30 s, as in their simulator; with --react whenever something happens.

--knowledge: what the policy and the jobs know of step times: all (known), what jobs of the same
application measured (type), or what the job itself did (job, as under Pollux).

--types three: 64 workers of three types instead, the compute times of two of them made up (T4's by
1.6 and by 4), with every policy for jobs at the workers that their users chose beside it.

    python benchmarks/pollux.py [--loads 1.0] [--workloads 1,2] [--policy goodput] [--json]
    python benchmarks/pollux.py --types three [--workloads 1] [--json]

Reads the shared data folder (see benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from pollux_data import NODES, PER_NODE, Application, application, jobs_of, place_of, rows

from planner.learning.batches import BatchKnowledge
from planner.learning.goodput import StepTime, fit_throughput
from policies.registry import make_policy, policy_names
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import ConfigurationTable, Profile
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from simulator.many.policy_items import parse_policies
from simulator.request import SimulationRequest
from simulator.run import simulate
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overhead, Overheads
from traces.trace import Trace, TraceJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.base import Policy
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.facts import events as ev

RESTART_S = 30.0
INTERVAL_S = 60.0


class Known:
    """The jobs of a workload, of which everything is known."""

    refresh_s = INTERVAL_S

    def __init__(self, applications: Sequence[Application]) -> None:
        """Prepare (N,) jobs."""
        self._applications = applications
        self._told = [0] * len(applications)

    def rate(self, job: int, workers: tuple[int, ...], steps: float) -> tuple[float, float]:
        """Return steps/s from a step on, and until which step."""
        mine = self._applications[job]
        epoch = mine.epoch_at(steps)
        return mine.best(place_of(workers), epoch), float(mine.ends[epoch])

    def table(self) -> ConfigurationTable:
        """Return the knowledge of all jobs."""
        each = zip(self._applications, self._told, strict=True)
        return ConfigurationTable.build(("t4",), tuple(one.known(epoch) for one, epoch in each))

    def known(
        self, running: Sequence[tuple[int, tuple[int, ...]]], steps: FloatArray
    ) -> ConfigurationTable | None:
        """Return the present knowledge."""
        changed = False
        for job, _ in running:
            epoch = self._applications[job].epoch_at(steps[job])
            changed |= epoch != self._told[job]
            self._told[job] = epoch
        return self.table() if changed else None


class Learned:
    """The jobs of a workload, with their measurements."""

    refresh_s = INTERVAL_S

    def __init__(self, applications: Sequence[Application], *, alone: bool) -> None:
        """Prepare (N,) jobs.

        Args:
            applications: of the jobs.
            alone: whether each job learns by itself, and not from others of its application.
        """
        self._applications = applications
        self._key = [f"{one.name}-{i}" if alone else one.name for i, one in enumerate(applications)]
        self._knowledge = BatchKnowledge()
        #: job -> its workers, its batch per worker and pass, and its passes before the last.
        self._runs: dict[int, tuple[tuple[int, ...], tuple[int, int]]] = {}
        self._noise = [float(one.limits.initial) for one in applications]
        self._profiles = [one.profile({1: 1.0}) for one in applications]

    def rate(self, job: int, workers: tuple[int, ...], steps: float) -> tuple[float, float]:
        """Return steps/s from a step on, and until which step."""
        mine, place = self._applications[job], place_of(workers)
        if job not in self._runs or self._runs[job][0] != workers:
            self._runs[job] = workers, self._best(job, workers)
        batch, passes = (np.array([float(n)]) for n in self._runs[job][1])
        epoch = mine.epoch_at(steps)
        return float(mine.rates(place, epoch, batch, passes)[0]), float(mine.ends[epoch])

    def _best(self, job: int, workers: tuple[int, ...]) -> tuple[int, int]:
        mine = self._applications[job]
        found = self._knowledge.best(
            self._key[job],
            "t4",
            mine.limits,
            self._noise[job],
            nodes=len(place_of(workers)),
            workers=len(workers),
        )
        assert found is not None
        return found

    def table(self) -> ConfigurationTable:
        """Return the knowledge of all jobs."""
        return ConfigurationTable.build(("t4",), tuple(self._profiles))

    def known(
        self, running: Sequence[tuple[int, tuple[int, ...]]], steps: FloatArray
    ) -> ConfigurationTable | None:
        """Take in new measurements of jobs, and return the present knowledge."""
        news: set[str] = set()
        changed: set[int] = set()
        for job, workers in running:
            news |= self._measure(job, workers)
            noise = self._noise[job]
            (batch, passes), mine = self._runs[job][1], self._applications[job]
            total = len(workers) * batch * (passes + 1.0)
            self._noise[job] = mine.noise(mine.epoch_at(steps[job]), total)
            if noise != self._noise[job]:
                changed.add(job)
        changed |= {job for job, key in enumerate(self._key) if key in news}
        for job in changed:
            self._profiles[job] = self._profile(job)
        for job, workers in running:
            self._runs[job] = workers, self._best(job, workers)
        return self.table() if changed else None

    def _measure(self, job: int, workers: tuple[int, ...]) -> set[str]:
        """Make a job report its step times; return its key if they are news."""
        place, (batch, _) = place_of(workers), self._runs[job][1]
        at, one = np.array([float(batch)]), self._applications[job]
        last_s = float(one.step_s(place, at, np.zeros(1))[0])
        both_s = float(one.step_s(place, at, np.ones(1))[0])
        measured = StepTime(
            nodes=len(place),
            workers=len(workers),
            batch_per_worker=batch,
            pass_s=both_s - last_s,
            last_pass_s=last_s,
        )
        key = self._key[job]
        return {key} if self._knowledge.observe(key, "t4", measured) else set()

    def _profile(self, job: int) -> Profile:
        mine = self._applications[job]
        rates = self._knowledge.rates(
            self._key[job],
            "t4",
            mine.limits,
            self._noise[job],
            mine.counts,
            workers_per_node=PER_NODE,
        )
        return mine.profile(rates or {1: 1.0})


class Intervals(Simulation):
    """A run in which nothing is decided between the ends of intervals, as in the artifact."""

    def __init__(self, **given: Any) -> None:
        """Compose a run."""
        super().__init__(**given)
        #: position of a job -> when it had done its last step.
        self.ended_s: dict[int, float] = {}

    def _next_moment(self) -> float:
        at_s = super()._next_moment()
        turn_s = self._workers.next_turn_s
        return min(turn_s, math.ceil(at_s / INTERVAL_S - 1e-9) * INTERVAL_S)

    def _due(self, now: float) -> list[ev.Event]:
        if now % INTERVAL_S:
            self._workers.turn(now)
            return []
        self.ended_s |= {job: end_s for job, end_s in self._workers.ends() if end_s <= now}
        return super()._due(now)


def replay(
    load: str, workload: int, policy: str, knowledge: str, *, react: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Replay one workload; returns the seconds that each job took, and figures of the run."""
    mine = jobs_of(load, workload)
    applications = [application(row["application"]) for row in mine]
    arrival_s = [float(row["arrival_s"]) for row in mine]
    if not react:  # a job is seen at the first decision after its arrival
        arrival_s = [math.ceil(at / INTERVAL_S) * INTERVAL_S for at in arrival_s]
    jobs = [
        TraceJob(
            job_id=row["job"],
            job_type=row["application"],
            total_steps=float(one.ends[-1]),
            arrival_s=at,
            scale_factors=one.counts,
        )
        for row, one, at in zip(mine, applications, arrival_s, strict=True)
    ]
    learning = (
        Known(applications)
        if knowledge == "known"
        else Learned(applications, alone=knowledge == "job")
    )
    simulation = (Simulation if react else Intervals)(
        cluster=Cluster(
            worker_types=(WorkerType(name="t4"),),
            nodes=tuple(Node(name=f"node-{i}", workers=("t4",) * PER_NODE) for i in range(NODES)),
        ),
        jobs=jobs,
        profiles=list(range(len(jobs))),
        table=learning.table(),
        policy=policy_of(policy),
        settings=EngineSettings(round_length_s=INTERVAL_S),
        overheads=Overheads(default=Overhead(launch_s=RESTART_S)),
        failures=FailureModel(),
        learning=learning,
    )
    result = simulation.run()
    ended_s = {job.job_id: job.end_s for job in result.jobs}
    if isinstance(simulation, Intervals):
        ended_s |= {jobs[i].job_id: at for i, at in simulation.ended_s.items()}
    jct_s = {row["job"]: ended_s[row["job"]] - float(row["arrival_s"]) for row in mine}
    starts = sum(job.attempts for job in result.jobs)
    return jct_s, {"starts": starts, "cpu_s": result.summary.cpu_s}


def policy_of(text: str) -> Policy:
    """Return a policy, written as on the command line."""
    item = parse_policies([text])[0]
    return make_policy(item.name, item.params)


def beside_the_record(given: argparse.Namespace) -> None:
    """Print a row for each workload and each load."""
    recorded = {(r["load"], r["workload"], r["job"]): r for r in rows("job_results")}
    for load in given.loads.split(","):
        ours_s: list[float] = []
        theirs_s: list[float] = []
        for workload in map(int, given.workloads.split(",")):
            jct_s, figures = replay(
                load, workload, given.policy, given.knowledge, react=given.react
            )
            record = [float(recorded[load, str(workload), job]["pollux_jct_s"]) for job in jct_s]
            show(f"{load} {workload}", list(jct_s.values()), record, figures, given)
            ours_s += jct_s.values()
            theirs_s += record
        show(f"{load} all", ours_s, theirs_s, {}, given)


def show(
    name: str,
    ours_s: Sequence[float],
    theirs_s: Sequence[float],
    figures: Mapping[str, float],
    given: argparse.Namespace,
) -> None:
    """Print a row: ours beside the record."""
    ratio = np.array(ours_s) / np.array(theirs_s)
    row = {
        "workload": name,
        "policy": given.policy,
        "knowledge": given.knowledge,
        "mean_jct_s": float(np.mean(ours_s)),
        "pollux_s": float(np.mean(theirs_s)),
        "ratio_of_jobs": np.quantile(ratio, (0.1, 0.5, 0.9)).round(3).tolist(),
        **figures,
    }
    if given.json:
        print(json.dumps(row), flush=True)
        return
    low, median, high = row["ratio_of_jobs"]
    print(
        f"{name:8} {row['mean_jct_s']:8.0f} s, Pollux {row['pollux_s']:8.0f} s "
        f"({row['mean_jct_s'] / row['pollux_s']:.3f}); job by job {median:.2f} "
        f"({low:.2f} to {high:.2f})",
        flush=True,
    )


SPEEDS = {"t4": 1.0, "rtx2080ti": 1.6, "a100": 4.0}
THREE_TYPES = Cluster(
    worker_types=tuple(WorkerType(name=name) for name in SPEEDS),
    nodes=tuple(
        Node(name=f"{name}-{i}", workers=(name,) * size)
        for name, nodes, size in (("t4", 6, 4), ("rtx2080ti", 3, 8), ("a100", 2, 8))
        for i in range(nodes)
    ),
)
#: Workers of the largest type: no job can have more of one.
LARGEST = 24


@cache
def entry(name: str, most: int | None = None) -> dict[str, Any]:
    """Return a batch file's entry of an application.

    Args:
        name: of the application.
        most: samples per step that its user allows; None for the most that it can take.
    """
    one = application(name)
    model = fit_throughput(one.step_times())
    batches = [batch for batch in one.batches if batch <= (most or math.inf)] or [1.0]
    noise = [
        float(np.exp(np.mean(np.log(np.clip([one.noise(epoch, b) for b in batches], 1.0, 1e9)))))
        for epoch in range(len(one.ends))
    ]
    begins = [0.0, *one.ends[:-1].tolist()]
    return {
        "batch": asdict(replace(one.limits, most=max(most or one.limits.most, one.limits.initial))),
        "noise": dict(zip(begins, noise, strict=True)),
        "seconds": {
            kind: asdict(replace(model, alpha_c=model.alpha_c / speed, beta_c=model.beta_c / speed))
            for kind, speed in SPEEDS.items()
        },
    }


def of_three_types(load: str, workload: int, policy: str, *, elastic: bool) -> dict[str, Any]:
    """Replay one workload on three worker types."""
    mine = jobs_of(load, workload)
    kinds = {
        row["job"]: (row["application"], None if elastic else int(row["batch_size_samples"]))
        for row in mine
    }
    names = {job: name if most is None else f"{name} {most}" for job, (name, most) in kinds.items()}
    jobs = []
    for row in mine:
        one = application(row["application"])
        counts = one.counts if elastic else (min(int(row["gpus"]), LARGEST),)
        jobs.append(
            TraceJob(
                job_id=row["job"],
                job_type=names[row["job"]],
                total_steps=float(one.ends[-1]),
                arrival_s=float(row["arrival_s"]),
                scale_factors=counts,
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        batches, overheads = Path(folder) / "batches.yaml", Path(folder) / "overheads.yaml"
        entries = {names[job]: entry(*kind) for job, kind in kinds.items()}
        batches.write_text(yaml.safe_dump(entries))
        overheads.write_text(yaml.safe_dump({"default": {"launch_s": RESTART_S}}))
        result = simulate(
            SimulationRequest(
                trace=Trace(jobs=tuple(jobs)),
                throughputs=ThroughputTable(isolated={}),
                cluster=THREE_TYPES,
                policy=policy_of(policy),
                round_length_s=INTERVAL_S,
                overheads=str(overheads),
                batches=str(batches),
            )
        )
    return {
        "workload": f"{load} {workload}",
        "policy": policy,
        "workers": "chosen by the policy" if elastic else "as their users say",
        "mean_jct_s": result.summary.average_jct_s,
        "jobs": len(jobs),
        "completed": sum(job.end_s is not None for job in result.jobs),
        "starts": sum(job.attempts for job in result.jobs),
        "cpu_s": result.summary.cpu_s,
    }


def on_three_types(given: argparse.Namespace) -> None:
    """Print a row for each policy and workload."""
    runs = [(given.policy, True), *((name, False) for name in policy_names())]
    for load in given.loads.split(","):
        for workload in map(int, given.workloads.split(",")):
            for policy, elastic in runs:
                row = of_three_types(load, workload, policy, elastic=elastic)
                if given.json:
                    print(json.dumps(row), flush=True)
                    continue
                print(
                    f"{row['workload']:6} {policy:24} {row['workers']:20} "
                    f"{row['mean_jct_s']:8.0f} s, {row['completed']} of {row['jobs']} jobs, "
                    f"{row['starts']} starts, {row['cpu_s']:.0f} s of CPU",
                    flush=True,
                )


def main() -> None:
    """Print a row per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", default="1.0", help="of 0.5, 1.0, 1.5 and 2.0")
    parser.add_argument("--workloads", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--policy", default="goodput")
    parser.add_argument("--knowledge", default="known", choices=("known", "type", "job"))
    parser.add_argument("--react", action="store_true", help="decide whenever something happens")
    parser.add_argument("--types", default="one", choices=("one", "three"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.types == "one":
        beside_the_record(given)
    else:
        on_three_types(given)


if __name__ == "__main__":
    main()
