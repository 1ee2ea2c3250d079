"""The plan of a round: which jobs run in it, and on which workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.engine.events import on_reservations
from scheduler.engine.rounds.choose_round import RoundInputs, choose_round
from scheduler.engine.rounds.decision_reasons import RoundReasons
from scheduler.engine.rounds.migration import spread_credit
from scheduler.engine.state.preemption_protection import protect_leases, share_rooms
from scheduler.engine.state.state import PLAN
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.facts.causes import Occasion
    from scheduler.engine.rounds.choose_round import Choice
    from scheduler.engine.state.state import State


def plan_round(state: State) -> None:
    """Plan the next round over all workers in service."""
    eligible = state.jobs.runnable(state.now_s)
    start_s = _begin_round(state, eligible)
    if start_s is None:
        return
    pinned = on_reservations.pinned_jobs(state)
    leaves = _leaving_jobs(state, pinned)
    choice = choose_round(_inputs(state, eligible, pinned, leaves, start_s))
    _note_choice(state, choice)
    _let_go_on(state, choice, pinned)
    _realise(state, choice, eligible, leaves, start_s)


def _begin_round(state: State, eligible: BoolArray) -> float | None:
    """Begin the next round; return its start, or None if no job is left to run in it."""
    assert state.round_end_s is not None
    length_s = state.settings.round_length_s
    # Rounds that were not planned in time are skipped.
    start_s = state.now_s
    if state.now_s < state.round_end_s + length_s:
        start_s = state.round_end_s
    if not len(state.jobs) or not (eligible.any() or state.book.leases):
        state.round_end_s = None
        return None
    state.round_number += 1
    state.round_end_s = start_s + length_s
    state.book.forget_all()
    return start_s


def _leaving_jobs(state: State, pinned: BoolArray) -> BoolArray | None:
    """Return (N,) jobs on workers that are set aside, except pinned jobs; None for no jobs."""
    if not state.fleet.any_set_aside:
        return None
    stays, leaves = on_reservations.bound_by_reservations(state)
    result: BoolArray = (stays | leaves) & ~pinned
    return result


def _inputs(
    state: State,
    eligible: BoolArray,
    pinned: BoolArray,
    leaves: BoolArray | None,
    start_s: float,
) -> RoundInputs:
    settings, length_s = state.settings, state.settings.round_length_s
    available = state.workers_for(pinned)
    on_reservations.forbid_workers(state)
    state.assigner.rooms = share_rooms(state)
    exclusions = state.assigner.exclusions(available)
    spread_credit(state.jobs, state.assigner.equivalent)
    caps = state.caps_beside(pinned)
    stay = pinned if leaves is None else pinned | leaves
    return RoundInputs(
        jobs=state.jobs,
        pairs=state.pairs,
        table=state.table,
        equivalent=state.assigner.equivalent,
        eligible=eligible & ~pinned,
        free=state.fleet.count(available),
        length_s=length_s,
        lead_s=max(start_s - state.now_s, 0.0),
        keep_bonus_s=settings.keep_bonus * length_s,
        band=settings.band(follow_exactly=state.follow_exactly),
        may_use_remaining_work=state.may_use_remaining_work,
        search=state.search,
        exclusions=exclusions,
        kept=protect_leases(state, eligible & ~stay, caps),
        caps=caps,
    )


def _note_choice(state: State, choice: Choice) -> None:
    """Note how good a round is, and move credit to the configurations that it counts as."""
    length_s, jobs = choice.inputs.length_s, state.jobs
    state.search.note(choice.searched)
    state.certificate = choice.certificate
    if choice.inputs.kept is not None:
        jobs["ahead_s"][choice.beyond] += length_s
    stays = (choice.turn_of != NONE).nonzero()[0]
    if len(stays):
        jobs.credit_s[stays, choice.turn_of[stays]] -= length_s
        jobs.credit_s[stays, choice.configuration[stays]] += length_s


def _let_go_on(state: State, choice: Choice, pinned: BoolArray) -> None:
    """Let pinned jobs go on as they are."""
    if not pinned.any():
        return
    jobs = state.jobs
    choice.configuration[pinned] = jobs["configuration"][pinned]
    choice.pair[pinned] = jobs["pair"][pinned]
    choice.charged[pinned] = jobs["charged"][pinned]


def _realise(
    state: State,
    choice: Choice,
    eligible: BoolArray,
    leaves: BoolArray | None,
    start_s: float,
) -> None:
    """Extend, revoke and plan leases for a choice; the next round is planned near its end."""
    assert state.round_end_s is not None
    newest = state.assigner.next_lease
    # Until the policy has answered, recent events may still cause changes.
    happened = state.triggers.begin_round(keep=state.question_open)
    cause = Cause(fact=FactKind.ROUND, round_number=state.round_number)
    state.commands += state.assigner.realise(
        choice,
        eligible,
        reasons_of(state, choice, happened, is_round=True),
        goes_on=cause,
        start_s=start_s,
        end_s=state.round_end_s,
        caps=state.caps(),
        leaves=leaves,
    )
    if state.assigner.next_lease > newest:
        state.rows_moved()
    state.set_timer(PLAN, state.round_end_s - state.settings.plan_lead_s, cause)
    # Some workers may be left over by jobs that could not be placed, or be reserved.
    excluded = choice.inputs.exclusions is not None
    state.serve_due |= excluded or state.fleet.any_set_aside


def reasons_of(
    state: State, choice: Choice, happened: Sequence[Occasion], *, is_round: bool
) -> RoundReasons:
    """Return the reasons of a choice, for a round or for idle workers within one."""
    return RoundReasons(
        choice,
        happened,
        round_number=state.round_number,
        takers=state.book.blocked_by,
        is_round=is_round,
        unfunded=state.jobs["unfunded"] != 0,
    )
