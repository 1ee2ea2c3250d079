"""Left-over time beside the level of max-min fairness goes to jobs by their weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.registry import make_policy
from policies.shares import equal_share_throughput
from policies.testing import make_problem, make_table

#: Jobs 2 to 4 fix the level at a third of the worker of type 1; two thirds of type 0 are left over.
APART = [[1.0, 0.0], [0.0, 1.0]]


def apart(weight: float, **figures):
    return make_problem(
        figures.pop("table", make_table(APART)),
        capacity=[1, 1],
        profile=[0, 0, 1, 1, 1],
        weight=[1.0, weight, 1.0, 1.0, 1.0],
        **figures,
    )


@pytest.mark.parametrize("weight", [0.5, 1.0, 1.01, 1.2, 1.5, 3.0, 20.0])
@pytest.mark.parametrize("name", ["max_min_fairness", "water_filling", "finish_time_fairness"])
def test_like_jobs_share_what_is_left_over_by_weight(name, weight) -> None:
    answer = make_policy(name).allocate(apart(weight))
    expected = [1 / (1 + weight), weight / (1 + weight), 1 / 3, 1 / 3, 1 / 3]
    np.testing.assert_allclose(answer.time_fraction(), expected, rtol=1e-6)


def test_tables_with_pairs_share_it_by_weight_too() -> None:
    table = make_table(APART, shared={(1, 1, 1): (0.6, 0.6)})
    answer = make_policy("max_min_fairness").allocate(apart(1.5, table=table))
    np.testing.assert_allclose(answer.x.sum(axis=1)[:2], [0.4, 0.6], rtol=1e-6)


def test_whoever_runs_all_the_time_leaves_the_rest_to_the_others() -> None:
    problem = make_problem(
        make_table(APART),
        capacity=[2, 1],
        profile=[0, 0, 0, 1, 1],
        weight=[1.0, 3.0, 40.0, 40.0, 40.0],
    )
    answer = make_policy("max_min_fairness").allocate(problem)
    np.testing.assert_allclose(answer.time_fraction()[:3], [0.25, 0.75, 1.0], rtol=1e-6)


def test_a_job_whose_weight_asks_for_faster_workers_keeps_them() -> None:
    # One fast worker and two slow ones for three like jobs: the level takes all of the fast one.
    problem = make_problem(
        make_table([[4.0, 1.0]]), capacity=[1, 2], profile=[0] * 3, weight=[1.0, 1.0, 8.0]
    )
    answer = make_policy("max_min_fairness").allocate(problem)
    thr = answer.effective_throughput(problem)
    equal = equal_share_throughput(problem)
    assert (thr / (equal * problem.weight)).min() == pytest.approx(answer.objective, rel=1e-6)
    assert thr.sum() == pytest.approx(6.0)
    assert thr[0] == pytest.approx(thr[1])


def test_the_unit_of_weight_does_not_matter() -> None:
    problem = apart(1.7)
    doubled = replace(problem, weight=2 * problem.weight)
    first, second = (
        make_policy("max_min_fairness").allocate(p).time_fraction() for p in (problem, doubled)
    )
    np.testing.assert_allclose(first, second, rtol=1e-6)
