"""Reservations as operators make them, and the jobs that may use their workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leasehold_testing.control_shell import Shell, begin, report, submission
from planner.knowledge import LearnedKnowledge
from scheduler.control.control import Control
from scheduler.control.facts.facts import (
    JobActionAsked,
    NodesHeard,
    ReservationDeleted,
    ReservationMade,
)
from scheduler.control.facts.requests import JobAction
from scheduler.control.state.control_copy import state_of
from scheduler.domain.facts.events import ReservationsChanged
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.domain.reservation import Reservation
from scheduler.errors import ConflictError, InputError, NotFoundError
from scheduler.protocol.reports import LeaseReport
from scheduler.views.explain import WaitingJobs, explain
from scheduler.views.state_views import reservation_views

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
    assert reservation_views(shell.control.view) == ()


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
    (seen,) = reservation_views(shell.control.view)
    assert (seen.state, seen.assigned, seen.used, seen.nodes) == ("planned", 3, 0, {"n0": 3})
    stored = {row.key: row.value for d in shell.log for row in d.rows.settings}
    assert stored["reservation/night"]["until_s"] == 4000.0
    assert notes(shell, "reservation_made")[0].actor == "me"
    tell(shell, ReservationDeleted(name="night", actor="me"))
    assert reservation_views(shell.control.view) == ()
    with pytest.raises(NotFoundError, match="there is no reservation 'night'"):
        tell(shell, ReservationDeleted(name="night", actor="me"))


@pytest.mark.parametrize("owner", [{"project": "vision"}, {"user": "me"}, {"job": "own"}])
def test_in_the_window_only_the_owners_jobs_start(shell: Shell, owner: dict[str, str]) -> None:
    if "job" in owner:  # it has to be there
        shell.tell(submission("own", project="vision", total_steps=1e6), now_s=3.0)
        make(shell, rule(from_s=3.0, **owner), now_s=3.0)
    else:
        make(shell, rule(from_s=3.0, **owner), now_s=3.0)
        shell.tell(submission("own", project="vision", total_steps=1e6), now_s=4.0)
    others = submission("a", "b", "c", project="speech", total_steps=1e6)
    if "user" not in owner:  # the submitter is the same in this shell
        shell.tell(others, now_s=4.0)
    state: Any = shell.control.state
    kept = set(state.engine.reservations.workers["night"])
    held = {live.lease.job_id: set(live.lease.workers) for live in state.leases.by_id.values()}
    assert held["own"] <= kept
    assert all(not workers & kept for name, workers in held.items() if name != "own")
    assert reservation_views(shell.control.view)[0].used == 1
    if "user" not in owner:
        assert len(held) == 2


def test_who_waits_is_told_of_the_reservation_and_its_end(shell: Shell) -> None:
    make(shell, rule(from_s=3.0))
    shell.tell(submission("a", "b", project="speech", total_steps=1e6), now_s=4.0)
    view = shell.control.view
    (waiting,) = [i for i, record in view.jobs.by_id.items() if record.status.value == "waiting"]
    told = explain(view, view.jobs.by_id[waiting].to_row(), WaitingJobs(view))
    assert told.reason is WaitReason.RESERVATION
    assert "3 x v100 are kept for project 'vision' until 1970-01-01T01:06:40" in told.message
    assert "reservation 'night'" in told.message
    assert WaitingJobs(view).waiting == {WaitReason.RESERVATION: 1}


def test_who_could_not_leave_in_time_is_told_so(shell: Shell) -> None:
    make(shell, rule(workers=4))
    shell.tell(submission("firm", preemptible=False, total_steps=1e6), now_s=4.0)
    view = shell.control.view
    told = explain(view, view.jobs.by_id["firm"].to_row(), WaitingJobs(view))
    assert told.reason is WaitReason.RESERVATION
    assert "could not give them back in time" in told.message


def test_a_window_that_has_passed_is_forgotten(shell: Shell) -> None:
    make(shell, rule(from_s=3.0, until_s=10.0))
    shell.tell(NodesHeard(heard_s={"n0": 11.0}), now_s=11.0)
    assert reservation_views(shell.control.view) == ()
    assert shell.control.state.reservations == {}
    assert len(notes(shell, "reservation_ended")) == 1


@pytest.mark.parametrize("ends", [False, True], ids=["deleted", "over"])
def test_one_of_two_in_force_goes_and_the_other_stays(shell: Shell, ends: bool) -> None:
    make(shell, rule(from_s=3.0, until_s=10.0, workers=2))
    make(shell, rule("day", from_s=3.0, workers=1, project="speech"))
    assert [seen.state for seen in reservation_views(shell.control.view)] == ["in force"] * 2
    if ends:
        shell.tell(NodesHeard(heard_s={"n0": 11.0}), now_s=11.0)
    else:
        tell(shell, ReservationDeleted(name="night", actor="me"), now_s=4.0)
    (left,) = reservation_views(shell.control.view)
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
    shell.control = Control(state_of(copied, LearnedKnowledge(dict(copied.knowledge))))
    shell.tell(submission("a", "b", project="speech", total_steps=1e6), now_s=4.0)
    assert len(shell.control.state.leases.by_id) == 1


def ended(shell: Shell, job_id: str, now_s: float, *others: Any) -> None:
    """Let a job complete by its node's report, with other facts at once."""
    state: Any = shell.control.state
    live = state.leases.by_id[state.leases.of_job[job_id]]
    done = LeaseReport(
        lease_id=live.lease.lease_id,
        token=live.lease.token,
        state=LeasePhase.ENDED,
        reason=EndReason.COMPLETED,
        exit_code=0,
        steps_done=10**6,
    )
    shell.tell(report(90, done, types=TYPES), *others, now_s=now_s)


def test_with_its_only_job_a_reservation_is_released_in_the_same_step(shell: Shell) -> None:
    shell.tell(submission("own", total_steps=1e6), now_s=3.0)
    make(shell, rule(from_s=3.0, workers=4, job="own"))
    shell.tell(submission("other", total_steps=1e6), now_s=4.0)
    state: Any = shell.control.state
    assert set(state.leases.of_job) == {"own"}
    ended(shell, "own", 5.0)
    assert set(state.leases.of_job) == {"other"}
    assert reservation_views(shell.control.view) == ()
    assert state.reservations == {}
    rows = notes(shell, "reservation_released")
    assert [(row.subject_kind, row.subject, row.at_s) for row in rows] == [
        ("reservation", "night", 5.0),
        ("job", "own", 5.0),
    ]
    assert (rows[0].data["job"], rows[1].data["reservation"]) == ("own", "night")
    settings = [row for d in shell.log for row in d.rows.settings if row.key == "reservation/night"]
    assert settings[-1].value is None


def test_a_job_that_has_waited_for_another_takes_its_reservation_with_it(shell: Shell) -> None:
    shell.tell(submission("first", total_steps=1e6), now_s=3.0)
    shell.tell(submission("own", depends_on=("first",)), now_s=3.0)
    make(shell, rule(job="own"))
    for now_s in (4.0, 40.0):
        shell.tell(NodesHeard(heard_s={"n0": now_s}), now_s=now_s)
    assert [one.reservation.name for one in reservation_views(shell.control.view)] == ["night"]
    cancel = JobActionAsked(job_ids=("own",), action=JobAction.CANCEL, actor="me")
    shell.tell(cancel, now_s=41.0)
    assert reservation_views(shell.control.view) == ()
    assert len(notes(shell, "reservation_released")) == 2


def test_what_an_earlier_release_kept_for_a_job_that_has_ended_is_released(shell: Shell) -> None:
    shell.tell(submission("own", total_steps=1e6), now_s=3.0)
    old = rule(from_s=3.0, workers=4, job="gone")
    state: Any = shell.control.state
    state.reservations = {"night": old}
    state.engine.handle(ReservationsChanged(reservations=(old,), name="night", members={}), now=3.0)
    assert not state.engine.reservations.may_use(old, "own")
    shell.tell(submission("other"), now_s=4.0)
    assert reservation_views(shell.control.view) == ()
    assert notes(shell, "reservation_released")[0].data["job"] == "gone"
    shell.tell(NodesHeard(heard_s={"n0": 5.0}), now_s=5.0)
    assert {"own", "other"} <= set(state.leases.of_job)


def test_a_change_in_the_step_in_which_its_job_ends_does_not_bring_it_back(shell: Shell) -> None:
    shell.tell(submission("own", total_steps=1e6), now_s=3.0)
    make(shell, rule(from_s=3.0, workers=3, job="own"), now_s=3.5)
    other = ReservationMade(
        reservation=rule(name="day", workers=1, from_s=900.0, until_s=999.0), actor="me"
    )
    ended(shell, "own", 4.0, other)
    shell.tell(NodesHeard(heard_s={"n0": 5.0}), now_s=5.0)
    engine = shell.control.state.engine.reservations
    assert [one.name for one in engine.rules] == ["day"]
    assert [one.reservation.name for one in reservation_views(shell.control.view)] == ["day"]


def test_one_that_is_made_anew_for_others_as_its_job_ends_stays(shell: Shell) -> None:
    shell.tell(submission("own", total_steps=1e6), now_s=3.0)
    make(shell, rule(from_s=3.0, workers=4, job="own"), now_s=3.5)
    deleted = ReservationDeleted(name="night", actor="me")
    again = ReservationMade(reservation=rule(from_s=900.0, until_s=999.0), actor="me")
    ended(shell, "own", 4.0, deleted, again)
    shell.tell(NodesHeard(heard_s={"n0": 5.0}), now_s=5.0)
    assert [one.until_s for one in shell.control.state.engine.reservations.rules] == [999.0]
    assert [one.reservation.until_s for one in reservation_views(shell.control.view)] == [999.0]


def test_a_job_that_could_never_use_it_is_refused(shell: Shell) -> None:
    shell.tell(submission("own", project="vision"), now_s=3.0)
    with pytest.raises(NotFoundError, match="there is no job 'nobody'"):
        make(shell, rule(job="nobody"))
    with pytest.raises(InputError, match="is 'own', which 'me' submitted to project 'vision'"):
        make(shell, rule(job="own", project="speech"))
    row = shell.control.state.jobs.by_id["own"].to_row()
    done = replace(row, job_id="done", status=JobStatus.COMPLETED)
    with pytest.raises(ConflictError, match="'done', which has ended as completed"):
        tell(shell, ReservationMade(reservation=rule(job="done"), actor="me", row=done))
    assert reservation_views(shell.control.view) == ()
    make(shell, rule(job="own", project="vision"))


def test_who_is_pushed_out_by_one_is_told_of_it_and_of_its_end(shell: Shell) -> None:
    """And not that others outbid it, or that the policy gives it no time."""
    shell.tell(submission("a", "b", "c", "d", project="speech", total_steps=1e6), now_s=3.0)
    make(shell, rule(from_s=3.0, workers=4))
    told: set[str] = set()
    now_s = 3.0
    while not told and now_s < 400.0:
        now_s = max(now_s + 1.0, min(shell.control.next_due_s, now_s + 5.0))
        shell.tell(NodesHeard(heard_s={"n0": now_s}), now_s=now_s)
        view = shell.control.view
        leaving = [live.lease.job_id for live in view.leases.by_id.values() if live.revoked]
        records = [view.jobs.by_id[job_id] for job_id in leaving]
        told = {explain(view, record.to_row(), WaitingJobs(view)).message for record in records}
    assert told
    words = "it has to leave (reservation 'night' holds its workers until 1970-01-01T01:06:40"
    assert all(words in message for message in told)


def test_who_has_no_turn_is_told_of_workers_that_are_set_aside(shell: Shell) -> None:
    make(shell, rule(from_s=3.0, workers=3))
    own = submission("own", "own-2", "own-3", project="vision", total_steps=1e6)
    shell.tell(own, now_s=4.0)
    shell.tell(submission("a", "b", project="speech", total_steps=1e6), now_s=5.0)
    view = shell.control.view
    waiting = [r for r in view.jobs.by_id.values() if r.status is JobStatus.WAITING]
    for record in waiting:
        message = explain(view, record.to_row(), WaitingJobs(view)).message
        assert "reservation 'night'" in message
        assert "until 1970-01-01T01:06:40" in message
    assert {record.job_id for record in waiting} & {"a", "b"}
