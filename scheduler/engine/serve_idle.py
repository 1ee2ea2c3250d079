"""Grants of idle workers within a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.events import on_reservations
from scheduler.engine.plan_round import reasons_of
from scheduler.engine.rounds.choose_round import RoundInputs, choose_round
from scheduler.engine.state.preemption_protection import share_rooms
from scheduler.engine.state.state import PLAN
from scheduler.engine.tables.jobs import NONE, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray
    from scheduler.domain.facts.causes import Occasion
    from scheduler.engine.state.state import State


def serve_idle_workers(state: State) -> None:
    """Grant idle workers to waiting jobs for the rest of the round."""
    happened = state.triggers.since_served()
    state.assigner.rooms = {}
    for rule in state.reservations.in_force:
        if on_reservations.can_grant_reserved(state, rule):
            kept = on_reservations.grantable_until_round_end(state, rule)
            users = on_reservations.reservation_users(state, rule)
            _grant(state, state.book.idle_of(kept), users, happened, own=True)
    state.assigner.rooms = share_rooms(state)
    _grant(state, state.book.idle(), None, happened)
    if state.assigner.rooms:
        # The other jobs do not want the workers that are left.
        within, state.assigner.rooms = state.assigner.rooms, {}
        _grant(state, state.book.idle(), state.jobs["unpreemptible"] != 0, happened)
        state.assigner.rooms = within


def _grant(
    state: State,
    available: BoolArray,
    to: BoolArray | None,
    happened: Sequence[Occasion],
    *,
    own: bool = False,
) -> None:
    """Grant some idle workers.

    Args:
        state: of the engine.
        available: (W,) the workers to grant.
        to: (N,) jobs that may have them; None for all.
        happened: events since workers were last served.
        own: whether the workers are reserved for these jobs; their time is then charged.
    """
    if not available.any():
        return  # before any work per job
    eligible = _eligible(state, to)
    if not eligible.any():
        return
    on_reservations.forbid_workers(state)
    if state.round_end_s is None:
        state.round_number += 1
        state.round_end_s = state.now_s + state.settings.round_length_s
        state.set_timer(PLAN, state.round_end_s - state.settings.plan_lead_s)
        state.triggers.begin_round()
    choice = choose_round(
        RoundInputs(
            jobs=state.jobs,
            pairs=state.pairs,
            table=state.table,
            equivalent=state.assigner.equivalent,
            eligible=eligible,
            free=state.fleet.count(available),
            length_s=max(state.round_end_s - state.now_s, 1e-9),
            band=state.settings.band(follow_exactly=state.follow_exactly),
            may_use_remaining_work=state.may_use_remaining_work,
            exclusions=state.assigner.exclusions(available),
            caps=state.caps_now(),
        )
    )
    chosen = (choice.configuration != NONE) | (choice.pair != NONE)
    if own:
        choice.charged[:] = chosen
    reasons = reasons_of(state, choice, happened, is_round=False)
    granted = state.assigner.serve(choice, reasons, available, end_s=state.round_end_s)
    state.commands += granted
    state.rows_moved()
    if granted and state.assigner.launch_constraints.any_consolidated:
        # A chosen job that found no node leaves its workers to others.
        state.serve_due |= bool((chosen & (state.jobs["lease"] == NONE)).any())


def _eligible(state: State, to: BoolArray | None) -> BoolArray:
    """Return (N,) the waiting jobs among some that are not planned."""
    jobs = state.jobs
    eligible: BoolArray = jobs.runnable(state.now_s) & (jobs["status"] == WAITING)
    if to is not None:
        eligible &= to
    if state.book.planned:
        eligible &= ~np.isin(jobs["number"], list(state.book.planned))
    return eligible
