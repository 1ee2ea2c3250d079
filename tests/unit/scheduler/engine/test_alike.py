"""What is of equal value: as many workers, the same price, figures that their doubt cannot tell."""

import math

import numpy as np
import pytest

from policies.testing import make_table
from scheduler.domain.configuration import (
    MOST_DOUBT,
    Configuration,
    ConfigurationTable,
    Profile,
    margin,
)
from scheduler.engine.alike import Alike
from scheduler.errors import InputError


def groups(rates, *, doubt=0.0, prices=None):
    table = make_table([rates], doubt=doubt)
    return Alike.of(table, np.array(prices or [0.0] * len(rates))).group[0].tolist()


def test_known_figures_are_equal_only_if_they_are_the_same():
    assert groups([2.0, 1.0, 2.0]) == [0, 1, 0]
    assert groups([2.0, 1.99, 2.0]) == [0, 1, 0]


def test_figures_within_two_deviations_are_equal_up_to_a_tenth():
    assert groups([1.0, 1.05], doubt=0.02) == [0, 0]  # 2 x 0.028 in logarithms
    assert groups([1.0, 1.07], doubt=0.02) == [0, 1]
    assert groups([1.0, 1.2], doubt=1.0) == [0, 1]
    assert margin(1.0, 1.0) == pytest.approx(MOST_DOUBT)


def test_nothing_is_further_from_the_fastest_of_its_group_than_the_doubt():
    assert groups([1.0, 1.09, 1.18], doubt=1.0) == [0, 1, 1]


def test_a_figure_that_says_nothing_is_equal_to_none():
    assert groups([1.0, 1.0], doubt=math.inf) == [0, 1]


def test_a_dearer_type_is_another_value():
    assert groups([1.0, 1.0, 1.0], prices=[1.0, 2.0, 1.0]) == [0, 1, 0]


def test_other_worker_counts_are_another_value():
    ways = [Configuration(demand=d, throughput=1.0) for d in ((1, 0), (0, 2), (0, 1))]
    profile = Profile(job_type="a", scale_factor=1, configurations=tuple(ways))
    table = ConfigurationTable.build(("x", "y"), (profile,))
    alike = Alike.of(table, np.zeros(2))
    assert alike.group.tolist() == [[0, 1, 0]]
    assert alike.shared.tolist() == [True]


def test_ways_that_do_not_run_are_equal_to_none():
    ways = [Configuration(demand=d, throughput=0.0) for d in ((1, 0), (0, 1))]
    profiles = (
        Profile(job_type="a", scale_factor=1, configurations=tuple(ways)),
        Profile(job_type="b", scale_factor=1, configurations=()),
    )
    alike = Alike.of(ConfigurationTable.build(("x", "y"), profiles), np.zeros(2))
    assert alike.group.tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("doubt", [-0.1, math.nan])
def test_a_doubt_that_is_none_is_refused(doubt):
    way = Configuration(demand=(1,), throughput=1.0, doubt=doubt)
    with pytest.raises(InputError, match="doubt is"):
        ConfigurationTable.build(
            ("x",), (Profile(job_type="a", scale_factor=1, configurations=(way,)),)
        )
