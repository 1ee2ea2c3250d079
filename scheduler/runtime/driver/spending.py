"""The ledger's use of projects with budgets, from before control counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.projects.budgets import KEY, has_budget
from scheduler.control.state.budget_state import month_of
from scheduler.store.usage import UsageKey, UsageQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.state import ControlState
    from scheduler.domain.rows import SettingRow
    from scheduler.store.protocol import Store


def use_of_month(store: Store, until_s: float) -> tuple[tuple[str, str, int], ...]:
    """Return (project, worker type, worker-microseconds) of a calendar month so far.

    Args:
        store: with the ledger.
        until_s: the end; running leases count until then.
    """
    begin_s, _ = month_of(until_s)
    if until_s <= begin_s:
        return ()
    keys = (UsageKey.PROJECT, UsageKey.WORKER_TYPE)
    rows = store.usage(UsageQuery(from_s=begin_s, to_s=until_s, by=keys))
    return tuple((row.project or "", row.worker_type or "", row.worker_us) for row in rows)


def restore_budgets(
    state: ControlState, store: Store, stored: Mapping[str, SettingRow], now_s: float
) -> None:
    """Make a starting leader count budgets from now on, with past use and past warnings."""
    for key, row in stored.items():
        kind, _, project = key.partition("/")
        if kind == KEY:
            state.budgets.told[project] = row.value["told"]
            if row.value["told"] == "spent":  # in an earlier month too: its jobs must resume
                state.jobs.stopped |= {project}
    if state.budgets.told or any(map(has_budget, state.jobs.limits.values())):
        begin_s = max(now_s, state.engine.now_s)
        state.budgets.begin(begin_s)
        state.budgets.add(use_of_month(store, begin_s))
