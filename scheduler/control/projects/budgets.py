"""Budgets: a project's limit per calendar month of UTC, in worker-hours or in money.

Control counts use itself from some moment on; the ledger reports the use before that. Both count
whole microseconds by the same times, so that they agree exactly. A start that asks the ledger
continues from the same figures. Nothing is counted as long as no project has a budget.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.engine.state.state import PLAN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.control.facts.facts import UseCounted
    from scheduler.control.facts.requests import ProjectLimits
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.rows import AttemptRow

#: The prefix before the project in the keys of settings.
KEY: Final = "budget"
#: The used part of a budget at which a warning is given, if the project sets none.
WARNING: Final = 0.8
#: Microseconds of an hour.
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A project's use of its budget.

    Attributes:
        gpu_hours: worker-hours in this month.
        usd: their cost.
        part: the larger used part of the two budgets; 0 without a budget.
    """

    gpu_hours: float
    usd: float
    part: float


def has_budget(limits: ProjectLimits) -> bool:
    """Return whether a project has a budget."""
    return limits.budget_gpu_hours is not None or limits.budget_usd is not None


def spending_by_project(
    state: ControlState | PublishedState,
    *,
    now_s: float,
    until_s: float | None = None,
    more_s: Mapping[str, float] | None = None,
) -> Mapping[str, Spending]:
    """Return the use of each project that has a budget.

    Args:
        state: control's, or its view.
        now_s: the time.
        until_s: count running leases until then; ``now_s`` by default.
        more_s: project -> worker-seconds to add to its use.
    """
    limits = {name: one for name, one in state.jobs.limits.items() if has_budget(one)}
    budgets = state.budgets
    if budgets.since_s is None or not limits:
        return {}
    used: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (project, worker_type), used_us in budgets.used_us.items():
        used[project][worker_type] += used_us
    end_us = _in_us(now_s if until_s is None else max(until_s, now_s))
    since_us = _in_us(budgets.since_s)
    for live in state.leases.by_id.values():
        record = state.jobs.by_id.get(live.lease.job_id)
        if record is not None and record.project in limits:
            held_us = max(end_us - max(_in_us(live.lease.start_s), since_us), 0)
            used[record.project][live.worker_type] += held_us * len(live.lease.workers)
    for project, held_s in (more_s or {}).items():
        used[project][""] += _in_us(held_s)
    prices = state.settings.prices
    return {name: _spending(one, used[name], prices) for name, one in limits.items()}


def _spending(
    limits: ProjectLimits, used: Mapping[str, int], prices: Mapping[str, float]
) -> Spending:
    hours, usd = sum(used.values()) / _HOUR_US, cost_usd(used, prices)
    parts = [
        used_now / may if may > 0 else math.inf
        for used_now, may in ((hours, limits.budget_gpu_hours), (usd, limits.budget_usd))
        if may is not None
    ]
    return Spending(gpu_hours=hours, usd=usd, part=max(parts, default=0.0))


def cost_usd(used: Mapping[str, int], prices: Mapping[str, float]) -> float:
    """Return the cost of use.

    Args:
        used: worker type -> worker-microseconds; an empty type stands for gangs of several types,
            whose workers count as the dearest ones.
        prices: worker type -> USD of one worker for an hour; types without one cost nothing.
    """
    dearest = max(prices.values(), default=0.0)
    costs = (us * (prices.get(name, 0.0) if name else dearest) for name, us in used.items())
    return sum(costs) / _HOUR_US


def count_ended(state: ControlState, attempts: Iterable[AttemptRow]) -> None:
    """Add leases that end with a decision; their jobs must still be in the book.

    Exact even if a lease began before control counted, or in the month before.
    """
    budgets = state.budgets
    if budgets.since_s is None:
        return
    since_us = _in_us(budgets.since_s)
    for row in attempts:
        if row.ended_s is not None:
            held_us = max(_in_us(row.ended_s) - max(_in_us(row.start_s), since_us), 0)
            key = state.jobs.by_id[row.job_id].project, row.worker_type
            used_us = held_us * len(row.workers)
            budgets.used_us[key] = budgets.used_us.get(key, 0) + used_us


def take_use(state: ControlState, _draft: Transaction, fact: UseCounted) -> None:
    """Take in the ledger's figures for the time before control counted."""
    if not state.budgets.counted and state.budgets.since_s == fact.until_s:
        state.budgets.add(fact.sums)


def check_budgets(state: ControlState, transaction: Transaction) -> None:
    """Warn of budgets, stop projects that used them up, and resume them in a new month.

    Checked when a round is planned. A project that will have used its budget up by the end of the
    running round is granted nothing beyond that round. So its use exceeds a budget by less than the
    use of one round.
    """
    budgets = state.budgets
    if budgets.since_s is None:
        return
    budgets.roll(transaction.now_s)
    plans = any(isinstance(e, ev.TimerFired) and e.timer == PLAN for e in transaction.events)
    if not (plans or budgets.due):
        return
    budgets.due = False
    now_s = max(transaction.now_s, state.engine.now_s)
    # A stopped project resumes only if its budget has room for one worker for a whole round. The
    # moment by which its jobs left before the round's end is not enough.
    room_s = dict.fromkeys(state.jobs.stopped, state.settings.engine.round_length_s)
    found = spending_by_project(state, now_s=now_s, until_s=state.engine.round_end_s, more_s=room_s)
    for project in sorted({*found, *state.jobs.stopped, *budgets.told}):
        _judge(state, transaction, project, found.get(project))


def budget_word(part: float, limits: ProjectLimits | None) -> str:
    """Return the state of a budget of which a part is used: spent, warned, or empty."""
    warning = None if limits is None else limits.budget_warning
    return "spent" if part >= 1.0 else "warned" if part >= (warning or WARNING) else ""


#: The history's event for each new state of a project's budget.
TOLD: Final = {"spent": "budget_spent", "warned": "budget_warning", "": "budget_free"}


def _judge(
    state: ControlState, transaction: Transaction, project: str, spent: Spending | None
) -> None:
    part = 0.0 if spent is None else spent.part
    limits = state.jobs.limits.get(project)
    says = budget_word(part, limits)
    stops, stopped = says == "spent", project in state.jobs.stopped
    if stops != stopped:
        _stop_or_resume(state, transaction, project, stops=stops)
    told = state.budgets.told.get(project, "")
    if says == told:
        return
    if says:
        state.budgets.told[project] = says
        transaction.set(f"{KEY}/{project}", {"month_s": state.budgets.month_s, "told": says})
    else:
        del state.budgets.told[project]
        transaction.set(f"{KEY}/{project}", None)
    kind = TOLD["" if (told, says) == ("spent", "warned") else says]
    transaction.record_event(kind, "project", project, **_figures(spent, limits))


def _figures(spent: Spending | None, limits: ProjectLimits | None) -> dict[str, Any]:
    if spent is None or limits is None:
        return {}
    found = {
        "used_gpu_hours": round(spent.gpu_hours, 3),
        "budget_gpu_hours": limits.budget_gpu_hours,
        "used_usd": None if limits.budget_usd is None else round(spent.usd, 2),
        "budget_usd": limits.budget_usd,
    }
    return {name: value for name, value in found.items() if value is not None}


def _stop_or_resume(
    state: ControlState, transaction: Transaction, project: str, *, stops: bool
) -> None:
    jobs = state.jobs
    jobs.stopped = jobs.stopped | {project} if stops else jobs.stopped - {project}
    jobs.recheck = True
    known = [r for r in jobs.by_id.values() if r.project == project and r.blocked_on is None]
    if not known:
        return
    for record in known:
        if record.status is JobStatus.WAITING:
            record.reason = WaitReason.BUDGET.value if stops else ""
            jobs.touch(record, transaction.now_s)
    transaction.emit(ev.FundsChanged(job_ids=tuple(r.job_id for r in known), unfunded=stops))


#: The cause of admission after a budget was freed.
FREED: Final = Cause(fact=FactKind.BUDGET_FREED)


def _in_us(time_s: float) -> int:
    """Return a time in whole microseconds, as the ledger does."""
    return math.floor(time_s * 1_000_000)
