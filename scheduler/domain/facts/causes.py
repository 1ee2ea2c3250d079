"""Causes: the fact that a command or an effect is due to, and the comparison that decided."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FactKind(enum.StrEnum):
    """Kinds of facts."""

    JOB_ARRIVED = "job_arrived"
    JOB_ENDED = "job_ended"  #: completed, or failed without another retry
    JOB_CANCELLED = "job_cancelled"
    JOB_HELD = "job_held"
    JOB_RELEASED = "job_released"
    JOB_REQUEUED = "job_requeued"
    JOB_DEFERRED = "job_deferred"  #: it may not run before a time, or may from now on
    WEIGHT_CHANGED = "weight_changed"
    DEADLINE_CHANGED = "deadline_changed"
    PROGRESS_REPORTED = "progress_reported"
    LEASE_ENDED = "lease_ended"  #: a job gave its workers back
    LEASE_FAILED = "lease_failed"
    LEASE_LOST = "lease_lost"
    TIME_LIMIT = "time_limit"  #: a job has held workers for as long as it may
    OUT_OF_MEMORY = "out_of_memory"
    IDLE = "idle"  #: a job has not used its GPUs for too long
    RETRIES_SPENT = "retries_spent"  #: a job ended too often for a reason that it bounds
    START_LATE = "start_late"  #: a job does not run in time under its lease
    DEPENDENCY_ENDED = "dependency_ended"  #: a job ended that another one waited for
    QUOTA_FREED = "quota_freed"  #: its project's quota has room for a job that waited for that
    BUDGET_SPENT = "budget_spent"  #: a project has used up its budget of the month
    BUDGET_FREED = "budget_freed"  #: it has room again
    NODE_JOINED = "node_joined"
    NODE_REPORTED = "node_reported"
    NODE_SILENT = "node_silent"
    NODE_ORDERED = "node_ordered"  #: a user cordons, drains or uncordons it
    AGENT_DIED = "agent_died"
    LEASE_EXPIRED = "lease_expired"  #: a node said nothing until a deadline and a margin had passed
    WORKERS_LOST = "workers_lost"
    WORKERS_DRAINED = "workers_drained"
    WORKERS_CORDONED = "workers_cordoned"
    WORKERS_RETURNED = "workers_returned"
    WORKERS_RETIRED = "workers_retired"
    SHARE_CHANGED = "share_changed"  #: weight or inner policy of an entity
    QUOTA_CHANGED = "quota_changed"  #: how many workers projects may hold
    RESERVATION_CHANGED = "reservation_changed"  #: made, deleted, begun or over
    POLICY_CHANGED = "policy_changed"
    POLICY_ANSWERED = "policy_answered"
    POLICY_FAILED = "policy_failed"
    POLICY_LATE = "policy_late"  #: an answer takes too long to be waited for
    THROUGHPUTS_CHANGED = "throughputs_changed"
    RESTARTS_MEASURED = "restarts_measured"
    LENGTHS_REVISED = "lengths_revised"
    ROUND = "round"  #: nothing but that time passes, and the next round is to be planned
    WAIT_OVER = "wait_over"  #: a job may be tried again
    REQUEST = "request"  #: a user asked for it
    RESTARTED = "restarted"  #: another process decides from now on
    RESTORED = "restored"  #: from a backup


class Ground(enum.StrEnum):
    """What decided, beside the fact."""

    TURN = "turn"  #: it is behind its share
    OVERDUE = "overdue"  #: without the round it would be too far behind at its end
    FULL_TIME = "full_time"  #: its share is nearly all of the time
    LEFT_OVER = "left_over"  #: no job is due on the workers
    FASTER = "faster"  #: the move gains more than the restart costs
    ELSEWHERE = "elsewhere"  #: its share is in another configuration now
    MOVED = "moved"  #: to other workers, in the same configuration
    BEHIND = "behind"  #: another job is further behind
    SHORTER = "shorter"  #: another job has less left to do, and none is far behind
    SERVED_LESS = "served_less"  #: another job has had less so far, and no job is far behind
    LENT = "lent"  #: it had the workers only as long as no job was due on them
    AHEAD = "ahead"  #: it has had its share for now
    NO_SHARE = "no_share"  #: the policy gives it no time
    QUOTA = "quota"  #: its project or its owner has as many workers as may be
    NO_FIT = "no_fit"  #: the workers left by others do not fit it


#: Facts with a job as subject.
OF_A_JOB: Final = frozenset(
    {
        *(FactKind.JOB_ARRIVED, FactKind.JOB_ENDED, FactKind.JOB_CANCELLED, FactKind.JOB_HELD),
        *(FactKind.JOB_RELEASED, FactKind.JOB_REQUEUED, FactKind.JOB_DEFERRED),
        *(FactKind.WEIGHT_CHANGED, FactKind.DEADLINE_CHANGED, FactKind.PROGRESS_REPORTED),
        *(FactKind.LEASE_ENDED, FactKind.LEASE_FAILED, FactKind.LEASE_LOST, FactKind.TIME_LIMIT),
        *(FactKind.OUT_OF_MEMORY, FactKind.START_LATE, FactKind.DEPENDENCY_ENDED),
        FactKind.QUOTA_FREED,
        FactKind.IDLE,
        FactKind.RETRIES_SPENT,
    }
)

#: Facts with a project or an entity as subject.
_OF_A_PROJECT: Final = frozenset({FactKind.SHARE_CHANGED, FactKind.QUOTA_CHANGED})

_FACTS: Final[Mapping[FactKind, str]] = {
    FactKind.JOB_ARRIVED: "{} arrived",
    FactKind.JOB_ENDED: "{} ended",
    FactKind.JOB_CANCELLED: "{} was cancelled",
    FactKind.JOB_HELD: "{} is held",
    FactKind.JOB_RELEASED: "{} was released",
    FactKind.JOB_REQUEUED: "{} was requeued",
    FactKind.JOB_DEFERRED: "{} got another earliest start",
    FactKind.WEIGHT_CHANGED: "{} has another weight",
    FactKind.DEADLINE_CHANGED: "{} has another deadline",
    FactKind.PROGRESS_REPORTED: "{} got on",
    FactKind.LEASE_ENDED: "{} gave its workers back",
    FactKind.LEASE_FAILED: "{} failed",
    FactKind.LEASE_LOST: "{} lost its workers",
    FactKind.TIME_LIMIT: "{} has used up its max_run_time_s",
    FactKind.OUT_OF_MEMORY: "{} ran out of memory",
    FactKind.IDLE: "{} has not used its GPUs for too long",
    FactKind.RETRIES_SPENT: "{} has used up its retries",
    FactKind.START_LATE: "{} did not start in time",
    FactKind.DEPENDENCY_ENDED: "{}, which it waited for, ended",
    FactKind.QUOTA_FREED: "the quota of its project has room for {}",
    FactKind.BUDGET_SPENT: "the budget of the project is spent",
    FactKind.BUDGET_FREED: "the budget of the project has room again",
    FactKind.NODE_JOINED: "node {} joined",
    FactKind.NODE_REPORTED: "node {} reported",
    FactKind.NODE_SILENT: "node {} has been silent for too long",
    FactKind.NODE_ORDERED: "{} gave an order for the node",
    FactKind.AGENT_DIED: "the agent of node {} died",
    FactKind.LEASE_EXPIRED: "node {} did not say how the lease ended",
    FactKind.WORKERS_LOST: "workers of node {} were lost",
    FactKind.WORKERS_DRAINED: "node {} is being drained",
    FactKind.WORKERS_CORDONED: "node {} was cordoned",
    FactKind.WORKERS_RETURNED: "workers of node {} returned",
    FactKind.WORKERS_RETIRED: "workers of node {} were removed",
    FactKind.SHARE_CHANGED: "the weight or inner policy of {} was changed",
    FactKind.QUOTA_CHANGED: "the quota of {} was changed",
    FactKind.RESERVATION_CHANGED: "a reservation was made, deleted, begins or ends",
    FactKind.POLICY_CHANGED: "the policy is now {}",
    FactKind.POLICY_ANSWERED: "the policy answered",
    FactKind.POLICY_FAILED: "the policy gave no answer",
    FactKind.POLICY_LATE: "the policy takes too long to answer",
    FactKind.THROUGHPUTS_CHANGED: "throughputs are known better",
    FactKind.RESTARTS_MEASURED: "restart costs are known better",
    FactKind.LENGTHS_REVISED: "lengths of jobs are known better",
    FactKind.ROUND: "",
    FactKind.WAIT_OVER: "a wait is over",
    FactKind.REQUEST: "{} asked for it",
    FactKind.RESTARTED: "the scheduler restarted",
    FactKind.RESTORED: "the scheduler was restored from a backup",
}

#: ``{where}`` is the worker type that a job moves to.
_GROUNDS: Final[Mapping[Ground, str]] = {
    Ground.TURN: "it is its turn (else {lag} behind its share)",
    Ground.OVERDUE: "else it would be too far behind its share by the round's end",
    Ground.FULL_TIME: "its share is nearly all of the time",
    Ground.LEFT_OVER: "no other job is due on these workers",
    Ground.FASTER: "moved, since {where} is {gain:.2g}x as fast and worth the restart",
    Ground.ELSEWHERE: "moved, since its share is on {where} now",
    Ground.MOVED: "moved to other workers of the same kind",
    Ground.BEHIND: "others are further behind",
    Ground.SHORTER: "others have less left to do",
    Ground.SERVED_LESS: "others have had less so far",
    Ground.LENT: "the workers were only lent to it",
    Ground.AHEAD: "it has had its share for now",
    Ground.NO_SHARE: "the policy gives it no time now",
    Ground.QUOTA: "others of its project use the quota, or it was lent and is asked for",
    Ground.NO_FIT: "the workers left by others do not fit it",
}
#: The same if the job that gets the workers is known; ``{rival}`` may have been named just now.
_WITH_RIVAL: Final[Mapping[Ground, str]] = {
    Ground.OVERDUE: "{rival} would else be too far behind its share by the round's end",
    Ground.FULL_TIME: "{rival} is to run nearly all of the time",
    Ground.BEHIND: "{rival} is further behind",
    Ground.SHORTER: "{rival} is next, since it has less left to do",
    Ground.SERVED_LESS: "{rival} is next, since it has had less so far",
    Ground.LENT: "{rival} is to have the workers, which were only lent",
    Ground.AHEAD: "{rival} is next, since this one has had its share for now",
    Ground.NO_SHARE: "{rival} is next, since the policy gives this one no time now",
    Ground.NO_FIT: "{rival} is next, and the leftover workers do not fit this one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A fact that later decisions may be due to.

    Attributes:
        fact: the kind of the fact.
        subject: the job, node or policy that it happened to; empty for none.
        workers: those that it gave or took.
    """

    fact: FactKind
    subject: str = ""
    workers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The cause of a command or an effect: a fact, and the deciding ground if jobs were compared.

    Attributes:
        fact: the kind of the fact.
        subject: the job, node, policy or person that it is about; empty for none.
        round_number: of the round in which it was decided; 0 if that does not matter.
        ground: the reason of the choice among jobs; None if the fact alone decides.
        rival: the job that is to have the workers; empty for none, or several.
        lag_s: seconds by which a job would lag behind its share at the end of the round: the job
            that is granted workers, else the rival; None if nothing was compared.
        gain: how many times as fast a job that moves will be; None if it does not move.
        worker_type: the type to which the job moves; empty if it does not move.
        project: of the job that is the subject, as far as it is known.
        rival_project: of the rival, as far as it is known.
    """

    fact: FactKind
    subject: str = ""
    round_number: int = 0
    ground: Ground | None = None
    rival: str = ""
    lag_s: float | None = None
    gain: float | None = None
    worker_type: str = ""
    project: str = ""
    rival_project: str = ""

    def words(self, own: str = "") -> str:
        """Return the cause in words, for one line; empty if there is nothing to say.

        Args:
            own: id of the job that the line is about, which is called "it".
        """
        fact = _FACTS[self.fact]
        subject = _named(self.subject, self.project)
        if self.fact in OF_A_JOB:
            subject = "it" if self.subject == own != "" else subject or "another job"
        fact = fact.format(subject) if subject or "{}" not in fact else ""
        found = [part for part in (self._joined(fact),) if part]
        if self.round_number and (found or self.fact is FactKind.ROUND):
            return ": ".join([f"in round {self.round_number}", *found])
        return "".join(found)

    def _joined(self, fact: str) -> str:
        if self.ground is None:
            return fact
        told = _WITH_RIVAL.get(self.ground, "") if self.rival else ""
        if told and fact and self.rival == self.subject:
            return f"{fact} and {told.removeprefix('{rival} ')}"
        if self.ground is Ground.TURN and self.lag_s is not None and self.lag_s < 1.0:
            told = "it is its turn"  # it would not be behind
        told = (told or _GROUNDS[self.ground]).format(
            rival=_named(self.rival, self.rival_project),
            where=self.worker_type or "the other workers",
            lag=_span(self.lag_s),
            gain=self.gain or 1.0,
        )
        return f"{fact}; {told}" if fact else told

    def seen_by(self, sees: Callable[[str], bool]) -> Cause:
        """Return the cause as far as the reader may see it.

        Args:
            sees: whether the reader may see a project's jobs.
        """
        seen = self
        if self.fact in OF_A_JOB and not sees(self.project):
            seen = replace(seen, subject="", project="")
        if self.fact in _OF_A_PROJECT and not sees(self.subject):
            seen = replace(seen, subject="")
        if self.rival and not sees(self.rival_project):
            seen = replace(seen, rival="", rival_project="")
        return seen

    def to_data(self) -> dict[str, Any]:
        """Return plain values for a line of history; what says nothing is left out."""
        figures = {"lag_s": self.lag_s, "gain": self.gain}
        values: dict[str, Any] = {
            "fact": self.fact.value,
            "subject": self.subject,
            "project": self.project,
            "round": self.round_number,
            "ground": None if self.ground is None else self.ground.value,
            "rival": self.rival,
            "rival_project": self.rival_project,
            **{k: round(v, 3) for k, v in figures.items() if v is not None and math.isfinite(v)},
            "worker_type": self.worker_type,
        }
        return {name: value for name, value in values.items() if value not in (None, "", 0)}

    @classmethod
    def of_data(cls, data: object) -> Cause | None:
        """Return the cause of ``to_data``; None for other data, or data of a newer release."""
        if not isinstance(data, dict) or data.get("fact") not in _FACT_VALUES:
            return None
        ground = data.get("ground")
        known: dict[str, Any] = {name: data[name] for name in _SAME_NAME if name in data}
        return cls(
            fact=FactKind(data["fact"]),
            ground=Ground(ground) if ground in _GROUND_VALUES else None,
            round_number=data.get("round", 0),
            **known,
        )


_FACT_VALUES: Final = frozenset(kind.value for kind in FactKind)
_GROUND_VALUES: Final = frozenset(ground.value for ground in Ground)
_SAME_NAME: Final = (
    *("subject", "project", "rival", "rival_project", "worker_type", "lag_s", "gain"),
)


def _named(job_id: str, project: str) -> str:
    return f"{project}/{job_id}" if project and job_id else job_id


def _span(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return "some time"
    return f"{seconds:.0f} s" if seconds < 7200 else f"{seconds / 3600:.1f} h"
