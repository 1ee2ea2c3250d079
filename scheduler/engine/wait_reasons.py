"""Why jobs wait: stored when a round is planned, and when idle workers are served.

The column ``wait_reasons`` of the job table has a bit for each reason that holds, see
``scheduler.domain.facts.reasons.BITS``. Events that decide alone write it, too: a submission, a
failure and an answer of the policy. A job that is held, has no budget or whose lease is stopping
waits for that, whatever the column says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import distinct_columns
from scheduler.domain.facts.reasons import BITS, WaitReason
from scheduler.engine.events.on_reservations import forbidden_workers, reservation_users
from scheduler.engine.rounds.candidates import NEGLIGIBLE
from scheduler.engine.rounds.kernels import find_wait_reasons
from scheduler.engine.tables.jobs import HELD, NONE, WAITING

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, IntArray
    from scheduler.domain.quota import Caps
    from scheduler.engine.state.state import State

#: Bits that ``find_wait_reasons`` sets, in the order of its constants.
_OF_ROUND = np.array(
    [
        BITS[reason]
        for reason in (
            WaitReason.NO_ALLOCATION,
            WaitReason.NO_SHARE,
            WaitReason.IDLING,
            WaitReason.PLACEMENT,
            WaitReason.TURN,
        )
    ]
)


def store_wait_reasons(state: State) -> None:
    """Store why each job without a lease waits, after a decision that passed it over."""
    jobs = state.jobs
    rows = (jobs["lease"] == NONE).nonzero()[0]
    if not len(rows):
        return
    table, fleet = state.table, state.fleet
    numbers = jobs["number"][rows]
    idle = fleet.count(state.book.idle())
    planned = (
        np.isin(numbers, list(state.book.planned))
        if state.book.planned
        else np.zeros(len(rows), dtype=bool)
    )
    shares = jobs.x[rows].sum(axis=1) > NEGLIGIBLE
    if len(state.pairs):
        shares |= np.isin(numbers, state.pairs.numbers[state.pairs.x > 0])
    profile = jobs["profile"][rows]
    startable, found = find_wait_reasons(
        np.ascontiguousarray(profile),
        shares,
        planned,
        jobs["x_only"][rows] != 0,
        jobs["wait_reasons"][rows],
        table.throughput,
        table.demand,
        idle,
        _OF_ROUND,
    )
    backoff = jobs["retry_at_s"][rows] > state.now_s
    excluded = _excluded(state)
    if excluded is not None:
        backoff |= excluded[rows]
    found[backoff] |= BITS[WaitReason.BACKOFF]
    caps = state.caps()
    if caps is not None:
        full = _without_room(state, caps, rows) & ~backoff & ~planned
        found[full] |= BITS[WaitReason.QUOTA]
    if state.reservations:
        found[_kept_out(state, rows, startable)] |= BITS[WaitReason.RESERVATION]
    jobs["wait_reasons"][rows] = found


def _excluded(state: State) -> BoolArray | None:
    """Return (N,) jobs without a configuration, by avoided nodes or future reservations."""
    exclusions = state.assigner.exclusions(state.fleet.grantable)
    if exclusions is None:
        return None
    usable = state.table.throughput[state.jobs["profile"]] > 0
    result: BoolArray = exclusions.row & ~(usable & ~exclusions.configuration).any(axis=1)
    if state.assigner.rooms:
        result &= ~np.isin(state.jobs["number"], list(state.assigner.rooms))
    return result


def _without_room(state: State, caps: Caps, rows: IntArray) -> BoolArray:
    """Return (R,) which rows have no configuration that their quotas have room for now."""
    jobs, table = state.jobs, state.table
    result: BoolArray = np.zeros(len(rows), dtype=bool)
    capped: BoolArray = np.any(caps.member, axis=1, keepdims=True)[:, 0]
    at = np.flatnonzero((jobs["status"][rows] == WAITING) & capped[caps.group[rows]])
    if not len(at):
        return result
    kinds = np.stack((jobs["profile"][rows[at]], caps.group[rows[at]]))
    first, kind = distinct_columns(kinds)
    unique = kinds[:, first]
    asks = caps.held(unique[1], table.demand[unique[0]])
    left = np.maximum(caps.limit - state.held_of(caps, np.arange(len(jobs))), 0.0)
    usable = table.throughput[unique[0]] > 0
    fits = usable & (asks <= left).all(axis=2)
    result[at] = (usable.any(axis=1) & ~fits.any(axis=1))[kind]
    return result


def _kept_out(state: State, rows: IntArray, startable: BoolArray) -> BoolArray:
    """Return (R,) which rows wait for workers that are or will be set aside for others."""
    jobs, numbers = state.jobs, state.jobs["number"][rows]
    entitled = np.zeros(len(jobs), dtype=bool)
    for rule in state.reservations.in_force:
        entitled |= reservation_users(state, rule)
    lacks: BoolArray = _lacks_reserved(state)[jobs["profile"][rows]] & ~entitled[rows]
    late_numbers = [late for _, late, _ in forbidden_workers(state)]
    if late_numbers:
        lacks |= startable & np.isin(numbers, np.concatenate(late_numbers))
    lacks &= jobs["status"][rows] != HELD
    return lacks


def _lacks_reserved(state: State) -> BoolArray:
    """Return (U,) profiles that workers which are set aside would be enough for, and no others."""
    table, fleet = state.table, state.fleet
    result: BoolArray = np.zeros(len(table.profiles), dtype=bool)
    if not fleet.any_set_aside:
        return result
    serving = fleet.in_service & ~fleet.cordoned
    free = serving & ~state.book.held()
    width, runs = table.demand.shape[2], table.throughput > 0
    for workers in (free, serving):
        without, with_them = (
            (runs & (table.demand <= fleet.count(some)[:width]).all(axis=2)).any(axis=1)
            for some in (workers & ~fleet.set_aside, workers)
        )
        result |= with_them & ~without
    return result
