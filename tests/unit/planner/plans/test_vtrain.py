"""Predicted steps against 761 measured iterations (vTrain, MICRO'24)."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from planner.plans.calibration import MeasuredStep, calibrate
from planner.plans.hardware import read_hardware
from planner.plans.plan import Plan, Plans
from planner.plans.training import Training
from planner.plans.transformer import gpt

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def steps(shared_data):
    found = []
    for name in ("single", "multi"):
        with (shared_data / "vtrain" / f"{name}.csv").open() as file:
            found += [_step(row) for row in csv.DictReader(file)]
    return found


def _step(row):
    def number(name):
        return int(row[name])

    model = gpt(
        layers=number("# layers"),
        hidden=number("hidden size"),
        heads=number("attention heads"),
        vocabulary=50257,
        sequence=number("sequence length"),
    )
    plan = Plan(
        tensor=number("tensor parallelism"),
        pipeline=number("pipeline parallelism"),
        data=number("data parallelism"),
        microbatch=number("micro batch"),
        recompute=True,
    )
    step_s = float(row["iteration time (ms)"]) / 1e3
    training = Training(model=model, batch=number("global batch"), is_fused=False)
    return MeasuredStep(training=training, plan=plan, step_s=step_s)


def test_a_tenth_of_the_measurements_predicts_the_others(steps):
    order = np.random.default_rng(0).permutation(len(steps))
    tenth, others = order[: len(steps) // 10], order[len(steps) // 10 :]
    hardware = read_hardware().find("a100-80")
    calibration = calibrate([steps[i] for i in tenth], hardware)
    predicted = np.array(
        [
            calibration.step_times(one.training, Plans.of([one.plan]), hardware).total_s[0]
            for one in steps
        ]
    )
    measured = np.array([one.step_s for one in steps])
    errors = np.abs(predicted / measured - 1)[others]
    assert np.median(errors) <= 0.02
    assert np.quantile(errors, 0.9) <= 0.10

    groups = {}
    for i in others:
        one = steps[i]
        groups.setdefault((one.training, one.plan.workers), []).append(i)
    lost = np.array(
        [
            measured[at[int(predicted[at].argmin())]] / measured[at].min() - 1
            for at in groups.values()
            if len(at) > 1
        ]
    )
    assert len(lost) > 110
    assert (lost == 0).mean() >= 0.90
    assert (lost <= 0.05).mean() >= 0.95
