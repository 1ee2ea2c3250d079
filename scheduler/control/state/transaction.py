"""The transaction of a decision: events for the engine, and the rows that change with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import OF_A_JOB, Cause, FactKind
from scheduler.domain.lease_life import EndReason
from scheduler.domain.rows import CAUSE, HistoryRow, SettingRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.facts import Fact, NodeReported
    from scheduler.control.state.leases import MemberEnd
    from scheduler.domain.rows import AttemptRow, IdempotencyRow

#: The order of events in a decision; types without an entry come in the middle, in their order.
_ORDER: Final[Mapping[type, int]] = {
    ev.LeasesSkipped: -1,
    ev.ConfigurationsChanged: 0,
    ev.LengthsRevised: 0,  # before progress, which is cut at the length
    ev.ProgressReported: 1,
    ev.WorkSaved: 1,
    ev.AgentDied: 1,
    # A node's report of its workers comes before its report of its leases: a worker that one job
    # gives back must not be granted to the next when its node is about to leave.
    ev.WorkersRetired: 2,
    ev.WorkersDrained: 2,
    ev.WorkersCordoned: 2,
    ev.WorkersLost: 2,
    ev.WorkersReturned: 2,
    ev.LeaseEnded: 3,
    ev.TimerFired: 9,
}


#: The cause of work that no fact triggered.
TIME_PASSES: Final = Cause(fact=FactKind.ROUND)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answered:
    """The answer to a fact.

    Attributes:
        fact: the fact.
        result: for its sender.
        error: why nothing was done; None if it was.
    """

    fact: Fact
    result: object = None
    error: Exception | None = None


@dataclass(slots=True, kw_only=True)
class Transaction:
    """The parts of one decision.

    Attributes:
        now_s: its time.
        wall_s: the system's time, with which users' deadlines are compared.
        cause: the fact that is being taken in; else that time passes.
        reasons: subject -> the reason to record for that job or node, if the engine's own cause is
            too general.
        ended_by: lease id -> the fact that ended it.
        events: the engine's inputs.
        settings: settings that change.
        idempotency: new keys of clients.
        history: lines of history besides the engine's.
        attempts: leases that begin or end.
        actors: subject -> the user that asked for its change in this decision.
        ends: lease id -> how it ended.
        launches: launches that were timed: phase (``image``, ``start``, ``ready``,
            ``first_step``) -> seconds.
        stalls: how often event loops of agents stood still, as they report.
        met: reports of nodes that join with this decision, and are known after it.
        removed: nodes that are removed with it.
        answers: the answer to each fact: a result or an error.
        warnings: texts for operators.
        documents: job id -> its specification as plain values, of new jobs for which it is known.
    """

    now_s: float
    wall_s: float = -math.inf
    cause: Cause = TIME_PASSES
    reasons: dict[tuple[bool, str], Cause] = field(default_factory=dict)
    ended_by: dict[int, Cause] = field(default_factory=dict)
    events: list[ev.Event] = field(default_factory=list)
    settings: list[SettingRow] = field(default_factory=list)
    idempotency: list[IdempotencyRow] = field(default_factory=list)
    history: list[HistoryRow] = field(default_factory=list)
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    actors: dict[str, str] = field(default_factory=dict)
    ends: dict[int, MemberEnd] = field(default_factory=dict)
    launches: list[dict[str, float]] = field(default_factory=list)
    stalls: int = 0
    met: list[NodeReported] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    documents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _told_of: tuple[Cause, Mapping[str, Any]] | None = None

    def emit(self, *events: ev.Event) -> None:
        """Add events for the engine."""
        self.events.extend(events)

    def give_reason(self, cause: Cause, *, job: str = "", node: str = "") -> None:
        """Record the reason for the engine's input on a job or a node."""
        self.reasons[bool(job), job or node] = cause

    def reason_of(self, cause: Cause) -> Cause:
        """Return the recorded reason for a cause's job or node, or the cause itself."""
        given = self.reasons.get((cause.fact in OF_A_JOB, cause.subject)) if self.reasons else None
        return cause if given is None or cause.ground is not None else given

    def ordered(self) -> tuple[ev.Event, ...]:
        """Return the events in the order in which the engine takes them.

        Ends of leases do not keep the order of nodes' reports. Those that completed come first,
        then all others, each by lease, as in the simulator.
        """
        return tuple(sorted(self.events, key=_place))

    def set(self, key: str, value: Any, *, actor: str = "") -> None:
        """Make or replace a setting; None removes it."""
        row = SettingRow(key=key, value=value, updated_s=self.now_s, actor=actor)
        self.settings = [other for other in self.settings if other.key != key]
        self.settings.append(row)

    def record_event(
        self, kind: str, subject_kind: str, subject: str, *, actor: str = "", **data: Any
    ) -> None:
        """Add a line of history, caused by the current fact."""
        self.record_event_for(self.cause, kind, subject_kind, subject, actor=actor, **data)

    def record_event_for(
        self,
        cause: Cause,
        kind: str,
        subject_kind: str,
        subject: str,
        *,
        actor: str = "",
        **data: Any,
    ) -> None:
        """Add a line of history with another cause."""
        if self._told_of is None or self._told_of[0] is not cause:  # most lines have one cause
            self._told_of = cause, cause.to_data()
        self.history.append(
            HistoryRow(
                at_s=self.now_s,
                kind=kind,
                subject_kind=subject_kind,
                subject=subject,
                actor=actor,
                data=data | {CAUSE: self._told_of[1]},
            )
        )


def _place(event: ev.Event) -> tuple[int, bool, int]:
    place = _ORDER.get(type(event), 5)
    if isinstance(event, ev.LeaseEnded):
        return place, event.reason is not EndReason.COMPLETED, event.lease_id
    return place, False, 0
