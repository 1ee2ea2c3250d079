"""Periodic checks: timeouts and other work that no report or request triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.jobs.table import renew_restarts, renew_table
from scheduler.control.jobs.time_limits import enforce_time_limits
from scheduler.control.jobs.waiting import admit
from scheduler.control.leases.ends import expire, give_up_starts
from scheduler.control.leases.idle_gpus import heed_idle_jobs
from scheduler.control.nodes.silence import cordon_silent_nodes, look_for_images, lose_silent_nodes
from scheduler.control.projects.budgets import keep_budgets
from scheduler.control.projects.reservations import end_reservations, release_reservations

if TYPE_CHECKING:
    from scheduler.control.state.draft import Draft
    from scheduler.control.state.state import ControlState


def run_periodic_checks(state: ControlState, draft: Draft) -> None:
    """Run the checks that are due."""
    if draft.now_s >= state.next_look_s:
        state.next_look_s = draft.now_s + state.settings.tick_s
        expire(state, draft)
        lose_silent_nodes(state, draft)
        cordon_silent_nodes(state, draft)
        enforce_time_limits(state, draft)
        heed_idle_jobs(state, draft)
        give_up_starts(state, draft)
        look_for_images(state)
        state.budgets.due |= bool(state.jobs.stopped)
        end_reservations(state, draft)
    if state.reservations:
        release_reservations(state, draft)
    state.owners.store(draft)
    keep_budgets(state, draft)
    admit(state, draft)
    renew_table(state, draft)
    renew_restarts(state, draft)
