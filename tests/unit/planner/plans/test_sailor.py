"""Predicted steps against 34 measured plans on GH200 and on mixed RTX (Sailor, SOSP'25)."""

from __future__ import annotations

import numpy as np
import pytest

from leasehold_testing.planning_data import sailor_choices, sailor_predictions

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def predicted(shared_data):
    return sailor_predictions(shared_data / "sailor")


def test_errors_are_no_larger_than_those_of_the_authors(predicted):
    measured = np.array([one.measured_s for one, _ in predicted])
    ours = np.abs(np.array([step_s for _, step_s in predicted]) / measured - 1)
    authors = np.abs(np.array([one.authors_s for one, _ in predicted]) / measured - 1)
    assert len(ours) == 34
    assert np.median(ours) <= 0.07 < np.median(authors)
    assert np.mean(ours) <= np.mean(authors)


def test_the_fastest_plan_is_chosen_in_11_of_13_groups(predicted):
    right = sailor_choices(predicted)
    assert len(right) == 13
    assert sum(right) >= 11
