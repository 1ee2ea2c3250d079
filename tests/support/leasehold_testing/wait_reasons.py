"""Whether the reason that the engine stores for a waiting job held when the decision was made.

It is found again from the state alone, worker by worker and without arrays of all jobs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from scheduler.domain.facts.reasons import WaitReason, reasons_in
from scheduler.engine import engine as engine_module
from scheduler.engine.tables.jobs import HELD, NONE, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from scheduler.domain.reservation import Reservation
    from scheduler.engine.state.state import State

#: Reasons by the policy's answer and the workers that are left: just one of them holds.
OF_ROUND = {
    WaitReason.NO_ALLOCATION,
    WaitReason.NO_SHARE,
    WaitReason.IDLING,
    WaitReason.PLACEMENT,
    WaitReason.TURN,
}


@contextlib.contextmanager
def checked_wait_reasons(note: Callable[[str], object]) -> Iterator[None]:
    """Check the reasons after each decision of any engine; ``note`` is called with each fault."""
    module = vars(engine_module)
    store = module["store_wait_reasons"]

    def store_and_check(state: State) -> None:
        store(state)
        for fault in faults_of(state):
            note(fault)

    module["store_wait_reasons"] = store_and_check
    try:
        yield
    finally:
        module["store_wait_reasons"] = store


def faults_of(state: State) -> Iterator[str]:
    """Yield the jobs without a lease that have a wrong reason, or lack one that holds."""
    jobs = state.jobs
    for row in range(len(jobs)):
        if jobs["lease"][row] != NONE:
            continue
        told = set(reasons_in(int(jobs["wait_reasons"][row])))
        number = int(jobs["number"][row])
        if jobs["status"][row] == WAITING:
            yield from _faults_of_waiting(state, row, told)
        for reason, holds in (
            (WaitReason.QUOTA, _lacks_quota(state, row, told)),
            (WaitReason.RESERVATION, _lacks_workers_kept(state, row)),
        ):
            if holds != (reason in told):
                says = "is not told" if holds else "is told"
                yield f"job {number} {says} that it waits for its {reason}"


def _faults_of_waiting(state: State, row: int, told: Collection[WaitReason]) -> Iterator[str]:
    """Yield what is wrong with a waiting job's reason of the round, and with its backoff."""
    jobs = state.jobs
    number = int(jobs["number"][row])
    of_round = OF_ROUND.intersection(told)
    if len(of_round) != 1:
        yield f"job {number} waits for {sorted(of_round)}; one of the round's must hold"
        return
    (reason,) = of_round
    if reason is not WaitReason.NO_ALLOCATION and reason is not _of_round(state, row):
        yield f"job {number} waits for {reason}, but {_of_round(state, row)} holds"
    late = jobs["retry_at_s"][row] > state.now_s
    if late and WaitReason.BACKOFF not in told:
        yield f"job {number} is not told that it is tried again later"
    if WaitReason.BACKOFF in told and not late and not _avoids(state, row):
        yield f"job {number} waits for backoff, and nothing keeps it from running"


def _of_round(state: State, row: int) -> WaitReason:
    """Return the reason by the policy's answer and the idle workers."""
    jobs = state.jobs
    number = int(jobs["number"][row])
    startable = could_start(state, row)
    if startable and jobs["x_only"][row]:
        return WaitReason.IDLING
    shared = any(
        number in pair and x > 0
        for pair, x in zip(state.pairs.numbers.tolist(), state.pairs.x.tolist(), strict=True)
    )
    if not shared and sum(jobs.x[row].tolist()) <= 1e-6:
        return WaitReason.NO_SHARE
    return WaitReason.PLACEMENT if startable else WaitReason.TURN


def could_start(state: State, row: int) -> bool:
    """Return whether a job is not planned, and idle workers are enough for it."""
    planned = int(state.jobs["number"][row]) in state.book.planned
    return not planned and _fit(state, row, idle_workers(state))


def idle_workers(state: State) -> list[int]:
    """Return the workers that may be granted, and that no lease and no plan holds."""
    planned = {w for plan in state.book.planned.values() for w in plan.workers}
    taken = planned | _set_aside(state)
    return [w for w in _free(state, _serving(state)) if w not in taken]


def _serving(state: State) -> list[int]:
    """Return the workers that are in service and not cordoned."""
    columns = zip(state.fleet.in_service.tolist(), state.fleet.cordoned.tolist(), strict=True)
    return [w for w, (serves, cordoned) in enumerate(columns) if serves and not cordoned]


def _free(state: State, workers: Collection[int]) -> list[int]:
    """Return those of some workers that no lease holds."""
    held = {w for lease in state.book.leases.values() for w in lease.workers}
    return [w for w in workers if w not in held]


def _set_aside(state: State) -> set[int]:
    """Return the workers of the reservations in force."""
    found = state.reservations
    return {w for rule in found.in_force for w in found.workers[rule.name]}


def _fit(state: State, row: int, workers: Collection[int]) -> bool:
    """Return whether some workers are enough for one of a job's configurations."""
    types = [int(state.fleet.type_of[w]) for w in workers]
    return any(
        all(asked <= types.count(k) for k, asked in enumerate(demand))
        for demand in _usable(state, row)
    )


def _usable(state: State, row: int) -> list[list[int]]:
    """Return the workers by type of each configuration in which a job can run."""
    profile = int(state.jobs["profile"][row])
    ways = zip(
        state.table.throughput[profile].tolist(), state.table.demand[profile].tolist(), strict=True
    )
    return [demand for rate, demand in ways if rate > 0 and sum(demand)]


def _avoids(state: State, row: int) -> bool:
    """Return whether a job avoids nodes or reserved workers."""
    number = int(state.jobs["number"][row])
    avoids = number in state.assigner.avoidance.active(state.now_s)
    return avoids or any(number in late.tolist() for late, _ in state.assigner.forbidden_workers)


def _lacks_quota(state: State, row: int, told: Collection[WaitReason]) -> bool:
    """Return whether a job could be tried now, but its quotas have room for no configuration."""
    jobs, caps = state.jobs, state.caps()
    if caps is None or jobs["status"][row] != WAITING or WaitReason.BACKOFF in told:
        return False
    own = [q for q, under in enumerate(caps.member[int(caps.group[row])].tolist()) if under]
    ways = _usable(state, row)
    if not own or not ways or int(jobs["number"][row]) in state.book.planned:
        return False
    rooms = []
    for q in own:
        counts = caps.counts[q].tolist()
        held = {
            w
            for lease in state.book.leases.values()
            if caps.member[int(caps.group[jobs.row_of(lease.job_number)])][q]
            for w in lease.workers
            if counts[int(state.fleet.type_of[w])]
        }
        rooms.append((counts, max(float(caps.limit[q]) - len(held), 0.0)))
    return not any(
        all(
            sum(n for n, counted in zip(demand, counts, strict=False) if counted) <= room
            for counts, room in rooms
        )
        for demand in ways
    )


def _lacks_workers_kept(state: State, row: int) -> bool:
    """Return whether a job waits for workers that are or will be set aside for others."""
    if not state.reservations.rules or state.jobs["status"][row] == HELD:
        return False
    entitled = any(_may_use(state, rule, row) for rule in state.reservations.in_force)
    if not entitled and _lacks_reserved(state, row):
        return True
    late = any(late_for(state, rule, row) for rule in state.reservations.rules)
    return late and could_start(state, row)


def _may_use(state: State, rule: Reservation, row: int) -> bool:
    """Return whether a job may use the workers of a reservation."""
    job = state.jobs.job_of[int(state.jobs["number"][row])]
    return job.job_id in state.reservations.members.get(rule.name, ())


def _lacks_reserved(state: State, row: int) -> bool:
    """Return whether workers that are set aside would be enough for a job, and no others."""
    aside, serving = _set_aside(state), _serving(state)
    return any(
        _fit(state, row, workers) and not _fit(state, row, [w for w in workers if w not in aside])
        for workers in (_free(state, serving), serving)
    )


def late_for(state: State, rule: Reservation, row: int) -> bool:
    """Return whether a job could not leave the workers of a future reservation in time."""
    jobs, found = state.jobs, state.reservations
    future = rule not in found.in_force and rule.from_s > state.now_s
    if not future or not found.workers[rule.name] or _may_use(state, rule, row):
        return False
    if not jobs["unpreemptible"][row] and not jobs["min_run_s"][row] > 0:
        return False
    lasts_s = min(float(jobs["min_run_s"][row]), state.settings.patience_s)
    if jobs["unpreemptible"][row]:
        left = float(jobs["total_steps"][row] - jobs["steps_done"][row])
        lasts_s = max(lasts_s, left / max(_fastest(state, rule, row), 1e-12))
    return state.now_s + float(jobs["restart_s"][row]) + lasts_s > rule.from_s


def _fastest(state: State, rule: Reservation, row: int) -> float:
    """Return the most steps/s of a job on workers of a reservation's type; 0 if it has none."""
    profile, kind = int(state.jobs["profile"][row]), state.fleet.type_names.index(rule.worker_type)
    ways = zip(state.table.throughput[profile], state.table.demand[profile], strict=True)
    return max((float(rate) for rate, demand in ways if demand[kind] > 0), default=0.0)
