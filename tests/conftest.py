"""Fixtures and settings that every part's tests may use."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from leasehold_testing import skips

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

# The same examples on every run, and no failure because a shared machine was slow.
settings.register_profile("leasehold", derandomize=True, deadline=None, database=None)
# New ones each time: `make test-explore`, which gives a seed to each round.
settings.register_profile("explore", deadline=None, database=None, print_blob=True)
settings.load_profile("leasehold")

# If the tests run as root, agents would give jobs users of their own, which could not reach the
# tests' folders. Tests of that ask for it.
os.environ.setdefault("LEASEHOLD_AGENT__ISOLATION", "off")

# A shell starts background processes with interrupts ignored, and children inherit that:
# commands that a test interrupts would go on without end.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip of a test a failure, unless its reason is listed."""
    report = yield
    skips.judge(report, os.environ)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make a skip of a module a failure, unless its reason is listed."""
    report = yield
    skips.judge(report, os.environ)
    return report


@pytest.fixture
def calls_of() -> Callable[[Callable[[], Any]], int]:
    """Return a function that counts the calls, of Python and of C, that some work makes.

    The measure of work that a test may bound: it is the same on a machine that is busy.
    """

    def count(work: Callable[[], Any]) -> int:
        calls = 0

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(None)
        return calls

    return count


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real traces: $LEASEHOLD_SHARED_DATA, or ../shared/data."""
    named = os.environ.get("LEASEHOLD_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[1] / "../shared/data"
    if not folder.is_dir():
        pytest.skip(
            f"no shared data at {folder}; LEASEHOLD_SHARED_DATA may name the folder with gavel/"
        )
    return folder.resolve()
