"""Standstill of a forecast: rounds go on, but nothing changes any more.

Jobs without a knowable end hold the workers that others need, or those workers are out of service.
Going on would repeat the same round until the forecast's work is used up, which is half a minute of
a core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.engine.engine import Engine
    from simulator.simulation import Simulation

#: Rounds in which the same leases must be held before the other conditions are checked.
ROUNDS: Final = 3
#: A job with this share of all its time holds its workers in every round.
_ALL: Final = 1.0 - 1e-6


class Standstill:
    """Watches a run for the moment from which on every round is the same.

    This needs four conditions. Only rounds follow (no arrival, end, failure, time limit, wait after
    a failure, or window of a reservation). The policy is not asked any more. The leases are the
    same as some rounds ago. Credits cannot change that: each job with workers is due all of its
    time, while waiting jobs are due no time, or it is not preemptible.

    Args:
        run: the run to watch.
        engine: its engine.
    """

    def __init__(self, run: Simulation, engine: Engine) -> None:
        self._run, self._engine = run, engine
        self._same: tuple[int, frozenset[int]] = (-1, frozenset())
        self._since = self._looked = engine.round_number

    def reached(self, left: Collection[str]) -> bool:
        """Return whether no job of some will ever end in this run; call it after each step.

        Args:
            left: ids of jobs that would end if they ran.
        """
        number = self._engine.round_number
        if number == self._looked:
            return False
        self._looked = number
        same = self._run.questions, frozenset(self._engine.state.book.leases)
        if same != self._same:
            self._same, self._since = same, number
        if number - self._since < ROUNDS or not self._run.only_rounds_follow:
            return False
        # Windows of reservations change which jobs may run.
        return not self._engine.reservations and self._is_settled(left)

    def _is_settled(self, left: Collection[str]) -> bool:
        jobs = self._engine.state.jobs
        share = jobs.x.sum(axis=1)
        runnable = jobs.runnable(self._engine.now_s)
        waits_firmly = True
        for row in range(len(jobs)):
            if jobs["lease"][row] != NONE:
                if jobs.job_of[int(jobs["number"][row])].job_id in left:
                    return False
                if not jobs["unpreemptible"][row] and share[row] < _ALL:
                    return False
                waits_firmly &= bool(jobs["unpreemptible"][row])
        for job_id in left:
            if job_id not in jobs.number_of:
                continue
            row = jobs.row_of(jobs.number_of[job_id])
            if not runnable[row] or not (waits_firmly or share[row] <= 1.0 - _ALL):
                return False
        return True

    @property
    def holders(self) -> list[str]:
        """Ids of the jobs that hold workers."""
        return sorted(lease.job_id for lease in self._engine.state.book.leases.values())
