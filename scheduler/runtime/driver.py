"""The driver: the one task that calls the engine, commits what it says, and only then does it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from scheduler.control.consequences import follow_jobs, follow_leases
from scheduler.control.draft import Turn
from scheduler.control.housekeeping import after_step, keep_house
from scheduler.control.operator_orders import ask_policy
from scheduler.control.progress import flush_progress
from scheduler.domain import commands as do
from scheduler.domain import events as ev
from scheduler.domain.lease import RevokeReason
from scheduler.domain.rows import LeaseExtension
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
from scheduler.runtime.signals import News
from scheduler.runtime.snapshots import Taken, store_snapshot, take_snapshot
from scheduler.store.protocol import Entry, Projections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scheduler.control.jobs import JobRecord
    from scheduler.control.nodes import NodeState
    from scheduler.control.state import LiveState, PolicyInForce
    from scheduler.domain.answers import Solved
    from scheduler.runtime.clock import Clock
    from scheduler.runtime.metrics import Metrics
    from scheduler.runtime.solver import Solver
    from scheduler.store.protocol import Head, Store

    #: What is to be done in a turn, and who waits for its result.
    Work = tuple[Callable[[Turn], object], asyncio.Future[object]]
    _Answer = tuple[asyncio.Future[object], object]

_log = logging.getLogger("leasehold.driver")
_T = TypeVar("_T")

#: First and longest wait between two attempts to commit while the database is away.
COMMIT_RETRY_LEAST_S, COMMIT_RETRY_MOST_S = 0.1, 5.0
#: How long after its first failed attempt a commit that is tried again holds up what waits for its
#: turn, and those whose work it carries: a database that restarts is back by then.
REFUSE_AFTER_S, ANSWER_AFTER_S = 2.0, 10.0
#: Nodes that are woken at once when a round concerns all of them, and the pause before the next.
NODES_AT_ONCE, NODES_PAUSE_S = 10, 0.01
#: Pieces of work that are taken into one turn at most, and the weight of those among them that have
#: time: when a round changes, a thousand nodes report thousands of leases that have ended, and
#: somebody who submits a job should not have to wait until all of that is committed.
WORK_PER_TURN, PATIENT_PER_TURN = 2000, 100
#: How long a turn may take work in before others get a word in.
WORK_SLICE_S = 0.005


class Driver:
    """Runs turns: collect facts, call the engine, commit, perform.

    Args:
        state: the leader's state; only the driver's turns change it.
        store: where turns are committed.
        next_sequence: number of the next journal entry.
        clock: the time.
        solver: answers the engine's questions.
        metrics: what is counted.
        suspects: work of a turn that failed, of which one piece is to blame: each gets a turn of
            its own, before all others.
    """

    def __init__(
        self,
        *,
        state: LiveState,
        store: Store,
        next_sequence: int,
        clock: Clock,
        solver: Solver,
        metrics: Metrics,
        suspects: Sequence[Work] = (),
    ) -> None:
        self.state = state
        self._store = store
        self._next_sequence = next_sequence
        self._clock = clock
        self._solver = solver
        self._metrics = metrics
        self._work: list[Work] = []
        self._patient: deque[tuple[int, Work]] = deque()
        self._suspects = deque(suspects)
        #: futures of the scheduler's own work, for which nobody waits.
        self._own: set[asyncio.Future[object]] = set()
        #: what a turn that failed leaves to be tried again.
        self.undone: list[Work] = []
        self.commits = 0
        self._wake = asyncio.Event()
        self._question: asyncio.Task[None] | None = None
        self._entries_since_snapshot = 0
        self._snapshot: asyncio.Task[None] | None = None
        self._closed = False
        #: why the entry at hand cannot be committed; None while the database takes entries.
        self._failure: StoreUnavailableError | None = None
        #: whether that has lasted so long that nothing more is taken in.
        self._blocked = False
        #: the work of the turn at hand.
        self._in_turn: Sequence[Work] = ()
        #: newest line of history that is committed, and who waits for a newer one.
        self.event_id = 0
        self.news = News()
        #: every command that was performed, in order; filled only on request.
        self.log: list[do.Command] | None = None

    # -- what others call -----------------------------------------------------------------------

    async def take_in(self, work: Callable[[Turn], _T], *, patient: int = 0) -> _T:
        """Run ``work`` in the next turn; return its result when that turn has been committed.

        Args:
            work: changes the state and adds facts; if it raises, it must have changed nothing.
            patient: how heavy it is, if it may have to wait for a later turn so that turns are
                short; 0 if it may not.

        Raises:
            NotLeadingError: this scheduler does not lead any more.
            StoreUnavailableError: the database does not take the entry at hand, or was away for so
                long that this scheduler leads no more. Nothing was done.
            OutcomeUnknownError: the work is in that entry, and is done if it is ever taken.
        """
        if self._closed or self._blocked:
            raise self._gone()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if patient:
            self._patient.append((patient, (work, future)))
        else:
            self._work.append((work, future))
        self._wake.set()
        return await future  # type: ignore[return-value]  # the result of `work`

    def soon(self, work: Callable[[Turn], object]) -> None:
        """Run ``work`` in the next turn; nobody waits for it."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._own.add(future)
        future.add_done_callback(self._own.discard)
        future.add_done_callback(_log_failure)
        self._work.append((work, future))
        self._wake.set()

    def tell_news(self, head: Head) -> None:
        """Wake those who wait for new lines of history."""
        if head.event_id > self.event_id:
            self.event_id = head.event_id
            self.news.set()
            self.news = News()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            StaleLeaderError: somebody else leads now.
            TurnFailedError: see ``turn``.
        """
        try:
            while True:
                await self.turn()
                if not (self._work or self._patient or self._suspects):
                    self._wake.clear()
                    await self._clock.sleep_until(self._next_due_s(), wake=self._wake)
        finally:
            self.close()

    def close(self) -> None:
        """Take in nothing more, and let everybody who waits know."""
        self._closed = True
        left = (*self._work, *(work for _, work in self._patient), *self._suspects)
        abandon(left, self._gone)
        for queue in (self._work, self._patient, self._suspects):
            queue.clear()
        for task in (self._question, self._snapshot):
            if task is not None:
                task.cancel()

    def _gone(self) -> LeaseholdError:
        """Return what those are told whose work is not done any more."""
        failure = self._failure
        return NotLeadingError() if failure is None else type(failure)(*failure.args)

    def resume(self) -> None:
        """Go on where the last leader stopped: ask the open question again, as it was asked.

        The answer is the one that the last leader would have got, so nobody can tell that there was
        a restart. Only where the policy is another one now than the one that was asked last, it is
        asked anew.
        """
        question = self.state.leases.question
        policy = self.state.policy.choice
        if self.state.asked != policy:
            self.soon(lambda turn: ask_policy(self.state, turn))
        elif question is not None:
            self._ask(question)

    @property
    def problem(self) -> str:
        """Why nothing is taken in; empty while all is well."""
        return f"nothing can be committed: {self._failure}" if self._blocked else ""

    @property
    def pending(self) -> bool:
        """Whether there is something for a turn to do now."""
        timers = self.state.leases.timers
        now_s = self._clock.now_s()
        return (
            bool(self._work or self._patient or self._suspects)
            or min(timers.values(), default=math.inf) <= now_s
        )

    # -- one turn -------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Take in what has come, call the engine once, commit, and perform.

        Raises:
            TurnFailedError: the store refuses the turn for good, or the engine cannot take it.
                Nothing of it is stored, and the state in memory is worth nothing any more. Where
                one piece of work was done, whoever asked for it hears why; of several, any may be
                to blame, and all are in ``undone``.
        """
        work = self._in_turn = self._next_work()
        turn = Turn(now_s=self._clock.now_s())
        try:
            answers = await self._take_work(turn, work)
            self._fire_timers(turn)
            keep_house(self.state, turn)
            if turn.events or turn.settings or turn.history or self.state.jobs.touched:
                await self._step(turn)
        except (StaleLeaderError, SequenceError, StoreVersionError):
            abandon(work, self._gone)
            raise
        except Exception as error:
            self._blame(work, error)
            raise TurnFailedError(f"a turn failed: {error}") from error
        except BaseException:
            # Whether it took place is unknown to them; the next leader finds out.
            abandon(work, self._gone)
            raise
        for future, result in answers:
            if not future.done():
                future.set_result(result)

    def _next_work(self) -> list[Work]:
        if self._suspects:
            return [self._suspects.popleft()]
        work, self._work = self._work[:WORK_PER_TURN], self._work[WORK_PER_TURN:]
        left = PATIENT_PER_TURN
        while self._patient and left > 0:
            weight, piece = self._patient.popleft()
            work.append(piece)
            left -= weight
        return work

    def _blame(self, work: Sequence[Work], error: Exception) -> None:
        """Refuse the one piece of work that can have spoilt a turn, or keep several apart."""
        asked = self._asked(work)
        if len(asked) == 1:
            asked.pop()[1].set_exception(error)
        later = (*self._suspects, *self._work, *(piece for _, piece in self._patient))
        self.undone = [*asked, *self._asked(later)]
        for queue in (self._suspects, self._work, self._patient):
            queue.clear()

    def _asked(self, work: Sequence[Work]) -> list[Work]:
        """Return the work that somebody waits for, and let go of the rest."""
        abandon([piece for piece in work if piece[1] in self._own], self._gone)
        return [piece for piece in work if not piece[1].done()]

    async def _take_work(self, turn: Turn, work: Sequence[Work]) -> list[_Answer]:
        """Let everybody's work change the state, and others in between."""
        answers: list[_Answer] = []
        until_s = time.monotonic() + WORK_SLICE_S
        for piece, future in work:
            if time.monotonic() > until_s:
                await asyncio.sleep(0)
                until_s = time.monotonic() + WORK_SLICE_S
            try:
                answers.append((future, piece(turn)))
            except Exception as error:  # noqa: BLE001  it belongs to whoever asked
                if not future.done():
                    future.set_exception(error)
        return answers

    async def _step(self, turn: Turn) -> None:
        state = self.state
        flush_progress(state, turn)
        events = turn.ordered()
        now = turn.now_s = max(turn.now_s, state.engine.now_s)
        began_s = self._metrics.clock()
        rounds = state.engine.round_number
        commands = state.engine.handle(*events, now=now)
        joined = state.nodes.follow(state.engine.cluster, now_s=now)
        ended = follow_jobs(state, turn, commands)
        after_step(state, turn, joined, ended)
        projections = self._projections(turn, commands)
        entry = Entry(
            sequence=self._next_sequence, now_s=now, events=events, projections=projections
        )
        if not state.engine.question_open and any(
            isinstance(event, ev.AllocationComputed) for event in events
        ):
            jobs = state.engine.jobs
            state.policy.baseline = jobs.ints("number"), jobs.credit_s.copy()
        head = await self._commit(entry)
        self.commits += 1
        self._next_sequence += 1
        # Nodes are told what follows from here; so nobody may see it before it is committed.
        follow_leases(state, events, commands, now)
        self._perform(turn, commands, head)
        if state.engine.round_number != rounds:
            self._metrics.round_done(self._metrics.clock() - began_s)
        self._count(events, commands, ended)
        for launch in turn.launches:
            self._metrics.launched(*launch)

    def _projections(self, turn: Turn, commands: Sequence[do.Command]) -> Projections:
        touched = self.state.jobs.touched
        rows = tuple(record.to_row() for record in touched.values() if record.new)
        states = tuple(record.to_state() for record in touched.values() if not record.new)
        for record in touched.values():
            record.new = False
        touched.clear()
        extensions = tuple(
            LeaseExtension(lease_ids=tuple(c.lease_ids.tolist()), deadline_s=c.deadline_s)
            for c in commands
            if isinstance(c, do.ExtendLeases)
        )
        return Projections(
            jobs=rows,
            idempotency=tuple(turn.idempotency),
            states=states,
            attempts=tuple(turn.attempts.values()),
            extensions=extensions,
            settings=tuple(turn.settings),
            history=tuple(turn.history),
        )

    async def _commit(self, entry: Entry) -> Head:
        """Commit, however long the database is away; an interrupted commit is looked for first.

        The leadership may well be renewed meanwhile: on a full disk there is often room for that,
        and none for a large entry. So whoever waits is answered here.
        """
        wait_s = COMMIT_RETRY_LEAST_S
        began_s = self._metrics.clock()
        alarms: list[asyncio.TimerHandle] = []
        try:
            while True:
                try:
                    head = await asyncio.to_thread(self._commit_once, entry)
                except StoreUnavailableError as error:
                    self._failure = error
                    _log.warning("entry %d cannot be committed: %s", entry.sequence, error)
                    alarms = alarms or self._set_alarms()
                    await asyncio.sleep(wait_s)
                    wait_s = min(2.0 * wait_s, COMMIT_RETRY_MOST_S)
                else:
                    self._failure = None
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
        """Take nothing more in, and refuse what is in no turn yet; our own work is kept."""
        self._blocked = True
        own = [piece for piece in self._work if piece[1] in self._own]
        asked = [piece for piece in self._work if piece[1] not in self._own]
        abandon((*asked, *(piece for _, piece in self._patient), *self._suspects), self._gone)
        self._work = own
        self._patient.clear()
        self._suspects.clear()

    def _answer_in_turn(self) -> None:
        """Tell those whose work is in the entry at hand that it may be done later, or never."""
        failure = self._failure
        if failure is not None:
            asked = [piece for piece in self._in_turn if piece[1] not in self._own]
            abandon(asked, lambda: OutcomeUnknownError(failure))

    def _commit_once(self, entry: Entry) -> Head:
        head = self._store.head()
        if head.sequence >= entry.sequence:
            leader = self._store.leader()
            if leader is not None and leader.token == self.state.term:
                return head
        return self._store.commit(entry, token=self.state.term)

    def _perform(self, turn: Turn, commands: Sequence[do.Command], head: Head) -> None:
        state = self.state
        if self.log is not None:
            self.log.extend(commands)
        nodes = []
        for node in state.leases.changed:
            known = state.nodes.by_name.get(node)
            if known is not None:
                known.publish()
                nodes.append(known)
            for _, member in state.leases.held_by(node):
                member.since = known.revision if known else 0
        state.leases.changed.clear()
        _tell(nodes)
        for command in commands:
            if isinstance(command, do.ComputeAllocation):
                self._ask(command)
        for call in turn.after:
            call()
        self.tell_news(head)
        self._entries_since_snapshot += 1
        if self._entries_since_snapshot >= state.settings.snapshot_entries:
            self.write_snapshot_soon()

    def _count(
        self,
        events: Sequence[ev.Event],
        commands: Sequence[do.Command],
        ended: Sequence[JobRecord],
    ) -> None:
        metrics = self._metrics
        for event in events:
            if isinstance(event, ev.LeaseEnded):
                metrics.lease_ended(event.reason.value)
        for command in commands:
            match command:
                case do.GrantLease():
                    metrics.leases_started()
                case do.RevokeLease(reason=RevokeReason.OUTBID):
                    metrics.preempted()
        for record in ended:
            metrics.job_ended(record.status, jct_s=(record.finished_s or 0.0) - record.submitted_s)

    def _fire_timers(self, turn: Turn) -> None:
        timers = self.state.leases.timers
        due = [name for name, at_s in timers.items() if at_s <= turn.now_s]
        turn.tell(*(ev.TimerFired(timer=name) for name in due))

    def _next_due_s(self) -> float:
        timers = self.state.leases.timers
        next_tick_s = self._clock.now_s() + self.state.settings.tick_s
        return min(min(timers.values(), default=math.inf), next_tick_s)

    # -- questions ------------------------------------------------------------------------------

    def _ask(self, question: do.ComputeAllocation) -> None:
        task = asyncio.create_task(self._answer(question))
        self._question = task

    async def _answer(self, question: do.ComputeAllocation) -> None:
        policy = self.state.policy
        event: ev.Event
        try:
            solved = await self._solver.solve(policy.choice, question.problem)
        except SupersededError:
            return  # the newer question is answered instead
        except SolveError as error:
            policy.last_failure = str(error)
            self._metrics.solve_failed()
            _log.warning("policy '%s' gave no answer: %s", policy.choice.name, error)
            event = ev.AllocationFailed(generation=question.generation, reason=str(error))
        else:
            self._metrics.solved(solved.solve_s)
            event = ev.AllocationComputed(
                generation=question.generation,
                job_number=question.problem.job_number,
                allocation=solved.allocation,
            )
            if question.generation == self.state.engine.generation:
                _note_answer(policy, question, solved, self._clock.now_s())
        if question.generation == self.state.engine.generation:
            self.soon(lambda turn: turn.tell(event))

    # -- snapshots ------------------------------------------------------------------------------

    def write_snapshot_soon(self) -> None:
        """Write a snapshot beside the turns that follow; not two at a time."""
        if self._snapshot is None or self._snapshot.done():
            self._entries_since_snapshot = 0
            taken = take_snapshot(self.state)
            sequence = self._next_sequence - 1
            self._snapshot = asyncio.create_task(self._write_snapshot(taken, sequence))

    async def write_snapshot(self) -> None:
        """Write a snapshot now; for a graceful end."""
        await self._write_snapshot(take_snapshot(self.state), self._next_sequence - 1)

    async def _write_snapshot(self, taken: Taken, sequence: int) -> None:
        try:
            await asyncio.to_thread(store_snapshot, self._store, taken, sequence, self.state.term)
        except StoreError as error:
            _log.warning("no snapshot could be written: %s", error)


def abandon(work: Iterable[Work], why: Callable[[], LeaseholdError] = NotLeadingError) -> None:
    """Let those who wait know that this leader does their work no more."""
    for _, future in work:
        if not future.done():
            future.set_exception(why())


def _tell(nodes: Sequence[NodeState]) -> None:
    """Wake nodes that wait for their desired sets: some at a time, for others want answers too."""
    for node in nodes[:NODES_AT_ONCE]:
        node.tell()
    if rest := nodes[NODES_AT_ONCE:]:
        asyncio.get_running_loop().call_later(NODES_PAUSE_S, _tell, rest)


def _note_answer(
    policy: PolicyInForce, question: do.ComputeAllocation, solved: Solved, now_s: float
) -> None:
    policy.last_solve_s, policy.last_failure = solved.solve_s, ""
    policy.answer, policy.question, policy.computed_s = solved.allocation, question, now_s


def _log_failure(future: asyncio.Future[object]) -> None:
    if not future.cancelled() and future.exception() is not None:
        _log.error("a step of the scheduler failed", exc_info=future.exception())
