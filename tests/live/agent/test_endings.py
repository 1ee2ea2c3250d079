"""Why a lease ended, case by case."""

from __future__ import annotations

import pytest

from agent.process.endings import classify_ending
from scheduler.protocol.reports import LeaseEnd

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
        ({}, {}, LeaseEnd.COMPLETED),
        ({}, TOLD, LeaseEnd.RELEASED),
        ({}, TOLD | ALL_DONE, LeaseEnd.COMPLETED),
        ({"terminated": True}, ALL_DONE, LeaseEnd.COMPLETED),
        ({"code": 75}, {}, LeaseEnd.RELEASED),
        ({"code": 1}, {}, LeaseEnd.FAILED),
        ({"code": 1}, TOLD, LeaseEnd.FAILED),
        ({"code": 1, "terminated": True}, TOLD, LeaseEnd.RELEASED),
        ({"code": -15, "terminated": True}, {"unwanted": True}, LeaseEnd.CANCELLED),
        ({"code": -9, "killed": True, "expired": True}, TOLD, LeaseEnd.RELEASED),
        ({"code": -9, "oom_kills": 1}, {}, LeaseEnd.OOM),
        ({"code": 137, "oom_kills": None}, {}, LeaseEnd.OOM),
        ({"code": -9}, {}, LeaseEnd.FAILED),
        ({"code": 1, "memory_error": True}, {}, LeaseEnd.OOM),
        ({"code": 1, "oom_kills": 1}, {}, LeaseEnd.FAILED),  # of another lease, perhaps
        ({"code": 1, "oom_kills": 1, "oom_own": True}, {}, LeaseEnd.OOM),
        ({"code": -9, "killed": True, "oom_kills": 1, "terminated": True}, {}, LeaseEnd.RELEASED),
        ({"code": -11}, {}, LeaseEnd.FAILED),
        ({"code": 127, "error": "cannot start"}, {}, LeaseEnd.FAILED),
    ],
)
def test_an_end_has_one_reason(ending, known, reason):
    known = {"noticed": False, "unwanted": False, "steps_done": 5} | known
    assert classify_ending(QUIET | ending, total_steps=10, **known)[0] is reason


def test_processes_that_vanished_are_lost_and_not_failed():
    known = {"noticed": False, "unwanted": False, "steps_done": 0}
    assert classify_ending(None, total_steps=None, **known)[0] is LeaseEnd.LOST


def test_a_signal_is_called_by_its_name():
    known = {"noticed": False, "unwanted": False, "steps_done": 0, "total_steps": None}
    assert "SIGSEGV" in classify_ending(QUIET | {"code": -11}, **known)[1]
    assert "signal 63" in classify_ending(QUIET | {"code": -63}, **known)[1]
