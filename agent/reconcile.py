"""The next actions, from the desired leases, the held leases and the time. Pure.

The scheduler's messages describe a state and never an action. So this function may be called at any
time, with any message lost, repeated or overtaken. A lease that is not renewed runs down by itself:
notice, SIGTERM and SIGKILL are all placed *before* its deadline, counted back from it::

    deadline - margin_s                        SIGKILL, if anything is left
    deadline - margin_s - grace_s              SIGTERM
    deadline - margin_s - grace_s - notice_s   notice, or earlier if the scheduler announced it
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from scheduler.domain.lease_life import LeasePhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.protocol.desired import Desired, DesiredLease, Unusable

#: The number of jobs with a remembered newest token.
REMEMBERED_JOBS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLease:
    """A desired lease with its times on the agent's clock.

    Attributes:
        lease: as the scheduler sent it.
        deadline_s: its deadline.
        notice_at_s: when the job must get notice; infinity while no end is announced.
    """

    lease: DesiredLease
    deadline_s: float
    notice_at_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredView:
    """The accepted desired set.

    Attributes:
        known: False until the first desired set since the agent's start; nothing is stopped for
            being unwanted before that.
        term: of the newest accepted set, kept over restarts.
        revision: of that set.
        wanted: by lease id.
        newest_token: by job, the greatest token seen; an older lease of the job is never started.
        unusable: desired leases that cannot be read; they are reported as failed.
    """

    known: bool = False
    term: int = 0
    revision: int = -1
    wanted: Mapping[int, WantedLease] = field(default_factory=lambda: MappingProxyType({}))
    newest_token: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unusable: tuple[Unusable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A lease in the backend.

    Attributes:
        lease_id: its id.
        token: its fencing token.
        job_id: its job.
        attempt: of the job.
        nonce: as the scheduler sent it; empty if it sent none.
        workers: local indices.
        deadline_s: its deadline, on the agent's clock.
        notice_s: from notice to SIGTERM.
        grace_s: from SIGTERM to SIGKILL.
        noticed: the job has its notice.
        terminated_s: when SIGTERM was sent; None before.
        ended: no process is left.
        delivered_term: term of the report that told the scheduler of the end; None before.
    """

    lease_id: int
    token: int
    job_id: str
    attempt: int
    nonce: str
    workers: tuple[int, ...]
    deadline_s: float
    notice_s: float
    grace_s: float
    noticed: bool = False
    terminated_s: float | None = None
    ended: bool = False
    delivered_term: int | None = None

    @property
    def phase(self) -> LeasePhase:
        """Its phase. A notice can be withdrawn, so that a job with notice runs on; SIGTERM not."""
        if self.ended:
            return LeasePhase.ENDED
        return LeasePhase.RUNNING if self.terminated_s is None else LeasePhase.STOPPING


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Launch the processes of a lease; or report it as failed, if ``fault`` gives a reason."""

    wanted: WantedLease
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Report a lease as released without having started it."""

    wanted: WantedLease
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Move a running lease's deadline.

    Attributes:
        lease_id: its id.
        deadline_s: on the agent's clock.
        secret_env: its secret variables, which an adopted lease has lost.
    """

    lease_id: int
    deadline_s: float
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Give the job notice to leave by ``by_s``, or (``on`` false) withdraw the notice."""

    lease_id: int
    on: bool
    by_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """Send SIGTERM; ``unwanted`` when the lease is no longer desired."""

    lease_id: int
    unwanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Send SIGKILL to all processes that are left. Repeated until there are none."""

    lease_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Drop the record of an ended lease: delivered in this term, and no longer desired."""

    lease_id: int


Action: TypeAlias = Start | Refuse | Renew | Notice | Terminate | Kill | Forget

#: Action on a held lease -> the phases in which it makes sense.
ACTIONS_IN: Final[Mapping[type, frozenset[LeasePhase]]] = MappingProxyType(
    {
        Renew: frozenset({LeasePhase.RUNNING}),
        Notice: frozenset({LeasePhase.RUNNING}),
        Terminate: frozenset({LeasePhase.RUNNING}),
        Kill: frozenset({LeasePhase.RUNNING, LeasePhase.STOPPING}),
        Forget: frozenset({LeasePhase.ENDED}),
    }
)


def accept_desired(view: DesiredView, desired: Desired, *, sent_s: float) -> DesiredView:
    """Take in a desired set, unless a newer one is already known.

    Args:
        view: the accepted desired set so far.
        desired: the scheduler's answer.
        sent_s: when the request for it was sent, on the agent's clock. Counting from here (and
            not from the answer's arrival) bounds the deadline from above by the scheduler's.

    Returns:
        the new view; the same one if the answer is older.
    """
    if (desired.term, desired.revision) < (view.term, view.revision):
        return view
    repeated = view.known and (desired.term, desired.revision) == (view.term, view.revision)
    answered_s = sent_s + desired.held_s
    wanted = {
        lease.lease_id: _wanted(lease, answered_s, view.wanted if repeated else {})
        for lease in desired.leases
    }
    newest = dict(view.newest_token)
    for lease in desired.leases:
        newest[lease.job_id] = max(lease.token, newest.get(lease.job_id, -1))
    if len(newest) > REMEMBERED_JOBS:
        youngest = sorted(newest.items(), key=lambda item: item[1])[-REMEMBERED_JOBS:]
        newest = dict(youngest)
    return DesiredView(
        known=True,
        term=desired.term,
        revision=desired.revision,
        wanted=MappingProxyType(wanted),
        newest_token=MappingProxyType(newest),
        unusable=desired.unusable,
    )


def view_of_adopted(view: DesiredView, held: Sequence[HeldLease]) -> DesiredView:
    """Return the view of an agent that has just adopted these leases."""
    newest = dict(view.newest_token)
    for lease in held:
        newest[lease.job_id] = max(lease.token, newest.get(lease.job_id, -1))
    return replace(view, newest_token=MappingProxyType(newest))


def decide_actions(
    view: DesiredView, held: Sequence[HeldLease], *, now_s: float, margin_s: float
) -> tuple[Action, ...]:
    """Return the actions that are due now.

    Args:
        view: the desired set.
        held: the held leases, each once.
        now_s: the agent's clock.
        margin_s: from SIGKILL to the deadline; the time that the kernel may need to end a process.

    Returns:
        the actions, those that end something first.
    """
    stopping: list[Action] = []
    for lease in held:
        actions = _continue(view, lease, now_s, margin_s)
        assert all(lease.phase in ACTIONS_IN[type(action)] for action in actions)
        stopping += actions
    return (*stopping, *_starts(view, held, now_s, margin_s))


def wake_at(view: DesiredView, held: Sequence[HeldLease], *, margin_s: float) -> float:
    """Return the next time at which ``decide_actions`` may have an action without any news.

    A lease that is already being killed is left out: its end is news.
    """
    times = [math.inf]
    for lease in held:
        if lease.ended:
            continue
        want = view.wanted.get(lease.lease_id)
        if lease.terminated_s is not None:
            times.append(_kill_at(lease, margin_s))
            continue
        term_at = lease.deadline_s - margin_s - lease.grace_s
        times.append(term_at)
        if not lease.noticed:
            announced = math.inf if want is None else want.notice_at_s
            times.append(min(announced, term_at - lease.notice_s))
    return min(times)


def _wanted(
    lease: DesiredLease, answered_s: float, earlier: Mapping[int, WantedLease]
) -> WantedLease:
    deadline_s = answered_s + lease.remaining_s
    notice_at_s = math.inf if lease.notice_in_s is None else answered_s + lease.notice_in_s
    if lease.lease_id in earlier:
        # The same revision twice: both figures are lower bounds of the same instant.
        deadline_s = max(deadline_s, earlier[lease.lease_id].deadline_s)
    return WantedLease(lease=lease, deadline_s=deadline_s, notice_at_s=notice_at_s)


def _continue(view: DesiredView, lease: HeldLease, now_s: float, margin_s: float) -> list[Action]:
    want = view.wanted.get(lease.lease_id)
    if want is not None and is_other(lease, want.lease):
        want = None
    if lease.ended:
        # A leader that died may have kept the end of a gang's part in memory only.
        delivered = view.known and lease.delivered_term == view.term
        forget = delivered and want is None
        return [Forget(lease_id=lease.lease_id)] if forget else []
    if want is not None and want.lease.token < lease.token:
        want = replace(want, deadline_s=lease.deadline_s)
    unwanted = view.known and (want is None or want.lease.token > lease.token)
    if lease.terminated_s is not None:
        late = now_s >= _kill_at(lease, margin_s)
        return [Kill(lease_id=lease.lease_id)] if late else []
    if unwanted:
        return _last(lease, now_s, margin_s, unwanted=True)
    return _wind_down(lease, want, now_s, margin_s)


def _wind_down(
    lease: HeldLease, want: WantedLease | None, now_s: float, margin_s: float
) -> list[Action]:
    """Renew, notify, or stop a lease that may run until its deadline."""
    actions: list[Action] = []
    deadline_s = lease.deadline_s if want is None else want.deadline_s
    if deadline_s != lease.deadline_s:
        secret_env = {} if want is None else want.lease.secret_env
        renewed_to = Renew(lease_id=lease.lease_id, deadline_s=deadline_s, secret_env=secret_env)
        actions.append(renewed_to)
    term_at = deadline_s - margin_s - lease.grace_s
    if now_s >= term_at:
        renewed = replace(lease, deadline_s=deadline_s)
        return [*actions, *_last(renewed, now_s, margin_s, unwanted=False)]
    announced = math.inf if want is None else want.notice_at_s
    due = now_s >= min(announced, term_at - lease.notice_s)
    if due != lease.noticed:
        actions.append(Notice(lease_id=lease.lease_id, on=due, by_s=term_at))
    return actions


def _last(lease: HeldLease, now_s: float, margin_s: float, *, unwanted: bool) -> list[Action]:
    actions: list[Action] = [Terminate(lease_id=lease.lease_id, unwanted=unwanted)]
    if now_s >= lease.deadline_s - margin_s:
        actions.append(Kill(lease_id=lease.lease_id))
    return actions


def _kill_at(lease: HeldLease, margin_s: float) -> float:
    sent_s = math.inf if lease.terminated_s is None else lease.terminated_s
    return min(sent_s + lease.grace_s, lease.deadline_s - margin_s)


def _starts(
    view: DesiredView, held: Sequence[HeldLease], now_s: float, margin_s: float
) -> list[Action]:
    present = {lease.lease_id for lease in held}
    alive = [lease for lease in held if not lease.ended]
    busy_jobs = {lease.job_id for lease in alive}
    leaving = {worker for lease in alive if _is_leaving(view, lease) for worker in lease.workers}
    actions: list[Action] = []
    for want in view.wanted.values():
        lease = want.lease
        if lease.lease_id in present or lease.token < view.newest_token.get(lease.job_id, -1):
            continue
        if now_s >= want.deadline_s - margin_s - lease.grace_s:
            message = "the lease reached this node too late to start anything under it"
            actions.append(Refuse(wanted=want, message=message))
        elif lease.job_id not in busy_jobs and leaving.isdisjoint(lease.workers):
            busy_jobs.add(lease.job_id)
            actions.append(Start(wanted=want))
    return actions


def is_other(held: HeldLease, lease: DesiredLease) -> bool:
    """Return whether a desired lease differs from the held lease of its number.

    So it is if the scheduler's database has lost its newest entries. The held lease ends first; the
    other one begins after the held one is dropped.
    """
    if (held.job_id, held.attempt) != (lease.job_id, lease.attempt):
        return True
    return bool(held.nonce and lease.nonce) and held.nonce != lease.nonce


def _is_leaving(view: DesiredView, lease: HeldLease) -> bool:
    """Return whether a lease only has its workers until its processes are gone.

    Two leases that are both desired may share workers: that is a pair.
    """
    want = view.wanted.get(lease.lease_id)
    if lease.terminated_s is not None or want is None or is_other(lease, want.lease):
        return True
    return want.lease.token != lease.token
