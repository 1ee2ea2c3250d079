"""An agent's report of jobs with a changing batch: read, refused, or left out."""

from __future__ import annotations

import json
import math

import pytest

from scheduler.domain.lease_life import LeasePhase
from scheduler.errors import InputError
from scheduler.protocol.bounds import MOST_STEP_TIMES
from scheduler.protocol.desired import to_dict
from scheduler.protocol.learning import Learning
from scheduler.protocol.reports import LeaseReport, NodeReport, report_from_dict

TIME = (2, 32.0, 0.25, 0.5)
MEASURED = Learning(
    noise_scale_samples=812.5, batch_samples=64, step_times=(TIME,) * MOST_STEP_TIMES
)


def sent(learning):
    lease = LeaseReport(lease_id=1, token=1, state=LeasePhase.RUNNING, learning=learning)
    report = NodeReport(
        node="n", incarnation=1.0, sequence=1, term=1, revision=0, workers=(), leases=(lease,)
    )
    return json.loads(json.dumps(to_dict(report)))


@pytest.mark.parametrize(
    "learning", [MEASURED, Learning(noise_scale_samples=None, batch_samples=1), None]
)
def test_what_is_sent_is_read(learning):
    assert report_from_dict(sent(learning)).leases[0].learning == learning


def test_an_agent_of_the_release_before_says_nothing_of_it():
    data = sent(None)
    del data["leases"][0]["learning"]
    assert report_from_dict(data).leases[0].learning is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("noise_scale_samples", -1.0, r"learning\.noise_scale_samples' is -1\.0"),
        ("noise_scale_samples", math.nan, r"learning\.noise_scale_samples' is nan"),
        ("noise_scale_samples", math.inf, r"learning\.noise_scale_samples' is inf"),
        ("batch_samples", 0, r"learning\.batch_samples' is 0"),
        ("batch_samples", 2**53, r"learning\.batch_samples' is 9007"),
        ("step_times", {}, r"learning\.step_times' is {}; it must be a list"),
        ("step_times", [list(TIME)] * 33, "it must be a list of length <= 32"),
        ("step_times", [[2, 32.0, 0.25]], r"step_times\[0\]' is .*; it must be a list of length 4"),
        ("step_times", ["four"], r"step_times\[0\]' is 'four'; it must be a list"),
        ("step_times", [[0, 32.0, 0.25, 0.5]], r"\[0\]\[0\]' is 0; it must be an integer >= 1"),
        ("step_times", [[2.0, 32.0, 0.25, 0.5]], "is 2.0; it must be an integer"),
        ("step_times", [[True, 32.0, 0.25, 0.5]], "is True; it must be an integer"),
        ("step_times", [[2, 0.0, 0.25, 0.5]], "a finite number > 0"),
        ("step_times", [[2, 32.0, math.nan, 0.5]], "it must be a finite number"),
        ("step_times", [[2, 32.0, 0.25, math.inf]], "it must be a finite number"),
        ("step_times", [[2, 32.0, -0.25, 0.5]], "it must be a finite number"),
        ("step_times", [[2, 10**400, 0.25, 0.5]], "it must be a finite number"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(field, value, words):
    data = sent(MEASURED)
    data["leases"][0]["learning"][field] = value
    with pytest.raises(InputError, match=words):
        report_from_dict(data)
