"""Periodic checks: timeouts and other work that no report or request triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.jobs.table import renew_restarts, renew_table
from scheduler.control.jobs.time_limits import enforce_time_limits
from scheduler.control.jobs.waiting import admit_jobs
from scheduler.control.leases.ends import expire_leases, give_up_starts
from scheduler.control.leases.idle_gpus import check_idle_jobs
from scheduler.control.nodes.silence import cordon_silent_nodes, lose_silent_nodes, update_images
from scheduler.control.projects.budgets import check_budgets
from scheduler.control.projects.reservations import end_reservations, release_reservations

if TYPE_CHECKING:
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction


def run_periodic_checks(state: ControlState, draft: Transaction) -> None:
    """Run the checks that are due."""
    if draft.now_s >= state.next_look_s:
        state.next_look_s = draft.now_s + state.settings.tick_s
        expire_leases(state, draft)
        lose_silent_nodes(state, draft)
        cordon_silent_nodes(state, draft)
        enforce_time_limits(state, draft)
        check_idle_jobs(state, draft)
        give_up_starts(state, draft)
        update_images(state)
        state.budgets.due |= bool(state.jobs.stopped)
        end_reservations(state, draft)
    if state.reservations:
        release_reservations(state, draft)
    state.owners.store(draft)
    check_budgets(state, draft)
    admit_jobs(state, draft)
    renew_table(state, draft)
    renew_restarts(state, draft)
