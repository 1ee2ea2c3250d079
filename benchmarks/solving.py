"""CPU time of solving allocation programs: cold, after one arrival, and against plain cvxpy.

    python benchmarks/solving.py [--sizes 2048,32768] [--repeats 5] [--json FILE]
    python benchmarks/solving.py --data ../shared/data/gavel      space sharing and hierarchical too
    python benchmarks/solving.py --plugin                         a plugin in cvxpy beside a kernel
    python benchmarks/solving.py --chart solving.png              time against N up to 262,144

CPU seconds of this process, the median over the repeats, after compilation. Jobs have distinct
throughput rows on three worker types. "Cold" includes grouping jobs into classes, the solve with
its checks, and spreading the answer over the jobs; "arrival" is the same with one job more (the
solver carries nothing over: it has no need to).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.families import AlphaFair, FinishTime, MaxMin, WeightedSum
from policies.registry import make_policy
from policies.solving.classes import ClassProblem
from policies.solving.family import solve_family
from policies.solving.max_min import hierarchical_fill
from scheduler.domain.configuration import ConfigurationTable
from scheduler.domain.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.base import Policy
    from policies.families import Family

TYPES = ("v100", "p100", "k80")
NAMES = ("max-min", "makespan", "sum", "finish-time", "log")


def problem_of(table: ConfigurationTable, profile: Any, capacity: Any, seed: int = 0) -> Problem:
    """Return jobs of the given profiles with random steps and ages."""
    rng = np.random.default_rng(seed)
    n = len(profile)
    total = rng.uniform(1e4, 1e6, n)
    ones = np.ones(n)
    scale = (table.demand.max(axis=(1, 2)))[profile]
    return Problem(
        now_s=0.0,
        table=table,
        capacity=np.asarray(capacity, dtype=float),
        cost_usd_per_hour=np.ones(len(capacity)),
        job_number=np.arange(n),
        profile=np.asarray(profile),
        scale_factor=scale,
        weight=ones,
        total_steps=total,
        remaining_steps=total * rng.uniform(0.1, 1, n),
        age_s=rng.uniform(0, 1e5, n),
        time_left_s=np.full(n, np.inf),
        attained_worker_s=np.zeros(n),
        entity=np.zeros(n, dtype=np.int64),
        entities=(),
        held=np.full(n, -1),
        restart_s=np.zeros(n),
    )


def distinct_rows(n: int, seed: int = 0) -> Problem:
    """Return n jobs with different throughput rows and gangs, 2 jobs' workers per worker."""
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 2, 4], n, p=[0.7, 0.2, 0.1])
    rates = rng.uniform(0.1, 10, (n, 1)) * np.array([1.0, 0.5, 0.2]) * rng.uniform(0.5, 2, (n, 3))
    table = ConfigurationTable(
        worker_types=TYPES,
        profiles=(),
        throughput=rates,
        demand=np.eye(3, dtype=np.int64)[None] * gang[:, None, None],
        pair_profiles=np.empty((0, 2), dtype=np.int64),
        pair_demand=np.empty((0, 3), dtype=np.int64),
        pair_throughput=np.empty((0, 2)),
    )
    return problem_of(table, np.arange(n), np.full(3, max(4, gang.sum() // 6)), seed)


def family_of(name: str, classes: ClassProblem) -> Family:
    """Return the objective of that name over the classes."""
    problem = classes.problem
    types = classes.demand.argmax(axis=2)
    share = classes.capacity / max(problem.jobs, classes.capacity.sum())
    even = np.maximum((classes.throughput * share[types]).sum(axis=1), 1e-12)
    remaining, age = classes.of_jobs(problem.remaining_steps), classes.of_jobs(problem.age_s)
    gang = classes.of_jobs(problem.scale_factor.astype(float))
    if name == "max-min":
        return MaxMin(coefficient=gang / even)
    if name == "makespan":
        return MaxMin(coefficient=1 / remaining)
    if name == "sum":
        return WeightedSum(coefficient=1 / even)
    if name == "finish-time":
        return FinishTime(age=age, remaining=remaining, isolated_time=age + remaining / even)
    return AlphaFair(weight=np.ones(classes.size), coefficient=1 / even)


def solve(problem: Problem, name: str, *, apart: bool = False) -> str:
    """Group, solve and expand once; return the solver that answered."""
    keys: tuple[Any, ...] = ()
    if apart or name in {"makespan", "finish-time"}:
        keys = (problem.remaining_steps, problem.age_s)
    classes = ClassProblem.build(problem, keys)
    answer = solve_family(family_of(name, classes), classes)
    classes.expand(answer.x, answer.pair_x)
    return answer.solver


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median CPU time of the work, after one call that compiles and warms up."""
    work()
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def one_less(problem: Problem) -> Problem:
    """Return the problem before its last job arrived."""
    fields = ("job_number", "profile", "scale_factor", "weight", "total_steps", "remaining_steps")
    more = ("age_s", "time_left_s", "attained_worker_s", "entity", "held", "restart_s")
    return replace(problem, **{f: getattr(problem, f)[:-1] for f in fields + more})


def measure_families(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    rows = []
    for n in sizes:
        problem = distinct_rows(n)
        before = one_less(problem)
        for name in NAMES:
            cold = cpu_seconds(lambda p=before, f=name: solve(p, f), repeats)
            warm = cpu_seconds(lambda p=problem, f=name: solve(p, f), repeats)
            rows.append({"case": name, "N": n, "cold_s": cold, "arrival_s": warm})
    return rows


def gavel_problem(folder: Path, n: int, workers: int, *, gangs: bool, pairs: bool) -> Problem:
    """Return n jobs of Gavel's 26 types."""
    from planner.oracle import build_table  # noqa: PLC0415 - slow to import, seldom needed
    from scheduler.domain.cluster import parse_cluster_spec  # noqa: PLC0415 - likewise
    from scheduler.domain.throughputs.ways import CatalogueKey  # noqa: PLC0415 - likewise
    from traces.tables.throughputs import read_throughputs  # noqa: PLC0415 - slow to import, seldom needed

    known = read_throughputs(folder / "simulation_throughputs.json")
    keys = [k for k in known.isolated if gangs or k[1] == 1]
    cluster = parse_cluster_spec(",".join(f"{name}:1" for name in TYPES))
    rows = [CatalogueKey(job_type=name, scale_factors=(count,)) for name, count in keys]
    table = build_table(cluster, known, rows, space_sharing=pairs)
    profile = np.random.default_rng(0).integers(0, len(keys), n)
    return problem_of(table, profile, [workers] * 3)


def measure_gavel(folder: Path, repeats: int) -> list[dict[str, Any]]:
    rows = []
    everyday = gavel_problem(folder, 300, 36, gangs=False, pairs=False)
    rows.append(("26 types, everyday", everyday, False, ("max-min", "sum")))
    for n, workers, apart in ((2048, 170, False), (50, 4, True), (1024, 85, True)):
        problem = gavel_problem(folder, n, workers, gangs=False, pairs=True)
        label = "space sharing, " + ("distinct jobs" if apart else "26 types")
        rows.append((label, problem, apart, ("max-min", "sum", "makespan", "finish-time")))
    result: list[dict[str, Any]] = []
    for label, problem, apart, names in rows:
        for name in names:
            if not apart and name in {"makespan", "finish-time"}:
                continue
            cold = cpu_seconds(lambda p=problem, f=name, a=apart: solve(p, f, apart=a), repeats)
            result.append({"case": f"{label}: {name}", "N": problem.jobs, "cold_s": cold})
    problem = gavel_problem(folder, 2048, 340, gangs=True, pairs=False)
    for kinds in (("fairness",) * 6, ("fairness", "fifo") * 3):
        cold = cpu_seconds(lambda k=kinds: hierarchical(problem, k), min(repeats, 3))
        name = "hierarchical, 26 types with gangs: " + "/".join(sorted(set(kinds)))
        result.append({"case": name, "N": 2048, "cold_s": cold})
    return result


def hierarchical(problem: Problem, kinds: tuple[str, ...]) -> None:
    """Fill six entities of weights 1 to 6; FIFO entities order their jobs."""
    entity = np.random.default_rng(1).integers(0, len(kinds), problem.jobs)
    fifo = np.array([k == "fifo" for k in kinds])[entity]
    order = np.where(fifo, problem.job_number, 0).astype(float)
    classes = ClassProblem.build(problem, (entity.astype(float), order))
    even = classes.throughput.mean(axis=1)
    answer = hierarchical_fill(
        classes,
        1 / np.where(even > 0, even, np.inf),
        entity=classes.of_jobs(entity),
        entity_weight=np.arange(1.0, len(kinds) + 1),
        entity_policy=kinds,
        order=classes.of_jobs(order),
    )
    classes.expand(answer.x, answer.pair_x)


def plain_cvxpy(problem: Problem) -> None:
    """State max-min over jobs in vectorised cvxpy and leave the rest to Clarabel."""
    import cvxpy as cp  # noqa: PLC0415 - slow to import, seldom needed

    even = problem.throughput.mean(axis=1)
    x = cp.Variable(problem.throughput.shape, nonneg=True)
    thr = cp.sum(cp.multiply(problem.throughput / even[:, None], x), axis=1)
    rows = [cp.sum(x, axis=1) <= 1]
    used = cp.multiply(problem.scale_factor[:, None], x)
    rows.append(cp.sum(used, axis=0) <= problem.capacity)
    cp.Problem(cp.Maximize(cp.min(thr)), rows).solve(solver=cp.CLARABEL)


def measure_plugin(repeats: int) -> list[dict[str, Any]]:
    """Measure the plugin of examples/, and alpha fairness' kernel."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "custom_policy"))
    from leasehold_total_delay import TotalDelay  # noqa: PLC0415 - its place is known by now

    policies = {
        "total delay, cvxpy": TotalDelay(power=1.0),
        "alpha fairness (alpha = 2), kernel": make_policy("alpha_fairness", {"alpha": "2"}),
    }
    rows = []
    for n in (24, 48, 96, 300):
        problems = [distinct_rows(n - jobs) for jobs in range(repeats)]

        def answer(policy: Policy, problems: list[Problem] = problems) -> None:
            for problem in problems:
                policy.allocate(problem)

        for case, policy in policies.items():
            cold = cpu_seconds(lambda p=policy: answer(p), repeats) / len(problems)
            rows.append({"case": case, "N": n, "cold_s": cold})
    return rows


def chart(path: Path, repeats: int) -> list[dict[str, Any]]:
    """Measure from 32 to 262,144 jobs and draw; plain cvxpy as far as it is bearable."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, seldom needed

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - slow to import, seldom needed

    sizes = [32, 128, 512, 2048, 8192, 32768, 131072, 262144]
    rows = []
    for n in sizes:
        problem = distinct_rows(n)
        few = repeats if n <= 32768 else 1
        for name in NAMES:
            cold = cpu_seconds(lambda p=problem, f=name: solve(p, f), few)
            rows.append({"case": name, "N": n, "cold_s": cold})
        if n <= 32768:
            cold = cpu_seconds(lambda p=problem: plain_cvxpy(p), 1)
            rows.append({"case": "max-min, plain cvxpy", "N": n, "cold_s": cold})
    figure, axes = plt.subplots(figsize=(8, 5))
    for name in dict.fromkeys(row["case"] for row in rows):
        points = [(row["N"], row["cold_s"]) for row in rows if row["case"] == name]
        axes.loglog(*zip(*points, strict=True), "o--" if "plain" in name else "o-", label=name)
    axes.set_xlabel("jobs with distinct throughput rows, three worker types")
    axes.set_ylabel("CPU seconds to solve, checks included")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="2048,32768")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder with simulation_throughputs.json")
    parser.add_argument("--chart", type=Path, help="write a PNG instead of the table")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--plugin", action="store_true", help="measure a plugin in cvxpy instead")
    options = parser.parse_args()
    if options.chart:
        rows = chart(options.chart, options.repeats)
    elif options.plugin:
        rows = measure_plugin(options.repeats)
    else:
        rows = measure_families([int(n) for n in options.sizes.split(",")], options.repeats)
        if options.data:
            rows += measure_gavel(options.data, options.repeats)
    print(f"{'case':58} {'N':>7} {'cold ms':>9} {'arrival ms':>11}")
    for row in rows:
        arrival = f"{row['arrival_s'] * 1e3:11.1f}" if "arrival_s" in row else ""
        print(f"{row['case']:58} {row['N']:7d} {row['cold_s'] * 1e3:9.2f} {arrival}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
