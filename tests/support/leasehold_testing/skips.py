"""Which tests may be skipped when the gate runs, and why.

A machine without a program that tests need would pass by testing less. So `.ci/run`, which installs
all it can, sets ``LEASEHOLD_SKIPS=listed``: a skip for another reason than these is a failure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

#: The setting and the value of it that hold tests to the list.
SETTING, LISTED = "LEASEHOLD_SKIPS", "listed"
#: Beginning of a reason -> why it is allowed.
ALLOWED = {
    "no shared data at": "data of others is no part of the project",
    "no git history": "an archive of the sources has none",
    r"\d+ gangs are larger than the cluster": "Gavel runs them all the same: nothing to compare",
    "this machine has no IPv6": "a property of the machine that nothing can install",
    "this machine has no loop devices": "a property of the machine that nothing can install",
    "the tests were copied away from the sources": "the suite on the wheel has no sources",
    "made in the sources alone": "the suite on the wheel has no sources",
    "there are GPUs here": "tests how a machine without GPUs answers",
}


def allowed(reason: str) -> bool:
    """Return whether a test may be skipped for this reason."""
    text = reason.removeprefix("Skipped: ")
    return any(re.match(pattern, text) for pattern in ALLOWED)


def judge(report: pytest.TestReport | pytest.CollectReport, environment: Mapping[str, str]) -> None:
    """Make a skip that is not on the list a failure, if the environment asks for it."""
    expected = hasattr(report, "wasxfail")
    if environment.get(SETTING) != LISTED or report.outcome != "skipped" or expected:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not allowed(reason):
        report.outcome = "failed"
        report.longrepr = f"{reason}\nThis reason is not on the list of {__name__}."
