"""Checks of a world as it runs.

The database, the nodes' orders and the nodes' processes are compared.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from leasehold_testing.stage import canonical, check_state, check_view
from planner.knowledge import LearnedKnowledge
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import ABRUPT, EndReason, LeasePhase
from scheduler.runtime.driver.snapshots import recover_state
from seeded.machines import EPOCH_S

if TYPE_CHECKING:
    from agent.reconcile import DesiredView
    from leasehold_testing.memory_store import MemoryStore
    from scheduler.control.state.state import ControlState
    from scheduler.domain.problem import Problem
    from scheduler.domain.rows import AttemptRow
    from scheduler.protocol.reports import NodeReport
    from scheduler.runtime.driver.driver import Driver
    from scheduler.store.protocol import Entry
    from seeded.jobs import JobProcess
    from seeded.nodes import SimulatedNode
    from seeded.scenario import Order
    from seeded.watched import WatchedLink, WatchedService
    from seeded.world import World

#: Turns after which the state after a restart is compared with the present state.
RECOVER_EVERY = 40
#: Seconds within which a cancelled job has left if nothing delays it.
CANCEL_S = 8.0
#: Turns that may end before a policy is asked, or its answer is delivered: the one at hand,
#: those of suspects.
TURNS_TO_HEAR = 10
#: Seconds within which a question is answered if nothing delays it.
OPEN_S = 15.0
#: Journal entries without a snapshot, at most.
MOST_ENTRIES = 120
ENDED = (JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.FAILED, JobStatus.REFUSED)
#: How ends on record may come about: with nothing left of the job on any node.
CLEAN = (EndReason.COMPLETED, EndReason.RELEASED, EndReason.FAILED, EndReason.CANCELLED)


def _forgotten(state: ControlState) -> set[tuple[int, str]]:
    """Return the parts of gangs that have ended, and that their nodes forget: (lease, node)."""
    return {
        (lease_id, member.node)
        for lease_id, live in state.leases.by_id.items()
        if not live.ended and live.revoked not in ABRUPT
        for member in live.members
        if member.end is not None and not member.wanted
    }


class _Log(list[Any]):
    """Takes the commands of a driver into the record."""

    def __init__(self, world: World, host: str) -> None:
        super().__init__()
        self._world, self._host = world, host

    def extend(self, commands: Any) -> None:
        """Take commands in."""
        for command in commands:
            self._world.record("effect", self._host, repr(command))
            if isinstance(command, do.RevokeLease):
                self._world.oracle.revoked(command.lease_id)
                self._world.launches.revoked(command)


class Oracle:
    """Looks at a world.

    Args:
        world: the world.

    Attributes:
        accepted: jobs with an answered submission.
        last_report: node -> a report that a scheduler has taken in.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.accepted: set[str] = set()
        self.refused: set[str] = set()
        self.last_report: dict[str, NodeReport] = {}
        self._cancelled: set[str] = set()
        #: lease id -> its processes.
        self._processes: dict[int, list[JobProcess]] = defaultdict(list)
        self._turns = 0
        #: lease id -> the latest deadline on record.
        self._promised: dict[int, float] = {}
        self._status: dict[str, JobStatus] = {}
        #: lease id -> journal entry with its end.
        self._over_since: dict[int, int] = {}
        #: leases that a scheduler has revoked.
        self._revoked: set[int] = set()
        #: host -> (term and generation of the question that is open, since when).
        self._open: dict[str, tuple[tuple[int, int], float]] = {}
        #: host -> (problem that the policy was asked last, whether it has said something).
        self._policy: dict[str, tuple[Problem, bool]] = {}
        #: (lease, node): parts of gangs that have ended finally.
        self._left: set[tuple[int, str]] = set()
        #: (host, term, node, incarnation) -> newest report of that agent that has counted. After
        #: lost commits two hosts may lead under one term.
        self._sequences: dict[tuple[str, int, str, float], int] = {}
        #: host -> (what of a question is not done, turns since then).
        self._undone: dict[str, tuple[tuple[object, ...], int]] = {}
        self._watches: list[asyncio.Future[None]] = []

    # -- as it runs -------------------------------------------------------------------------------

    def began(self, process: JobProcess) -> None:
        """Look at a process that begins."""
        if self._world.lost.began(process):
            return
        self._processes[process.lease_id].append(process)
        self._world.launches.began(process)
        row = self._world.database.store.attempt(process.lease_id)
        if row is None:
            self._world.blame(f"lease {process.lease_id} runs and is on no record")
        elif row.ended_s is not None:
            self._world.blame(f"a process begins under {row}, which is over")
        elif (row.token, row.attempt, row.job_id) != (process.token, process.attempt, process.job):
            self._world.blame(f"a process begins for {process.job} under {row}")

    def believed(self, node: str, lease_id: int, until_s: float) -> None:
        """Check a node's belief of a lease's end, in true time."""
        slack_s = 0.35 + self._world.scenario.skew_s + self._world.clock_slack_s
        promised_s = self._promised.get(lease_id, 0.0) - EPOCH_S
        if until_s > promised_s + slack_s:
            self._world.blame(
                f"{node} believes that lease {lease_id} holds until {until_s:.3f}, on record is "
                f"{promised_s:.3f}"
            )

    def accepted_set(self, node: SimulatedNode, view: DesiredView, link: WatchedLink) -> None:
        """Look at what an agent has accepted: of a newer set, the ends that it names."""
        if (view.term, view.revision) != link.newest:
            return
        for lease_id, until_s in link.until_s.items():
            wanted = view.wanted.get(lease_id)
            if wanted is not None and wanted.deadline_s > until_s + 1e-6:
                self._world.blame(
                    f"{node.name} takes lease {lease_id} to hold until {wanted.deadline_s}, its "
                    f"newest set says {until_s}"
                )

    def loading(self, host: str) -> None:
        """Look at a scheduler that leads and has not loaded its state yet."""
        self._world.launches.loading()
        self._world.lost.loading(host)
        health = self._world.services[host].health()
        if health.ready or health.leading:
            self._world.blame(f"{host} loads its state and says {health}")

    async def watch_cancel(self, job_id: str) -> None:
        """Where nothing else goes wrong a job that is cancelled has left soon."""
        world = self._world
        asked_s, last_s = world.loop.now_s, world.faults.last_s
        await asyncio.sleep(CANCEL_S)
        quiet = not world.scenario.lose and not world.scenario.late
        if not quiet or asked_s - last_s < CANCEL_S or world.faults.last_s > asked_s + 0.1:
            return
        for process in self._of_job(job_id):
            if process.code is None and job_id not in world.faults.requeued:
                world.blame(f"{job_id} was cancelled {CANCEL_S} s ago and still runs")

    def lose(self, lease_id: int) -> list[JobProcess]:
        """Take a lease out that the database has forgotten; returns its processes."""
        return self._processes.pop(lease_id, [])

    def forget(self, store: MemoryStore) -> None:
        """Judge by the database as it is now, after it has lost its newest entries."""
        last = store.head().sequence
        self._over_since = {k: number for k, number in self._over_since.items() if number <= last}
        self._status = {job_id: row.status for job_id, row in store._jobs.items()}
        self._cancelled = {
            job_id for job_id in self._cancelled if self._status.get(job_id) is JobStatus.CANCELLED
        }

    def processes_of(self, lease_id: int) -> list[JobProcess]:
        """Return the processes that have run under a lease."""
        return self._processes.get(lease_id, [])

    def _of_job(self, job_id: str) -> list[JobProcess]:
        every = (process for processes in self._processes.values() for process in processes)
        return [process for process in every if process.job == job_id]

    def revoked(self, lease_id: int) -> None:
        """Note that a scheduler wants a lease to end."""
        self._revoked.add(lease_id)

    def submitted(self, order: Order, answer: Any) -> None:
        """Look at the answer to a submission."""
        refusal = answer[0].refusal if order.after and isinstance(answer, tuple) else ""
        never = "does not exist" in refusal and not self.refused.isdisjoint(order.after)
        if "has ended as" in refusal or never:
            self.refused.add(order.name)  # its dependency can never complete
            self.accepted.add(order.name)
            return
        if "does not exist" in refusal and not self._world.lost.jobs.isdisjoint(order.after):
            return  # its dependency must be submitted again first
        if not isinstance(answer, tuple) or answer[0].job_id != order.name:
            self._world.blame(f"{order.name} was not taken in: {answer!r}")
            return
        self.accepted.add(order.name)
        lost = order.name in self._world.lost.jobs
        if self._world.database.store.job(order.name) is None and not lost:
            self._world.blame(f"{order.name} was taken in and is not stored")

    def cancelled(self, job_id: str, answer: Any) -> None:
        """Look at the answer to a cancellation."""
        if isinstance(answer, tuple) and answer[0].changed:
            self._cancelled.add(job_id)
            self._watches.append(asyncio.ensure_future(self.watch_cancel(job_id)))

    def reported(self, report: NodeReport) -> None:
        """Look at a report that was taken in: ends are durable now."""
        self.last_report[report.node] = report
        self._world.lost.reported(report)
        for lease in report.leases:
            if self._world.lost.has(lease.lease_id, lease.nonce):
                continue
            row = self._world.database.store.attempt(lease.lease_id)
            if lease.state is not LeasePhase.ENDED or row is None or row.ended_s is not None:
                continue
            alone = row.nodes == (report.node,) and row.token == lease.token
            noticed = not self._world.lost.unnoticed
            if alone and noticed and not self._left_over(report):
                self._world.blame(f"{report.node} has told that {row} ended, for nothing")

    def _leading(self) -> list[Driver]:
        drivers = (service._driver for service in self._world.services.values())
        return [driver for driver in drivers if driver is not None]

    def _left_over(self, report: NodeReport) -> bool:
        """Return whether a newer report of the node was taken in before."""
        told = (report.incarnation, report.sequence)
        nodes = (driver.view.nodes.by_name.get(report.node) for driver in self._leading())
        return any(node is not None and (node.incarnation, node.sequence) != told for node in nodes)

    def told(self, node: str, desired: dict[str, Any]) -> None:
        """Look at a desired set as it is sent."""
        store = self._world.database.store
        current = store.leader()
        stale = current is None or current.token != desired["term"]
        for lease in desired["leases"]:
            if self._world.lost.has(lease["lease_id"], lease["nonce"]):
                continue  # a leader that has not noticed yet, or was just killed, sent it
            row = store.attempt(lease["lease_id"])
            if row is None:
                self._world.blame(f"{node} is told of lease {lease['lease_id']}, on no record")
                continue
            same = (row.job_id, row.token, row.attempt) == (
                lease["job_id"],
                lease["token"],
                lease["attempt"],
            )
            if not same:
                self._world.blame(f"{node} is told {lease}, on record is {row}")
            known = max((d._next_sequence for d in self._leading()), default=0)
            if self._over_since.get(row.lease_id, known) < known and not stale:
                self._world.blame(f"{node} is told of {row}, which is over")
            if not stale and row.job_id in self._cancelled - self._world.faults.requeued:
                self._world.blame(f"{node} is told of {row}, whose job was cancelled")
            now_s = EPOCH_S + self._world.loop.now_s
            until_s = now_s + lease["remaining_s"]
            slack_s = 0.35 + 2 * self._world.scenario.skew_s + self._world.clock_slack_s
            if until_s > self._promised[row.lease_id] + slack_s:
                self._world.blame(
                    f"{node} is told that lease {row.lease_id} holds until {until_s}, on record "
                    f"is {self._promised[row.lease_id]}"
                )

    def committed(self, entry: Entry) -> None:
        """Check the last commit."""
        store = self._world.database.store
        for row in entry.projections.attempts:
            unwanted = self._cancelled - self._world.faults.requeued
            if row.lease_id not in self._promised and row.job_id in unwanted:
                self._world.blame(f"{row} is granted after the job was cancelled")
            self._promised[row.lease_id] = max(
                self._promised.get(row.lease_id, 0.0), row.deadline_s
            )
            if row.ended_s is not None:
                self._over_since.setdefault(row.lease_id, entry.sequence)
                self._check_end(row)
        for extension in entry.projections.extensions:
            for lease_id in extension.lease_ids:
                self._promised[lease_id] = max(
                    self._promised.get(lease_id, 0.0), extension.deadline_s
                )
        for event in entry.events:
            if isinstance(event, ev.LeaseEnded):
                self._check_event(event)
        held: dict[int, AttemptRow] = {}
        jobs: dict[str, AttemptRow] = {}
        for row in store.open_attempts():
            for worker in row.workers:
                if worker in held:
                    self._world.blame(f"worker {worker} is granted twice: {held[worker]}, {row}")
                held[worker] = row
            if row.job_id in jobs:
                self._world.blame(f"a job has two leases: {jobs[row.job_id]}, {row}")
            jobs[row.job_id] = row
        self._check_quotas(held)
        self._world.shares.committed(entry)
        self._world.black_holes.committed(entry)
        for state in (*entry.projections.states, *entry.projections.jobs):
            before = self._status.get(state.job_id)
            over = before in ENDED and state.job_id not in self._world.faults.requeued
            if over and state.status is not before:
                self._world.blame(f"{state.job_id} was {before} and is {state.status}")
            self._status[state.job_id] = state.status

    def _check_quotas(self, held: dict[int, AttemptRow]) -> None:
        """At no moment are more workers held than quotas allow, also if a process dies."""
        scenario = self._world.scenario
        if not scenario.quotas:
            return
        # An operator raises a quota now and then, and lowers it again: that takes workers back.
        slack = any(fault.kind == "limit_project" for fault in scenario.faults)
        used = Counter(scenario.project_of(row.job_id) for row in held.values())
        together = sum(scenario.quotas.values()) + len(scenario.quotas) * slack
        for project, quota in scenario.quotas.items():
            lent = scenario.idle.get(project) == "share"
            most = together if lent else quota + slack
            if used[project] > most:
                self._world.blame(f"'{project}' holds {used[project]} workers and may hold {most}")
        if scenario.idle and sum(used.values()) > together:
            self._world.blame(f"{used} are held of quotas that add up to {together}")

    def _check_event(self, event: Any) -> None:
        """A node is only avoided if it could not begin the lease."""
        if any(fault.kind == "wipe_node" for fault in self._world.scenario.faults):
            return  # a node that has lost its disk begins the lease again, and may fail at that
        if event.lease_id in self._world.lost.revived:
            return  # so does one whose lease the database has put in force again
        for process in self._processes.get(event.lease_id, ()):
            row = self._world.database.store.attempt(event.lease_id)
            worker = None if row is None else row.workers[process.rank]
            if worker in event.unstarted:
                self._world.blame(f"{event} tells of worker {worker}, on which a process ran")

    def _check_end(self, row: AttemptRow) -> None:
        """If a lease's end is recorded, no process of it may be left; its workers are free."""
        for process in self._processes[row.lease_id]:
            if process.code is None:
                self._world.blame(f"process {process.rank} of {row} lives on after its end")
        scenario = self._world.scenario
        calm = not (scenario.faults or scenario.lose or scenario.late or scenario.slow_s > 0.05)
        early_s = self._promised[row.lease_id] - (row.ended_s or 0.0)
        wanted = row.lease_id not in self._revoked
        if calm and wanted and row.end_reason is EndReason.RELEASED and early_s > 4.0:
            self._world.blame(f"{row} has been left {early_s:.1f} s early, for nothing")
        if calm and row.end_reason is EndReason.LOST and not row.message.startswith("it could not"):
            self._world.blame(f"{row} is lost although nothing went wrong")
        careless = {"wipe_node", "fill_disk", "forget_commits"}
        keeps = not any(fault.kind in careless for fault in scenario.faults)
        # A copy of the node on another machine may have run the lease.
        copied = row.lease_id in self._world.faults.of_copies
        if keeps and not copied and "knows nothing" in row.message:
            self._world.blame(f"a node that has lost nothing knows nothing of {row}")

    def turned(self, service: WatchedService, driver: Driver) -> None:
        """Look at a scheduler between two turns."""
        host = service.host
        if driver.log is None:
            driver.log = _Log(self._world, host)
        self._turns += 1
        try:
            check_state(driver.control.state)
            check_view(driver.control)
            self._check_question(host, driver)
            last = driver._next_sequence - 1
            owner = self._world.database.owners.get(last)
            lost, head = self._world.lost.happened, self._world.database.store.head()
            forgotten = lost and last > head.sequence
            if driver.commits and owner != driver.view.term and not forgotten:
                self._world.blame(f"{host} takes an entry of token {owner} for its own")
            if len(self._world.database.store._journal) > MOST_ENTRIES:
                self._world.blame(f"{host}: more than {MOST_ENTRIES} entries have no snapshot")
            if self._turns % RECOVER_EVERY == 0 or self._has_left_in_part(driver):
                self._check_recovery(service, driver)
            self._check_order(host, driver)
            self._world.shares.turned(host, driver)
        except Exception as error:  # noqa: BLE001 - any error is a fault
            self._world.blame(f"{host}: {type(error).__name__}: {error}")

    def asked(self, host: str, problem: Problem) -> None:
        """Note that a policy is asked."""
        self._policy[host] = problem, False

    def answered(self, host: str, problem: Problem) -> None:
        """Note that it has answered, or has failed to; to an older question this means nothing."""
        if self._policy.get(host, (None, False))[0] is problem:
            self._policy[host] = problem, True

    def _check_question(self, host: str, driver: Driver) -> None:
        """A question is answered, or asked again."""
        question, now_s = driver.control.question, self._world.loop.now_s
        if question is None:
            self._open.pop(host, None)
            return
        asked, answered = self._policy.get(host, (None, False))
        undone = "asked" if question.problem is not asked else "heard the answer to"
        is_due = undone == "asked" or answered
        before, turns = self._undone.get(host, (None, 0))
        what = driver.view.term, question.generation, undone
        self._undone[host] = what, turns + 1 if is_due and before == what else 0
        if self._undone[host][1] > TURNS_TO_HEAR:
            self._world.blame(f"{host}: {turns} turns have not {undone} question {what[:2]}")
        key = (driver.view.term, question.generation)
        since = self._open.get(host)
        if since is None or since[0] != key:
            self._open[host] = key, now_s
        elif now_s - since[1] > OPEN_S and now_s - self._world.faults.last_s > OPEN_S:
            self._world.blame(f"{host}: nobody answers question {key} for {OPEN_S} s")

    def _check_recovery(self, service: WatchedService, driver: Driver) -> None:
        """A scheduler that died now would begin with what this one holds."""
        store, state = self._world.database.store, driver.control.state
        leader = store.leader()
        if leader is None or leader.token != state.term:
            return
        if store.head().sequence + 1 != driver._next_sequence:
            return
        recovered = self._recovered(service, term=state.term)
        self._world.shares.recovered(state, recovered)
        found, expected = canonical(recovered), canonical(state)
        for name, value in expected.items():
            if found[name] != value:
                self._world.blame(f"a restart would begin with other {name}")
        for lease_id, node in _forgotten(state):
            members = recovered.leases.by_id[lease_id].members
            if not any(m.node == node and m.end is not None for m in members):
                self._world.blame(f"a restart would not know that lease {lease_id} left {node}")

    def _has_left_in_part(self, driver: Driver) -> bool:
        """Return whether a part of a gang has ended finally since the last look."""
        left = _forgotten(driver.control.state)
        news = left - self._left
        self._left |= left
        return bool(news)

    def _check_order(self, host: str, driver: Driver) -> None:
        """Of an agent's reports none counts that is older than one that has counted."""
        for node in driver.view.nodes.by_name.values():
            key = host, driver.view.term, node.name, node.incarnation
            if node.sequence < self._sequences.get(key, node.sequence):
                self._world.blame(f"a report of {node.name} counts that was overtaken")
            self._sequences[key] = node.sequence

    def _recovered(self, service: WatchedService, *, term: int) -> ControlState:
        store = self._world.database.store
        return recover_state(
            store,
            store.load(),
            self._world.settings,
            knowledge=LearnedKnowledge,
            time_dependent=service._takeover.time_dependent,
            term=term,
            now_s=service._clock.now_s(),
        )
