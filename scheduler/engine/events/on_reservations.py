"""Reservations in the engine: the workers that are set aside, their users, and the time.

The workers of a reservation are *set aside* from the round in which its window begins until the
window ends. The policy's problem does not contain them, and other jobs get no leases or extensions
there. Waiting jobs of the owner are served there first and stay until they are done. So the round
that ends first in the window is the last one of other jobs there. The owner's jobs begin as soon as
their workers are free.

The workers are chosen when the reservation is made, as whole nodes if possible, and again if one of
them goes out of service. Before the window, jobs that could not give them back in time are not
placed there: jobs that are not preemptible and would last longer, and jobs with a least run time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain.facts import events as ev
from scheduler.engine.limits.reservations import RELEASED
from scheduler.engine.tables.jobs import NONE, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.domain.arrays import BoolArray, IntArray
    from scheduler.domain.reservation import Reservation
    from scheduler.engine.state.state import State

#: Name of the timer that fires when a window begins or ends.
WINDOW: Final = "window"
#: Cost of taking a worker, for the choice of workers: nothing, a restart, a broken promise.
_FREE, _HELD, _FIRM = 0, 1, 2


# -- handlers ---------------------------------------------------------------------------------


def _changed(state: State, event: ev.ReservationsChanged) -> None:
    # The sender of this event did not know yet of a job that has ended in the same call.
    given_up = state.reservations.given_up
    known = (rule for rule in event.reservations if (rule.name, rule.job) not in given_up)
    rules = sorted(known, key=lambda rule: (rule.from_s, rule.name))
    members = {rule.name: set(event.members.get(rule.name, ())) for rule in rules}
    _put(state, tuple(rules), members)


def _put(state: State, rules: tuple[Reservation, ...], members: dict[str, set[str]]) -> None:
    """Replace the reservations."""
    found = state.reservations
    found.rules, found.members = rules, members
    found.in_force = tuple(rule for rule in found.in_force if rule in found.rules)
    found.seen, found.next_s = None, -math.inf
    if not found.rules:
        found.workers, found.next_s = {}, math.inf
        _set_aside(state, ())
    state.mark_dirty()


def _entitled(state: State, event: ev.JobEntitled) -> None:
    for name in event.reservations:
        state.reservations.members.setdefault(name, set()).add(event.job_id)


def end_job(state: State, row: int, kind: str, **data: float | str) -> None:
    """End a job, and release the reservations that were made for it alone.

    All jobs may use those workers in the step in which it ends.

    Args:
        state: the engine's.
        row: of the job.
        kind: how it ended, for the history.
        data: for the history.
    """
    job_id = state.remove_job(row, kind, **data)
    found = state.reservations
    if not found:
        return
    found.forget(job_id)
    released = [rule for rule in found.rules if rule.job == job_id]
    if not released:
        return
    left = tuple(rule for rule in found.rules if rule not in released)
    _put(state, left, {rule.name: found.members[rule.name] for rule in left})
    for rule in released:
        found.given_up.add((rule.name, rule.job))
        state.record(RELEASED, rule.name, job=job_id)


HANDLERS: Final[dict[type, Callable[[State, Any], None]]] = {
    ev.ReservationsChanged: _changed,
    ev.JobEntitled: _entitled,
}


# -- effects ----------------------------------------------------------------------------------


def update_windows(state: State) -> None:
    """Update the reservations to the time and the fleet; called before any decision."""
    found, fleet = state.reservations, state.fleet
    usable = fleet.in_service & ~fleet.cordoned
    if found.seen is None or not np.array_equal(found.seen, usable):
        before = {
            rule.name: found.lacking(rule) if rule.name in found.workers else 0
            for rule in found.rules
        }
        _choose(state, usable)
        found.seen = usable
        for rule in found.rules:
            lacking = found.lacking(rule)
            if lacking != before[rule.name] and rule.until_s > state.now_s:
                state.record("reservation_short", rule.name, lacking=lacking)
        _set_aside(state, found.in_force)
    if state.now_s >= found.next_s:
        edges = [t for rule in found.rules for t in (rule.from_s, rule.until_s)]
        found.next_s = min((t for t in edges if t > state.now_s), default=math.inf)
        if found.next_s < math.inf:
            state.set_timer(WINDOW, found.next_s)
    horizon_s = _horizon_s(state)
    in_force = tuple(
        rule
        for rule in found.rules
        if rule.from_s < horizon_s and rule.until_s > state.now_s and found.workers[rule.name]
    )
    if in_force != found.in_force:
        _set_aside(state, in_force)
        state.mark_dirty()


def _horizon_s(state: State) -> float:
    """Return until when the leases last that this call may grant or extend."""
    length_s, end_s = state.settings.round_length_s, state.round_end_s
    if end_s is None or (state.plan_due and state.now_s >= end_s + length_s):
        return state.now_s + length_s
    return end_s + length_s if state.plan_due else end_s


def _set_aside(state: State, in_force: tuple[Reservation, ...]) -> None:
    """Set the workers of some reservations aside; drop the plans of other jobs there."""
    found, fleet = state.reservations, state.fleet
    found.in_force = in_force
    fleet.set_set_aside([w for rule in in_force for w in found.workers[rule.name]])
    if not in_force:
        return
    whose = {w: rule for rule in in_force for w in found.workers[rule.name]}
    for plan in list(state.book.planned.values()):
        rules = {whose[w].name: whose[w] for w in plan.workers if w in whose}
        if any(not found.may_use(rule, plan.job_id) for rule in rules.values()):
            state.assigner.drop_plan(plan.number)


def reservation_users(state: State, rule: Reservation) -> BoolArray:
    """Return (N,) the jobs that may use a reservation's workers."""
    jobs = state.jobs
    result: BoolArray = np.zeros(len(jobs), dtype=bool)
    numbers = [
        jobs.number_of[job_id]
        for job_id in state.reservations.members.get(rule.name, ())
        if job_id in jobs.number_of
    ]
    rows = jobs.rows_of(np.array(numbers, dtype=np.int64))
    result[rows[rows != NONE]] = True
    return result


def bound_by_reservations(state: State) -> tuple[BoolArray, BoolArray]:
    """Return (N,) jobs that stay on workers set aside for them, and jobs that must leave such.

    A job stays if all its workers belong to one reservation in force that it may use. Every other
    job on a worker that is set aside leaves.
    """
    jobs, book, found = state.jobs, state.book, state.reservations
    stays: BoolArray = np.zeros(len(jobs), dtype=bool)
    leaves: BoolArray = np.zeros(len(jobs), dtype=bool)
    for rule in found.in_force:
        own = set(found.workers[rule.name])
        leases = {lease_id for worker in own for lease_id in book.on_worker[worker]}
        for lease_id in sorted(leases - book.stopping):
            row = jobs.row_of(book.leases[lease_id].job_number)
            if jobs["status"][row] != RUNNING:
                continue
            job_id = book.leases[lease_id].job_id
            if found.may_use(rule, job_id) and own.issuperset(book.workers_of(lease_id)):
                stays[row] = True
            else:
                leaves[row] = True
    return stays & ~leaves, leaves


def pinned_jobs(state: State) -> BoolArray:
    """Return (N,) pinned jobs: they keep their workers, and compete for nothing.

    These are jobs on cordoned workers: a job that outbids one of them cannot run in its place, so
    the time would be lost. Jobs on workers that are set aside for them are pinned, too, but no job
    on workers that are set aside for others. If quotas have no room for all of them, the oldest
    leases go on and the other jobs are not pinned.
    """
    result = np.zeros(len(state.jobs), dtype=bool)
    if not (state.fleet.any_cordoned or state.fleet.any_set_aside):
        return result
    stays, leaves = (
        bound_by_reservations(state) if state.fleet.any_set_aside else (result, result.copy())
    )
    result |= stays
    for worker in np.flatnonzero(state.fleet.cordoned).tolist():
        for lease_id in state.book.on_worker[worker]:
            if lease_id not in state.book.stopping:
                row = state.jobs.row_of(state.book.leases[lease_id].job_number)
                goes_on = state.jobs["status"][row] == RUNNING
                result[row] = goes_on and not state.jobs["unfunded"][row] and not leaves[row]
    caps = state.caps()
    if caps is not None and (state.held_of(caps, np.flatnonzero(result)) > caps.limit).any():
        rows = np.flatnonzero(result)
        for row in rows[np.argsort(state.jobs["lease"][rows])]:
            takes = state.held_of(caps, np.array([row]))
            rest = caps.less(takes)
            result[row] = bool((rest.limit[takes > 0] >= 0.0).all())
            caps = rest if result[row] else caps
    return result


def can_grant_reserved(state: State, rule: Reservation) -> bool:
    """Return whether the workers of a reservation may be granted to its owner's jobs.

    Before the window, this needs that no other job is on any of them, so that smaller jobs do not
    overtake a gang. Also no other reservation of these workers may have an earlier window that
    still lasts.
    """
    book, found = state.book, state.reservations
    if state.now_s >= rule.from_s:
        return True
    own = found.workers[rule.name]
    before = (other for other in found.in_force if other.until_s <= rule.from_s)
    if any(not set(own).isdisjoint(found.workers[other.name]) for other in before):
        return False
    leases = {i for worker in own for i in book.on_worker[worker]}
    return all(found.may_use(rule, book.leases[i].job_id) for i in leases)


def grantable_until_round_end(state: State, rule: Reservation) -> list[int]:
    """Return the workers of a reservation in force that can be granted until the round ends.

    If its window ends in this round and that of another reservation begins, workers of both are
    kept for the other one.
    """
    found = state.reservations
    later = [other for other in found.in_force if other.from_s >= rule.until_s]
    taken = {worker for other in later for worker in found.workers[other.name]}
    return [worker for worker in found.workers[rule.name] if worker not in taken]


def forbidden_workers(state: State) -> list[tuple[Reservation, IntArray, BoolArray]]:
    """Return future reservations, with the jobs that must not be placed on their workers.

    Returns:
        For each the (n,) numbers of jobs that could not leave in time, and (W,) its workers.
    """
    found, jobs, table = state.reservations, state.jobs, state.table
    later = [rule for rule in found.rules if rule not in found.in_force]
    later = [rule for rule in later if rule.from_s > state.now_s and found.workers[rule.name]]
    firm = np.flatnonzero((jobs["unpreemptible"] != 0) | (jobs["min_run_s"] > 0))
    if not later or not len(firm):
        return []
    result = []
    for rule in later:
        index = state.fleet.type_names.index(rule.worker_type)
        profile = jobs["profile"][firm]
        fits = table.demand[profile, :, index] > 0
        fastest = np.where(fits, table.throughput[profile], 0.0).max(axis=1, initial=0.0)
        left = jobs["total_steps"][firm] - jobs["steps_done"][firm]
        needs_s = np.where(jobs["unpreemptible"][firm] != 0, left / np.maximum(fastest, 1e-12), 0.0)
        least_s = np.minimum(jobs["min_run_s"][firm], state.settings.patience_s)
        end_s = state.now_s + jobs["restart_s"][firm] + np.maximum(needs_s, least_s)
        late = firm[(end_s > rule.from_s) & ~reservation_users(state, rule)[firm]]
        if len(late):
            result.append((rule, jobs.ints("number")[late], _mask(state, found.workers[rule.name])))
    return result


def forbid_workers(state: State) -> None:
    """Keep jobs off workers that are reserved for a time when they could not have left."""
    if state.reservations:
        found = [(numbers, workers) for _, numbers, workers in forbidden_workers(state)]
        state.assigner.forbidden_workers = found
    elif state.assigner.forbidden_workers:
        state.assigner.forbidden_workers = ()


def _mask(state: State, workers: Sequence[int]) -> BoolArray:
    mask: BoolArray = np.zeros(state.fleet.workers, dtype=bool)
    mask[list(workers)] = True
    return mask


# -- choice of workers ------------------------------------------------------------------------


def _choose(state: State, usable: BoolArray) -> None:
    """Choose the workers of all reservations; each keeps its workers as far as possible."""
    found = state.reservations
    chosen = _choice(state, usable, found.workers)
    if any(len(chosen[rule.name]) < rule.workers for rule in found.rules):
        # Kept workers may block other reservations; only those in force must keep theirs.
        kept = {rule.name: found.workers.get(rule.name, ()) for rule in found.in_force}
        other = _choice(state, usable, kept)
        if sum(map(len, other.values())) > sum(map(len, chosen.values())):
            chosen = other
    found.workers = chosen


def _choice(
    state: State, usable: BoolArray, kept: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    chosen: dict[str, tuple[int, ...]] = {}
    done: list[Reservation] = []
    for rule in state.reservations.rules:
        open_to = usable.copy()
        for other in done:
            if other.overlaps(rule):
                open_to[list(chosen[other.name])] = False
        if rule.worker_type in state.fleet.type_names:
            open_to &= state.fleet.type_of == state.fleet.type_names.index(rule.worker_type)
            chosen[rule.name] = _pick(state, rule, open_to, kept.get(rule.name, ()))
        else:
            chosen[rule.name] = ()
        done.append(rule)
    return chosen


def _pick(
    state: State, rule: Reservation, open_to: BoolArray, kept: tuple[int, ...]
) -> tuple[int, ...]:
    """Pick workers: kept ones, then those on few nodes, and those with few jobs to move."""
    own = [w for w in kept if w < len(open_to) and open_to[w]][: rule.workers]
    open_to[own] = False
    need = rule.workers - len(own)
    if not need or not open_to.any():
        return tuple(sorted(own))
    cost = _costs(state, rule)
    node_of = state.fleet.node_of
    alike = state.fleet.type_of == state.fleet.type_of[open_to][0]
    size_of = np.bincount(node_of[state.fleet.in_service & ~state.fleet.cordoned & alike])
    near = {int(node_of[w]) for w in own}
    nodes: dict[int, list[int]] = {}
    for worker in np.flatnonzero(open_to).tolist():
        nodes.setdefault(int(node_of[worker]), []).append(worker)

    def worth(node: int) -> tuple[float, ...]:
        costs = sorted(cost[w] for w in nodes[node])[:need]
        firm, held = _FIRM in costs, sum(costs) / len(costs)
        # The rest of a node, of which others have reserved a part, is no whole node.
        whole = int(size_of[node]) == len(nodes[node]) <= need
        if whole:
            return (node not in near, firm, False, -len(nodes[node]), held, node)
        return (node not in near, firm, True, held, len(nodes[node]), node)

    for node in sorted(nodes, key=worth):
        workers = sorted(nodes[node], key=lambda w: (cost[w], w))
        own += workers[: rule.workers - len(own)]
    return tuple(sorted(own))


def _costs(state: State, rule: Reservation) -> list[int]:
    """Return the cost of taking each worker, for the jobs that hold it now."""
    jobs, book, found = state.jobs, state.book, state.reservations
    cost = [_FREE] * state.fleet.workers
    for lease_id, lease in book.leases.items():
        row = jobs.row_of(lease.job_number)
        if found.may_use(rule, lease.job_id) or lease_id in book.stopping:
            continue
        firm = jobs["unpreemptible"][row] or jobs["min_run_s"][row] > 0
        for worker in lease.workers:
            cost[worker] = max(cost[worker], _FIRM if firm else _HELD)
    return cost
