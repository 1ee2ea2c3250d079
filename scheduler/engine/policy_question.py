"""The engine's question to the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.facts import commands as do
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.engine.events import on_answers, on_reservations
from scheduler.engine.rounds.allocation import build_problem
from scheduler.engine.state.state import GRACE

if TYPE_CHECKING:
    from scheduler.engine.state.state import State


def ask_policy(state: State) -> None:
    """Ask the policy for X; decisions wait for its answer, but not for long."""
    state.changed = False
    occasion, state.triggers.to_ask = state.triggers.to_ask, None
    pinned = on_reservations.pinned_jobs(state)
    problem = build_problem(
        state.jobs,
        state.table,
        tuple(state.entities),
        capacity=state.fleet.count(state.workers_for(pinned)).astype(float),
        cost_usd_per_hour=state.fleet.cost_usd_per_hour,
        now_s=state.now_s,
        left_out=pinned,
        caps=state.caps_beside(pinned),
        round_length_s=state.settings.round_length_s,
        usage_s=state.usage_s,
        completed_worker_s=state.completed_worker_s,
    )
    state.question_open = state.blocked = problem is not None
    if problem is not None:
        state.generation += 1
        cause = (
            Cause(fact=FactKind.ROUND, round_number=state.round_number)
            if occasion is None
            else Cause(fact=occasion.fact, subject=occasion.subject)
        )
        state.commands.append(
            do.ComputeAllocation(generation=state.generation, problem=problem, cause=cause)
        )
        state.set_timer(GRACE, state.now_s + state.settings.solve_grace_s, cause)
    else:  # no jobs compete, so X promises no time
        state.jobs.x[:] = 0.0
        state.pairs.x[:] = 0.0
        on_answers.promise_pinned(state)
