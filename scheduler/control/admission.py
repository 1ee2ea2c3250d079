"""Admission of jobs by control's rules, for shells that drive the engine themselves.

The simulator forecasts with the engine alone, by columns. Agents that report every lease would make
the forecast twenty times slower. This module decides which jobs are admitted and which have run out
of time: quotas, dependencies, time limits, waits after a failure. It calls control's own functions
on a copy of control's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.jobs.table import renew_table
from scheduler.control.jobs.time_limits import enforce_time_limits, when_limits_are_over
from scheduler.control.jobs.waiting import admit_jobs, after_step
from scheduler.control.leases.apply_commands import FINAL, apply_lease_commands, update_job_records
from scheduler.control.operator_orders import ask_policy
from scheduler.control.state.transaction import Transaction
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.state import ControlState


class Admission:
    """Decides admission for an engine that a caller drives.

    Args:
        state: a copy of control's state; its engine is the one that the caller drives.

    Attributes:
        ended: job id -> its record, of the jobs that have ended.
    """

    def __init__(self, state: ControlState) -> None:
        self._state = state
        self.ended: dict[str, JobRecord] = {}

    @property
    def next_due_s(self) -> float:
        """When the next time limit is reached; inf if there is none."""
        return when_limits_are_over(self._state)

    def begin(self, now_s: float) -> tuple[ev.Event, ...]:
        """Return the engine's first events."""
        transaction = Transaction(now_s=now_s)
        renew_table(self._state, transaction)
        if self._state.asked != self._state.policy.choice:
            ask_policy(self._state, transaction)
        self._decide(transaction)
        return transaction.ordered()

    def follow(
        self,
        events: Iterable[ev.Event],
        commands: Iterable[do.Command | do.Batch],
        now_s: float,
    ) -> tuple[ev.Event, ...]:
        """Return the engine's next events, after a step.

        Args:
            events: the engine's input at ``now_s``.
            commands: the engine's answer.
            now_s: the time.
        """
        state, transaction = self._state, Transaction(now_s=now_s)
        last_words = [c for c in commands if isinstance(c, do.RecordEvent) and c.kind in FINAL]
        ended = update_job_records(state, transaction, last_words)
        after_step(state, transaction, (), ended)
        if state.jobs.limited:
            self._follow_limited(events, commands, now_s)
        self._decide(transaction)
        return transaction.ordered()

    def _decide(self, transaction: Transaction) -> None:
        state = self._state
        enforce_time_limits(state, transaction)
        admit_jobs(state, transaction)
        # A job that was never admitted ends too, if a job that it depends on fails.
        for job_id, record in state.jobs.touched.items():
            if job_id not in state.jobs.by_id:
                self.ended[job_id] = record
        state.jobs.touched.clear()
        state.jobs.changed.clear()

    def _follow_limited(
        self,
        events: Iterable[ev.Event],
        commands: Iterable[do.Command | do.Batch],
        now_s: float,
    ) -> None:
        """Track the leases of jobs that have a time limit."""
        state = self._state
        limited = state.jobs.limited
        over = [e for e in events if isinstance(e, ev.LeaseEnded)]
        granted = [
            do.GrantLease(lease=lease, cause=command.causes[i])
            for command in commands
            if isinstance(command, do.GrantLeases | do.HandOver)
            for i, lease in enumerate(command.leases)
            if lease.job_id in limited
        ]
        for event in events:
            if isinstance(event, ev.LeasesReleased):
                for lease_id in event.lease_ids.tolist():
                    state.leases.end(lease_id)
        apply_lease_commands(state, over, granted, now_s)
