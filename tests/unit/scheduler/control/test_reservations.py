"""Reservations as operators make them, and whom control lets have their workers."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold_testing.control_shell import Shell, begin, report, submission
from planner.knowledge import LearnedKnowledge
from scheduler.control.control import Control
from scheduler.control.copies import state_of
from scheduler.control.facts import NodesHeard, ReservationDeleted, ReservationMade
from scheduler.domain.reasons import WaitReason
from scheduler.domain.reservation import Reservation
from scheduler.errors import ConflictError, InputError, NotFoundError
from scheduler.runtime.explaining import Glance, explain
from scheduler.runtime.views import reservations

TYPES = ("v100",) * 4


def rule(name: str = "night", workers: int = 3, **values: Any) -> Reservation:
    usual: dict[str, Any] = {"worker_type": "v100", "from_s": 2000.0, "until_s": 4000.0}
    owner = {} if values.keys() & {"project", "user", "job"} else {"project": "vision"}
    return Reservation(name=name, workers=workers, **usual | owner | values)


@pytest.fixture
def shell() -> Shell:
    return begin(types=TYPES)


def tell(shell: Shell, fact: Any, now_s: float = 3.0) -> None:
    shell.tell(fact, now_s=now_s)
    error = shell.answers[-1].error
    if error is not None:
        raise error


def make(shell: Shell, what: Reservation, now_s: float = 3.0) -> None:
    tell(shell, ReservationMade(reservation=what, actor="me"), now_s)


def notes(shell: Shell, kind: str) -> list[Any]:
    rows = (row for decision in shell.log for row in decision.rows.history)
    return [row for row in rows if row.kind == kind]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (rule(worker_type="a100"), "is 'a100', which the cluster does not have; it has v100"),
        (rule(from_s=0.0, until_s=2.0), "until_s of reservation 'night' is 1970-01-01T00:00:02"),
        (rule(workers=5), "asks for 5 workers of type 'v100'; there are 4, which leaves 4"),
    ],
)
def test_what_cannot_be_kept_is_refused(shell: Shell, what: Reservation, said: str) -> None:
    with pytest.raises((InputError, ConflictError), match=said):
        make(shell, what)
    assert reservations(shell.control.view) == ()


def test_overlapping_reservations_that_ask_for_more_than_there_is_are_refused(
    shell: Shell,
) -> None:
    make(shell, rule())
    with pytest.raises(ConflictError, match="there are 4, and 3 are reserved as 'night' from"):
        make(shell, rule("day", workers=2, from_s=3999.0, until_s=5000.0))
    make(shell, rule("day", workers=4, from_s=4000.0, until_s=5000.0))
    with pytest.raises(ConflictError, match="exists already"):
        make(shell, rule("day", workers=1))


def test_a_reservation_is_told_stored_and_deleted(shell: Shell) -> None:
    make(shell, rule())
    (seen,) = reservations(shell.control.view)
    assert (seen.state, seen.assigned, seen.used, seen.nodes) == ("planned", 3, 0, {"n0": 3})
    stored = {row.key: row.value for d in shell.log for row in d.rows.settings}
    assert stored["reservation/night"]["until_s"] == 4000.0
    assert notes(shell, "reservation_made")[0].actor == "me"
    tell(shell, ReservationDeleted(name="night", actor="me"))
    assert reservations(shell.control.view) == ()
    with pytest.raises(NotFoundError, match="there is no reservation 'night'"):
        tell(shell, ReservationDeleted(name="night", actor="me"))


@pytest.mark.parametrize("owner", [{"project": "vision"}, {"user": "me"}, {"job": "own"}])
def test_in_the_window_only_the_owners_jobs_start(shell: Shell, owner: dict[str, str]) -> None:
    make(shell, rule(from_s=3.0, **owner), now_s=3.0)
    shell.tell(submission("own", project="vision", total_steps=1e6), now_s=4.0)
    others = submission("a", "b", "c", project="speech", total_steps=1e6)
    if "user" not in owner:  # who submits is the same in this shell
        shell.tell(others, now_s=4.0)
    state: Any = shell.control.state
    kept = set(state.engine.reservations.workers["night"])
    held = {live.lease.job_id: set(live.lease.workers) for live in state.leases.by_id.values()}
    assert held["own"] <= kept
    assert all(not workers & kept for name, workers in held.items() if name != "own")
    assert reservations(shell.control.view)[0].used == 1
    if "user" not in owner:
        assert len(held) == 2


def test_who_waits_is_told_of_the_reservation_and_its_end(shell: Shell) -> None:
    make(shell, rule(from_s=3.0))
    shell.tell(submission("a", "b", project="speech", total_steps=1e6), now_s=4.0)
    view = shell.control.view
    (waiting,) = [i for i, record in view.jobs.by_id.items() if record.status.value == "waiting"]
    told = explain(view, view.jobs.by_id[waiting].to_row(), Glance(view))
    assert told.reason is WaitReason.RESERVATION
    assert "3 x v100 are kept for project 'vision' until 1970-01-01T01:06:40" in told.message
    assert "reservation 'night'" in told.message
    assert Glance(view).waiting == {WaitReason.RESERVATION: 1}


def test_who_could_not_leave_in_time_is_told_so(shell: Shell) -> None:
    make(shell, rule(workers=4))
    shell.tell(submission("firm", preemptible=False, total_steps=1e6), now_s=4.0)
    view = shell.control.view
    told = explain(view, view.jobs.by_id["firm"].to_row(), Glance(view))
    assert told.reason is WaitReason.RESERVATION
    assert "could not give them back in time" in told.message


def test_a_window_that_has_passed_is_forgotten(shell: Shell) -> None:
    make(shell, rule(from_s=3.0, until_s=10.0))
    shell.tell(NodesHeard(heard_s={"n0": 11.0}), now_s=11.0)
    assert reservations(shell.control.view) == ()
    assert shell.control.state.reservations == {}
    assert len(notes(shell, "reservation_ended")) == 1


@pytest.mark.parametrize("ends", [False, True], ids=["deleted", "over"])
def test_one_of_two_in_force_goes_and_the_other_stays(shell: Shell, ends: bool) -> None:
    make(shell, rule(from_s=3.0, until_s=10.0, workers=2))
    make(shell, rule("day", from_s=3.0, workers=1, project="speech"))
    assert [seen.state for seen in reservations(shell.control.view)] == ["in force"] * 2
    if ends:
        shell.tell(NodesHeard(heard_s={"n0": 11.0}), now_s=11.0)
    else:
        tell(shell, ReservationDeleted(name="night", actor="me"), now_s=4.0)
    (left,) = reservations(shell.control.view)
    assert (left.reservation.name, left.state, left.assigned) == ("day", "in force", 1)
    state: Any = shell.control.state
    assert state.engine.fleet.set_aside.sum() == 1


def test_workers_that_fail_are_warned_of(shell: Shell) -> None:
    make(shell, rule(workers=4))
    shell.tell(submission("a"), now_s=4.0)
    for now_s in (50.0, 120.0):
        shell.tell(now_s=now_s)
    warnings = [text for decision in shell.log for text in decision.warnings]
    assert "reservation 'night' is short of 4 workers that are in service" in warnings
    shell.tell(report(9, types=TYPES), now_s=121.0)
    shell.tell(now_s=122.0)
    warnings = [text for decision in shell.log for text in decision.warnings]
    assert warnings[-1] == "reservation 'night' has all its workers again"


def test_a_copy_that_looks_ahead_heeds_them(shell: Shell) -> None:
    make(shell, rule(from_s=3.0))
    copied = shell.control.copied()
    shell.control = Control(state_of(copied, LearnedKnowledge(None, dict(copied.knowledge))))
    shell.tell(submission("a", "b", project="speech", total_steps=1e6), now_s=4.0)
    assert len(shell.control.state.leases.by_id) == 1
