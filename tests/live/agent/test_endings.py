"""Why a lease ended, case by case."""

from __future__ import annotations

import pytest

from agent.process.endings import classify_ending
from scheduler.domain.lease_life import EndReason

QUIET = {
    "error": "",
    "code": 0,
    "terminated": False,
    "killed": False,
    "expired": False,
    "oom_kills": 0,
    "memory_error": False,
}
TOLD = {"noticed": True}
ALL_DONE = {"steps_done": 10}


@pytest.mark.parametrize(
    ("ending", "known", "reason"),
    [
        ({}, {}, EndReason.COMPLETED),
        ({}, TOLD, EndReason.RELEASED),
        ({}, TOLD | ALL_DONE, EndReason.COMPLETED),
        ({"terminated": True}, ALL_DONE, EndReason.COMPLETED),
        ({"code": 75}, {}, EndReason.RELEASED),
        ({"code": 1}, {}, EndReason.FAILED),
        ({"code": 1}, TOLD, EndReason.FAILED),
        ({"code": 1, "terminated": True}, TOLD, EndReason.RELEASED),
        ({"code": -15, "terminated": True}, {"unwanted": True}, EndReason.CANCELLED),
        ({"code": -9, "killed": True, "expired": True}, TOLD, EndReason.RELEASED),
        ({"code": -9, "oom_kills": 1}, {}, EndReason.OOM),
        ({"code": 137, "oom_kills": None}, {}, EndReason.OOM),
        ({"code": -9}, {}, EndReason.FAILED),
        ({"code": 1, "memory_error": True}, {}, EndReason.OOM),
        ({"code": 1, "oom_kills": 1}, {}, EndReason.FAILED),  # of another lease, perhaps
        ({"code": 1, "oom_kills": 1, "oom_own": True}, {}, EndReason.OOM),
        ({"code": -9, "killed": True, "oom_kills": 1, "terminated": True}, {}, EndReason.RELEASED),
        ({"code": -11}, {}, EndReason.FAILED),
        ({"code": 127, "error": "cannot start"}, {}, EndReason.FAILED),
    ],
)
def test_an_end_has_one_reason(ending, known, reason):
    known = {"noticed": False, "unwanted": False, "steps_done": 5} | known
    assert classify_ending(QUIET | ending, total_steps=10, **known)[0] is reason


def test_processes_that_vanished_are_lost_and_not_failed():
    known = {"noticed": False, "unwanted": False, "steps_done": 0}
    assert classify_ending(None, total_steps=None, **known)[0] is EndReason.LOST


def test_a_signal_is_called_by_its_name():
    known = {"noticed": False, "unwanted": False, "steps_done": 0, "total_steps": None}
    assert "SIGSEGV" in classify_ending(QUIET | {"code": -11}, **known)[1]
    assert "signal 63" in classify_ending(QUIET | {"code": -63}, **known)[1]
