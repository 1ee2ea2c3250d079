"""Events that change questions and answers: allocations, policies, throughputs, timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain.facts import events as ev
from scheduler.domain.facts.reasons import BITS, WaitReason
from scheduler.engine.events.on_leases import set_retry_timer
from scheduler.engine.events.on_reservations import pinned_jobs
from scheduler.engine.events.validation import fault_of
from scheduler.engine.rounds.allocation import apply_allocation
from scheduler.engine.state.restart_costs import follow_table
from scheduler.engine.state.state import GRACE, RETRY
from scheduler.engine.tables.columns import follow_configurations
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.state.state import State


def _computed(state: State, event: ev.AllocationComputed) -> None:
    if event.generation != state.generation or not state.question_open:
        return
    state.question_open = state.blocked = False
    fault = fault_of(event, state.table)
    if fault:
        state.record("allocation_failed", "policy", reason=fault)
        return
    apply_allocation(
        event,
        state.jobs,
        state.pairs,
        state.book.planned.values(),
        state.assigner.equivalent,
        round_length_s=state.settings.round_length_s,
        carry_credit=state.settings.carry_credit,
    )
    asked = state.jobs["number"] <= event.job_number.max(initial=NONE)
    state.jobs["wait_reasons"][asked] &= ~BITS[WaitReason.NO_ALLOCATION]
    behind_s = state.jobs.credit_s.max(initial=0.0), state.pairs.credit_s.max(initial=0.0)
    state.search.begin(float(max(behind_s)))
    state.may_use_remaining_work = event.allocation.may_use_remaining_work
    state.follow_exactly = event.allocation.follow_exactly
    promise_pinned(state)
    for warning in event.allocation.warnings:
        state.record("policy_warning", "policy", text=warning)
    state.serve_due = True


def promise_pinned(state: State) -> None:
    """Set X = 1 for running jobs that stay as they are and are left out of the policy's problem."""
    if not (state.fleet.any_cordoned or state.fleet.any_set_aside):
        return
    jobs = state.jobs
    rows = np.flatnonzero(pinned_jobs(state))
    held = jobs["configuration"][rows]
    alone = held >= 0
    jobs.x[rows] = 0.0
    jobs.x[rows[alone], held[alone]] = 1.0


def _failed(state: State, event: ev.AllocationFailed) -> None:
    if event.generation == state.generation and state.question_open:
        state.question_open = state.blocked = False
        state.record("allocation_failed", "policy", reason=event.reason)


def _policy(state: State, event: ev.PolicyChanged) -> None:
    state.time_dependent = event.time_dependent
    state.usage.begin(event.usage_half_life_s)
    _drop_question(state)
    state.mark_dirty(serve_idle=False)
    if event.record:
        state.record("policy_changed", "policy", policy=event.policy)


def _configurations(state: State, event: ev.ConfigurationsChanged) -> None:
    moved = follow_configurations(state.table, event.table)
    state.pairs.renumber(state.table, event.table)
    state.assigner.table = event.table
    state.jobs.widen(event.table.throughput.shape[1])
    state.assigner.follow(moved)
    follow_table(state)
    _drop_question(state)
    state.mark_dirty()


def _drop_question(state: State) -> None:
    """Drop the open question; its answer would be for an outdated problem."""
    state.question_open = state.blocked = False


def _timer(state: State, event: ev.TimerFired) -> None:
    if event.timer == GRACE:
        state.blocked = False
    elif event.timer == RETRY:
        state.mark_dirty()
        set_retry_timer(state)


HANDLERS: Final[dict[type, Callable[[State, Any], None]]] = {
    ev.AllocationComputed: _computed,
    ev.AllocationFailed: _failed,
    ev.PolicyChanged: _policy,
    ev.ConfigurationsChanged: _configurations,
    ev.TimerFired: _timer,
}
