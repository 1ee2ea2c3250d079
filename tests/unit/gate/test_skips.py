"""Skips in the gate: those on the list pass, others fail."""

from __future__ import annotations

import pytest

from leasehold_testing import skips

GATE = {skips.SETTING: skips.LISTED}


def skipped(reason: str) -> pytest.TestReport:
    """Return the report of a skipped test."""
    return pytest.TestReport(
        nodeid="test_it",
        location=("test_it.py", 1, "test_it"),
        keywords={},
        outcome="skipped",
        longrepr=("test_it.py", 1, f"Skipped: {reason}"),
        when="setup",
    )


@pytest.mark.parametrize(
    ("reason", "environment", "outcome"),
    [
        ("no shared data at /data; name it", GATE, "skipped"),
        ("2 gangs are larger than the cluster; Gavel runs them", GATE, "skipped"),
        ("PostgreSQL is not installed: apt-get install postgresql", GATE, "failed"),
        ("bubblewrap is not installed", GATE, "failed"),
        ("bubblewrap is not installed", {}, "skipped"),
    ],
)
def test_a_skip_in_the_gate_is_a_failure_unless_it_is_listed(reason, environment, outcome):
    report = skipped(reason)
    skips.judge(report, environment)
    assert report.outcome == outcome
    assert reason in str(report.longrepr)


def test_an_expected_failure_is_none():
    report = skipped("")
    report.wasxfail = "a known fault"
    skips.judge(report, GATE)
    assert report.outcome == "skipped"
