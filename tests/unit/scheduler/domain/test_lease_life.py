"""The phases of leases: the table, its drawing, and the old places of its names."""

import itertools
import re
from pathlib import Path

import pytest

from agent.reconcile import ACTIONS_IN, Forget, HeldLease, Kill, Terminate
from scheduler.control.leases.retries import category_of
from scheduler.domain import lease
from scheduler.domain.lease_life import (
    TRANSITIONS,
    EndReason,
    LeasePhase,
    PhaseWatch,
    RevokeReason,
    may_become,
    words_of_code,
)
from scheduler.errors import InvariantError
from scheduler.protocol import reports

PAGE = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "life-of-a-lease.md"
ORDER = list(LeasePhase)


def test_the_page_draws_the_table():
    arrows = set(re.findall(r"^ {4}(\w+) --> (\w+)$", PAGE.read_text(), re.MULTILINE))
    assert arrows == {(a.value, b.value) for a, after in TRANSITIONS.items() for b in after}


def test_the_page_has_every_end_and_its_category():
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ?`?(\w*)`?[^|]*\|$", PAGE.read_text(), re.MULTILINE)
    told = {name: category for name, category in rows if name in set(EndReason)}
    assert told == {end.value: (category_of(end, None) or "") for end in EndReason}


def test_leases_only_move_on():
    for before, after in itertools.product(ORDER, ORDER):
        assert may_become(before, after) == (ORDER.index(before) <= ORDER.index(after))


def test_a_lease_that_goes_back_is_found():
    watch = PhaseWatch()
    watch.check({1: LeasePhase.GRANTED, 2: LeasePhase.STOPPING})
    watch.check({1: LeasePhase.RUNNING, 2: LeasePhase.STOPPING})
    with pytest.raises(InvariantError, match="lease 2 was stopping and is now running"):
        watch.check({1: LeasePhase.RUNNING, 2: LeasePhase.RUNNING})


def test_a_lease_that_comes_back_after_its_end_is_found():
    watch = PhaseWatch()
    watch.check({1: LeasePhase.GRANTED, 2: LeasePhase.GRANTED})
    watch.check({1: LeasePhase.RUNNING})
    watch.check({1: LeasePhase.RUNNING, 3: LeasePhase.GRANTED})
    with pytest.raises(InvariantError, match="lease 2 was ended and is now granted"):
        watch.check({1: LeasePhase.RUNNING, 2: LeasePhase.GRANTED})


def held(**values):
    return HeldLease(
        lease_id=1, token=1, job_id="a", attempt=1, nonce="", workers=(0,), deadline_s=9.0,
        notice_s=1.0, grace_s=1.0, **values,
    )  # fmt: skip


def test_agents_know_three_phases_of_the_leases_that_they_hold():
    assert held().phase is LeasePhase.RUNNING
    assert held(noticed=True).phase is LeasePhase.RUNNING
    assert held(terminated_s=1.0).phase is LeasePhase.STOPPING
    assert held(terminated_s=1.0, ended=True).phase is LeasePhase.ENDED
    assert LeasePhase.STOPPING not in ACTIONS_IN[Terminate]
    assert LeasePhase.ENDED not in ACTIONS_IN[Kill]
    assert ACTIONS_IN[Forget] == {LeasePhase.ENDED}


def test_a_gang_ends_as_its_gravest_member():
    ends = sorted(EndReason, key=lambda end: end.gravity)
    assert ends == ["completed", "cancelled", "failed", "released", "oom", "lost"]
    assert [end for end in EndReason if end.is_failure] == ["failed", "oom"]
    assert EndReason.OOM.for_engine() is EndReason.FAILED
    assert EndReason.LOST.for_engine() is EndReason.LOST


def test_the_names_of_0_2_0_work_with_a_warning():
    for module, name, today in (
        (lease, "EndReason", EndReason),
        (lease, "RevokeReason", RevokeReason),
        (reports, "LeaseEnd", EndReason),
        (reports, "LeaseState", LeasePhase),
    ):
        now = f"{name} is now scheduler.domain.lease_life.{today.__name__};"
        with pytest.warns(DeprecationWarning, match=now):
            assert getattr(module, name) is today
    assert not hasattr(lease, "Ended")


@pytest.mark.parametrize(("code", "words"), [
    (0, "exit code 0"),
    (3, "exit code 3"),
    (143, "exit code 143"),
    (-15, "ended by SIGTERM"),
    (-63, "ended by signal 63"),
])  # fmt: skip
def test_a_negative_code_is_told_as_the_signal_that_it_stands_for(code, words):
    assert words_of_code(code) == words
