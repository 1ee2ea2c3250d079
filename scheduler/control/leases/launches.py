"""Launch times of leases: from the grant to the first step, by the job's own reports.

A job reports its steps now and then, so its first report comes after its first step. The line
through its reports, drawn back to the steps with which it began, gives the time of the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.control.leases.progress import shows_throughput
from scheduler.domain.throughputs.ways import Source

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState

#: The share of lease time above which long launches are reported.
LONG_LAUNCHES: Final = 0.1
#: Throughputs that may stand in for a second report.
_SURE = frozenset({Source.MEASURED, Source.DECLARED})


def time_launch(
    state: ControlState, transaction: Transaction, live: LiveLease, *, over: bool = False
) -> None:
    """Learn how long the launch of a lease took, once its reports show it.

    Args:
        state: control's.
        transaction: the current decision.
        live: the lease.
        over: whether it has ended, so that no further report comes. If it had one report, the known
            throughput of the job gives how long the job had run until then.
    """
    if live.launch_timed or live.told is None:
        return
    (first_s, first), (newest_s, newest) = live.told
    done = first - live.base_steps
    if newest - first >= done and newest_s > first_s:
        steps_per_s = (newest - first) / (newest_s - first_s)
    elif over:
        steps_per_s = _known_throughput(state, live)
    else:
        return
    live.launch_timed = True
    if not steps_per_s > 0.0:
        return
    runs_s = first_s if live.running_s is None else live.running_s
    began_s = min(max(first_s - done / steps_per_s, runs_s), first_s)
    live.launch_s = max(began_s - live.lease.start_s, 0.0)
    transaction.launches.append({"first_step": live.launch_s})
    if state.settings.learning.learn:
        job_type = state.jobs.by_id[live.lease.job_id].spec.type_key
        key = job_type, len(live.lease.workers), live.worker_type
        state.knowledge.note_launch(*key, live.launch_s, first_step=True)
        state.launches_due = True


def launching_s(
    state: ControlState | PublishedState, live: LiveLease, *, now_s: float
) -> float | None:
    """Return the seconds that a lease's launch has taken so far; None if not known.

    Before its first report a job that declares how to read its steps is launching. Other jobs may
    never report any steps.
    """
    if live.launch_timed or live.told is not None:
        return live.launch_s
    spec = state.jobs.by_id[live.lease.job_id].spec
    if not (spec.progress_regex or spec.progress_file):
        return None
    return max(now_s - live.lease.start_s, 0.0)


def _known_throughput(state: ControlState, live: LiveLease) -> float:
    """Return the measured or declared steps/s of a job on its workers; 0 if not known."""
    if not (live.worker_type and shows_throughput(state, live)):
        return 0.0
    job_type = state.jobs.by_id[live.lease.job_id].spec.type_key
    found = state.knowledge.estimate(job_type, len(live.lease.workers), live.worker_type)
    return found.steps_per_s if found.source in _SURE else 0.0
