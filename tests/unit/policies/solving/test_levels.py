"""Water filling against level-by-level linear programs and hand computations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from policies.solving import discipline
from policies.solving.classes import ClassProblem
from policies.solving.max_min import hierarchical_fill, water_fill
from policies.testing import make_problem, make_table


def fill_job_by_job(problem, coefficient):
    """Freeze at each level the jobs that, alone, could not be raised with the others held."""
    n, j = problem.throughput.shape
    gain = coefficient[:, None] * problem.throughput
    rows = [np.kron(np.eye(n), np.ones(j)), problem.demand.reshape(n * j, -1).T]
    right = np.concatenate([np.ones(n), problem.capacity])
    able = problem.throughput.max(axis=1) > 0
    level, active = np.zeros(n), able.copy()

    def solve(raised, floors):
        value = np.kron(np.eye(n), np.ones(j)) * gain.ravel()
        need = np.hstack([-value, raised[:, None].astype(float)])[able]
        limits = np.hstack([np.vstack(rows), np.zeros((len(right), 1))])
        answer = linprog(
            np.append(np.zeros(n * j), -1.0),
            A_ub=np.vstack([need, limits]),
            b_ub=np.concatenate([-floors[able], right]),
            bounds=[(0, None if rate > 0 else 0) for rate in gain.ravel()] + [(None, None)],
        )
        return -answer.fun

    while active.any():
        z = solve(active, np.where(active, 0.0, level))
        held = np.where(active, z, level) * (1 - 1e-9)
        for m in np.flatnonzero(active):
            alone = np.arange(n) == m
            if solve(alone, np.where(alone, 0.0, held)) <= z * (1 + 1e-6):
                active[m], level[m] = False, z
    return level


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pairs", [False, True])
def test_every_level_is_as_high_as_it_can_be(seed, pairs, random_problem):
    problem = random_problem(seed, jobs=8, profiles=8, load=0.7 + 0.2 * seed, dead=0.0, pairs=pairs)
    even = problem.throughput.mean(axis=1)
    classes = ClassProblem.build(problem)
    answer = water_fill(classes, classes.of_jobs(1 / even))
    allocation = classes.expand(answer.x, answer.pair_x)
    reached = np.sort(allocation.effective_throughput(problem) / even)
    expected = np.sort(fill_job_by_job(problem, 1 / even))
    if pairs:  # sharing can only lift the first level that differs
        differs = np.flatnonzero(np.abs(reached - expected) > 1e-5 * expected)
        assert not len(differs) or reached[differs[0]] > expected[differs[0]]
    else:
        # what earlier levels give up to rounding (1e-7) can lift a later one by more
        assert reached == pytest.approx(expected, rel=1e-5)
    assert answer.value == pytest.approx(reached[0], rel=1e-6)


def test_weights_set_the_rates():
    classes = ClassProblem.build(
        make_problem(make_table([[1.0]]), capacity=[1], profile=[0, 0], weight=[1, 3])
    )
    answer = water_fill(classes, np.ones(2), np.array([1.0, 3.0]))
    assert answer.x[:, 0] == pytest.approx([0.25, 0.75], rel=1e-6)


def entities(policies, jobs, capacity, entity, weights):
    problem = make_problem(make_table([[1.0]]), capacity=[capacity], profile=[0] * jobs)
    classes = ClassProblem.build(problem, (np.arange(float(jobs)),))
    return hierarchical_fill(
        classes,
        np.ones(jobs),
        entity=np.array(entity),
        entity_weight=np.array(weights),
        entity_policy=policies,
        order=np.arange(float(jobs)),
    ).x[:, 0]


def test_entities_share_by_weight_and_their_jobs_evenly():
    # One worker; entity 0 of weight 1 has two jobs, entity 1 of weight 3 has one.
    x = entities(["fairness", "fairness"], 3, 1, [0, 0, 1], [1.0, 3.0])
    assert x == pytest.approx([0.125, 0.125, 0.75], rel=1e-6)


def test_what_a_saturated_entity_cannot_use_goes_to_the_others():
    # Three workers: entity 1's only job saturates at 1, entity 0's four jobs split the other two.
    x = entities(["fairness", "fairness"], 5, 3, [0, 0, 0, 0, 1], [1.0, 3.0])
    assert x == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.0], rel=1e-6)


def test_a_fifo_entity_serves_its_first_job_until_that_is_saturated():
    # Two workers; entity 0 in order of arrival, entity 1 evenly, equal weights: one worker each.
    x = entities(["fifo", "fairness"], 5, 2, [0, 0, 0, 1, 1], [1.0, 1.0])
    assert x == pytest.approx([1.0, 0.0, 0.0, 0.5, 0.5], abs=1e-5)


def test_a_fifo_entity_goes_on_with_its_next_job():
    x = entities(["fifo"], 4, 2.5, [0] * 4, [1.0])
    assert x == pytest.approx([1.0, 1.0, 0.5, 0.0], abs=1e-5)


def test_nothing_to_fill():
    classes = ClassProblem.build(make_problem(make_table([[1.0]], scale_factor=[3]), capacity=[1]))
    answer = water_fill(classes, np.ones(1))
    assert answer.solver == "none"
    assert answer.warnings


@pytest.mark.parametrize("pairs", [False, True])
def test_behind_a_full_cluster_nobody_in_a_queue_costs_a_level(pairs):
    shared = {(0, 0, 0): (0.6, 0.6)} if pairs else None
    problem = make_problem(make_table([[1.0]], shared=shared), capacity=[1], profile=[0] * 30)
    classes = ClassProblem.build(problem, (np.arange(30.0),))
    answer = hierarchical_fill(
        classes,
        np.ones(30),
        entity=np.zeros(30, dtype=int),
        entity_weight=np.ones(1),
        entity_policy=["fifo"],
        order=np.arange(30.0),
    )
    assert classes.effective_throughput(answer.x, answer.pair_x)[0] == pytest.approx(1.0, abs=1e-5)


def test_highs_fills_the_levels_that_the_kernel_gives_up_on(monkeypatch, random_problem):
    problem = random_problem(4, jobs=8, profiles=8, load=0.7, dead=0.0)
    classes = ClassProblem.build(problem)
    coefficient = classes.of_jobs(1 / problem.throughput.mean(axis=1))
    before = water_fill(classes, coefficient)
    monkeypatch.setattr(discipline, "solve_structured", lambda *_: None)
    after = water_fill(classes, coefficient)
    assert after.solver == "highs"
    for one in (before, after):
        thr = classes.effective_throughput(one.x, one.pair_x)
        reached = (coefficient * thr)[classes.class_of]
        expected = fill_job_by_job(problem, coefficient[classes.class_of])
        assert np.sort(reached) == pytest.approx(np.sort(expected), rel=1e-4)
