"""Triggers of decisions: the facts of the events that the engine has handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import FactKind, Occasion
from scheduler.domain.lease_life import EndReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.domain.lease import Lease
    from scheduler.engine.tables.fleet import Fleet

#: Most facts that are kept until a round is planned; beyond that the oldest are dropped.
MOST: Final = 256

#: Event -> fact, for events without a subject.
_FIXED: Final[Mapping[type, Occasion]] = {
    type(None): Occasion(fact=FactKind.ROUND),
    ev.ConfigurationsChanged: Occasion(fact=FactKind.THROUGHPUTS_CHANGED),
    ev.RestartsMeasured: Occasion(fact=FactKind.RESTARTS_MEASURED),
    ev.LengthsRevised: Occasion(fact=FactKind.LENGTHS_REVISED),
    ev.ProgressReported: Occasion(fact=FactKind.PROGRESS_REPORTED),
    ev.WorkSaved: Occasion(fact=FactKind.PROGRESS_REPORTED),
    ev.LeasesReleased: Occasion(fact=FactKind.LEASE_ENDED),
    ev.ReservationsChanged: Occasion(fact=FactKind.RESERVATION_CHANGED),
    ev.LeasesSkipped: Occasion(fact=FactKind.RESTORED),
    ev.AllocationComputed: Occasion(fact=FactKind.POLICY_ANSWERED),
    ev.AllocationFailed: Occasion(fact=FactKind.POLICY_FAILED),
}
#: Event -> fact, and the attribute that names its subject.
_NAMED: Final[Mapping[type, tuple[FactKind, str]]] = {
    ev.JobCancelled: (FactKind.JOB_CANCELLED, "job_id"),
    ev.JobHeld: (FactKind.JOB_HELD, "job_id"),
    ev.JobReleased: (FactKind.JOB_RELEASED, "job_id"),
    ev.JobEntitled: (FactKind.JOB_ARRIVED, "job_id"),
    ev.JobDeferred: (FactKind.JOB_DEFERRED, "job_id"),
    ev.WeightChanged: (FactKind.WEIGHT_CHANGED, "job_id"),
    ev.DeadlineChanged: (FactKind.DEADLINE_CHANGED, "job_id"),
    ev.JobRequeued: (FactKind.JOB_REQUEUED, "job_id"),
    ev.PolicyChanged: (FactKind.POLICY_CHANGED, "policy"),
    ev.AgentDied: (FactKind.AGENT_DIED, "node"),
}
_OF_WORKERS: Final[Mapping[type, FactKind]] = {
    ev.WorkersRetired: FactKind.WORKERS_RETIRED,
    ev.WorkersDrained: FactKind.WORKERS_DRAINED,
    ev.WorkersCordoned: FactKind.WORKERS_CORDONED,
    ev.WorkersLost: FactKind.WORKERS_LOST,
    ev.WorkersReturned: FactKind.WORKERS_RETURNED,
}
_OF_ENDS: Final[Mapping[EndReason, FactKind]] = {
    EndReason.COMPLETED: FactKind.JOB_ENDED,
    EndReason.RELEASED: FactKind.LEASE_ENDED,
    EndReason.FAILED: FactKind.LEASE_FAILED,
    EndReason.LOST: FactKind.LEASE_LOST,
    EndReason.CANCELLED: FactKind.LEASE_ENDED,
}


class PendingTriggers:
    """Facts since a round was planned, workers were served, and the policy was asked.

    Part of the engine's state.
    """

    def __init__(self) -> None:
        #: facts since the last round was planned, oldest first; ``MOST`` at most.
        self.recent: list[Occasion] = []
        #: number of these at the time when idle workers were last served.
        self.served = 0
        #: the first fact for which the policy is to be asked; None if it need not be asked.
        self.to_ask: Occasion | None = None
        #: facts for which a round was planned in the current call.
        self.planned: Sequence[Occasion] = []

    def note(self, occasion: Occasion) -> None:
        """Add a fact."""
        if len(self.recent) == MOST:
            self.recent = self.recent[MOST // 2 :]
            self.served = max(self.served - MOST // 2, 0)
        self.recent.append(occasion)

    def begin_round(self, *, keep: bool = False) -> Sequence[Occasion]:
        """Return the facts since the last round was planned, and start a new list.

        Args:
            keep: whether they count for the next round as well.
        """
        if keep:
            self.planned, self.served = tuple(self.recent), len(self.recent)
        else:
            self.planned, self.recent, self.served = self.recent, [], 0
        return self.planned

    def since_served(self) -> Sequence[Occasion]:
        """Return the facts since idle workers were last served, or since this round's plan.

        If a round was planned in this call, its facts explain the workers that it left over.
        """
        found = self.recent[self.served :] or self.planned
        self.served = len(self.recent)
        return found

    def restore(self, recent: Iterable[Occasion], served: int, to_ask: Occasion | None) -> None:
        """Restore stored facts."""
        self.recent, self.served, self.to_ask = list(recent), served, to_ask


def trigger_of(event: ev.Event | None, fleet: Fleet, ending: Lease | None) -> Occasion:
    """Return an event as an ``Occasion``.

    Args:
        event: the event; None if only time passes.
        fleet: the workers.
        ending: the lease that it ends; None if it ends no lease, or several.
    """
    kind = type(event)
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _NAMED:
        fact, attribute = _NAMED[kind]
        return Occasion(fact=fact, subject=getattr(event, attribute))
    return _OTHERS[kind](event, fleet, ending)


def _of_workers(event: Any, fleet: Fleet, _ending: Lease | None) -> Occasion:
    workers = event.workers
    node = fleet.node_name(workers[0]) if workers else ""
    return Occasion(fact=_OF_WORKERS[type(event)], subject=node, workers=workers)


def _submitted(event: ev.JobSubmitted, _fleet: Fleet, _ending: Lease | None) -> Occasion:
    return Occasion(fact=FactKind.JOB_ARRIVED, subject=event.job.job_id)


def _entity(event: ev.EntityChanged, _fleet: Fleet, _ending: Lease | None) -> Occasion:
    return Occasion(fact=FactKind.SHARE_CHANGED, subject=event.entity.name)


def _quotas(event: ev.QuotasChanged, _fleet: Fleet, _ending: Lease | None) -> Occasion:
    return Occasion(fact=FactKind.QUOTA_CHANGED, subject=event.project)


def _funds(event: ev.FundsChanged, _fleet: Fleet, _ending: Lease | None) -> Occasion:
    return Occasion(fact=FactKind.BUDGET_SPENT if event.unfunded else FactKind.BUDGET_FREED)


def _joined(event: ev.NodesJoined, fleet: Fleet, _ending: Lease | None) -> Occasion:
    count = sum(len(node.workers) for node in event.nodes)
    names = ", ".join(node.name for node in event.nodes)
    workers = tuple(range(fleet.workers - count, fleet.workers))
    return Occasion(fact=FactKind.NODE_JOINED, subject=names, workers=workers)


def _ended(event: ev.LeaseEnded, _fleet: Fleet, ending: Lease | None) -> Occasion:
    fact = _OF_ENDS[event.reason]
    if ending is None:
        return Occasion(fact=fact)
    return Occasion(fact=fact, subject=ending.job_id, workers=ending.workers)


def _timer(event: ev.TimerFired, _fleet: Fleet, _ending: Lease | None) -> Occasion:
    facts = {
        "retry": FactKind.WAIT_OVER,
        "grace": FactKind.POLICY_LATE,
        "window": FactKind.RESERVATION_CHANGED,
    }
    return Occasion(fact=facts.get(event.timer, FactKind.ROUND))


_OTHERS: Final[Mapping[type, Callable[[Any, Fleet, Lease | None], Occasion]]] = {
    **dict.fromkeys(_OF_WORKERS, _of_workers),
    ev.JobSubmitted: _submitted,
    ev.EntityChanged: _entity,
    ev.QuotasChanged: _quotas,
    ev.FundsChanged: _funds,
    ev.NodesJoined: _joined,
    ev.LeaseEnded: _ended,
    ev.TimerFired: _timer,
}
