"""Checks of a world's final state.

Jobs are judged by the checks of the soak test, from what their own processes wrote down.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evidence import Story, check_history, check_job, check_tokens, check_workers, runs_of

from leasehold_testing.stage import check_state
from scheduler.domain.jobs.job import JobStatus
from scheduler.store.queries import HistoryQuery
from seeded.oracle import ENDED
from seeded.store_checks import check_guards, check_queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seeded.scenario import Order
    from seeded.world import World


class Verdict:
    """Checks the final state of a world.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._oracle = world.oracle

    def all_ended(self) -> bool:
        """Return whether every job has come to its end, and nothing is left of it."""
        store = self._world.database.store
        rows = [store.job(name) for name in self._world.orders if name not in self._oracle.refused]
        return all(row is not None and row.status in ENDED for row in rows) and not (
            store.open_attempts()
        )

    def all_settled(self) -> bool:
        """Return whether no node holds a lease, and leaders have taken the agents that run."""
        nodes, leading = self._world.nodes, self._oracle._leading()
        holding = any(node.disk.leases for node in nodes)
        return (
            bool(leading)
            and not holding
            and all(
                (known := driver.view.nodes.by_name.get(node.name)) and known.place == node.place
                for driver in leading
                for node in nodes
            )
        )

    def judge(self) -> None:
        """Look at everything that is left."""
        for problem in self._verdict():
            self._world.blame(problem)

    def _verdict(self) -> Iterator[str]:
        world, store = self._world, self._world.database.store
        stories, every = [], []
        for order in world.scenario.orders:
            row = store.job(order.name)
            if order.name in self._oracle.refused:
                continue
            if row is None:
                yield f"{order.name} is lost"
                continue
            model = world.models[order.name]
            story = Story(
                job=order.name,
                total=model.steps,
                runs=runs_of(order.name, world.lost.kept(model.lines)),
                ledger=model.ledger,
            )
            stories.append(story)
            every.append(replace(story, runs=runs_of(order.name, world.lost.renamed(model.lines))))
            yield from self._check_row(order, row)
            if row.status is JobStatus.COMPLETED:
                if order.name not in world.faults.requeued | world.lost.affected:
                    yield from self._check_job(story)
                yield from self._check_history(order.name)
            yield from self._check_attempts(order.name)
        yield from check_workers(every)
        yield from world.lost.verdict()
        yield from check_tokens(stories)
        alive = [
            p for processes in self._oracle._processes.values() for p in processes if p.code is None
        ]
        for process in alive:
            yield f"a process of lease {process.lease_id} lives on"
        for open_row in store.open_attempts():
            yield f"{open_row} is open in the end"
        yield from self._check_health()
        for node in world.nodes:
            if node.disk.leases:
                yield f"{node.name} still holds {sorted(node.disk.leases)}"

    def _check_job(self, story: Story) -> Iterator[str]:
        wiped = any(fault.kind == "wipe_node" for fault in self._world.scenario.faults)
        for problem in check_job(story):
            # A node that has lost its disk gets the lease again, and cannot know better.
            if not (wiped and problem.endswith("was started twice")):
                yield problem

    def _check_health(self) -> Iterator[str]:
        leading = 0
        for host, service in self._world.services.items():
            health = service.health()
            leading += health.leading
            if not health.ready or (health.problems and health.leading):
                yield f"{host} is not well: {health}"
            if health.leading and health.leader_address != f"http://{host}:8642":
                yield f"{host} leads and names '{health.leader_address}' as the leader"
        if leading != 1:
            yield f"{leading} schedulers lead"
        nodes = self._world.nodes
        most = 300 + 8 * (len(nodes) + 1) * self._world.loop.now_s
        if self._world.counts["request"] > most:
            yield f"{self._world.counts['request']} requests in {self._world.loop.now_s:.0f} s"
        for driver in self._oracle._leading():
            engine = driver.view.engine
            if not (engine.in_service | engine.retired).all():
                yield "not all workers are in service"

    def judge_store(self) -> None:
        """Look at the database after everything was stopped as it should be."""
        for problem in self._store_verdict():
            self._world.blame(problem)

    def _store_verdict(self) -> Iterator[str]:
        store = self._world.database.store
        if store.leader() is not None:
            yield f"{store.leader()} still leads"
        if store.load().entries:
            yield f"{len(store.load().entries)} journal entries have no snapshot"
        for service in self._world.services.values():
            try:
                check_state(self._oracle._recovered(service, term=0))
            except Exception as error:  # noqa: BLE001 - with any error no scheduler can begin with that
                yield f"the next start would fail: {type(error).__name__}: {error}"
        yield from check_queries(store)
        yield from check_guards(store)

    def _check_row(self, order: Order, row: Any) -> Iterator[str]:
        faults = self._world.faults
        model = self._world.models[order.name]
        if row.status not in ENDED:
            yield f"{order.name} has not come to its end: {row}"
        elif row.status is JobStatus.COMPLETED:
            if order.model["counted"] and row.steps_done != model.steps:
                yield f"{order.name} has completed with {row.steps_done} of {model.steps} steps"
        elif row.status is JobStatus.CANCELLED:
            if order.name not in faults.cancelled and not self._waited_for_nothing(order):
                yield f"{order.name} is cancelled, and nobody asked for it"
        elif row.status is JobStatus.FAILED and not self._may_fail(order, row):
            yield f"{order.name} has failed without a reason: {row}"

    def _waited_for_nothing(self, order: Order) -> bool:
        rows = [self._world.database.store.job(name) for name in order.after]
        return any(row is not None and row.status is not JobStatus.COMPLETED for row in rows)

    def _may_fail(self, order: Order, row: Any) -> bool:
        if order.limit_s is not None or self._waited_for_nothing(order):
            return True
        failed = {
            process.lease_id
            for processes in self._oracle._processes.values()
            for process in processes
            if process.job == order.name and process.code not in {0, 75, None}
        }
        return len(failed) > order.max_failures

    def _check_attempts(self, job_id: str) -> Iterator[str]:
        rows = self._world.database.store.attempts(job_id)
        if [row.attempt for row in rows] != list(range(1, len(rows) + 1)):
            yield f"{job_id}: its attempts are {[row.attempt for row in rows]}"
        steps = [row.steps_done for row in rows if row.ended_s is not None]
        # A job that has ended and is requeued begins again.
        if steps != sorted(steps) and job_id not in self._world.faults.requeued:
            yield f"{job_id}: its steps shrink: {steps}"
        for one, other in itertools.pairwise(rows):
            if one.ended_s is None or other.start_s < one.ended_s:
                yield f"{job_id}: {other} begins before the end of {one}"

    def _check_history(self, job_id: str) -> Iterator[str]:
        store = self._world.database.store
        lines = store.history(HistoryQuery(subject=job_id, limit=1000))
        events = [{"kind": line.kind, "data": line.data} for line in lines]
        attempts = [
            {"attempt": row.attempt, "ended_s": row.ended_s} for row in store.attempts(job_id)
        ]
        if job_id not in self._world.faults.requeued:
            yield from check_history(job_id, attempts, events)
