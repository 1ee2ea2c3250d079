"""Leases that go on into the next round although other jobs are due on their workers.

There are four kinds: leases of jobs that are not preemptible, leases that are younger than their
job's least time, leases that are not yet worth their launch, and leases of jobs that have lost
their work. Two bounds limit the loss of other jobs: shares bound the workers, and
``EngineSettings.patience_s`` bounds the time. A job that is not preemptible keeps its workers until
it ends, so the bounds decide whether it may start: it needs room in its entity's share, a limited
time, or workers that no other job wants. The time counts against X, so that it is given back.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.tables.jobs import HELD, NONE, RUNNING, WAITING

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.quota import Caps
    from scheduler.engine.settings import EngineSettings
    from scheduler.engine.state.state import State
    from scheduler.engine.tables.jobs import JobTable

#: A job that has lost work is not preempted for this many times the seconds that it lost in a row.
#: So it loses at most 9/8 of the time that it needs. ``benchmarks/getting_done.py`` compares
#: others.
TIMES_LOST: Final = 8.0
#: Losses in a row from which on the history records them.
WORTH_TELLING: Final = 3

#: A job keeps its workers until it has run for this many times its launch time. So launches take at
#: most a fifth of the time that it holds workers, unless it completes before.
#: ``benchmarks/launches.py`` compares others.
WORTH: Final = 4.0


class Protection(enum.IntEnum):
    """Why a lease goes on, as stored in the column ``kept`` of the job table."""

    NOT = 0  #: it does not go on, or no protection was needed
    LEAST_TIME = 1  #: it is younger than its job's least run time
    TO_ITS_END = 2  #: its job is not preemptible
    AFTER_LOSSES = 3  #: its job has lost its work before, and saves no work
    LAUNCHED = 5  #: it is not yet worth its launch
    NO_ROOM = 4  #: it does not go on: its job is not preemptible, but quotas have been lowered


def patience_s(lost_s: FloatArray, settings: EngineSettings) -> FloatArray:
    """Return how long jobs are not preempted after they have lost ``lost_s`` in a row."""
    result: FloatArray = np.minimum(TIMES_LOST * lost_s, settings.patience_s)
    return result


def entity_shares(state: State) -> FloatArray:
    """Return (E, K) whole workers of each type in an entity's share; 0 without jobs.

    It is the weight's part of the workers in service, among entities with jobs that are not held.
    """
    jobs = state.jobs
    capacity = state.fleet.count(state.fleet.in_service)
    weight = np.zeros(len(state.entities))
    present = np.unique(jobs["entity"][jobs["status"] != HELD])
    weight[present] = [state.entities[e].weight for e in present.tolist()]
    total = weight.sum()
    part = weight / total if total > 0 else weight
    result: FloatArray = np.floor(part[:, None] * capacity + 1e-9)
    return result


def protect_leases(
    state: State, candidates: BoolArray, caps: Caps | None = None
) -> BoolArray | None:
    """Find the leases that go on into the next round, and store why in the column ``kept``.

    Oldest leases come first, so that a protected job does not lose its protection to a newer one.

    Args:
        state: of the engine.
        candidates: (N,) jobs that compete for workers.
        caps: quotas that are left to them; None if there are no quotas.

    Returns:
        (N,) jobs that keep their workers; None if there are no such jobs.
    """
    jobs = state.jobs
    if jobs["kept"].any():
        jobs["kept"][:] = Protection.NOT
    asks = (jobs["unpreemptible"] != 0) | (jobs["min_run_s"] > 0) | (jobs["lost_s"] > 0)
    asks |= (jobs.restarts_s > 0).any(axis=1) | (jobs["restart_s"] > 0)
    if not asks.any():
        return None
    asks &= candidates & (jobs["status"] == RUNNING)
    asks &= (jobs["configuration"] != NONE) | (jobs["pair"] != NONE)
    if state.book.stopping:
        asks &= ~np.isin(jobs["lease"], list(state.book.stopping))
    rows = np.flatnonzero(asks)
    rows = rows[np.argsort(jobs["lease"][rows])]
    early, launched, waits = _young(state, rows)
    lasts = jobs["unpreemptible"][rows] != 0
    share = entity_shares(state)
    used = np.zeros_like(share)
    result: BoolArray = np.zeros(len(jobs), dtype=bool)
    for i in np.flatnonzero(early | launched | waits | lasts).tolist():
        row, entity = int(rows[i]), int(jobs["entity"][rows[i]])
        workers = state.fleet.type_of[list(state.book.workers_of(int(jobs["lease"][row])))]
        held = np.bincount(workers, minlength=share.shape[1])
        rest, allowed = _beside(state, caps, row)
        within = bool((used[entity] + held <= share[entity]).all()) or not used[entity].any()
        found = (
            (early[i], Protection.LEAST_TIME),
            (lasts[i] and allowed, Protection.TO_ITS_END),
            (launched[i] and allowed, Protection.LAUNCHED),
            (waits[i] and allowed and within, Protection.AFTER_LOSSES),
            (lasts[i], Protection.NO_ROOM),
        )
        why = next((why for holds, why in found if holds), Protection.NOT)
        if why in {Protection.NOT, Protection.NO_ROOM}:
            jobs["kept"][row] = why
            continue
        if why is not Protection.LAUNCHED:  # it is over soon, and shares do not bound it
            used[entity] += held
        caps = rest
        _note(state, result, row, why)
    return result if result.any() else None


def _young(state: State, rows: IntArray) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return (R,) which leases of some rows are younger than each protection lasts.

    The protections are the job's least time, the time that is worth the launch, and the patience
    after losses. The first two do not count the launch as time that the job has run.
    """
    jobs, most_s = state.jobs, state.settings.patience_s
    starts_s = [state.book.start_s_of(lease_id) for lease_id in jobs["lease"][rows].tolist()]
    held_s = state.now_s - np.array(starts_s, dtype=float)
    launch_s = jobs.restarts_held(rows)
    ran_s = held_s - launch_s
    least_s = np.minimum(jobs["min_run_s"][rows], most_s)
    worth_s = np.minimum(WORTH * launch_s, most_s)
    early = (least_s > 0) & (ran_s < least_s)
    launched = (worth_s > 0) & (ran_s < worth_s)
    return early, launched, held_s < patience_s(jobs["lost_s"][rows], state.settings)


def share_rooms(state: State) -> dict[int, IntArray]:
    """Return the workers of shares that are left to waiting jobs that are not preemptible.

    Jobs come in the order of their numbers: a later job gets the workers that earlier ones leave.

    Returns:
        Job number -> (K,) workers. Jobs that may start anywhere are left out: their time is limited
        to ``EngineSettings.patience_s``, or their entity's share is all workers.
    """
    jobs = state.jobs
    firm = jobs["unpreemptible"] != 0
    if not firm.any():
        return {}
    planned = np.isin(jobs["number"], list(state.book.planned))
    waits = np.flatnonzero(firm & (jobs["status"] == WAITING) & ~planned)
    if not len(waits):
        return {}
    left = entity_shares(state)
    everything = (left == state.fleet.count(state.fleet.in_service)).all(axis=1)
    for row in np.flatnonzero(firm & (planned | (jobs["lease"] != NONE))).tolist():
        number, lease_id = int(jobs["number"][row]), int(jobs["lease"][row])
        plan = state.book.planned.get(number)
        workers = state.book.workers_of(lease_id) if plan is None else plan.workers
        left[jobs["entity"][row]] -= np.bincount(
            state.fleet.type_of[list(workers)], minlength=left.shape[1]
        )
    found: dict[int, IntArray] = {}
    table, most_s = state.table, state.settings.patience_s
    for row in waits[~everything[jobs["entity"][waits]]].tolist():
        number, room = int(jobs["number"][row]), left[jobs["entity"][row]]
        if jobs.job_of[number].max_run_time_s <= most_s:
            continue
        found[number] = room.astype(np.int64)
        if room.max(initial=0.0) < 1.0:
            continue
        profile = jobs["profile"][row]
        demand = table.demand[profile]
        fits = (table.throughput[profile] > 0) & (demand <= room[: demand.shape[1]]).all(axis=1)
        room[: demand.shape[1]] -= demand[fits].max(axis=0, initial=0)
    return found


def _beside(state: State, caps: Caps | None, row: int) -> tuple[Caps | None, bool]:
    """Return the quotas left beside a job that goes on, and whether they allow it to go on."""
    if caps is None:
        return None, True
    takes = state.held_of(caps, np.array([row]))
    rest = caps.less(takes)
    return rest, bool((rest.limit[takes > 0] >= 0.0).all())


def _note(state: State, kept: BoolArray, row: int, why: Protection) -> None:
    """Protect a job, and the job that shares its workers unless that job is stopping."""
    jobs = state.jobs
    kept[row] = True
    jobs["kept"][row] = why
    entry = jobs["pair"][row]
    if entry != NONE:
        both = (jobs["pair"] == entry) & (jobs["status"] == RUNNING) & ~kept
        both &= ~np.isin(jobs["lease"], list(state.book.stopping))
        jobs["kept"][both] = why
        kept |= both


def note_lost_work(jobs: JobTable, row: int, *, ran_s: float) -> None:
    """Note that a job was revoked and has lost all work of the lease."""
    jobs["wasted"][row] += 1
    jobs["lost_s"][row] += ran_s


def note_saved_work(jobs: JobTable, rows: IntArray) -> None:
    """Note that jobs have saved work: their protection after losses ends."""
    jobs["wasted"][rows] = 0
    jobs["lost_s"][rows] = 0.0
