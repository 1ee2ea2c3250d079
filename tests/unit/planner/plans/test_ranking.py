"""The best plans against plans tried one by one, and against what must follow from the hardware."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plans.calibration import calibrate, uncalibrated
from planner.plans.cost import Rates, step_times
from planner.plans.hardware import read_hardware
from planner.plans.memory import worker_memory
from planner.plans.plan import Plan, Plans, enumerate_plans
from planner.plans.ranking import USABLE, best_plan
from planner.plans.training import Training
from planner.plans.transformer import Transformer, gpt
from scheduler.errors import InputError

MODEL = gpt(layers=24, hidden=2048, heads=16, vocabulary=50257, sequence=1024)
TRAINING = Training(model=MODEL, batch=64)
V100 = read_hardware().find("v100")


def best(hardware=V100, count=8, training=TRAINING):
    return best_plan(training, "v100", hardware, count, calibration=uncalibrated())


@pytest.mark.parametrize("count", [2, 6, 8, 16, 64])
def test_no_plan_that_fits_is_faster(count):
    way = best(count=count)
    plans = enumerate_plans(MODEL, workers=count, batch=64, per_node=8, has_host=True)
    for i in range(len(plans)):
        one = Plans.of([plans[i]])
        assert one.workers == [count]
        memory = worker_memory(TRAINING, one).total[0]
        step_s = step_times(TRAINING, one, V100, Rates()).total_s[0]
        assert memory > USABLE * 16e9 or step_s >= way.step_s
    assert sum(way.parts.values()) == pytest.approx(way.step_s)
    assert sum(way.memory.values()) <= USABLE * 16e9


def test_every_plan_is_enumerated_once_and_divides_what_it_splits():
    plans = enumerate_plans(MODEL, workers=32, batch=64, per_node=8, has_host=True)
    found = [plans[i] for i in range(len(plans))]
    assert len(set(found)) == len(found) > 500
    for plan in found:
        assert plan.tensor <= 8
        assert MODEL.layers % (plan.pipeline * plan.chunks) == 0
        assert 64 % (plan.data * plan.microbatch) == 0


def test_a_model_that_is_too_large_lacks_as_little_as_possible():
    large = gpt(layers=96, hidden=12288, heads=96, vocabulary=51200, sequence=2048)
    training = Training(model=large, batch=64)
    way = best(training=training)
    assert not way.fits
    assert way.step_s == np.inf
    assert "GB too much for the 15.0 GB that may be filled" in way.reason
    plans = enumerate_plans(large, workers=8, batch=64, per_node=8, has_host=True)
    least = worker_memory(training, plans).total.min()
    assert way.lacking == pytest.approx(least - USABLE * 16e9)


def test_a_batch_that_cannot_be_split_has_no_plan():
    way = best(count=7, training=Training(model=MODEL, batch=3))
    assert way.plan is None
    assert way.reason == (
        "24 layers, 16 heads and a batch of 3 cannot be split evenly over 7 workers"
    )


def test_a_tensor_group_stays_within_a_node():
    plans = enumerate_plans(
        gpt(layers=24, hidden=1536, heads=12, vocabulary=50257, sequence=1024),
        workers=24,
        batch=48,
        per_node=8,
    )
    assert set(plans.tensor.tolist()) == {1, 2, 4}


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


def test_the_optimiser_moves_to_the_host_if_nothing_else_fits():
    # By hand: 2 bytes a parameter on the worker, and the gradients of a layer; 14 on the host.
    large = gpt(layers=32, hidden=3072, heads=32, vocabulary=50257, sequence=1024)
    way = best(count=1, training=Training(model=large, batch=8))
    assert way.fits
    assert way.plan.offload
    assert way.memory["weights"] == 2 * large.parameters
    assert way.memory["gradients"] == 2 * large.layer_parameters
    assert way.memory["optimiser"] == 0
    assert way.host_memory == 14 * large.parameters
    assert way.parts["swap_s"] > 0
    no_host = msgspec.structs.replace(V100, host_gb_per_s=0.0)
    assert not best(no_host, 1, Training(model=large, batch=8)).fits


def test_sums_hide_behind_the_backward_pass():
    plans = Plans.of([Plan(data=8, microbatch=8)])
    open_s, half_s, none_s = (
        step_times(TRAINING, plans, V100, Rates(hidden=part)) for part in (0.0, 0.02, 1.0)
    )
    backward_s = open_s.compute_s[0] * 2 / 3  # about: the head is a part of it
    assert open_s.data_s[0] - half_s.data_s[0] == pytest.approx(0.02 * backward_s, rel=0.1)
    assert none_s.data_s[0] == 0


def test_copies_share_the_update_on_the_host():
    # By hand: each worker's share at its own rate, and all of a node at that of the node.
    plans = Plans.of([Plan(offload=True), Plan(data=8, zero=2, offload=True)])
    rates = Rates(step_s=0.0, host_worker=1e9, host_node=4e9)
    alone, eight = step_times(TRAINING, plans, V100, rates).update_s
    updated = TRAINING.updated_bytes * MODEL.parameters / 1e9
    assert alone == pytest.approx(updated * (1 + 1 / 4))
    assert eight == pytest.approx(updated * (1 / 8 + 1 / 4))


def test_a_slower_network_means_fewer_bytes_across_it():
    slow = msgspec.structs.replace(V100, network_gb_per_s=0.1)
    usual, careful = best(count=32), best(slow, count=32)
    assert careful.step_s > usual.step_s
    assert careful.plan != usual.plan
    plans = Plans.of([usual.plan, careful.plan])
    dear, cheap = step_times(TRAINING, plans, slow, Rates()).total_s
    assert cheap < dear


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_memory_of_copies_is_that_of_figure_1_of_zero(zero):
    # Rajbhandari et al., SC'20: 7.5 billion parameters on 64 GPUs.
    shape = {"hidden": 1, "heads": 1, "key_value_heads": 1, "head_size": 1, "feed_forward": 1}
    model = Transformer(
        name="zero", layers=7500, vocabulary=1, sequence=1, layer_extras=10**6 - 6, **shape
    )
    assert model.parameters == pytest.approx(7.5e9)
    plans = Plans.of([Plan(data=64, zero=zero)])
    found = worker_memory(Training(model=model, batch=64), plans, reserve=0)
    assert found.total[0] / 1e9 == pytest.approx((120, 31.4, 16.6, 1.9)[zero], abs=0.05)


def test_the_last_stage_counts_if_it_is_the_fullest():
    # Llama-3-8B in two stages; by hand.
    model = Transformer(
        name="llama",
        layers=32,
        hidden=4096,
        heads=32,
        key_value_heads=8,
        head_size=128,
        feed_forward=14336,
        is_gated=True,
        vocabulary=128256,
        sequence=8192,
        layer_extras=2 * 4096,
        head_extras=4096,
        is_tied=False,
    )
    plans = Plans.of([Plan(pipeline=2, recompute=True)])
    found = worker_memory(Training(model=model, batch=2), plans)
    stage = 16 * 218_112_000 + 128256 * 4096 + 4096
    assert found.weights[0] == 2 * stage
    assert found.optimiser[0] == 12 * stage
    inputs, layer = 16 * 2 * 8192 * 4096, 8192 * (10 * 4096 + 4 * 5120 + 8 * 14336)
    assert found.activations[0] == inputs + layer + 8192 * 128256 * 6


def test_a_layer_of_gpt_keeps_34_bytes_per_token_and_column():
    # Korthikanti et al., MLSys'23, section 4.1.
    assert MODEL.kept_whole + MODEL.kept_split == 34 * MODEL.hidden


def test_full_precision_moves_twice_the_bytes():
    fp32 = Training(model=MODEL, batch=64, precision="fp32")
    plans = Plans.of([Plan(data=8)])
    rates = Rates(hidden=0.0)
    half, full = (step_times(one, plans, V100, rates) for one in (TRAINING, fp32))
    assert full.data_s[0] == 2 * half.data_s[0]
    weights = [worker_memory(one, plans).weights[0] for one in (TRAINING, fp32)]
    assert weights[1] == 2 * weights[0]


def test_no_measurement_and_no_time_are_refused():
    with pytest.raises(InputError, match="no measured steps"):
        calibrate([], V100)
