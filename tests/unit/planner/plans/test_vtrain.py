"""Predicted steps against 761 measured iterations (vTrain, MICRO'24)."""

from __future__ import annotations

import numpy as np
import pytest

from leasehold_testing.planning_data import predicted_steps, vtrain_losses, vtrain_steps
from planner.plans.calibration import calibrate
from planner.plans.hardware import read_hardware

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def steps(shared_data):
    return vtrain_steps(shared_data / "vtrain")


def test_a_tenth_of_the_measurements_predicts_the_others(steps):
    order = np.random.default_rng(0).permutation(len(steps))
    tenth, others = order[: len(steps) // 10], order[len(steps) // 10 :]
    hardware = read_hardware().find("a100-80")
    calibration = calibrate([steps[i] for i in tenth], hardware)
    predicted = predicted_steps(steps, calibration, hardware)
    measured = np.array([one.step_s for one in steps])
    errors = np.abs(predicted / measured - 1)[others]
    assert np.median(errors) <= 0.02
    assert np.quantile(errors, 0.9) <= 0.10

    lost = np.array(vtrain_losses(steps, predicted, others))
    assert len(lost) > 110
    assert (lost == 0).mean() >= 0.90
    assert (lost <= 0.05).mean() >= 0.95
