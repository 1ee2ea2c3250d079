"""Whether the reason that the engine stores for a waiting job held when the decision was made.

It is found again from the state alone, worker by worker and without arrays of all jobs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from scheduler.domain.facts.reasons import WaitReason, reasons_in
from scheduler.engine import engine as engine_module
from scheduler.engine.tables.jobs import NONE, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """Yield the waiting jobs with a reason that does not hold, or without one that does."""
    jobs = state.jobs
    for row in range(len(jobs)):
        if jobs["status"][row] != WAITING or jobs["lease"][row] != NONE:
            continue
        told = set(reasons_in(int(jobs["wait_reasons"][row])))
        number = int(jobs["number"][row])
        of_round = told & OF_ROUND
        if len(of_round) != 1:
            yield f"job {number} waits for {sorted(of_round)}; one of the round's must hold"
            continue
        (reason,) = of_round
        if reason is not WaitReason.NO_ALLOCATION and reason is not _of_round(state, row):
            yield f"job {number} waits for {reason}, but {_of_round(state, row)} holds"
        late = jobs["retry_at_s"][row] > state.now_s
        if late and WaitReason.BACKOFF not in told:
            yield f"job {number} is not told that it is tried again later"
        if WaitReason.BACKOFF in told and not late and not _avoids(state, row):
            yield f"job {number} waits for backoff, and nothing keeps it from running"
        if WaitReason.QUOTA in told and _quota_allows(state, row):
            yield f"job {number} waits for a quota that has room"
        if WaitReason.RESERVATION in told and not state.reservations.rules:
            yield f"job {number} waits for a reservation, and there is none"


def _of_round(state: State, row: int) -> WaitReason:
    """Return the reason by the policy's answer and the idle workers."""
    jobs = state.jobs
    number = int(jobs["number"][row])
    planned = number in state.book.planned
    could_start = not planned and any(
        all(
            asked <= sum(1 for w in idle_workers(state) if int(state.fleet.type_of[w]) == k)
            for k, asked in enumerate(demand)
        )
        for demand in _usable(state, row)
    )
    if could_start and jobs["x_only"][row]:
        return WaitReason.IDLING
    shared = any(
        number in pair and x > 0
        for pair, x in zip(state.pairs.numbers.tolist(), state.pairs.x.tolist(), strict=True)
    )
    if not shared and sum(jobs.x[row].tolist()) <= 1e-6:
        return WaitReason.NO_SHARE
    return WaitReason.PLACEMENT if could_start else WaitReason.TURN


def idle_workers(state: State) -> list[int]:
    """Return the workers that may be granted, and that no lease and no plan holds."""
    taken = {w for lease in state.book.leases.values() for w in lease.workers}
    taken |= {w for plan in state.book.planned.values() for w in plan.workers}
    return [w for w, may in enumerate(state.fleet.grantable.tolist()) if may and w not in taken]


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


def _quota_allows(state: State, row: int) -> bool:
    """Return whether a job's quotas have room for one of its configurations."""
    caps = state.caps()
    if caps is None:
        return True
    held = state.held_of(caps, state.rows_by_lease()).tolist()
    member = caps.member[int(caps.group[row])].tolist()
    return any(
        all(
            sum(n for n, counts in zip(demand, caps.counts[q].tolist(), strict=False) if counts)
            <= max(limit - held[q], 0.0)
            for q, limit in enumerate(caps.limit.tolist())
            if member[q]
        )
        for demand in _usable(state, row)
    )
