"""Predicted steps against the tables and figures of PTD-P (Narayanan et al., SC'21)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from planner.plans.calibration import MeasuredStep, calibrate, uncalibrated
from planner.plans.hardware import read_hardware
from planner.plans.memory import worker_memory
from planner.plans.plan import Plan, Plans
from planner.plans.training import Training
from planner.plans.transformer import gpt

#: Tables 1 and 2: layers, hidden size, heads, tensor and pipeline size, GPUs, batch, microbatch,
#: chunks, TFLOP/s of each GPU. The last two columns but one are from the authors' scripts.
POINTS = (
    (24, 2304, 24, 1, 1, 32, 512, 16, 1, 137),
    (30, 3072, 32, 2, 1, 64, 512, 16, 1, 138),
    (36, 4096, 32, 4, 1, 128, 512, 16, 1, 142),
    (40, 6144, 48, 8, 1, 256, 1024, 8, 1, 135),
    (48, 8192, 64, 8, 2, 512, 1536, 4, 1, 138),
    (60, 10240, 80, 8, 4, 1024, 1792, 2, 3, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 2, 2, 148),
    (96, 16384, 128, 8, 16, 1920, 2160, 1, 2, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 1, 3, 163),
    (128, 25600, 160, 8, 64, 3072, 3072, 1, 1, 163),
    (96, 12288, 96, 8, 12, 384, 1536, 1, 1, 153),
    (96, 12288, 96, 8, 12, 768, 1536, 1, 1, 149),
    (96, 12288, 96, 8, 12, 1536, 1536, 1, 1, 141),
    (105, 20480, 128, 8, 35, 560, 2240, 1, 1, 171),
    (105, 20480, 128, 8, 35, 1120, 2240, 1, 1, 167),
    (105, 20480, 128, 8, 35, 2240, 2240, 1, 1, 159),
)
#: Of them, those that calibrate: small and large, with and without pipelines and chunks.
CALIBRATING = (0, 3, 5, 8, 10, 14)


def model_of(layers, hidden, heads):
    return gpt(layers=layers, hidden=hidden, heads=heads, vocabulary=51200, sequence=2048)


def flops(model, batch):
    """Return the FLOPs of a step as the paper counts them: forward, backward, forward again."""
    return batch * (4 * model.layers * model.layer_flops + 3 * model.head_flops)


def step_of(row):
    layers, hidden, heads, tensor, pipeline, workers, batch, microbatch, chunks, tflops = row
    model = model_of(layers, hidden, heads)
    plan = Plan(
        tensor=tensor,
        pipeline=pipeline,
        data=workers // (tensor * pipeline),
        microbatch=microbatch,
        chunks=chunks,
        recompute=True,
    )
    step_s = flops(model, batch) / (workers * tflops * 1e12)
    training = Training(model=model, batch=batch, is_fused=False)
    return MeasuredStep(training=training, plan=plan, step_s=step_s)


@pytest.fixture(scope="module")
def hardware():
    return read_hardware().find("a100-80")


@pytest.fixture(scope="module")
def calibration(hardware):
    return calibrate([step_of(POINTS[i]) for i in CALIBRATING], hardware)


def rate(calibration, hardware, model, plan, batch):
    """Return the TFLOP/s of each GPU."""
    training = Training(model=model, batch=batch, is_fused=False)
    step_s = float(calibration.step_times(training, Plans.of([plan]), hardware).total_s[0])
    return flops(model, batch) / step_s / plan.workers / 1e12


@pytest.fixture
def rate_of(calibration, hardware):
    """Return what gives the TFLOP/s of each GPU of a model, a plan and a batch."""
    return partial(rate, calibration, hardware)


@pytest.mark.parametrize("i", [i for i in range(len(POINTS)) if i not in CALIBRATING])
def test_the_other_points_are_within_five_percent(i, rate_of, hardware):
    step = step_of(POINTS[i])
    found = rate_of(step.training.model, step.plan, step.training.batch)
    assert found == pytest.approx(POINTS[i][-1], rel=0.05)
    usual = rate(uncalibrated(), hardware, step.training.model, step.plan, step.training.batch)
    assert usual == pytest.approx(POINTS[i][-1], rel=0.05)  # fitted on the same six points


def test_the_gain_of_interleaving_shrinks_with_the_batch(rate_of):  # figure 12
    model, gains = model_of(96, 12288, 96), []
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
    model = model_of(32, 20480, 128)
    rates = {
        p: rate_of(model, Plan(tensor=64 // p, pipeline=p, recompute=True), batch)
        for p in (2, 4, 8, 16, 32)
    }
    assert max(rates, key=rates.__getitem__) == 8


@pytest.mark.parametrize("batch", [32, 128, 512])
def test_a_small_model_runs_better_with_fewer_stages(rate_of, batch):  # figure 14
    model = model_of(32, 3840, 32)
    rates = [
        rate_of(model, Plan(pipeline=p, data=64 // p, recompute=True), batch)
        for p in (2, 4, 8, 16, 32)
    ]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("batch", [32, 128, 512])
def test_a_tensor_that_leaves_its_node_is_slowest(rate_of, batch):  # figure 15
    model = model_of(32, 3840, 32)
    rates = [
        rate_of(model, Plan(tensor=t, data=64 // t, recompute=True), batch)
        for t in (2, 4, 8, 16, 32)
    ]
    assert rates == sorted(rates, reverse=True)
    losses = -np.diff(rates)
    assert losses.argmax() == 2  # from 8, a node, to 16


@pytest.mark.parametrize("batch", [128, 512])
def test_a_microbatch_wins_if_its_stage_gains_enough(rate_of, batch):  # figure 16, equation 1
    model = model_of(32, 15360, 128)
    plans = {b: Plan(tensor=8, pipeline=8, microbatch=b, recompute=True) for b in (1, 2, 4, 8)}
    # With very many microbatches the rate is that of the stages, without a bubble.
    stage = {b: rate_of(model, plan, 2**20) for b, plan in plans.items()}
    expected = {b: stage[b] * batch / (batch + 7 * b) for b in plans}
    for b, plan in plans.items():
        assert rate_of(model, plan, batch) == pytest.approx(expected[b], rel=0.02)


def test_recomputation_costs_a_third_at_small_batches_and_pays_at_large_ones(rate_of):  # figure 17
    model = model_of(80, 12288, 96)
    plans = [Plan(tensor=8, pipeline=16, recompute=x) for x in (False, True)]
    kept, again = (rate_of(model, plan, 8) for plan in plans)
    assert 0.60 < again / kept < 0.80  # up to 33 % slower
    training = Training(model=model, batch=256, is_fused=False)
    memory = worker_memory(training, Plans.of(plans)).total
    assert memory[0] > 2 * memory[1]
    assert rate_of(model, plans[1], 256) > 1.5 * rate_of(model, plans[0], 8)
