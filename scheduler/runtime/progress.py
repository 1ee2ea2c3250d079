"""Steps: what is safe when a lease ends, what the engine is told meanwhile, what is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agent.desired import LeaseEnd
from scheduler.domain import events as ev
from scheduler.engine.jobs import NONE
from scheduler.runtime.specs import steps_of

if TYPE_CHECKING:
    from scheduler.runtime.leases import LiveLease, MemberEnd
    from scheduler.runtime.state import LiveState
    from scheduler.runtime.turn import Turn

#: A job that counts no steps is never taken for more complete than this.
ALMOST_DONE = 0.99


def safe_steps(state: LiveState, live: LiveLease, end: MemberEnd, *, now_s: float) -> float:
    """Return the steps that outlive a lease.

    Where a job reports none, its run time counts: as steps of a second where it has only a
    duration, at the expected throughput where it keeps checkpoints. A program that does neither
    begins anew, and so does one that failed, from where its lease began.
    """
    record = state.jobs.by_id[live.lease.job_id]
    if end.reason is LeaseEnd.COMPLETED:
        return steps_of(record.spec)
    if live.counted:
        return live.steps_done
    failed = end.reason in {LeaseEnd.FAILED, LeaseEnd.OOM}
    if not failed and (record.spec.total_steps is None or record.spec.checkpoint_dir):
        return _by_time(state, live, now_s=now_s)
    return live.base_steps


def flush_progress(state: LiveState, turn: Turn) -> None:
    """Tell the engine what has been reported since the last turn."""
    if any(isinstance(event, ev.TimerFired) for event in turn.events):
        for lease_id, live in state.leases.by_id.items():
            if not live.counted and live.running_s is not None:
                state.progress[lease_id] = _by_time(state, live, now_s=turn.now_s)
    if not state.progress:
        return
    lease_ids = np.array(sorted(state.progress), dtype=np.int64)
    steps = np.array([state.progress[lease_id] for lease_id in lease_ids.tolist()], dtype=float)
    state.progress.clear()
    turn.tell(ev.ProgressReported(lease_ids=lease_ids, steps_done=steps))


def take_steps(
    state: LiveState, live: LiveLease, *, steps_done: float, steps_live: float, now_s: float
) -> None:
    """Take in what a job has reported; what is reported late takes nothing back."""
    if steps_live <= 0 and steps_done <= 0:
        return
    newest = max(steps_live, steps_done)
    live.counted = True
    live.steps_done = max(live.steps_done, steps_done)
    if newest <= live.steps_live:
        return
    live.steps_live = newest
    state.progress[live.lease.lease_id] = newest
    if state.settings.learn:
        _measure(state, live, now_s)


def _by_time(state: LiveState, live: LiveLease, *, now_s: float) -> float:
    record = state.jobs.by_id[live.lease.job_id]
    total = steps_of(record.spec)
    if live.running_s is None:
        return live.base_steps
    rate = 1.0 if record.spec.total_steps is None else _rate(state, live)
    done = live.base_steps + rate * (now_s - live.running_s)
    return max(live.base_steps, min(done, ALMOST_DONE * total))


def _rate(state: LiveState, live: LiveLease) -> float:
    lease = live.lease
    if lease.configuration == NONE or not live.worker_type:
        return 0.0
    record = state.jobs.by_id[lease.job_id]
    estimate = state.estimator.estimate(record.spec.type_key, len(lease.workers), live.worker_type)
    return estimate.steps_per_s


def _measure(state: LiveState, live: LiveLease, now_s: float) -> None:
    """Learn the throughput from a stretch of running alone."""
    timed = state.catalogue.key(state.jobs.by_id[live.lease.job_id].profile).timed
    if timed or _shares(state, live) or not live.worker_type:
        live.mark = None
        return
    if live.mark is None:
        live.mark = (now_s, live.steps_live)
        return
    since_s, steps = live.mark
    if now_s - since_s < state.settings.measure_least_s:
        return
    record = state.jobs.by_id[live.lease.job_id]
    state.estimator.observe(
        record.spec.type_key,
        len(live.lease.workers),
        live.worker_type,
        live.steps_live - steps,
        now_s - since_s,
    )
    live.mark = (now_s, live.steps_live)
    state.estimates_due = True


def _shares(state: LiveState, live: LiveLease) -> bool:
    row = state.engine.jobs.row_of(live.lease.job_number)
    return row == NONE or int(state.engine.jobs["pair"][row]) != NONE
