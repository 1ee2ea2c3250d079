"""The best plans against plans tried one by one, and against what must follow from the hardware."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plans.calibration import calibrate, uncalibrated
from planner.plans.cost import Rates, step_times
from planner.plans.hardware import read_hardware
from planner.plans.memory import worker_memory
from planner.plans.plan import Plans, enumerate_plans
from planner.plans.ranking import USABLE, Training, best_way
from planner.plans.transformer import gpt
from scheduler.errors import InputError

MODEL = gpt(layers=24, hidden=2048, heads=16, vocabulary=50257, sequence=1024)
TRAINING = Training(model=MODEL, batch=64)
V100 = read_hardware().find("v100")


def best(hardware=V100, count=8, training=TRAINING):
    return best_way(training, "v100", hardware, count, uncalibrated())


@pytest.mark.parametrize("count", [2, 6, 8, 16, 64])
def test_no_plan_that_fits_is_faster(count):
    way = best(count=count)
    plans = enumerate_plans(MODEL, workers=count, batch=64, per_node=8)
    for i in range(len(plans)):
        one = Plans.of([plans[i]])
        assert one.workers == [count]
        memory = worker_memory(MODEL, one, batch=64).total[0]
        step_s = step_times(MODEL, one, V100, Rates(), batch=64).total_s[0]
        assert memory > USABLE * 16e9 or step_s >= way.step_s
    assert sum(way.parts.values()) == pytest.approx(way.step_s)
    assert sum(way.memory.values()) <= USABLE * 16e9


def test_every_plan_is_enumerated_once_and_divides_what_it_splits():
    plans = enumerate_plans(MODEL, workers=32, batch=64, per_node=8)
    found = [plans[i] for i in range(len(plans))]
    assert len(set(found)) == len(found) > 500
    for plan in found:
        assert plan.tensor <= 8
        assert MODEL.layers % (plan.pipeline * plan.chunks) == 0
        assert 64 % (plan.data * plan.microbatch) == 0


def test_a_model_that_is_too_large_lacks_as_little_as_possible():
    large = gpt(layers=96, hidden=12288, heads=96, vocabulary=51200, sequence=2048)
    way = best(training=Training(model=large, batch=64))
    assert not way.fits
    assert way.step_s == np.inf
    plans = enumerate_plans(large, workers=8, batch=64, per_node=8)
    least = worker_memory(large, plans, batch=64).total.min()
    assert way.lacking == pytest.approx(least - USABLE * 16e9)


def test_a_batch_that_cannot_be_split_has_no_plan():
    way = best(count=7, training=Training(model=MODEL, batch=3))
    assert way.plan is None
    assert not way.fits


def test_what_memory_costs_is_said():
    way = best(msgspec.structs.replace(V100, memory_gb=8.0))
    assert way.fits
    assert way.unbounded is not None
    assert way.unbounded_step_s < way.step_s
    assert way.unbounded_lacking > 0
    assert best(msgspec.structs.replace(V100, memory_gb=1000.0)).unbounded is None


@given(
    st.sampled_from(["memory_gb", "memory_gb_per_s", "link_gb_per_s", "network_gb_per_s"]),
    st.floats(1.0, 8.0),
    st.sampled_from([1, 2, 8, 16, 32]),
)
def test_better_hardware_is_never_slower(field, factor, count):
    better = msgspec.structs.replace(V100, **{field: getattr(V100, field) * factor})
    assert best(better, count).step_s <= best(V100, count).step_s


def test_a_slower_network_means_fewer_bytes_across_it():
    slow = msgspec.structs.replace(V100, network_gb_per_s=0.1)
    usual, careful = best(count=32), best(slow, count=32)
    assert careful.step_s > usual.step_s
    assert careful.plan != usual.plan
    plans = Plans.of([usual.plan, careful.plan])
    dear, cheap = step_times(MODEL, plans, slow, Rates(), batch=64).total_s
    assert cheap < dear


@given(st.integers(1, 8), st.integers(0, 3), st.booleans())
def test_memory_shrinks_with_each_kind_of_sharing(data, shard, recompute):
    plan = enumerate_plans(MODEL, workers=1, batch=64, per_node=8)[0]
    one = replace(plan, data=data, shard=shard, recompute=recompute)
    more = replace(one, shard=min(shard + 1, 3))
    memory = worker_memory(MODEL, Plans.of([one, more, replace(one, recompute=True)]), batch=64)
    assert memory.total[1] <= memory.total[0]
    assert memory.total[2] <= memory.total[0] * 1.0001 + 2e9


def test_no_measurement_and_no_time_are_refused():
    with pytest.raises(InputError, match="no measured steps"):
        calibrate([], V100)
