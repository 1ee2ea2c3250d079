"""Values of the domain refuse what cannot be, naming field and value."""

import dataclasses
import math

import numpy as np
import pytest

from policies.testing import make_problem, make_table
from scheduler.domain.allocation import Allocation
from scheduler.domain.codec import decode, encode
from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.facts.commands import RecordEvent
from scheduler.domain.jobs.job import Job
from scheduler.domain.problem import Entity
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("job_id", "", "must not be empty"),
        ("total_steps", 0.0, "must be > 0"),
        ("total_steps", -1.0, "must be > 0"),
        ("total_steps", math.inf, "must be > 0"),
        ("total_steps", math.nan, "must be > 0"),
        ("scale_factor", 0, "must be >= 1"),
        ("arrival_s", -0.5, "must be >= 0"),
        ("arrival_s", math.inf, "must be >= 0"),
        ("weight", 0.0, "must be > 0"),
        ("weight", math.nan, "must be > 0"),
        ("deadline_s", math.nan, "must be a time"),
        ("max_failures", -1, "must be >= 0"),
        ("restart_s", -1.0, "must be >= 0"),
        ("restart_s", math.nan, "must be >= 0"),
    ],
)
def test_a_job_refuses_a_value_that_no_job_can_have(field, value, rule):
    values = {"job_id": "a", "job_type": "t", "total_steps": 1.0} | {field: value}
    with pytest.raises(InputError) as refused:
        Job(**values)
    assert f"'{field}'" in str(refused.value)
    assert repr(value) in str(refused.value)
    assert rule in str(refused.value)


def test_a_job_cannot_be_changed():
    job = Job(job_id="a", job_type="t", total_steps=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.weight = 2.0
    with pytest.raises(TypeError):
        job.restarts["team"] = "x"
    with pytest.raises(TypeError):
        RecordEvent(kind="k", subject="s", at_s=0.0).data["x"] = 1


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_an_entity_refuses_a_weight_that_is_none(weight):
    with pytest.raises(InputError, match=r"entity 'a': weight is .*; it must be > 0"):
        Entity(name="a", weight=weight)


def test_an_entity_refuses_an_inner_policy_that_nobody_knows():
    with pytest.raises(InputError, match="policy is 'lifo'; give one of fairness, fifo"):
        Entity(name="a", policy="lifo")


def _profile(*configurations):
    return Profile(job_type="t", scale_factor=1, configurations=configurations)


def test_a_table_lays_profiles_out_and_fills_up_with_zeros():
    table = ConfigurationTable.build(
        ("a", "b"),
        (
            _profile(Configuration(demand=(1, 0), throughput=2.0)),
            _profile(
                Configuration(demand=(1, 0), throughput=3.0),
                Configuration(demand=(1, 1), throughput=4.0),
            ),
        ),
        (PairConfiguration(profiles=(0, 1), demand=(1, 0), throughput=(1.0, 1.5)),),
    )
    assert table.throughput.tolist() == [[2.0, 0.0], [3.0, 4.0]]
    assert table.demand.tolist() == [[[1, 0], [0, 0]], [[1, 0], [1, 1]]]
    assert table.pair_throughput.tolist() == [[1.0, 1.5]]
    assert table.has_pairs
    with pytest.raises(ValueError, match="read-only"):
        table.throughput[0, 0] = 9.0


def test_a_table_without_profiles_has_no_pairs():
    table = ConfigurationTable.build(("a",), ())
    assert table.throughput.shape == (0, 1)
    assert not table.has_pairs


@pytest.mark.parametrize(
    ("profiles", "pairs", "message"),
    [
        (
            (_profile(Configuration(demand=(1,), throughput=1.0)),),
            (),
            r"profile 't' at scale factor 1: demand is \(1,\); give one count for each worker type",
        ),
        (
            (_profile(Configuration(demand=(1, -1), throughput=1.0)),),
            (),
            r"demand is \(1, -1\); it must be >= 0",
        ),
        (
            (_profile(Configuration(demand=(1, 0), throughput=math.nan)),),
            (),
            "throughput is .*nan.*; it must be a number >= 0",
        ),
        (
            (_profile(), _profile()),
            (PairConfiguration(profiles=(1, 0), demand=(1, 0), throughput=(1.0, 1.0)),),
            r"pair of profiles \(1, 0\): give two of the 2 profiles, the smaller index first",
        ),
        (
            (_profile(),),
            (PairConfiguration(profiles=(0, 1), demand=(1, 0), throughput=(1.0, 1.0)),),
            r"pair of profiles \(0, 1\): give two of the 1 profiles",
        ),
        (
            (_profile(),),
            (PairConfiguration(profiles=(0, 0), demand=(1, 0), throughput=(1.0, -1.0)),),
            r"pair of profiles \(0, 0\): throughput is \(1.0, -1.0\)",
        ),
    ],
)
def test_a_table_refuses_figures_that_make_no_sense(profiles, pairs, message):
    with pytest.raises(InputError, match=message):
        ConfigurationTable.build(("a", "b"), profiles, pairs)


def test_an_allocation_is_summed_over_singles_and_pairs():
    table = make_table(
        [[2.0, 1.0], [4.0, 0.0]], shared={(0, 1, 0): (1.5, 3.0)}, scale_factor=[1, 1]
    )
    problem = make_problem(table, capacity=[1, 1])
    allocation = Allocation(
        x=np.array([[0.25, 0.25], [0.5, 0.0]]),
        pair_jobs=np.array([[0, 1]]),
        pair_index=np.array([0]),
        pair_x=np.array([0.2]),
    )
    assert allocation.effective_throughput(problem) == pytest.approx(
        [0.25 * 2 + 0.25 * 1 + 0.2 * 1.5, 0.5 * 4 + 0.2 * 3]
    )
    assert allocation.time_fraction() == pytest.approx([0.7, 0.7])
    # The pair holds its worker once.
    assert allocation.usage(problem) == pytest.approx([0.25 + 0.5 + 0.2, 0.25])


def test_an_allocation_of_singles_has_no_pairs():
    problem = make_problem(make_table([[2.0], [3.0]]), capacity=[1])
    allocation = Allocation.singles(np.array([[0.5], [0.5]]), objective=3.0, warnings=("w",))
    assert allocation.effective_throughput(problem) == pytest.approx([1.0, 1.5])
    assert allocation.time_fraction() == pytest.approx([0.5, 0.5])
    assert allocation.usage(problem) == pytest.approx([1.0])
    assert len(allocation.pair_x) == 0
    assert problem.jobs == 2


def test_a_throughput_table_answers_zero_for_what_it_does_not_know():
    table = ThroughputTable(isolated={("b", 1): {"v100": 2.0}, ("a", 2): {"k80": 1.0, "p100": 0.0}})
    assert table.worker_types == ("k80", "p100", "v100")
    assert table.job_types == ("a", "b")
    assert table.steps_per_s("b", 1, "v100") == 2.0
    assert table.steps_per_s("b", 1, "k80") == table.steps_per_s("c", 1, "v100") == 0.0


def test_fields_of_an_allocation_keep_their_old_names_for_one_release_with_a_warning():
    x = np.ones((1, 1))
    with pytest.warns(DeprecationWarning, match=r"Allocation\.x_only is now") as at_singles:
        made = Allocation.singles(x, x_only=np.array([True]))
    assert made.no_backfill.tolist() == [True]
    with pytest.warns(DeprecationWarning, match=r"Allocation\.by_lag is now") as at_replace:
        made = dataclasses.replace(made, by_lag=True)
    assert made.follow_exactly
    with pytest.warns(DeprecationWarning, match=r"Allocation\.x_only is now") as at_class:
        Allocation(
            x=x,
            pair_jobs=made.pair_jobs,
            pair_index=made.pair_index,
            pair_x=made.pair_x,
            x_only=None,
        )
    with pytest.warns(DeprecationWarning, match="now called may_use_remaining") as at_attribute:
        assert made.by_lengths
    for found in (at_singles, at_replace, at_class, at_attribute):
        assert [one.filename for one in found] == [__file__]
    with pytest.raises(AttributeError, match="'Allocation' has no field 'by_chance'"):
        made.by_chance  # noqa: B018


def test_renamed_fields_are_stored_under_their_old_names():
    made = Allocation.singles(np.ones((1, 1)), no_backfill=np.array([True]))
    stored = encode(made)
    assert {"x_only", "by_lengths", "by_lag"} <= stored.keys()
    assert not {"no_backfill", "may_use_remaining_work", "follow_exactly"} & stored.keys()
    assert decode(stored).no_backfill.tolist() == [True]
