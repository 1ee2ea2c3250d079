"""Predicted steps against the tables and figures of PTD-P (Narayanan et al., SC'21)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from leasehold_testing.planning_data import (
    PTDP_CALIBRATING,
    PTDP_POINTS,
    ptdp_flops,
    ptdp_model,
    ptdp_step,
)
from planner.plans.calibration import calibrate, uncalibrated
from planner.plans.hardware import read_hardware
from planner.plans.memory import worker_memory
from planner.plans.plan import Plan, Plans
from planner.plans.training import Training


@pytest.fixture(scope="module")
def hardware():
    return read_hardware().find("a100-80")


@pytest.fixture(scope="module")
def calibration(hardware):
    return calibrate([ptdp_step(PTDP_POINTS[i]) for i in PTDP_CALIBRATING], hardware)


def rate(calibration, hardware, model, plan, batch):
    """Return the TFLOP/s of each GPU."""
    training = Training(model=model, batch=batch, is_fused=False)
    step_s = float(calibration.step_times(training, Plans.of([plan]), hardware).total_s[0])
    return ptdp_flops(model, batch) / step_s / plan.workers / 1e12


@pytest.fixture
def rate_of(calibration, hardware):
    """Return what gives the TFLOP/s of each GPU of a model, a plan and a batch."""
    return partial(rate, calibration, hardware)


@pytest.mark.parametrize("i", [i for i in range(len(PTDP_POINTS)) if i not in PTDP_CALIBRATING])
def test_the_other_points_are_within_five_percent(i, rate_of, hardware):
    step = ptdp_step(PTDP_POINTS[i])
    found = rate_of(step.training.model, step.plan, step.training.batch)
    assert found == pytest.approx(PTDP_POINTS[i][-1], rel=0.05)
    usual = rate(uncalibrated(), hardware, step.training.model, step.plan, step.training.batch)
    assert usual == pytest.approx(PTDP_POINTS[i][-1], rel=0.05)  # fitted on the same six points


def test_the_gain_of_interleaving_shrinks_with_the_batch(rate_of):  # figure 12
    model, gains = ptdp_model(96, 12288, 96), []
    for batch in (12, 24, 36, 48, 60):
        plain, interleaved = (
            rate_of(model, Plan(tensor=8, pipeline=12, chunks=v, recompute=True), batch)
            for v in (1, 4)
        )
        gains.append(interleaved / plain)
    assert gains == sorted(gains, reverse=True)
    assert 1.02 < gains[-1] < gains[0] < 1.56  # the bound by bubbles alone


@pytest.mark.parametrize("batch", [32, 128])
def test_162_billion_parameters_run_best_on_8_by_8(rate_of, batch):  # figure 13
    model = ptdp_model(32, 20480, 128)
    rates = {
        p: rate_of(model, Plan(tensor=64 // p, pipeline=p, recompute=True), batch)
        for p in (2, 4, 8, 16, 32)
    }
    assert max(rates, key=rates.__getitem__) == 8


@pytest.mark.parametrize("batch", [32, 128, 512])
def test_a_small_model_runs_better_with_fewer_stages(rate_of, batch):  # figure 14
    model = ptdp_model(32, 3840, 32)
    rates = [
        rate_of(model, Plan(pipeline=p, data=64 // p, recompute=True), batch)
        for p in (2, 4, 8, 16, 32)
    ]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("batch", [32, 128, 512])
def test_a_tensor_that_leaves_its_node_is_slowest(rate_of, batch):  # figure 15
    model = ptdp_model(32, 3840, 32)
    rates = [
        rate_of(model, Plan(tensor=t, data=64 // t, recompute=True), batch)
        for t in (2, 4, 8, 16, 32)
    ]
    assert rates == sorted(rates, reverse=True)
    losses = -np.diff(rates)
    assert losses.argmax() == 2  # from 8, a node, to 16


@pytest.mark.parametrize("batch", [128, 512])
def test_a_microbatch_wins_if_its_stage_gains_enough(rate_of, batch):  # figure 16, equation 1
    model = ptdp_model(32, 15360, 128)
    plans = {b: Plan(tensor=8, pipeline=8, microbatch=b, recompute=True) for b in (1, 2, 4, 8)}
    # With very many microbatches the rate is that of the stages, without a bubble.
    stage = {b: rate_of(model, plan, 2**20) for b, plan in plans.items()}
    expected = {b: stage[b] * batch / (batch + 7 * b) for b in plans}
    for b, plan in plans.items():
        assert rate_of(model, plan, batch) == pytest.approx(expected[b], rel=0.02)


def test_recomputation_costs_a_third_at_small_batches_and_pays_at_large_ones(rate_of):  # figure 17
    model = ptdp_model(80, 12288, 96)
    plans = [Plan(tensor=8, pipeline=16, recompute=x) for x in (False, True)]
    kept, again = (rate_of(model, plan, 8) for plan in plans)
    assert 0.60 < again / kept < 0.80  # up to 33 % slower
    training = Training(model=model, batch=256, is_fused=False)
    memory = worker_memory(training, Plans.of(plans)).total
    assert memory[0] > 2 * memory[1]
    assert rate_of(model, plans[1], 256) > 1.5 * rate_of(model, plans[0], 8)
