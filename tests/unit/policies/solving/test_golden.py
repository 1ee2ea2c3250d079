"""Gavel's own objective values on six small instances."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from planner.oracle import build_table
from policies.families import FinishTime, MaxMin, WeightedSum
from policies.solving.classes import ClassProblem
from policies.solving.family import solve_family
from policies.testing import make_problem
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.throughputs.ways import CatalogueKey
from traces.tables.throughputs import read_throughputs

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def throughputs(shared_data):
    return read_throughputs(shared_data / "gavel" / "simulation_throughputs.json")


def classes_of(golden, throughputs):
    types = tuple(golden["cluster"])
    jobs = golden["jobs"]
    keys = sorted({(j["job_type"], j["scale_factor"]) for j in jobs})
    problem = make_problem(
        build_table(
            parse_cluster_spec(",".join(f"{name}:1" for name in types)),
            throughputs,
            [CatalogueKey(job_type=name, scale_factors=(count,)) for name, count in keys],
        ),
        capacity=[golden["cluster"][t] for t in types],
        profile=[keys.index((j["job_type"], j["scale_factor"])) for j in jobs],
        remaining_steps=[float(j["total_steps"]) for j in jobs],
        age_s=[j["time_since_start"] for j in jobs],
    )
    classes = ClassProblem.build(problem, (problem.remaining_steps, problem.age_s))
    # Gavel lets a gang of 8 have a quarter of 2 workers; to compare, so do we here.
    rates = problem.table.throughput[classes.profile]
    return replace(classes, throughput=rates, usable=rates > 0)


@pytest.mark.parametrize("index", range(6))
def test_objectives_are_at_least_as_good_as_gavels(index, shared_data, throughputs):
    golden = json.loads((shared_data / "gavel" / "golden.json").read_text())[index]
    classes = classes_of(golden, throughputs)
    problem = classes.problem
    rates = np.array(
        [
            [
                throughputs.steps_per_s(j["job_type"], j["scale_factor"], t)
                for t in golden["cluster"]
            ]
            for j in golden["jobs"]
        ]
    )
    workers = np.array(list(golden["cluster"].values()), dtype=float)
    remaining = problem.remaining_steps

    # Gavel normalises the share of least attained service to a full row (W / sum W), and that of
    # finish-time fairness to 1 / n of every type; there the past counts on one side of rho only.
    even = classes.of_jobs((rates * workers).sum(axis=1) / workers.sum())
    gang = classes.of_jobs(problem.scale_factor.astype(float))
    fair = solve_family(MaxMin(coefficient=gang / even), classes)
    assert fair.value >= golden["max_min_fairness_perf_objective"] * (1 - 1e-6)

    total = solve_family(WeightedSum(coefficient=np.ones(classes.size)), classes)
    assert total.value >= golden["max_sum_throughput_objective"] * (1 - 1e-6)

    makespan = solve_family(MaxMin(coefficient=1 / classes.of_jobs(remaining)), classes)
    assert 1 / makespan.value <= golden["min_total_duration_perf_T_s"] * (1 + 1e-6)

    share = workers / problem.jobs
    share = share / max(1.0, share.sum())
    isolated = remaining / (rates * share).sum(axis=1)
    finish = FinishTime(
        age=classes.of_jobs(problem.age_s),
        remaining=classes.of_jobs(remaining),
        isolated_time=classes.of_jobs(isolated),
    )
    rho = solve_family(finish, classes).value
    assert rho == pytest.approx(golden["finish_time_fairness_perf_max_rho"], rel=1e-6)
