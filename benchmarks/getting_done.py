"""Programs that save nothing beside others that do: completion times, and the cost for others.

If a job has lost its work, it keeps its workers for a multiple of the loss; several multiples are
compared, ours is eight. Shares are those of max-min fairness.

    python benchmarks/getting_done.py [--json] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.oracle import build_table
from policies.registry import make_policy
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

#: Name -> multiple of the loss for which a job keeps its workers.
RULES = {
    "never": 0.0,
    "as long as it lost": 1.0,
    "twice": 2.0,
    "four times": 4.0,
    "eight times": 8.0,
    "sixteen times": 16.0,
}
#: Longest wait for a run that does not end.
LONGEST = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one rule does to one case.

    Attributes:
        case: which.
        rule: which.
        done: how many of the jobs that save nothing were completed.
        took: until the last job was completed or the run was given up, over the time that all take
            together where nothing is lost.
        attempts: of a job that saves nothing, the mean and the most.
        most_attempts: as above.
        lost: part of all worker-seconds under which nothing was kept.
        behind: rounds by which a job that saves its work was behind its share, at most.
        slower: mean completion time of those jobs, over that in a run where all save their work.
    """

    case: str
    rule: str
    done: str
    took: float
    attempts: float
    most_attempts: int
    lost: float
    behind: float
    slower: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Jobs on one worker type."""

    name: str
    workers: int
    round_length_s: float
    jobs: tuple[Job, ...]

    @property
    def needs_s(self) -> float:
        """How long all jobs take together where nothing is lost."""
        return sum(job.total_steps for job in self.jobs) / self.workers


def cases(seeds: int) -> list[Case]:
    """Return the three scripts, and mixes at random."""
    three = tuple(
        Job(job_id=name, job_type="any", total_steps=40.0, checkpoints=False) for name in "abc"
    )
    found = [Case(name="three scripts of 40 s", workers=1, round_length_s=10.0, jobs=three)]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        hours = np.round(rng.lognormal(0.7, 0.8, 32), 2)
        mixed = tuple(
            Job(
                job_id=f"job-{n}",
                job_type="any",
                total_steps=float(3600.0 * length),
                arrival_s=float(n // 8 * 1800),
                checkpoints=n % 2 == 0,
            )
            for n, length in enumerate(hours)
        )
        found.append(Case(name=f"mix {seed}", workers=8, round_length_s=360.0, jobs=mixed))
    return found


class Watched(Simulation):
    """A run that notes how far behind jobs fall that save their work."""

    behind_s = 0.0

    def step(self) -> None:
        """Jump to the next moment, and look at the credits."""
        super().step()
        jobs = self._engine.jobs
        saves = jobs["saves"] != 0
        self.behind_s = max(self.behind_s, float(jobs.credit_s[saves].max(initial=0.0)))


def run(case: Case, rule: float, *, saved: bool) -> tuple[SimulationResult, float]:
    """Return the run under a rule, and the largest lag of a job that saves its work, in rounds.

    Args:
        case: the jobs to run.
        rule: one of ``RULES``.
        saved: whether all jobs save their work.
    """
    preemption_protection.TIMES_LOST = rule  # type: ignore[misc]  # the comparison needs it
    cluster = parse_cluster_spec(f"any:{case.workers}", workers_per_node=8)
    table = ThroughputTable(isolated={("any", 1): {"any": 1.0}})
    simulation = Watched(
        cluster=cluster,
        jobs=[replace(job, checkpoints=saved or job.checkpoints) for job in case.jobs],
        profiles=[0] * len(case.jobs),
        table=build_table(cluster, table, [CatalogueKey(job_type="any", scale_factors=(1,))]),
        policy=make_policy("max_min_fairness", {}),
        settings=EngineSettings(round_length_s=case.round_length_s),
        overheads=Overheads(default=Overhead(launch_s=0.02 * case.round_length_s)),
        failures=FailureModel(),
        record=True,
    )
    result = simulation.run(until_s=LONGEST * case.needs_s)
    return result, simulation.behind_s / case.round_length_s


def measured(case: Case) -> list[Row]:
    """Return what each rule does."""
    base = _completion_s(run(case, RULES["never"], saved=True)[0], case)
    plain = {job.job_id for job in case.jobs if not job.checkpoints}
    rows = []
    for name, rule in RULES.items():
        result, behind = run(case, rule, saved=False)
        found = [one for one in result.jobs if one.job_id in plain]
        ran = [(span, span.end_s - span.start_s) for span in result.leases]
        lost_s = sum(s for span, s in ran if span.job_id in plain and span.reason != "completed")
        rows.append(
            Row(
                case=case.name,
                rule=name,
                done=f"{sum(one.end_s is not None for one in found)}/{len(found)}",
                took=result.summary.makespan_s / case.needs_s,
                attempts=float(np.mean([one.attempts for one in found])),
                most_attempts=max(one.attempts for one in found),
                lost=lost_s / sum(s for _, s in ran),
                behind=behind,
                slower=_completion_s(result, case) / base if base else float("nan"),
            )
        )
    return rows


def _completion_s(result: SimulationResult, case: Case) -> float:
    """Return the mean completion time of the jobs that save their work in every run; 0 if none."""
    saving = {job.job_id for job in case.jobs if job.checkpoints}
    ended = [one.end_s - one.arrival_s for one in result.jobs if one.job_id in saving if one.end_s]
    return float(np.mean(ended)) if ended else 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seeds", type=int, default=5, help="how many mixes")
    chosen = parser.parse_args(arguments)
    rows = [row for case in cases(chosen.seeds) for row in measured(case)]
    if chosen.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'case':24} {'rule':24} {'done':>6} {'took':>6} {'attempts':>14} {'lost':>6} ", end="")
    print(f"{'behind':>7} {'slower':>7}")
    for row in rows:
        attempts = f"{row.attempts:.1f} ({row.most_attempts})"
        print(
            f"{row.case:24} {row.rule:24} {row.done:>6} {row.took:6.2f} {attempts:>14} "
            f"{row.lost:6.1%} {row.behind:7.1f} {row.slower:7.2f}"
        )


if __name__ == "__main__":
    main()
