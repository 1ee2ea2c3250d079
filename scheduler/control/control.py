"""Control: takes facts in, decides, and publishes decisions once they are stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.control.facts.facts import (
    AllocationAnswered,
    BackupRestored,
    JobActionAsked,
    JobChangeAsked,
    JobsSubmitted,
    LeaseUntold,
    NodeOrdered,
    NodeRemoved,
    NodeReported,
    NodesHeard,
    PolicyAsked,
    PolicySet,
    ProjectSet,
    ReservationDeleted,
    ReservationMade,
    ThroughputsDeclared,
    ThroughputsForgotten,
    UseCounted,
    WorkersApproved,
)
from scheduler.control.jobs.actions import act_on_jobs, change_jobs
from scheduler.control.jobs.submit import submit_jobs
from scheduler.control.jobs.time_limits import next_limit_s
from scheduler.control.jobs.waiting import after_step
from scheduler.control.leases.apply_commands import (
    apply_lease_commands,
    update_job_records,
    with_reasons,
)
from scheduler.control.leases.progress import flush_progress
from scheduler.control.nodes.health import check_node_health
from scheduler.control.nodes.inventory import approve_workers
from scheduler.control.nodes.reports import store_report, take_report
from scheduler.control.nodes.silence import end_silence
from scheduler.control.operator_orders import (
    ask_policy,
    declare_throughputs,
    forget_throughputs,
    order_node,
    remove_node,
    set_policy,
    set_project,
)
from scheduler.control.periodic import run_periodic_checks
from scheduler.control.projects.budgets import count_ended, take_use
from scheduler.control.projects.reservations import delete_reservation, make_reservation
from scheduler.control.state.control_copy import copy_of
from scheduler.control.state.jobs import JobBook
from scheduler.control.state.leases import LiveLeases
from scheduler.control.state.nodes import NodeBook
from scheduler.control.state.snapshot import take_snapshot
from scheduler.control.state.state import ControlState, PolicyInForce
from scheduler.control.state.transaction import TIME_PASSES, Answered, Transaction
from scheduler.control.state.view import PublishedState
from scheduler.domain.cluster import Cluster
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.rows import LeaseExtension, Projections
from scheduler.engine.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.control.facts.facts import Fact
    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.control.state.control_copy import ControlCopy
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.settings import ControlSettings
    from scheduler.control.state.snapshot import Taken
    from scheduler.domain.facts.commands import ComputeAllocation
    from scheduler.domain.throughputs.knowledge import Knowledge

_NOTHING = Projections()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """The result of some facts. A shell stores it, then publishes it, then performs it.

    Attributes:
        now_s: its time.
        events: the engine's inputs; with ``rows``, everything to store.
        rows: rows that people can query.
        is_stored: whether there is anything to store.
        answers: the answer to each fact.
        question: the question to ask the policy; None if there is none.
        told: nodes to notify: those with changed desired sets, and nodes that came or went.
        commands: of the engine, in order.
        ended: jobs that have ended.
        launches: launches that were timed: phase (``image``, ``start``, ``ready``,
            ``first_step``) -> seconds.
        stalls: how often event loops of agents stood still, as they report.
        warnings: texts for operators.
        is_new_round: whether a round was planned.
    """

    now_s: float
    events: tuple[ev.Event, ...] = ()
    rows: Projections = _NOTHING
    is_stored: bool = False
    answers: tuple[Answered, ...] = ()
    question: ComputeAllocation | None = None
    told: tuple[str, ...] = ()
    commands: Sequence[do.Command] = ()
    ended: Sequence[JobRecord] = ()
    launches: Sequence[Mapping[str, float]] = ()
    stalls: int = 0
    warnings: Sequence[str] = ()
    is_new_round: bool = False


class Control:
    """Decides. No clock, no store, no randomness: equal facts give equal decisions.

    Shells change it by facts only, and read ``view``. A fact that raises has changed nothing. If a
    decision cannot be stored, or ``decide`` raises, the state in memory must be discarded.

    Args:
        state: the state to decide by; only control changes it.
    """

    def __init__(self, state: ControlState) -> None:
        self.state = state
        self.view = PublishedState.of(state)

    @classmethod
    def new(
        cls,
        settings: ControlSettings,
        *,
        knowledge: Knowledge,
        time_dependent: bool | None = False,
        now_s: float = 0.0,
        term: int = 1,
    ) -> Control:
        """Return the control of a service that starts without jobs and nodes.

        Args:
            settings: of decisions.
            knowledge: the ways in which jobs can run.
            time_dependent: whether the answers of the settings' policy change as time passes.
            now_s: the time.
            term: the leader's fencing token.
        """
        return cls(
            ControlState(
                engine=Engine(Cluster(worker_types=(), nodes=()), settings.engine),
                leases=LiveLeases(),
                jobs=JobBook(),
                nodes=NodeBook(),
                knowledge=knowledge,
                policy=PolicyInForce(choice=settings.policy, since_s=now_s),
                time_dependent=time_dependent,
                settings=settings,
                term=term,
            )
        )

    def handle(self, *facts: Fact, now_s: float) -> Decision:
        """Take in facts that are true at ``now_s``, and return the decision."""
        transaction = self.transaction(now_s)
        for fact in facts:
            self.take(transaction, fact)
        return self.decide(transaction)

    # -- the same in steps, so that a shell can do other work between them
    # --------------------------

    def transaction(self, now_s: float, wall_s: float | None = None) -> Transaction:
        """Begin a decision; the previous one must have been published.

        Args:
            now_s: its time.
            wall_s: the system's time; ``now_s`` by default.
        """
        return Transaction(now_s=now_s, wall_s=now_s if wall_s is None else wall_s)

    def take(self, transaction: Transaction, fact: Fact) -> None:
        """Take in one fact."""
        transaction.cause = cause_of(fact)
        try:
            answered = Answered(fact=fact, result=_TAKE[type(fact)](self.state, transaction, fact))
        except Exception as error:  # noqa: BLE001  the sender of the fact handles it
            answered = Answered(fact=fact, error=error)
        transaction.answers.append(answered)
        transaction.cause = TIME_PASSES

    def decide(self, transaction: Transaction) -> Decision:
        """Find the timers and checks that are due, call the engine, and return the decision."""
        self._note_due(transaction)
        if self.changes(transaction):
            return self._step(transaction)
        return self._decision(transaction, told=self._number_desired_sets())

    def _note_due(self, transaction: Transaction) -> None:
        """Add the timers and checks that are due to a transaction."""
        state = self.state
        timers = state.leases.timers
        due = [name for name, at_s in timers.items() if at_s <= transaction.now_s]
        transaction.emit(*(ev.TimerFired(timer=name) for name in due))
        looks = transaction.now_s >= state.next_look_s
        run_periodic_checks(state, transaction)
        if looks:
            check_node_health(state, transaction)

    def changes(self, transaction: Transaction) -> bool:
        """Return whether a transaction changes anything that must be stored."""
        return bool(
            transaction.events
            or transaction.settings
            or transaction.history
            or self.state.jobs.touched
        )

    def _step(self, transaction: Transaction) -> Decision:
        """Call the engine once, and follow its commands."""
        state = self.state
        flush_progress(state, transaction)
        events, rounds = transaction.ordered(), state.engine.round_number
        # 1. The engine decides.
        commands = self._call_engine(transaction, events)
        now_s = transaction.now_s
        # 2. Nodes and jobs follow it, and what they are counted for.
        joined = state.nodes.follow(state.engine.cluster, now_s=now_s)
        ended = update_job_records(state, transaction, commands)
        count_ended(state, transaction.attempts.values())
        after_step(state, transaction, joined, ended)
        # 3. Rows are made before the leases that they describe are gone.
        rows = self._rows(transaction, commands)
        self._keep_baseline(events)
        # 4. Leases follow, and reports that waited for the engine.
        apply_lease_commands(state, events, commands, now_s)
        for fact in transaction.met:
            store_report(state, transaction, fact)
        # 5. What is gone is dropped, and changed desired sets get their numbers.
        self._drop_gone(transaction, ended)
        state.leases.changed.update(transaction.removed, (node.name for node in joined))
        questions = [c for c in commands if isinstance(c, do.ComputeAllocation)]
        return self._decision(
            transaction,
            events=events,
            rows=rows,
            is_stored=True,
            question=questions[-1] if questions else None,
            told=self._number_desired_sets(),
            commands=commands,
            ended=ended,
            is_new_round=state.engine.round_number != rounds,
        )

    def _call_engine(
        self, transaction: Transaction, events: Sequence[ev.Event]
    ) -> Sequence[do.Command]:
        """Let the engine handle events, and return its commands with their reasons."""
        engine = self.state.engine
        transaction.now_s = max(transaction.now_s, engine.now_s)
        return with_reasons(transaction, engine.handle(*events, now=transaction.now_s))

    def _keep_baseline(self, events: Sequence[ev.Event]) -> None:
        """Keep the jobs' credit at a policy's answer, from which its view counts."""
        state = self.state
        answered = any(isinstance(event, ev.AllocationComputed) for event in events)
        if answered and not state.engine.question_open:
            jobs = state.engine.jobs
            state.policy.baseline = jobs.ints("number"), jobs.credit_s.copy()

    def _drop_gone(self, transaction: Transaction, ended: Sequence[JobRecord]) -> None:
        """Drop removed nodes, and the failures of jobs that have ended."""
        state = self.state
        for name in transaction.removed:
            state.nodes.remove(name)
            state.health.drop_node(name)
        for record in ended:
            state.health.failures.pop(record.job_id, None)

    def _decision(self, transaction: Transaction, **found: Any) -> Decision:
        """Return a decision with what every decision has."""
        return Decision(
            now_s=transaction.now_s,
            answers=tuple(transaction.answers),
            launches=transaction.launches,
            stalls=transaction.stalls,
            warnings=transaction.warnings,
            **found,
        )

    def _rows(self, transaction: Transaction, commands: Sequence[do.Command]) -> Projections:
        touched = self.state.jobs.touched
        written = transaction.documents
        jobs = tuple(
            record.to_row(written.get(job_id)) for job_id, record in touched.items() if record.new
        )
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
            jobs=jobs,
            idempotency=tuple(transaction.idempotency),
            states=states,
            attempts=tuple(transaction.attempts.values()),
            extensions=extensions,
            uses=self.state.leases.take_uses() if extensions else (),
            settings=tuple(transaction.settings),
            history=tuple(transaction.history),
        )

    def _number_desired_sets(self) -> tuple[str, ...]:
        """Give changed desired sets their next revision, and note it in their leases."""
        state = self.state
        told = tuple(sorted(state.leases.changed))  # the same in every run, not by the hash
        state.leases.changed.clear()
        for name in told:
            node = state.nodes.by_name.get(name)
            if node is not None:
                node.publish()
                state.nodes.touch(name)
            for _, member in state.leases.held_by(name):
                member.since = node.revision if node else 0
        return told

    # -- views ---------------------------------------------------------------------------------

    def publish(self, decision: Decision) -> None:
        """Show a decision to agents and people, after its events and rows are stored."""
        self.view.bring_forward(self.state, engine=decision.is_stored)

    def copied(self) -> ControlCopy:
        """Copy the whole state between two decisions, for a forecast."""
        return copy_of(self.state)

    def snapshot(self) -> Taken:
        """Copy the state that a start begins from; quick, so that decisions need not wait."""
        return take_snapshot(self.state)

    @property
    def question(self) -> ComputeAllocation | None:
        """The engine's open question to the policy; None if there is none."""
        return self.state.leases.question

    @property
    def asked(self) -> PolicyChoice | None:
        """The policy that gave the answer in force, or that is asked; None before the first."""
        return self.state.asked

    @property
    def round_due_s(self) -> float:
        """When the next round is due to be planned; infinity if no round is going on."""
        engine = self.state.engine
        end_s = math.inf if engine.round_end_s is None else engine.round_end_s
        return end_s - engine.settings.plan_lead_s

    @property
    def next_due_s(self) -> float:
        """When the next timer or time limit is due; infinity without any."""
        timer_s = min(self.state.leases.timers.values(), default=math.inf)
        month_end_s = self.state.budgets.month_end_s  # when stopped projects continue
        return min(timer_s, next_limit_s(self.state), month_end_s)


def cause_of(fact: Fact) -> Cause:
    """Return the cause that decisions name for a fact."""
    match fact:
        case NodeReported():
            kind, subject = FactKind.NODE_REPORTED, fact.report.node
        case LeaseUntold():
            kind, subject = FactKind.NODE_REPORTED, fact.node
        case NodesHeard():
            kind, subject = FactKind.NODE_REPORTED, ""
        case AllocationAnswered():
            kind, subject = FactKind.POLICY_ANSWERED, ""
            if fact.answer is None:
                kind = FactKind.POLICY_FAILED
        case PolicyAsked():
            kind, subject = FactKind.RESTARTED, ""
        case BackupRestored():
            kind, subject = FactKind.RESTORED, ""
        case _:
            kind, subject = FactKind.REQUEST, fact.actor
    return Cause(fact=kind, subject=subject)


def _answer(state: ControlState, transaction: Transaction, fact: AllocationAnswered) -> None:
    """Pass a policy's answer to the engine; drop an answer to an older question."""
    policy, question, answer = state.policy, fact.question, fact.answer
    if question.generation != state.engine.generation:
        return
    asked = fact.policy == policy.choice
    if answer is None:
        if asked:
            policy.last_failure = fact.failure
        transaction.emit(ev.AllocationFailed(generation=question.generation, reason=fact.failure))
        return
    if asked:
        policy.last_solve_s, policy.last_failure = answer.solve_s, ""
        policy.answer, policy.question = answer.allocation, question
        policy.computed_s = transaction.now_s
    transaction.emit(
        ev.AllocationComputed(
            generation=question.generation,
            job_number=question.problem.job_number,
            allocation=answer.allocation,
        )
    )


def _hear(state: ControlState, transaction: Transaction, fact: NodesHeard) -> None:
    for name, at_s in fact.heard_s.items():
        node = state.nodes.by_name.get(name)
        if node is not None and node.last_seen_s is not None:
            node.last_seen_s = max(node.last_seen_s, at_s)
            state.nodes.touch(name)
            if node.silent and not node.lost:
                end_silence(state, transaction, node)


def _note_untold(state: ControlState, _draft: Transaction, fact: LeaseUntold) -> None:
    live = state.leases.by_id.get(fact.lease_id)
    for member in () if live is None else live.members:
        if member.node == fact.node:
            member.untold = fact.message
            state.leases.touched.add(fact.lease_id)


def _skip_leases(state: ControlState, transaction: Transaction, fact: BackupRestored) -> None:
    first = state.engine.newest_lease
    last = first + fact.leases
    state.skipped = first, last
    transaction.emit(ev.LeasesSkipped(last=last))
    transaction.record_event("restored", "scheduler", "", newest_lease=last)


_TAKE: Mapping[type, Callable[[ControlState, Transaction, Any], object]] = {
    JobsSubmitted: submit_jobs,
    JobActionAsked: act_on_jobs,
    JobChangeAsked: change_jobs,
    NodeOrdered: order_node,
    NodeRemoved: remove_node,
    WorkersApproved: approve_workers,
    PolicySet: set_policy,
    PolicyAsked: lambda state, transaction, _fact: ask_policy(state, transaction),
    ProjectSet: set_project,
    UseCounted: take_use,
    ReservationMade: make_reservation,
    ReservationDeleted: delete_reservation,
    ThroughputsDeclared: declare_throughputs,
    ThroughputsForgotten: forget_throughputs,
    NodeReported: take_report,
    NodesHeard: _hear,
    LeaseUntold: _note_untold,
    AllocationAnswered: _answer,
    BackupRestored: _skip_leases,
}
