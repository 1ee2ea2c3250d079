"""Predicted steps against 34 measured plans on GH200 and on mixed RTX (Sailor, SOSP'25)."""

from __future__ import annotations

import numpy as np
import pytest

from leasehold_testing.planning_data import Sailor
from planner.plans.cost import Rates
from planner.plans.hardware import read_hardware
from planner.plans.stages import LayeredPlans
from planner.plans.training import LayeredTraining

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def predicted(shared_data):
    """Return (plan, predicted seconds) of each measured plan."""
    sailor = Sailor(shared_data / "sailor")
    hardware = read_hardware().find("gh200")
    measured = sailor.plans()
    models = {name: sailor.model(name) for name in {one.model for one in measured}}
    found = []
    for one in measured:
        model = models[one.model]
        if one.is_mixed:
            found.append((one, sailor.step_s(one, model)))
            continue
        training = LayeredTraining(model=model, batch=one.batch, precision=model.precision)
        plans = LayeredPlans(training, one.replicas[0][0][0], hardware, Rates())
        found.append((one, float(plans.step_times([one.staged]).total_s[0])))
    return found


def test_errors_are_no_larger_than_those_of_the_authors(predicted):
    measured = np.array([one.measured_s for one, _ in predicted])
    ours = np.abs(np.array([step_s for _, step_s in predicted]) / measured - 1)
    authors = np.abs(np.array([one.authors_s for one, _ in predicted]) / measured - 1)
    assert len(ours) == 34
    assert np.median(ours) <= 0.07 < np.median(authors)
    assert np.mean(ours) <= np.mean(authors)


def test_the_fastest_plan_is_chosen_in_11_of_13_groups(predicted):
    groups = {}
    for one, step_s in predicted:
        workers = sum(tensor for copies in one.replicas for _, tensor in copies)
        key = (one.name.split("/")[0], one.model, workers, one.batch)
        groups.setdefault(key, []).append((step_s, one.measured_s))
    groups = [group for group in groups.values() if len(group) > 1]
    assert len(groups) == 13
    right = [min(group)[1] == min(measured for _, measured in group) for group in groups]
    assert sum(right) >= 11
