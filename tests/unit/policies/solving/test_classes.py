"""Grouping is exact, and a class's time is divided evenly among its jobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kernels.grouping import group_rows
from policies.solving.classes import ClassProblem
from policies.testing import make_problem, make_table


def test_jobs_that_are_alike_share_a_class_in_order_of_their_first_job():
    table = make_table([[1.0, 2.0], [3.0, 4.0]])
    problem = make_problem(table, capacity=[2, 2], profile=[1, 0, 1, 0, 1], weight=[1, 1, 1, 2, 1])
    classes = ClassProblem.build(problem)
    assert classes.class_of.tolist() == [0, 1, 0, 2, 0]
    assert classes.count.tolist() == [3, 1, 1]
    assert classes.representative.tolist() == [0, 1, 3]
    assert classes.profile.tolist() == [1, 0, 0]


def test_keys_tell_jobs_apart():
    problem = make_problem(make_table([[1.0]]), capacity=[3], profile=[0, 0, 0])
    assert ClassProblem.build(problem).size == 1
    assert ClassProblem.build(problem, (np.array([5.0, 5.0, 6.0]),)).class_of.tolist() == [0, 0, 1]
    assert ClassProblem.build(problem, (np.array([0.0, -0.0, 0.0]),)).size == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.5, 1.0, 1e300])), min_size=1))
def test_grouping_agrees_with_a_dictionary(rows):
    problem = make_problem(
        make_table([[1.0], [2.0], [3.0]]), capacity=[1], profile=[r for r, _ in rows]
    )
    classes = ClassProblem.build(problem, (np.array([k for _, k in rows]),))
    seen = {}
    assert classes.class_of.tolist() == [seen.setdefault(row, len(seen)) for row in rows]


def test_unlike_jobs_of_one_place_in_the_table_are_told_apart():
    """A thousand rows that come twice: many fall on a place that another one has taken."""
    values = np.random.default_rng(3).permutation(np.arange(1000.0))
    rows = np.concatenate((values, values[::-1]))
    group, first, count = group_rows(np.stack((rows, rows % 7)).view(np.uint64))
    assert first.tolist() == list(range(1000))
    assert count.tolist() == [2.0] * 1000
    assert group.tolist() == [*range(1000), *range(999, -1, -1)]


def test_what_does_not_fit_or_makes_no_progress_is_not_usable():
    table = make_table([[1.0, 2.0], [0.0, 3.0]], scale_factor=[4, 1])
    classes = ClassProblem.build(make_problem(table, capacity=[4, 2]))
    assert classes.usable.tolist() == [[True, False], [True, False]]
    assert classes.throughput.tolist() == [[1.0, 0.0], [3.0, 0.0]]
    assert classes.runnable.all()


def test_pairs_follow_profiles_and_a_class_pairs_with_itself_only_with_two_jobs():
    table = make_table([[10.0], [10.0]], shared={(0, 0, 0): (6.0, 6.0), (0, 1, 0): (6.0, 7.0)})
    problem = make_problem(table, capacity=[2], profile=[0, 1, 0, 0], weight=[1, 1, 1, 2])
    classes = ClassProblem.build(problem)  # 0: jobs 0 and 2, 1: job 1, 2: job 3
    found = {tuple(pair) for pair in classes.pair_classes.tolist()}
    assert found == {(0, 0), (0, 2), (0, 1), (2, 1)}


def test_pairs_that_are_no_better_than_taking_turns_are_dropped():
    table = make_table([[10.0], [10.0]], shared={(0, 0, 0): (5.0, 5.0), (0, 1, 0): (5.0, 5.1)})
    problem = make_problem(table, capacity=[2], profile=[0, 0, 1])
    assert ClassProblem.build(problem).pair_classes.tolist() == [[0, 1]]


def test_a_pair_whose_order_matters_comes_both_ways():
    table = make_table([[10.0]], shared={(0, 0, 0): (9.0, 3.0)})
    problem = make_problem(table, capacity=[2], profile=[0, 0], weight=[1, 2])
    assert sorted(map(tuple, ClassProblem.build(problem).pair_classes.tolist())) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("jobs", [2, 3, 4, 5, 9])
@pytest.mark.parametrize("rates", [(6.0, 6.0), (9.0, 3.0)])
def test_a_class_paired_with_itself_is_spread_evenly(jobs, rates):
    table = make_table([[10.0]], shared={(0, 0, 0): rates})
    classes = ClassProblem.build(make_problem(table, capacity=[9], profile=[0] * jobs))
    total = np.full(len(classes.pair_index), jobs / 2.0)
    allocation = classes.expand(np.zeros((1, 1)), total)
    assert (allocation.pair_jobs[:, 0] != allocation.pair_jobs[:, 1]).all()
    assert allocation.time_fraction() == pytest.approx(np.ones(jobs))
    assert allocation.effective_throughput(classes.problem) == pytest.approx(sum(rates) / 2)


@pytest.mark.parametrize("seed", range(8))
def test_expansion_keeps_throughput_time_and_usage(seed, random_problem):
    problem = random_problem(seed, jobs=25, pairs=True, gangs=seed % 2 == 0)
    classes = ClassProblem.build(problem)
    rng = np.random.default_rng(seed)
    x, pair_x = classes.repair(
        rng.uniform(0, 1, classes.throughput.shape), rng.uniform(0, 3, len(classes.pair_index))
    )
    allocation = classes.expand(x, pair_x)
    assert allocation.usage(problem) == pytest.approx(classes.usage(x, pair_x))
    assert allocation.time_fraction() == pytest.approx(
        classes.time_fraction(x, pair_x)[classes.class_of]
    )
    assert allocation.effective_throughput(problem) == pytest.approx(
        classes.effective_throughput(x, pair_x)[classes.class_of]
    )
    assert allocation.time_fraction().max() <= 1 + 1e-12
    assert (allocation.usage(problem) <= problem.capacity * (1 + 1e-12)).all()
    most = classes.count[classes.pair_classes].sum(axis=1)
    assert len(allocation.pair_x) <= most.sum()
