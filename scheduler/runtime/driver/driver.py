"""The driver: passes facts to control, stores its decisions, publishes and performs them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.facts import AllocationAnswered, LeaseUntold, NodesHeard, PolicyAsked
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import RevokeReason
from scheduler.engine import version
from scheduler.errors import (
    LeaseholdError,
    NotLeadingError,
    OutcomeUnknownError,
    SequenceError,
    SolveError,
    StaleLeaderError,
    StoreError,
    StoreUnavailableError,
    StoreVersionError,
    SupersededError,
    TurnFailedError,
)
from scheduler.runtime.driver.outage import OutageLog
from scheduler.runtime.driver.snapshots import store_snapshot
from scheduler.runtime.signals import News, NodeSignals
from scheduler.store.protocol import Entry
from scheduler.views.history_kinds import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scheduler.clock import Clock
    from scheduler.control.control import Control, Decision
    from scheduler.control.facts.facts import Fact
    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.control.state.control_copy import ControlCopy
    from scheduler.control.state.snapshot import Taken
    from scheduler.control.state.transaction import Answered, Transaction
    from scheduler.control.state.view import PublishedState
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.runtime.solver import Solver
    from scheduler.store.protocol import Head, Store
    from scheduler.views.metrics import Metrics

    #: A fact, and the future that waits for its answer.
    Told = tuple[Fact, asyncio.Future[object]]

_log = logging.getLogger("leasehold.driver")

#: First and longest wait between two attempts to commit while the database is away.
COMMIT_RETRY_LEAST_S, COMMIT_RETRY_MOST_S = 0.1, 5.0
#: Times since a commit's first failed attempt; it is retried. After the first, facts that wait for
#: their turn are refused; after the second, callers of the facts in the turn are answered. A
#: database that restarts is back by then.
REFUSE_AFTER_S, ANSWER_AFTER_S = 2.0, 10.0
#: The most facts in one turn, and the most weight of patient facts in it. When a round changes, a
#: thousand nodes report thousands of ended leases. A user that submits a job should not have to
#: wait until all of that is committed.
FACTS_PER_TURN, PATIENT_PER_TURN = 2000, 100
#: Readers wait from this long before a new round, so that it begins on time: a page takes so long.
CALM_BEFORE_S = 0.1
#: How long a turn may take in facts before other tasks run.
FACTS_SLICE_S = 0.005


class Driver:
    """Runs turns: collect facts, have control decide, commit, publish, perform.

    Args:
        control: decides; only the driver passes facts to it.
        settings: of the runtime.
        store: the store that turns are committed to.
        next_sequence: number of the next journal entry.
        clock: the time.
        solver: answers the engine's questions.
        metrics: the counters.
        signals: wakes nodes that wait for their desired sets.
        suspects: facts of a failed turn, one of which made it fail: each gets a turn of its own,
            before all others.
    """

    def __init__(
        self,
        *,
        control: Control,
        settings: RuntimeSettings,
        store: Store,
        next_sequence: int,
        clock: Clock,
        solver: Solver,
        metrics: Metrics,
        signals: NodeSignals,
        suspects: Sequence[Told] = (),
    ) -> None:
        self.control = control
        self._settings = settings
        self._signals = signals
        self._store = store
        self._next_sequence = next_sequence
        self._clock = clock
        self._solver = solver
        self._metrics = metrics
        self._told: list[Told] = []
        self._patient: deque[tuple[int, Told]] = deque()
        self._suspects = deque(suspects)
        #: node -> when it last asked for its desired set, since the last turn.
        self._heard: dict[str, float] = {}
        #: futures of the scheduler's own facts, for which no caller waits.
        self._own: set[asyncio.Future[object]] = set()
        #: facts of a failed turn that must be retried.
        self.undone: list[Told] = []
        self.commits = 0
        self._wake = asyncio.Event()
        #: set while control has no unpublished decision.
        self._published = asyncio.Event()
        self._published.set()
        #: cleared shortly before a new round, until it is stored.
        self._calm = asyncio.Event()
        self._calm.set()
        #: when the policy last answered, or this driver was made.
        self._answered_s = clock.now_s()
        self._question: asyncio.Task[None] | None = None
        self._entries_since_snapshot = 0
        self._snapshot: asyncio.Task[None] | None = None
        self._closed = self._leaving = False
        #: why the current entry cannot be committed; None while the database takes entries.
        self._failure: StoreUnavailableError | None = None
        self._uncommitted = OutageLog(_log, "entries cannot be committed", now=metrics.clock)
        #: whether that has lasted so long that new facts are refused.
        self._blocked = False
        #: the facts of the current turn.
        self._in_turn: Sequence[Told] = ()
        #: newest committed line of history, and the event that newer lines set.
        self.event_id = 0
        self.news = News()
        #: every command that was performed, in order; filled only on request.
        self.log: list[do.Command] | None = None

    # -- for callers ----------------------------------------------------------------------------

    async def tell(self, fact: Fact, *, patient: int = 0) -> Any:
        """Pass a fact to control in the next turn; return its answer once that is committed.

        Args:
            fact: the fact.
            patient: its weight, if it may wait for a later turn so that turns are short; 0 if it
                may not.

        Raises:
            NotLeadingError: this scheduler does not lead any more.
            StoreUnavailableError: the database does not take the current entry, or was away for so
                long that this scheduler leads no more. Nothing was done.
            OutcomeUnknownError: the fact is in that entry, and is done if the entry is ever
                committed.
            LeaseholdError: control refuses the fact.
        """
        if self._closed or self._blocked:
            raise self._gone()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if patient:
            self._patient.append((patient, (fact, future)))
        else:
            self._told.append((fact, future))
        self._wake.set()
        return await future

    def soon(self, fact: Fact) -> None:
        """Pass a fact to control in the next turn; no caller waits for its answer."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._own.add(future)
        future.add_done_callback(self._own.discard)
        future.add_done_callback(_log_failure)
        self._told.append((fact, future))
        self._wake.set()

    def hear(self, node: str) -> None:
        """Note that a node asked for its desired set; the next turn passes that to control."""
        self._heard[node] = self._clock.now_s()

    def untold(self, lease_id: int, node: str, message: str) -> None:
        """Report to control that a lease cannot be sent to a node."""
        self.soon(LeaseUntold(lease_id=lease_id, node=node, message=message))

    async def copied(self) -> ControlCopy:
        """Copy control as it is published: never during a decision that is not stored yet.

        Raises:
            NotLeadingError: this scheduler does not lead any more.
        """
        while not self._published.is_set():
            await self._published.wait()
        if self._closed:
            raise NotLeadingError
        return self.control.copied()

    async def until_calm(self) -> None:
        """Wait from shortly before a new round until that is stored."""
        while self._is_round_near() or not self._calm.is_set():
            self._calm.clear()
            await self._calm.wait()

    def _is_round_near(self) -> bool:
        """Return whether the next round is planned soon; not while the policy is asked."""
        if self._closed or self.control.question is not None:
            return False
        return self.control.round_due_s < self._clock.now_s() + CALM_BEFORE_S

    @property
    def view(self) -> PublishedState:
        """The published state."""
        return self.control.view

    def tell_news(self, head: Head) -> None:
        """Wake the requests that wait for new lines of history."""
        if head.event_id > self.event_id:
            self.event_id = head.event_id
            self.news.set()
            self.news = News()

    async def run(self) -> None:
        """Serve until cancelled, or until ``leave`` is called.

        Raises:
            StaleLeaderError: another scheduler leads now.
            TurnFailedError: see ``turn``.
        """
        try:
            while not self._leaving:
                await self.turn()
                if not (self._told or self._patient or self._suspects or self._leaving):
                    self._wake.clear()
                    await self._clock.sleep_until(self._next_due_s(), wake=self._wake)
        finally:
            self.close()

    def leave(self) -> None:
        """Make the current turn the last; after it, memory equals the store."""
        self._leaving = True
        self._wake.set()

    def close(self) -> None:
        """Take in no more facts, and answer all waiting callers."""
        self._closed = True
        self._published.set()
        self._calm.set()
        left = (*self._told, *(told for _, told in self._patient), *self._suspects)
        answer_abandoned(left, self._gone)
        for queue in (self._told, self._patient, self._suspects):
            queue.clear()
        for task in (self._question, self._snapshot):
            if task is not None:
                task.cancel()

    def _gone(self) -> LeaseholdError:
        """Return the error for callers with facts that are not taken in any more."""
        failure = self._failure
        return NotLeadingError() if failure is None else type(failure)(*failure.args)

    def resume(self) -> None:
        """Continue from the last leader's state: ask the open question again, unchanged.

        The answer is the one that the last leader would have got, so the restart changes nothing.
        But if the policy differs from the one asked last, the engine asks again.
        """
        question, policy = self.control.question, self.view.policy.choice
        if self.control.asked != policy:
            self.soon(PolicyAsked())
        elif question is not None:
            self._ask(question, policy)

    @property
    def problem(self) -> str:
        """Why no facts are taken in; empty while all is well."""
        return f"nothing can be committed: {self._failure}" if self._blocked else ""

    @property
    def pending(self) -> bool:
        """Whether a turn has anything to do now."""
        told = bool(self._told or self._patient or self._suspects)
        return told or self.control.next_due_s <= self._clock.now_s()

    # -- one turn -------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Take in facts, have control decide, commit, publish, and perform.

        Raises:
            TurnFailedError: the store refuses the turn permanently, or control cannot take it.
                Nothing of it is stored, and the state in memory must be discarded. If the turn had
                one fact, its caller gets the error. If it had several, any may have caused it, and
                all are in ``undone``.
        """
        told = self._in_turn = self._next_facts()
        self._published.clear()
        began_s = self._metrics.clock() - self._late_s()
        transaction = self.control.transaction(self._clock.now_s(), self._clock.wall_s())
        try:
            if self._heard:
                heard, self._heard = self._heard, {}
                self.control.take(transaction, NodesHeard(heard_s=heard))
            answers, cpu_s = await self._take_in(transaction, told)
            cpu_s -= time.thread_time()
            decision = self.control.decide(transaction)
            cpu_s += time.thread_time()
            if decision.is_new_round:
                self._calm.clear()
            for warning in decision.warnings:
                _log.warning("%s", warning)
            head = await self._commit(self._entry(decision)) if decision.is_stored else None
            waited_s = self._metrics.clock() - began_s - cpu_s
            # Nodes act on a published decision, so it must be committed before.
            self.control.publish(decision)
            self._published.set()
            self._calm.set()
            self._perform(decision, head, began_s=began_s, waited_s=waited_s)
        except (StaleLeaderError, SequenceError, StoreVersionError):
            answer_abandoned(told, self._gone)
            raise
        except Exception as error:
            self._blame(told, error)
            raise TurnFailedError(f"a turn failed: {error}") from error
        except BaseException:
            # The callers cannot know whether the turn was stored; the next leader finds out.
            answer_abandoned(told, self._gone)
            raise
        for future, answered in answers:
            if future.done():
                continue
            if answered.error is None:
                future.set_result(answered.result)
            else:
                future.set_exception(answered.error)

    def _late_s(self) -> float:
        """Return for how long the next round could have been planned: due, and answered for."""
        able_s = max(self.control.round_due_s, self._answered_s)
        return max(self._clock.now_s() - able_s, 0.0)

    def _next_facts(self) -> list[Told]:
        if self._suspects:
            return [self._suspects.popleft()]
        told, self._told = self._told[:FACTS_PER_TURN], self._told[FACTS_PER_TURN:]
        left = PATIENT_PER_TURN
        while self._patient and left > 0:
            weight, fact = self._patient.popleft()
            told.append(fact)
            left -= weight
        return told

    def _blame(self, told: Sequence[Told], error: Exception) -> None:
        """Refuse a failed turn's only fact, or keep its several facts for turns of their own."""
        asked = self._asked(told)
        if len(asked) == 1:
            asked.pop()[1].set_exception(error)
        later = (*self._suspects, *self._told, *(fact for _, fact in self._patient))
        self.undone = [*asked, *self._asked(later)]
        for queue in (self._suspects, self._told, self._patient):
            queue.clear()

    def _asked(self, told: Sequence[Told]) -> list[Told]:
        """Return the facts that a caller waits for, and drop the rest."""
        answer_abandoned([one for one in told if one[1] in self._own], self._gone)
        return [one for one in told if not one[1].done()]

    async def _take_in(
        self, transaction: Transaction, told: Sequence[Told]
    ) -> tuple[list[tuple[asyncio.Future[object], Answered]], float]:
        """Take in facts, with pauses for other tasks.

        Returns the futures with their answers, and the processor time that was used. A refused
        fact is answered at once if the refusal shows only stored state. After facts that change
        something it waits for the commit.
        """
        answers = []
        stopwatch_s = self._metrics.clock
        until_s = stopwatch_s() + FACTS_SLICE_S
        cpu_s = -time.thread_time()
        for fact, future in told:
            if stopwatch_s() > until_s:
                cpu_s += time.thread_time()
                await asyncio.sleep(0)
                cpu_s -= time.thread_time()
                until_s = stopwatch_s() + FACTS_SLICE_S
            self.control.take(transaction, fact)
            answered = transaction.answers[-1]
            if answered.error is None or self.control.changes(transaction):
                answers.append((future, answered))
            elif not future.done():
                future.set_exception(answered.error)
        return answers, cpu_s + time.thread_time()

    def _entry(self, decision: Decision) -> Entry:
        return Entry(
            sequence=self._next_sequence,
            now_s=decision.now_s,
            events=decision.events,
            projections=decision.rows,
            decider=version.DECIDER,
        )

    async def _commit(self, entry: Entry) -> Head:
        """Commit, however long the database is away; checks first for an interrupted commit.

        The leadership may well be renewed meanwhile: a full disk often has room for that and not
        for a large entry. So waiting callers are answered here.
        """
        wait_s = COMMIT_RETRY_LEAST_S
        began_s = self._metrics.clock()
        commit = partial(self._store.commit, entry, token=self.view.term)
        alarms: list[asyncio.TimerHandle] = []
        try:
            while True:
                try:
                    head = await asyncio.to_thread(commit)
                except StoreUnavailableError as error:
                    self._failure = error
                    self._uncommitted.failed(error)
                    alarms = alarms or self._set_alarms()
                    await asyncio.sleep(wait_s)
                    wait_s = min(2.0 * wait_s, COMMIT_RETRY_MOST_S)
                    commit = partial(self._commit_again, entry)
                else:
                    self._failure = None
                    self._uncommitted.over()
                    self._metrics.committed(self._metrics.clock() - began_s)
                    return head
        finally:
            for alarm in alarms:
                alarm.cancel()
            self._blocked = False

    def _set_alarms(self) -> list[asyncio.TimerHandle]:
        loop = asyncio.get_running_loop()
        return [
            loop.call_later(REFUSE_AFTER_S, self._refuse_queued),
            loop.call_later(ANSWER_AFTER_S, self._answer_in_turn),
        ]

    def _refuse_queued(self) -> None:
        """Refuse new facts and those in no turn yet, except the scheduler's own."""
        self._blocked = True
        own = [told for told in self._told if told[1] in self._own]
        asked = [told for told in self._told if told[1] not in self._own]
        answer_abandoned(
            (*asked, *(told for _, told in self._patient), *self._suspects), self._gone
        )
        self._told = own
        self._patient.clear()
        self._suspects.clear()

    def _answer_in_turn(self) -> None:
        """Answer the current entry's callers that it may be committed later, or never."""
        failure = self._failure
        if failure is not None:
            asked = [told for told in self._in_turn if told[1] not in self._own]
            answer_abandoned(asked, lambda: OutcomeUnknownError(failure))

    def _commit_again(self, entry: Entry) -> Head:
        head = self._store.head()
        if head.sequence >= entry.sequence:
            leader = self._store.leader()
            if leader is not None and leader.token == self.view.term:
                return head
        return self._store.commit(entry, token=self.view.term)

    def _perform(
        self, decision: Decision, head: Head | None, *, began_s: float, waited_s: float
    ) -> None:
        """Perform a decision that is stored."""
        if self.log is not None:
            self.log.extend(decision.commands)
        self._signals.tell(decision.told)
        if decision.question is not None:
            self._ask(decision.question, self.view.policy.choice)
        self._metrics.agents_stalled(decision.stalls)
        for launch in decision.launches:
            self._metrics.launched(launch)
        if head is None:
            return
        self.commits += 1
        self._next_sequence += 1
        self.tell_news(head)
        self._entries_since_snapshot += 1
        if self._entries_since_snapshot >= self._settings.snapshot_entries:
            self.write_snapshot_soon()
        if decision.is_new_round:
            self._metrics.round_done(self._metrics.clock() - began_s, waited_s=waited_s)
        self._count(decision)

    def _count(self, decision: Decision) -> None:
        metrics = self._metrics
        for event in decision.events:
            if isinstance(event, ev.LeaseEnded):
                metrics.lease_ended(event.reason.value)
        for command in decision.commands:
            match command:
                case do.GrantLease():
                    metrics.leases_started()
                case do.RevokeLease(reason=RevokeReason.OUTBID):
                    metrics.preempted()
        ended = {record.job_id: record for record in decision.ended}
        launching_s = {
            row.data["lease"]: row.data["launching_s"]
            for row in decision.rows.history
            if row.kind == EventKind.LEASE_ENDED and "launching_s" in row.data
        }
        for row in decision.rows.attempts:
            record = ended.get(row.job_id) or self.view.jobs.by_id.get(row.job_id)
            if row.ended_s is not None and record is not None:
                worker_s = (row.ended_s - row.start_s) * len(row.workers)
                metrics.used(record.project, row.worker_type, worker_s)
                launch_s = launching_s.get(row.lease_id, 0.0) * len(row.workers)
                metrics.launching(record.project, row.worker_type, launch_s)
                metrics.computed(record.project, row.worker_type, row)
        for record in decision.ended:
            metrics.job_ended(record.status, jct_s=(record.finished_s or 0.0) - record.submitted_s)

    def _next_due_s(self) -> float:
        return min(self.control.next_due_s, self._clock.now_s() + self._settings.tick_s)

    # -- questions ------------------------------------------------------------------------------

    def _ask(self, question: do.ComputeAllocation, policy: PolicyChoice) -> None:
        self._question = asyncio.create_task(self._answer(question, policy))

    async def _answer(self, question: do.ComputeAllocation, policy: PolicyChoice) -> None:
        answer, failure = None, ""
        try:
            answer = await self._solver.solve(policy, question.problem)
        except SupersededError:
            return  # the newer question is answered instead
        except SolveError as error:
            failure = str(error)
            self._metrics.solve_failed()
            _log.warning("policy '%s' gave no answer: %s", policy.name, error)
        else:
            self._metrics.solved(answer.solve_s)
        self._answered_s = self._clock.now_s()
        self.soon(
            AllocationAnswered(policy=policy, question=question, answer=answer, failure=failure)
        )

    # -- snapshots ------------------------------------------------------------------------------

    def write_snapshot_soon(self) -> None:
        """Write a snapshot while turns continue; not two at a time."""
        if self._snapshot is None or self._snapshot.done():
            self._entries_since_snapshot = 0
            taken = self.control.snapshot()
            sequence = self._next_sequence - 1
            self._snapshot = asyncio.create_task(self._write_snapshot(taken, sequence))

    async def write_snapshot(self) -> None:
        """Write a snapshot now, between two turns; for a graceful end."""
        await self._write_snapshot(self.control.snapshot(), self._next_sequence - 1)

    async def _write_snapshot(self, taken: Taken, sequence: int) -> None:
        try:
            await asyncio.to_thread(store_snapshot, self._store, taken, sequence, self.view.term)
        except StoreError as error:
            _log.warning("no snapshot could be written: %s", error)


def answer_abandoned(
    told: Iterable[Told], why: Callable[[], LeaseholdError] = NotLeadingError
) -> None:
    """Answer the callers of facts that this leader does not take in any more."""
    for _, future in told:
        if not future.done():
            future.set_exception(why())


def _log_failure(future: asyncio.Future[object]) -> None:
    if not future.cancelled() and future.exception() is not None:
        _log.error("a step of the scheduler failed", exc_info=future.exception())
