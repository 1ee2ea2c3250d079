"""People read why a job waits or has ended in words; programs get identifiers."""

from __future__ import annotations

import pytest

from scheduler.control.leases.retries import BUDGETS
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import JobRow
from scheduler.views.explain import explain_ended
from scheduler.views.explain_protection import loss_in_words
from scheduler.views.reason_words import WAITS, reason_in_words, wait_in_words

FORCED = [*(f"too_many_{category}" for category in BUDGETS), "dependency_failed", "time_limit"]


def test_every_reason_of_a_wait_has_a_sentence():
    assert WAITS.keys() == set(WaitReason)
    assert all("_" not in words for words in WAITS.values())
    assert wait_in_words("of_tomorrow") == "of tomorrow"


def ended(reason: str) -> str:
    row = JobRow(
        job_id="a",
        number=1,
        name="a",
        project="p",
        owner="o",
        job_type="p/a",
        status=JobStatus.FAILED,
        reason=reason,
        total_steps=1.0,
        submitted_s=0.0,
        updated_s=0.0,
    )
    return explain_ended(row).message


@pytest.mark.parametrize("reason", FORCED)
def test_a_forced_end_is_told_in_words(reason):
    assert "_" not in reason_in_words(reason)
    assert reason not in ended(reason)
    assert ended(reason).startswith("it has ended as failed: ")


def test_the_limit_that_ended_a_job_is_named():
    assert "by node faults more often than max_node_faults allows" in ended("too_many_node_fault")


def test_a_single_loss_is_not_counted():
    assert loss_in_words(40.2, 1) == "40 s of work"
    assert loss_in_words(90.0, 3) == "90 s of work in 3 leases in a row"


def test_no_reason_has_no_words():
    assert reason_in_words(None) == reason_in_words("") == ""
