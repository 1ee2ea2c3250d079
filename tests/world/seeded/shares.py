"""Checks of reservations, budgets and fading use, from rows and processes."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.control.projects.budgets import spending_by_project
from scheduler.control.state.jobs import ENDED
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.reservation import Reservation
from scheduler.errors import ConflictError, InputError, NotFoundError
from seeded.machines import EPOCH_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold_testing.memory_store import MemoryStore
    from scheduler.control.state.state import ControlState
    from scheduler.domain.rows import AttemptRow
    from scheduler.runtime.driver.driver import Driver
    from scheduler.store.protocol import Entry
    from seeded.scenario import Booking
    from seeded.world import World

#: How long before a round ends the next one is planned.
LEAD_S = 3.0
#: Rounds, and seconds besides, for which an owner's job may wait beside reserved workers that idle.
IDLE_ROUNDS, IDLE_S = 2.0, 8.0
#: Nothing went wrong for so long: then what waits has to be served.
QUIET_S = 10.0


def faded_s(row: AttemptRow, now_s: float, half_life_s: float) -> float:
    """Return the rest of a lease's worker-seconds, by the integral of its fading."""
    end_s = now_s if row.ended_s is None else min(row.ended_s, now_s)
    if end_s <= row.start_s:
        return 0.0
    at_end, at_start = (2.0 ** ((t - now_s) / half_life_s) for t in (end_s, row.start_s))
    return len(row.workers) * half_life_s / math.log(2.0) * (at_end - at_start)


def held_us(row: AttemptRow, now_s: float) -> int:
    """Return the worker-microseconds of a lease, as the ledger counts them."""
    end_s = now_s if row.ended_s is None else row.ended_s
    return max(_in_us(end_s) - _in_us(row.start_s), 0) * len(row.workers)


def _in_us(time_s: float) -> int:
    return math.floor(time_s * 1_000_000)


class Shares:
    """Checks that promises are kept.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        #: lease id -> its newest row.
        self._rows: dict[int, AttemptRow] = {}
        #: name -> reservation that was promised, and not given up since.
        self._kept: dict[str, Reservation] = {}
        #: names of reservations with an ended job at the last look.
        self._over: set[str] = set()
        #: (reservation, worker) -> since when it is one of its workers.
        self._joined: dict[tuple[str, int], float] = {}
        #: lease id -> deadline when it was looked at last.
        self._deadline: dict[int, float] = {}
        #: reservations with a recorded first moment without others.
        self._cleared: set[str] = set()
        #: (reservation, job) -> since when the job waits while enough of the workers idle.
        self._waits: dict[tuple[str, str], float] = {}
        self._turns = 0
        #: since when the engine has not looked at which workers can be used; None: it has.
        self._unseen_s: float | None = None

    # -- what people do ---------------------------------------------------------------------------

    async def book(self, booking: Booking) -> None:
        """Make a reservation as soon as there are workers for it, and delete it again."""
        world = self._world
        await asyncio.sleep(booking.at_s)
        rule = Reservation(
            name=booking.name,
            worker_type=booking.worker_type,
            workers=booking.workers,
            from_s=EPOCH_S + booking.from_s,
            until_s=EPOCH_S + booking.until_s,
            project=booking.project,
            job=booking.job,
        )
        while world.loop.now_s < booking.until_s:
            known = not rule.job or world.database.store.job(rule.job) is not None
            answer = await world.ask(lambda s: s.reserve(rule, actor="user"))
            self._booked(rule, answer, known=known)
            if rule.name in self._kept:
                break
            await asyncio.sleep(1.0)
        if booking.gone_s is not None and rule.name in self._kept:
            await asyncio.sleep(max(booking.gone_s - world.loop.now_s, 0.0))
            self._kept.pop(rule.name, None)
            await world.ask(lambda s: s.delete_reservation(rule.name, actor="user"))

    def _booked(self, rule: Reservation, answer: Any, *, known: bool) -> None:
        """Look at the answer to a reservation; ``known``: the job that it is for was stored."""
        world = self._world
        stored = {row.key for row in world.database.store.settings("reservation/")}
        again = isinstance(answer, ConflictError) and "already" in str(answer)
        if again and f"reservation/{rule.name}" in stored:
            answer = None  # the answer to an earlier request was lost on its way
        row = world.database.store.job(rule.job) if rule.job else None
        over = row is not None and row.status in ENDED
        unknown = isinstance(answer, NotFoundError) and (over or not known)
        if isinstance(answer, InputError | ConflictError) or unknown:
            world.record("not reserved", rule.name, str(answer))
            return
        if isinstance(answer, Exception):
            world.blame(f"reservation {rule.name} was not taken in: {answer!r}")
            return
        if over:
            world.record("reserved for a job that has ended since", rule.name)
            return
        self._kept[rule.name] = rule
        world.record("reserved", repr(rule))
        passed = rule.until_s <= self._now_s + self._slack_s
        if f"reservation/{rule.name}" not in stored and not passed:
            world.blame(f"reservation {rule.name} was taken in and is not stored")

    # -- as it runs -------------------------------------------------------------------------------

    @property
    def _now_s(self) -> float:
        return EPOCH_S + self._world.loop.now_s

    @property
    def _slack_s(self) -> float:
        """By how much the leader's clock may be another one."""
        return 0.35 + 2 * self._world.scenario.skew_s + self._world.clock_slack_s

    def _admits(self, rule: Reservation, job_id: str) -> bool:
        project = self._world.scenario.project_of(job_id)
        return rule.admits(project=project, user="user", job=job_id)

    def committed(self, entry: Entry) -> None:
        """Check the last commit: a spent budget gets nothing new."""
        later: list[tuple[AttemptRow, float]] = []
        for row in entry.projections.attempts:
            before = self._rows.get(row.lease_id)
            if row.ended_s is None and (before is None or row.deadline_s > before.deadline_s):
                later.append((row, row.deadline_s))
            self._rows[row.lease_id] = row
        for extension in entry.projections.extensions:
            for lease_id in extension.lease_ids:
                row = self._rows[lease_id]
                if row.ended_s is None:
                    later.append((row, extension.deadline_s))
                    self._rows[lease_id] = replace(row, deadline_s=extension.deadline_s)
        if not later or self._world.lifted or not self._world.limited:
            return
        scenario = self._world.scenario
        for project, budget_s in scenario.budgets.items():
            spent_s = self._spent_since(project, budget_s)
            if spent_s is None:
                continue
            most_s = spent_s + scenario.round_s + LEAD_S + self._slack_s
            for row, deadline_s in later:
                if scenario.project_of(row.job_id) == project and deadline_s > most_s:
                    self._world.blame(
                        f"the budget of '{project}' is spent since {spent_s - EPOCH_S:.3f}, and "
                        f"lease {row.lease_id} is granted until {deadline_s - EPOCH_S:.3f}"
                    )

    def forget(self, store: MemoryStore) -> None:
        """Count by the database as it is now, after it has lost its newest entries."""
        self._rows = dict(store._attempts)

    def _of(self, project: str) -> list[AttemptRow]:
        project_of = self._world.scenario.project_of
        return [row for row in self._rows.values() if project_of(row.job_id) == project]

    def _spent_since(self, project: str, budget_s: float) -> float | None:
        """Return when a budget was used up by the rows; None if it is not."""
        rows = self._of(project)

        def used_s(until_s: float) -> float:
            ends = ((r, until_s if r.ended_s is None else min(r.ended_s, until_s)) for r in rows)
            return sum(max(end_s - r.start_s, 0.0) * len(r.workers) for r, end_s in ends)

        low_s, high_s = EPOCH_S - 10.0, self._now_s - self._slack_s
        if used_s(high_s) < budget_s:
            return None
        for _ in range(40):
            middle_s = (low_s + high_s) / 2.0
            low_s, high_s = (
                (low_s, middle_s) if used_s(middle_s) >= budget_s else (middle_s, high_s)
            )
        return high_s

    def turned(self, host: str, driver: Driver) -> None:
        """Look at a scheduler between two turns."""
        store = self._world.database.store
        leader, state = store.leader(), driver.control.state
        current = leader is not None and leader.token == state.term
        if not current or store.head().sequence + 1 != driver._next_sequence:
            return
        self._turns += 1
        for problem in (*self._check_known(state), *self._check_windows(state)):
            self._world.blame(f"{host}: {problem}")
        if self._turns % 5 == 0:
            for problem in (*self._check_use(state), *self._check_spending(state)):
                self._world.blame(f"{host}: {problem}")

    # -- reservations -----------------------------------------------------------------------------

    def _check_known(self, state: ControlState) -> Iterator[str]:
        """Every reservation that was promised is in force, and for its owner."""
        for name, rule in list(self._kept.items()):
            if rule.job and rule.job not in state.jobs.by_id:  # it has ended
                # The engine does not know a job that ends because of a dependency. It hears of
                # the reservation in the next turn.
                if name not in state.reservations:
                    del self._kept[name]
                    self._over.discard(name)
                elif name in self._over:
                    yield f"reservation {name} is kept for a job that has ended"
                    del self._kept[name]
                else:
                    self._over.add(name)
            elif (
                state.reservations.get(name) != rule and rule.until_s > self._now_s + self._slack_s
            ):
                yield f"reservation {name} is lost, or another one"
        found = state.engine.reservations
        if set(state.reservations) != {rule.name for rule in found.rules}:
            yield f"the engine knows {found.rules}, control {sorted(state.reservations)}"
        jobs = set(state.engine.state.jobs.number_of)
        for rule in found.rules:
            own = {job for job in jobs if self._admits(rule, job)}
            members = found.members.get(rule.name, set()) & jobs
            if members != own:
                yield f"{sorted(members)} may use {rule.name}, and it is for {sorted(own)}"

    def _check_windows(self, state: ControlState) -> Iterator[str]:
        engine, now_s = state.engine, self._now_s
        found = engine.reservations
        usable = engine.in_service & ~engine.cordoned & ~engine.retired
        joined: dict[tuple[str, int], float] = {}
        for rule in found.rules:
            for worker in found.workers.get(rule.name, ()):
                joined[rule.name, worker] = self._joined.get((rule.name, worker), now_s)
        fresh, self._joined = joined.keys() - self._joined.keys(), joined
        yield from self._check_choice(state, usable)
        for rule in found.rules:
            workers = set(found.workers.get(rule.name, ()))
            if not workers or rule.until_s <= now_s + self._slack_s:
                continue
            others = 0
            for live in state.leases.by_id.values():
                lease = live.lease
                theirs = workers.intersection(lease.workers)
                if not theirs or self._admits(rule, lease.job_id) or live.ended:
                    continue
                others += 1
                raised = live.deadline_s > self._deadline.get(lease.lease_id, -math.inf)
                old = not any((rule.name, worker) in fresh for worker in theirs)
                if raised and old and live.deadline_s > rule.from_s + 1e-6:
                    yield (
                        f"lease {lease.lease_id} of {lease.job_id} is granted until "
                        f"{live.deadline_s - EPOCH_S:.3f} on workers of {rule}"
                    )
                since_s = max(rule.from_s, *(joined[rule.name, worker] for worker in theirs))
                most_s = since_s + self._world.scenario.round_s + LEAD_S + self._slack_s
                if live.deadline_s > most_s:
                    yield (
                        f"lease {lease.lease_id} of {lease.job_id} holds workers of {rule} until "
                        f"{live.deadline_s - EPOCH_S:.3f}"
                    )
                yield from self._check_processes(rule, lease.lease_id, joined)
            if not others and now_s >= rule.from_s and rule.name not in self._cleared:
                self._cleared.add(rule.name)
                self._world.record("free", rule.name, now_s - rule.from_s)
            if rule in found.in_force:
                yield from self._check_served(state, rule, workers, usable)
        self._deadline = {i: live.deadline_s for i, live in state.leases.by_id.items()}

    def _check_processes(
        self, rule: Reservation, lease_id: int, joined: dict[tuple[str, int], float]
    ) -> Iterator[str]:
        """No other job runs there in the window, if the owner of the workers was known in time."""
        row, now_s = self._rows.get(lease_id), self._now_s
        if row is None:
            return
        for process in self._world.oracle.processes_of(lease_id):
            worker = row.workers[process.rank]
            since_s = joined.get((rule.name, worker))
            if process.code is not None or since_s is None:
                continue
            in_time_s = since_s + 2 * self._world.scenario.round_s + LEAD_S
            if max(rule.from_s, in_time_s) + 1.0 + self._slack_s < now_s:
                yield f"{process.job} still runs on worker {worker} of {rule}"

    def _check_choice(self, state: ControlState, usable: Any) -> Iterator[str]:
        """Each has the workers that it asks for, if there are so many, and shares none of them."""
        engine = state.engine
        found, names = engine.reservations, engine.cluster.type_names
        if found.seen is None or not np.array_equal(found.seen, usable):
            # Something has changed, and nothing was decided since.
            self._unseen_s = self._now_s if self._unseen_s is None else self._unseen_s
            if found.rules and self._now_s - self._unseen_s > self._world.scenario.round_s:
                yield f"workers were chosen for {found.seen}, and {usable} can be used"
            return
        self._unseen_s = None
        type_of = engine.fleet.type_of
        for rule in found.rules:
            mine = found.workers.get(rule.name, ())
            index = names.index(rule.worker_type)
            if any(not usable[w] or type_of[w] != index for w in mine):
                yield f"{mine} are kept for {rule}, and cannot be used"
            beside = [r for r in found.rules if r is not rule and r.overlaps(rule)]
            if any(set(mine) & set(found.workers.get(r.name, ())) for r in beside):
                yield f"{mine} are kept for {rule} and for others"
            there = int((usable & (type_of == index)).sum())
            if not beside and len(mine) != min(rule.workers, there):
                yield f"{mine} are kept for {rule}, and there are {there} workers"

    def _check_served(
        self, state: ControlState, rule: Reservation, workers: set[int], usable: Any
    ) -> Iterator[str]:
        """The owner does not wait while enough of its workers are idle."""
        world, now_s = self._world, self._now_s
        held = {w for live in state.leases.by_id.values() for w in live.lease.workers}
        idle = [w for w in workers if usable[w] and w not in held]
        scenario = world.scenario
        shaky = scenario.lose or scenario.late or scenario.fails or scenario.quotas
        quiet = not shaky and world.loop.now_s - world.faults.last_s > QUIET_S
        jobs = state.engine.state.jobs
        runnable = jobs.runnable(state.engine.now_s)
        for order in scenario.orders:
            key = rule.name, order.name
            record = state.jobs.by_id.get(order.name)
            waits = (
                quiet
                and order.gang <= len(idle)
                and self._admits(rule, order.name)
                and (not order.types or rule.worker_type in order.types)
                and record is not None
                and record.status is JobStatus.WAITING
                and order.name in jobs.number_of
                and runnable[jobs.row_of(jobs.number_of[order.name])]
            )
            if not waits:
                self._waits.pop(key, None)
                continue
            since_s = self._waits.setdefault(key, now_s)
            if now_s - since_s > IDLE_ROUNDS * scenario.round_s + IDLE_S:
                yield f"{order.name} waits since {since_s - EPOCH_S:.1f} beside {idle} of {rule}"

    # -- budgets and use that fades ---------------------------------------------------------------

    def _check_spending(self, state: ControlState) -> Iterator[str]:
        """Control counts as the rows say, also under a new leader; no job is stopped early."""
        scenario = self._world.scenario
        if not state.budgets.counted:
            return
        now_s = max(state.engine.now_s, state.budgets.since_s or 0.0)
        for project, spent in spending_by_project(state, now_s=now_s).items():
            used_us = sum(held_us(row, now_s) for row in self._of(project))
            if abs(spent.gpu_hours * 3.6e9 - used_us) > 0.5:
                yield f"'{project}' has used {used_us} us, and control says {spent}"
        workers = sum(map(len, scenario.nodes))
        for project in state.jobs.stopped:
            budget_s = scenario.budgets.get(project, math.inf)
            used_s = sum(held_us(row, self._now_s) for row in self._of(project)) / 1e6
            # Until the round's end all workers may be its own, and a worker's round has to be left.
            ahead_s = (2 * workers + 1) * scenario.round_s
            if not self._world.lifted and used_s + ahead_s < budget_s:
                yield f"'{project}' is stopped with {used_s} of {budget_s} worker-seconds"

    def _check_use(self, state: ControlState) -> Iterator[str]:
        """What fades is the integral over the rows, also after a restart."""
        half_life_s = self._world.scenario.half_life_s
        usage_s, now_s = state.engine.usage_s, state.engine.now_s
        if (usage_s is None) != (not half_life_s):
            yield f"use is {usage_s} with a half-life of {half_life_s} s"
        if usage_s is None:
            return
        for entity, counted_s in zip(state.engine.entities, usage_s, strict=True):
            expected_s = sum(faded_s(row, now_s, half_life_s) for row in self._of(entity.name))
            if abs(counted_s - expected_s) > 1e-6 * (1.0 + expected_s):
                yield (
                    f"'{entity.name}' has used {counted_s} s of late, by the rows {expected_s} s"
                )

    def recovered(self, state: ControlState, found: ControlState) -> None:
        """Compare the state after a restart with the present state."""
        if found.reservations != state.reservations:
            self._world.blame(f"a restart would know {found.reservations}")
        for problem in (*self._check_use(found), *self._check_known(found)):
            self._world.blame(f"after a restart: {problem}")
        now_s = max(state.engine.now_s, found.budgets.since_s or 0.0)
        here, there = (spending_by_project(one, now_s=now_s) for one in (state, found))
        if state.budgets.counted and not state.budgets.due and found.budgets.counted:
            for project, spent in here.items():
                if abs(spent.gpu_hours - there[project].gpu_hours) * 3.6e9 > 0.5:
                    self._world.blame(f"a restart would count {there[project]}, not {spent}")
