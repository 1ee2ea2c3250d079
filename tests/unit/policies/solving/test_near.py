"""Whole answers of many gangs, against another branch and bound."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from policies.answering import small_problem
from policies.built_in.goodput import Goodput
from policies.built_in.least_remaining_work import LeastRemainingWork
from policies.kernels.near import near_prices
from policies.solving import integral
from policies.solving.classes import ClassProblem
from policies.testing import make_problem
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile


def gangs(
    seed: int,
    jobs: int,
    types: int = 3,
    *,
    alike: bool = False,
    sizes: tuple[int, ...] = (1, 2, 4, 8),
    further: int = 0,
    part: float = 0.0,
) -> ClassProblem:
    """Gangs, each on any of the types, in clusters with little or much room.

    Args:
        seed: of all draws.
        jobs: how many.
        types: how many.
        alike: whether there are few kinds of gangs.
        sizes: of gangs.
        further: workers of the next type that a gang holds as well.
        part: of a worker that is left of each type, as by the limit of a quota.
    """
    rng = np.random.default_rng(seed)
    room = int(rng.integers(1, 4))
    names = tuple(f"type-{k}" for k in range(types))
    profiles = []
    for u in range(6 if alike else jobs):
        count = int(rng.choice(sizes))
        profiles.append(
            Profile(
                job_type=f"profile-{u}",
                scale_factor=count,
                configurations=tuple(
                    Configuration(
                        demand=tuple(
                            count * (k == t) + further * (k == (t + 1) % types)
                            for k in range(types)
                        ),
                        throughput=float(rng.uniform(0.5, 2.0)) * count,
                    )
                    for t in range(types)
                ),
            )
        )
    of = rng.integers(len(profiles), size=jobs) if alike else np.arange(jobs)
    table = ConfigurationTable.build(names, tuple(profiles))
    problem = make_problem(
        table,
        profile=of,
        capacity=[part + float(rng.integers(room * jobs // 2, room * jobs)) for _ in range(types)],
    )
    return ClassProblem.build(problem, (problem.job_number.astype(float),))


def best_by_milp(classes: ClassProblem, worth: np.ndarray) -> float:
    m, j, k = classes.demand.shape
    one = np.kron(np.eye(m), np.ones(j))
    held = classes.demand.reshape(m * j, k).T
    found = milp(
        -np.where(classes.usable, worth, 0.0).ravel(),
        constraints=LinearConstraint(
            np.concatenate((one, held)), ub=np.concatenate((np.ones(m), classes.capacity))
        ),
        bounds=Bounds(0, 1),
        integrality=np.ones(m * j),
        options={"mip_rel_gap": 1e-9},
    )
    return -found.fun


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    jobs=st.integers(2, 40),
    alike=st.booleans(),
    further=st.integers(0, 2),
    part=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_no_whole_answer_is_worth_more(seed, jobs, alike, further, part) -> None:
    classes = gangs(seed, jobs, alike=alike, further=further, part=part)
    worth = classes.throughput
    answer = integral.solve_whole(classes, worth)
    best = best_by_milp(classes, worth)
    assert answer.solver != "highs"
    assert answer.value >= best * (1 - 1e-4)
    assert answer.value <= best * (1 + 1e-9)
    assert answer.bound >= best * (1 - 1e-9)
    assert (classes.usage(answer.x, answer.pair_x) <= classes.capacity).all()
    assert (answer.x.sum(axis=1) <= 1).all()
    assert answer.value == pytest.approx(float((answer.x * worth).sum()))


def test_a_search_that_grows_large_is_left_to_branch_and_bound(monkeypatch) -> None:
    monkeypatch.setattr(integral, "MOST_NEAR", 1)
    solvers = set()
    for seed in range(10):
        classes = gangs(seed, 30)
        answer = integral.solve_whole(classes, classes.throughput)
        best = best_by_milp(classes, classes.throughput)
        assert answer.value == pytest.approx(best, rel=1.01e-4)
        solvers.add(answer.solver)
    assert "highs" in solvers


def test_a_search_among_many_equal_gangs_ends_soon() -> None:
    """Gangs of 3 to 11 leave many gaps of equal price. Without a limit this took 11 s."""
    classes = gangs(1, 300, 4, alike=True, sizes=(3, 5, 7, 11))
    integral.solve_whole(classes, classes.throughput)
    begin = time.process_time()
    integral.solve_whole(classes, classes.throughput)
    assert time.process_time() - begin < 5.0


def test_the_search_is_compiled_before_the_first_question(monkeypatch) -> None:
    solvers = []
    solve = integral.solve_whole
    for module in ("goodput", "least_remaining_work"):
        monkeypatch.setattr(
            f"policies.built_in.{module}.solve_whole",
            lambda *a: solvers.append(solve(*a)) or solvers[-1],
        )
    for policy in (Goodput(), LeastRemainingWork()):
        policy.allocate(small_problem())
    assert "near" in {answer.solver for answer in solvers}


def test_no_more_is_proven_than_the_moves_that_were_looked_at() -> None:
    """A move beyond the limit may take the worker that is free and so make a cheaper answer."""
    free, prices = np.array([0.0, 1.0]), np.array([0.5, 0.8])
    first, change = np.array([0, 1]), np.array([[-2.0, 0.0]])
    moves, cost, reached = near_prices(free, prices, first, change, np.array([0.01]), 0.1, 1e-6, 99)
    assert not len(moves)
    assert cost == pytest.approx(0.8)
    assert reached <= 0.1
