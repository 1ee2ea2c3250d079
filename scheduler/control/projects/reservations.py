"""Reservations in control: made, deleted, ended, and the jobs that may use them."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.specs import in_words
from scheduler.control.state.jobs import ENDED
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.reservation import Reservation, most_reserved
from scheduler.engine.limits.reservations import RELEASED
from scheduler.errors import ConflictError, InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.control.facts.facts import ReservationDeleted, ReservationMade
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction


def make_reservation(state: ControlState, transaction: Transaction, fact: ReservationMade) -> None:
    """Make a reservation.

    Raises:
        ConflictError: the name is in use, others have reserved too many workers, or the
            reservation's job has ended.
        InputError: the worker type is unknown, the window has passed, or the reservation's job
            belongs to another user.
        NotFoundError: no job has that id.
    """
    rule, known = fact.reservation, state.reservations
    if rule.name in known:
        raise ConflictError(
            f"reservation '{rule.name}' exists already; delete it first, or choose another name"
        )
    if rule.until_s <= transaction.now_s:
        raise InputError(
            f"until_s of reservation '{rule.name}' is {in_words(rule.until_s)}, which has passed "
            f"(it is {in_words(transaction.now_s)}); give a later time"
        )
    _check_workers(state, rule)
    _check_job(state, fact)
    transaction.set(f"reservation/{rule.name}", asdict(rule), actor=fact.actor)
    _tell(state, transaction, (*known.values(), rule), rule.name)
    transaction.record_event(
        "reservation_made", "reservation", rule.name, actor=fact.actor, **_shown(rule)
    )


def _check_workers(state: ControlState, rule: Reservation) -> None:
    engine = state.engine
    names = engine.cluster.type_names
    if rule.worker_type not in names:
        raise InputError(
            f"worker_type of reservation '{rule.name}' is '{rule.worker_type}', which the cluster "
            f"does not have; it has {', '.join(names) or 'none yet'}"
        )
    there = int(engine.count(~engine.retired)[names.index(rule.worker_type)])
    most, who = most_reserved(rule, state.reservations.values())
    if rule.workers + most > there:
        beside = "".join(
            f", and {other.workers} are reserved as '{other.name}' from {in_words(other.from_s)} "
            f"until {in_words(other.until_s)}"
            for other in who
        )
        raise ConflictError(
            f"reservation '{rule.name}' asks for {rule.workers} workers of type "
            f"'{rule.worker_type}'; there are {there}{beside}, which leaves {there - most}"
        )


def _check_job(state: ControlState, fact: ReservationMade) -> None:
    """Refuse a reservation that no job could ever use."""
    rule, row = fact.reservation, fact.row
    record = state.jobs.by_id.get(rule.job)
    if not rule.job or (record is not None and _admits(rule, record)):
        return
    if record is not None:
        raise InputError(
            f"job of reservation '{rule.name}' is '{rule.job}', which '{record.owner}' submitted "
            f"to project '{record.project}'; it could not use workers reserved for {rule.owner}"
        )
    if row is None:
        raise NotFoundError(f"there is no job '{rule.job}'")
    raise ConflictError(
        f"job of reservation '{rule.name}' is '{rule.job}', which has ended as {row.status.value}; "
        "reserve for a job that is to run"
        if row.status in ENDED
        else f"job '{rule.job}' has just changed; try again"
    )


def delete_reservation(
    state: ControlState, transaction: Transaction, fact: ReservationDeleted
) -> None:
    """Delete a reservation and free its workers for all jobs.

    Raises:
        NotFoundError: no reservation has that name.
    """
    if fact.name not in state.reservations:
        raise NotFoundError(f"there is no reservation '{fact.name}'")
    rule = state.reservations[fact.name]
    transaction.set(f"reservation/{rule.name}", None, actor=fact.actor)
    left = [other for other in state.reservations.values() if other.name != rule.name]
    _tell(state, transaction, left, rule.name)
    transaction.record_event("reservation_deleted", "reservation", rule.name, actor=fact.actor)


def end_reservations(state: ControlState, transaction: Transaction) -> None:
    """Delete the reservations with windows in the past."""
    for rule in [r for r in state.reservations.values() if r.until_s <= transaction.now_s]:
        cause = Cause(fact=FactKind.RESERVATION_CHANGED, subject=rule.name)
        transaction.set(f"reservation/{rule.name}", None)
        left = [other for other in state.reservations.values() if other.name != rule.name]
        _tell(state, transaction, left, rule.name)
        transaction.record_event_for(cause, "reservation_ended", "reservation", rule.name)


def release_reservations(state: ControlState, transaction: Transaction) -> None:
    """Release reservations for jobs that are gone, if the engine did not release them itself.

    That is so if the engine never knew the job, if the job ended in the very step that made the
    reservation, or if it ended under a release that kept reservations of ended jobs.
    """
    for rule in [r for r in state.reservations.values() if r.job and r.job not in state.jobs.by_id]:
        left = [other for other in state.reservations.values() if other.name != rule.name]
        _tell(state, transaction, left, rule.name)
        cause = Cause(fact=FactKind.RESERVATION_CHANGED, subject=rule.name)
        note_released(state, transaction, rule.name, rule.job, cause)


def note_released(
    state: ControlState, transaction: Transaction, name: str, job_id: str, cause: Cause
) -> None:
    """Delete a reservation that was released because the only job that it was for has ended.

    A newer reservation of that name, for other jobs, stays.
    """
    rule = state.reservations.get(name)
    if rule is not None and rule.job != job_id:
        return
    state.reservations = {n: rule for n, rule in state.reservations.items() if n != name}
    transaction.set(f"reservation/{name}", None)
    transaction.record_event_for(cause, RELEASED, "reservation", name, job=job_id)
    transaction.record_event_for(cause, RELEASED, "job", job_id, reservation=name)


def entitle_job(state: ControlState, transaction: Transaction, record: JobRecord) -> None:
    """Pass to the engine, before it gets a job, the reservations that the job may use."""
    names = tuple(r.name for r in state.reservations.values() if _admits(r, record))
    if names:
        transaction.emit(ev.JobEntitled(job_id=record.job_id, reservations=names))


def _admits(rule: Reservation, record: JobRecord) -> bool:
    return rule.admits(project=record.project, user=record.owner, job=record.job_id)


def _tell(
    state: ControlState, transaction: Transaction, rules: Sequence[Reservation], name: str
) -> None:
    """Put reservations in force, and pass the engine's jobs that may use them to the engine."""
    state.reservations = {rule.name: rule for rule in rules}
    records = [record for record in state.jobs.by_id.values() if record.blocked_on is None]
    members = {
        rule.name: tuple(record.job_id for record in records if _admits(rule, record))
        for rule in rules
    }
    event = ev.ReservationsChanged(reservations=tuple(rules), name=name, members=members)
    transaction.emit(event)


def _shown(rule: Reservation) -> dict[str, Any]:
    return {name: value for name, value in asdict(rule).items() if name != "name" and value != ""}


def reservation_of(value: Mapping[str, Any]) -> Reservation:
    """Return a stored reservation; fields of a newer release are ignored."""
    known = {field.name for field in fields(Reservation)}
    return Reservation(**{name: given for name, given in value.items() if name in known})
