"""Explanations of waiting jobs: typed reasons, in words, with a remedy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scheduler.control.facts.specs import in_words
from scheduler.control.jobs.submit import fit_of, names_of, out_of_reach, room_of
from scheduler.control.jobs.waiting import DEPENDENCY_FAILED
from scheduler.control.leases.apply_commands import own_cause, with_projects
from scheduler.control.leases.progress import keeps_steps
from scheduler.control.leases.retries import BUDGETS, Category, retries_in_words
from scheduler.control.state.jobs import ENDED
from scheduler.domain.arrays import distinct_columns
from scheduler.domain.configuration import ANYWHERE
from scheduler.domain.facts.reasons import BITS, WaitReason, reasons_in
from scheduler.domain.facts.troubles import REFUSED, REMEDIES, trouble_of
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import RevokeReason
from scheduler.engine.tables.jobs import HELD, NONE
from scheduler.views.dues import Dues, Fairness, dues_of_projects, fairness_of
from scheduler.views.explain_protection import (
    goes_on,
    kept_by_others,
    launch_words,
    lost_work,
    starts_within_share,
)
from scheduler.views.explain_quota import quota_words, quotas_in_the_way
from scheduler.views.gpu_figures import use_in_words
from scheduler.views.queue_order import describe_ahead, order_waiting_jobs
from scheduler.views.shares import budget_words, fair_shares
from scheduler.views.types import Explanation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.control.jobs.submit import Room
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.rows import JobRow

#: Ways of a job that an explanation lists.
_MOST_WAYS = 20
_ORDER: Mapping[WaitReason, int] = {reason: place for place, reason in enumerate(WaitReason)}

#: Reasons that depend on the policy and the round.
_OF_POLICY = frozenset({WaitReason.NO_SHARE, WaitReason.TURN})

#: The text for a job that is held by request, before its history is read.
SOMEBODY = "a user holds it"

#: Texts for reasons of a job's end that need more than their one word.
_ENDS: Mapping[str, str] = {
    "time_limit": "it has held workers for as long as its max_run_time_s allows",
    "idle": "its GPUs idled for too long",
    "out_of_memory": "it ran out of memory",
    DEPENDENCY_FAILED: "a job that it depends on did not complete",
    **{
        f"too_many_{category}": f"its leases ended by {what} more often than {BUDGETS[category]} "
        "allows"
        for category, what in (
            (Category.OUT_OF_MEMORY, "too little memory"),
            (Category.IMAGE, "failed pulls of its image"),
            (Category.NODE_FAULT, "node faults"),
            (Category.PREEMPTION, "preemptions"),
        )
    },
}

_UNBLOCKS: Mapping[WaitReason, str] = {
    WaitReason.HELD: "release it",
    WaitReason.DEPENDENCY: "the jobs that it depends on have to complete",
    WaitReason.QUOTA: "other jobs under the quota have to make room, or it has to grow",
    WaitReason.BUDGET: "the next month has to begin, or the budget to be raised",
    WaitReason.NO_THROUGHPUT: "declare a throughput, or allow a worker type that it runs on",
    WaitReason.NO_WORKERS: "a node with workers of its types has to join",
    WaitReason.TOO_LARGE: "lower its scale factor, or add workers",
    WaitReason.WORKERS_OUT: "nodes have to return, or be uncordoned",
    WaitReason.RESERVATION: "the reservation has to end, or to be deleted by an operator",
    WaitReason.BACKOFF: "nothing; it is tried again by itself",
    WaitReason.STOPPING: "nothing; its workers are being given back",
    WaitReason.NO_ALLOCATION: "nothing; its answer takes seconds, then this says more",
    WaitReason.NO_SHARE: "jobs that the policy prefers have to end; a larger weight may help",
    WaitReason.IDLING: "jobs that the policy prefers have to end, or another policy to be chosen",
    WaitReason.PLACEMENT: "workers have to become free together",
    WaitReason.TURN: "nothing; a larger weight makes its turns longer",
}


class WaitingJobs:
    """Results that views of many jobs share; out of date after the next turn.

    Args:
        view: of the leader.
    """

    def __init__(self, view: PublishedState) -> None:
        self._view, self._engine = view, view.engine
        self._fits: dict[int, WaitReason | None] = {}
        #: first reasons of jobs with equal profile and bits of ``wait_reasons``.
        self.first: dict[tuple[int, int], WaitReason] = {}

    def shows(self, view: PublishedState) -> bool:
        """Return whether it belongs to a view as it is now: no call of the engine since."""
        return self._view is view and self._engine is view.engine

    @cached_property
    def waiting(self) -> Counter[WaitReason]:
        """First reasons of the waiting jobs, and how many wait for each."""
        return count_reasons(self._view, self)

    @cached_property
    def waits(self) -> list[int]:
        """(N,) why each of the engine's jobs waits: bits of ``WaitReason``."""
        jobs = self._view.engine.jobs
        stored, held = jobs["wait_reasons"], jobs["status"] == HELD
        unfunded = jobs["unfunded"] != 0
        found = np.where(held | unfunded, 0, stored)
        found += held * BITS[WaitReason.HELD] + unfunded * BITS[WaitReason.BUDGET]
        found += (jobs["lease"] != NONE) * BITS[WaitReason.STOPPING]
        bits: list[int] = found.tolist()
        return bits

    @cached_property
    def queue(self) -> list[str]:
        """The ids of the jobs that wait for their turn, in the order of the queue."""
        return order_waiting_jobs(self._view)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The place of each of them, 1 for the next."""
        return {job_id: place for place, job_id in enumerate(self.queue, 1)}

    @cached_property
    def fairness(self) -> Fairness:
        """The fairness of the engine's jobs, relative to a 1/n share."""
        return fairness_of(self._view)

    @cached_property
    def dues(self) -> Mapping[str, Dues]:
        """The dues of each project with jobs that the engine knows."""
        return dues_of_projects(self._view, self.fairness)

    @cached_property
    def _room(self) -> Room:
        return room_of(self._view)

    def misfit(self, record: JobRecord) -> WaitReason | None:
        """Return why a job cannot run on the cluster as it is, if it cannot."""
        profile = record.profile
        if profile < len(self._fitting) and self._fitting[profile]:
            return None
        if profile not in self._fits:
            fit = fit_of(self._view, record.spec, self._room).reason
            self._fits[profile] = None if fit is WaitReason.TURN else fit
        return self._fits[profile]

    @cached_property
    def _fitting(self) -> list[bool]:
        """(U,) whether jobs of each profile fit, computed for all profiles at once.

        Configurations that must not span nodes need a separate check, unless they hold one worker.
        """
        engine = self._view.engine
        table, counts = engine.table, engine.count(engine.in_service & ~engine.cordoned)
        demand = table.demand
        held = demand.sum(axis=2)
        fits = (table.throughput > 0) & (held > 0)
        fits &= (demand <= counts[: demand.shape[2]]).all(axis=2)
        unsure = fits & (held > 1)
        unsure[(fits & ~unsure).any(axis=1)] = False
        for u, j in np.argwhere(unsure).tolist():
            fits[u, j] = table.profiles[u].configurations[j].locality == ANYWHERE
        found: list[bool] = fits.any(axis=1).tolist()
        return found


def reason_of(view: PublishedState, record: JobRecord, glance: WaitingJobs) -> WaitReason | None:
    """Return the first reason for which a job waits; None while it runs."""
    if record.status is JobStatus.RUNNING:
        return None
    number = view.engine.jobs.number_of.get(record.job_id)
    if number is None or record.blocked_on is not None:
        return reasons_of(view, record, glance)[0]
    # Of ten thousand jobs most are alike.
    alike = record.profile, glance.waits[view.engine.jobs.row_of(number)]
    if alike not in glance.first:
        glance.first[alike] = reasons_of(view, record, glance)[0]
    return glance.first[alike]


def count_reasons(view: PublishedState, glance: WaitingJobs) -> Counter[WaitReason]:
    """Return the first reasons of the waiting jobs, and how many wait for each."""
    jobs, records = view.engine.jobs, view.jobs.by_id
    waits = (jobs["lease"] == NONE) & (jobs["status"] != HELD)
    # Most waiting jobs are alike; one stands for all that are.
    alike = np.stack((jobs["profile"][waits], np.array(glance.waits, dtype=np.int64)[waits]))
    one, kind = distinct_columns(alike)
    found: Counter[WaitReason] = Counter()
    counts = np.bincount(kind, minlength=len(one)).tolist()
    for number, count in zip(jobs["number"][waits][one].tolist(), counts, strict=True):
        reason = reason_of(view, records[jobs.job_of[number].job_id], glance)
        found[reason or WaitReason.TURN] += count
    held = (
        jobs.job_of[number].job_id for number in jobs["number"][jobs["status"] == HELD].tolist()
    )
    for job_id in chain(held, view.outside):
        reason = reason_of(view, records[job_id], glance)
        if reason is not None:
            found[reason] += 1
    return found


def reasons_of(
    view: PublishedState, record: JobRecord, glance: WaitingJobs
) -> tuple[WaitReason, ...]:
    """Return all reasons for which a job waits, in order of precedence; empty while it runs."""
    if record.status is JobStatus.RUNNING:
        return ()
    reasons = set(_outside(record, glance))
    number = view.engine.jobs.number_of.get(record.job_id)
    if number is not None:
        reasons.update(reasons_in(glance.waits[view.engine.jobs.row_of(number)]))
    return tuple(sorted(reasons or {WaitReason.TURN}, key=_ORDER.__getitem__))


def _outside(record: JobRecord, glance: WaitingJobs) -> list[WaitReason]:
    reasons = []
    if record.status is JobStatus.HELD:
        reasons.append(WaitReason.HELD)
    if record.blocked_on is not None and record.waits_for:
        reasons.append(WaitReason.DEPENDENCY)
    if record.blocked_on is WaitReason.BUDGET:
        reasons.append(WaitReason.BUDGET)
    misfit = glance.misfit(record)
    if misfit is not None:
        reasons.append(misfit)
    return reasons


def explain(
    view: PublishedState, row: JobRow, glance: WaitingJobs, *, now_s: float | None = None
) -> Explanation:
    """Return why a job has its status, without a forecast.

    Args:
        view: of the leader.
        row: the job.
        glance: at the view.
        now_s: the time; that of the view by default, which may be some time ago.
    """
    now_s = view.engine.now_s if now_s is None else now_s
    record = view.jobs.by_id.get(row.job_id)
    if record is None:
        return explain_ended(row)
    if record.status is JobStatus.RUNNING:
        found = _explain_running(view, record, now_s)
    else:
        found = _explain_waiting(view, record, now_s, glance=glance)
    if not record.spec.model:
        return found
    return replace(found, configurations=fit_of(view, record.spec).configurations[:_MOST_WAYS])


def _explain_waiting(
    view: PublishedState, record: JobRecord, now_s: float, *, glance: WaitingJobs
) -> Explanation:
    reasons = reasons_of(view, record, glance)
    waiting, position = glance.queue, glance.positions.get(record.job_id)
    return Explanation(
        job_id=record.job_id,
        status=record.status,
        reason=reasons[0],
        also=reasons[1:],
        message=_words(view, record, reasons[0], position, len(waiting), now_s)
        + (kept_by_others(view) if reasons[0] is WaitReason.TURN else "")
        + (_set_aside_words(view, record) if reasons[0] in _OF_POLICY else "")
        + _avoided(view, record, now_s)
        + starts_within_share(view, record)
        + lost_work(view, record)
        + _deadline_words(record, now_s)
        + retries_in_words(record),
        unblocks=_unblocks(view, record, reasons[0]),
        position=position,
        waiting=len(waiting),
        ahead=describe_ahead(view, waiting[: position - 1] if position else ()),
        quotas=quotas_in_the_way(view, record) if WaitReason.QUOTA in reasons else (),
    )


def explain_ended(row: JobRow) -> Explanation:
    """Return how a job has ended; or, without a leader, its stored status."""
    why = f": {_ENDS.get(row.reason, row.reason)}" if row.reason else ""
    message = f"it has ended as {row.status.value}{why}"
    if row.status not in ENDED:
        message = f"it is {row.status.value}{why}; ask the leader for more"
    unblocks = "requeue it" if row.status in ENDED - {JobStatus.COMPLETED} else ""
    if row.status is JobStatus.CANCELLED and row.reason == DEPENDENCY_FAILED:
        unblocks = "requeue its dependency, then it; alone it runs without its dependency"
    return Explanation(
        job_id=row.job_id, status=row.status, reason=None, message=message, unblocks=unblocks
    )


def with_deadline(explanation: Explanation, deadline_s: float | None) -> Explanation:
    """Say beside a forecast that the job's deadline comes first."""
    completes_s = explanation.completes_s
    if completes_s is None or deadline_s is None or completes_s <= deadline_s:
        return explanation
    words = f"after its deadline, {explanation.forecast}"
    return replace(explanation, forecast=words)


def _deadline_words(record: JobRecord, now_s: float) -> str:
    """Return that a job's deadline has passed; empty if not."""
    passed = record.deadline_s is not None and record.deadline_s < now_s
    return "; its deadline has passed" if passed else ""


def _explain_running(view: PublishedState, record: JobRecord, now_s: float) -> Explanation:
    live = view.leases.by_id.get(view.leases.of_job.get(record.job_id, NONE))
    if live is None:  # its lease is being committed
        return Explanation(
            job_id=record.job_id, status=record.status, reason=None, message="it is about to start"
        )
    where = ", ".join(dict.fromkeys(live.nodes))
    leaving = f"; it has to leave ({_why_it_leaves(view, live)})" if live.revoked else ""
    troubles = [f"; {m.node}: {': '.join(m.trouble)}" for m in live.members if m.trouble[0]]
    unseen = {
        f"; its steps are not seen: {m.progress_problem}": None
        for m in live.members
        if m.progress_problem
    }
    words = next((m.trouble for m in live.members if m.trouble[0]), ("", ""))
    trouble = trouble_of(*words)
    verb = "is being started" if any(map(_is_starting, live.members)) else "runs"
    message = (
        f"it {verb} on {live.workers_in_words} "
        f"on {where}, attempt {live.lease.attempt}{leaving}"
        f"{''.join(troubles)}{''.join(unseen)}{launch_words(view, live, now_s=now_s)}"
        f"{goes_on(view, record)}{lost_work(view, record)}"
        f"{_deadline_words(record, now_s)}{retries_in_words(record)}{use_in_words(live)}"
    )
    return Explanation(
        job_id=record.job_id,
        status=record.status,
        reason=None,
        message=message,
        unblocks="" if trouble is None else REMEDIES[trouble],
        trouble=trouble,
        plan=live.plan,
        granted=own_cause(view, record.job_id, live.cause),
        ended=None if live.notice is None else with_projects(view, live.notice),
    )


def _is_starting(member: Member) -> bool:
    """Return whether a member's trouble keeps it from starting; a running one may have some too."""
    refused = member.ran and trouble_of(*member.trouble) in REFUSED
    return bool(member.trouble[0]) and not refused


def keeps_nothing(view: PublishedState, job_id: str) -> bool:
    """Return whether a job with earlier grants is not known to save anything."""
    record = view.jobs.by_id.get(job_id)
    if record is None or not record.attempts:
        return False
    live = view.leases.by_id.get(view.leases.of_job.get(job_id, NONE))
    return not keeps_steps(record, live)


def _words(  # noqa: PLR0917  the facts that a message names
    view: PublishedState,
    record: JobRecord,
    reason: WaitReason,
    position: int | None,
    waiting: int,
    now_s: float,
) -> str:
    policy = view.policy.choice.name
    why = record.reason and record.blocked_on is None
    words: Mapping[WaitReason, Callable[[], str]] = {
        WaitReason.HELD: lambda: f"it is held: {record.reason}" if why else SOMEBODY,
        WaitReason.DEPENDENCY: lambda: f"it waits for {', '.join(sorted(record.waits_for))}",
        WaitReason.QUOTA: lambda: quota_words(view, record),
        WaitReason.BUDGET: lambda: budget_words(view, record.project),
        WaitReason.RESERVATION: lambda: _reserved_words(view, record),
        WaitReason.BACKOFF: lambda: _backoff_words(view, record, now_s),
        WaitReason.STOPPING: lambda: "its last lease is coming to an end",
        WaitReason.NO_ALLOCATION: lambda: _unanswered_words(view),
        WaitReason.NO_SHARE: lambda: (
            f"policy '{policy}' gives it no time now{_used_words(view, record)}"
        ),
        WaitReason.IDLING: lambda: f"policy '{policy}' keeps the idle workers idle on purpose",
        WaitReason.PLACEMENT: lambda: "workers are idle, but none that it could have together",
        WaitReason.TURN: lambda: _turn_words(position, waiting) + _used_words(view, record),
    }
    return words.get(reason, lambda: fit_of(view, record.spec).message)()


def _unblocks(view: PublishedState, record: JobRecord, reason: WaitReason) -> str:
    if reason is not WaitReason.WORKERS_OUT:
        return _UNBLOCKS[reason]
    out = out_of_reach(view, record.spec)
    ordered = {**out.pop("cordoned", {}), **out.pop("drained", {})}
    ways = [f"`leasehold uncordon {names_of(ordered, ' ')}`"] if ordered else []
    ways += [f"wait until {', '.join(out)} workers return"] if out else []
    return ", or ".join(ways) or _UNBLOCKS[reason]


def _reserved_words(view: PublishedState, record: JobRecord) -> str:
    """Return which workers a job cannot have now, their owner, and until when."""
    engine = view.engine
    late = engine.forbidden_by.get(engine.jobs.number_of.get(record.job_id, NONE))
    told = [
        f"{len(one.workers)} x {one.rule.worker_type} are kept for {one.rule.owner} until "
        f"{in_words(one.rule.until_s)} (reservation '{one.rule.name}')"
        for one in engine.reservations
        if one.in_force and record.job_id not in one.members
    ]
    if late is not None:
        told.append(
            f"{late.workers} x {late.worker_type} are reserved from {in_words(late.from_s)} until "
            f"{in_words(late.until_s)} (reservation '{late.name}'), and it could not give them "
            "back in time"
        )
    return "; ".join(told)


def _set_aside_words(view: PublishedState, record: JobRecord) -> str:
    """Return which workers of a job's types are set aside for others; empty if no worker is."""
    engine = view.engine
    table, profile = engine.table, record.profile
    if not engine.reservations or profile >= len(table.profiles):
        return ""
    used = table.demand[profile][table.throughput[profile] > 0].any(axis=0)
    types = {name for name, is_used in zip(table.worker_types, used, strict=False) if is_used}
    return "".join(
        f"; reservation '{one.rule.name}' holds {len(one.workers)} x {one.rule.worker_type} until "
        f"{in_words(one.rule.until_s)}"
        for one in engine.reservations
        if one.in_force and record.job_id not in one.members and one.rule.worker_type in types
    )


def _why_it_leaves(view: PublishedState, live: LiveLease) -> str:
    """Return why a job must leave: one word, or the reservation that holds its workers."""
    for one in view.engine.reservations:
        others = one.in_force and live.lease.job_id not in one.members
        is_there = not {*one.workers}.isdisjoint(live.lease.workers)
        if others and is_there and live.revoked == RevokeReason.OUTBID:
            until = in_words(one.rule.until_s)
            return f"reservation '{one.rule.name}' holds its workers until {until}"
    return str(live.revoked)


def _unanswered_words(view: PublishedState) -> str:
    policy = view.policy
    if policy.last_failure:
        return (
            f"policy '{policy.choice.name}' has not answered since it came; it failed last: "
            f"{policy.last_failure}"
        )
    return (
        f"it has just come: policy '{policy.choice.name}' is computing the next allocation, which "
        "counts it in"
    )


def _backoff_words(view: PublishedState, record: JobRecord, now_s: float) -> str:
    engine, jobs = view.engine, view.engine.jobs
    number = jobs.number_of[record.job_id]
    row = jobs.row_of(number)
    left_s = max(float(jobs["retry_at_s"][row]) - now_s, 0.0)
    if not left_s and number in engine.avoided:
        return "no workers are left for it but on nodes that it avoids"
    if not left_s and number in engine.forbidden_by:
        return "no workers are left for it but those that are reserved for later"
    if not left_s:
        return "it is about to be tried again"
    if (losses := int(jobs["losses"][row])) > 1:
        return (
            f"it was lost, or left by itself, {losses} times in a row without progress; "
            f"next try in {left_s:.0f} s"
        )
    times = "once" if record.failures == 1 else f"{record.failures} times"
    return f"it failed {times} and is tried again in {left_s:.0f} s"


def _avoided(view: PublishedState, record: JobRecord, now_s: float) -> str:
    """Return which nodes a job avoids, and why; empty if it avoids no node."""
    engine = view.engine
    number = engine.jobs.number_of.get(record.job_id)
    nodes = () if number is None else engine.avoided.get(number, [])
    told = (
        f"; it avoids {node} for {max(until_s - now_s, 0.0):.0f} s, since it could not be started "
        f"there or has failed there ({'once' if times == 1 else f'{times} times'})"
        for node, times, until_s in nodes
    )
    return "".join(told)


def _used_words(view: PublishedState, record: JobRecord) -> str:
    """Return the text that a job's entity has had more than its share; empty if it has not."""
    entity = record.spec.account
    share = fair_shares(view).get(entity)
    if share is None or share.of_share is None or share.of_share <= 1.0:
        return ""
    return (
        f"; '{entity}' has had {share.of_share:.1f} times its share recently, so that its weight "
        f"counts as {share.effective_weight:.2g}"
    )


def _turn_words(position: int | None, waiting: int) -> str:
    place = "" if position is None else f"; it is number {position} of {waiting} that wait"
    others = "those far behind their share, then those that end soonest"
    return f"other jobs go first: {others}{place}"
