"""Periodic checks: timeouts and other work that no report or request triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.jobs.table import renew_restarts, renew_table
from scheduler.control.jobs.time_limits import enforce_time_limits
from scheduler.control.jobs.waiting import admit_jobs
from scheduler.control.leases.ends import expire_leases, give_up_starts
from scheduler.control.leases.idle_gpus import check_idle_jobs
from scheduler.control.nodes.silence import cordon_silent_nodes, lose_silent_nodes, update_images
from scheduler.control.operator_orders import note_drained
from scheduler.control.projects.budgets import check_budgets
from scheduler.control.projects.reservations import end_reservations, release_reservations

if TYPE_CHECKING:
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction


def run_periodic_checks(state: ControlState, transaction: Transaction) -> None:
    """Run the checks that are due."""
    if transaction.now_s >= state.next_look_s:
        state.next_look_s = transaction.now_s + state.settings.tick_s
        expire_leases(state, transaction)
        lose_silent_nodes(state, transaction)
        cordon_silent_nodes(state, transaction)
        enforce_time_limits(state, transaction)
        check_idle_jobs(state, transaction)
        give_up_starts(state, transaction)
        note_drained(state, transaction)
        update_images(state)
        state.budgets.due |= bool(state.jobs.stopped)
        end_reservations(state, transaction)
    if state.reservations:
        release_reservations(state, transaction)
    state.owners.store(transaction)
    check_budgets(state, transaction)
    admit_jobs(state, transaction)
    renew_table(state, transaction)
    renew_restarts(state, transaction)
