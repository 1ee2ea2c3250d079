"""Steps: saved when a lease ends, reported to the engine meanwhile, and learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.control.facts.specs import steps_of
from scheduler.control.leases.lengths import revised_lengths
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import ALMOST_DONE
from scheduler.domain.lease_life import EndReason
from scheduler.engine.tables.jobs import NONE
from scheduler.protocol.desired import LEFT_EARLY

if TYPE_CHECKING:
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import LiveLease, MemberEnd
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.control.state.view import PublishedState


def safe_steps(state: ControlState, live: LiveLease, end: MemberEnd, *, now_s: float) -> float:
    """Return the steps that outlive a lease: those that were reported as saved.

    A program that reports no steps shows that it saved them by leaving with 0 or 75 when it is
    asked to. Then its run time counts: as steps of a second if it has only a duration, at the
    expected throughput if it keeps checkpoints. A job that was killed, failed or was lost restarts
    from the start of its lease, because nothing is known to be saved.
    """
    spec = state.jobs.by_id[live.lease.job_id].spec
    if end.reason is EndReason.COMPLETED:
        return steps_of(spec)
    if live.counted:
        return live.steps_done
    if left_by_itself(end) and (spec.total_steps is None or spec.checkpoint_dir):
        return _by_time(state, live, now_s=now_s)
    return live.base_steps


def left_by_itself(end: MemberEnd) -> bool:
    """Return whether a job left when it was asked to, which means that its state is saved."""
    return end.reason is EndReason.RELEASED and end.exit_code in {0, LEFT_EARLY}


def keeps_steps(record: JobRecord, live: LiveLease | None) -> bool:
    """Return whether a job is known to save something, so that an early end does not cost it all.

    It declared so when it was submitted, or some of its steps have been saved before.
    """
    spec = record.spec
    told = spec.checkpoint_dir or spec.progress_file or "(?P<saved>" in (spec.progress_regex or "")
    saved = record.steps_done if live is None else max(record.steps_done, live.steps_done)
    return bool(told) or saved > 0


def steps_now(state: ControlState | PublishedState, live: LiveLease, *, now_s: float) -> float:
    """Return a running job's steps, saved or not: as reported, else by the clock."""
    if live.counted or live.running_s is None:
        return live.steps_live
    return _by_time(state, live, now_s=now_s)


def shown_steps(state: ControlState | PublishedState, live: LiveLease, *, now_s: float) -> float:
    """Return the steps of a running job to show to people.

    If it has steps, those that it reports. If it only has a duration and reports nothing, the
    seconds of it that are done.
    """
    spec = state.jobs.by_id[live.lease.job_id].spec
    if spec.total_steps is None and spec.duration_s is not None:
        return steps_now(state, live, now_s=now_s)
    return live.steps_live


def own_speed(live: LiveLease) -> tuple[float, float]:
    """Return a job's steps/s under its lease by its own reports, and the seconds that they cover.

    The first report is measured from the start of the processes, so their launch counts; later ones
    from the first. Zeros before that.
    """
    if live.told is None or live.running_s is None:
        return 0.0, 0.0
    (since_s, before), (until_s, steps) = live.told
    if until_s <= since_s:
        since_s, before = live.running_s, live.base_steps
    stretch_s = until_s - since_s
    return ((steps - before) / stretch_s, stretch_s) if stretch_s > 0 else (0.0, 0.0)


def flush_progress(state: ControlState, transaction: Transaction) -> None:
    """Pass to the engine the progress reported since the last turn."""
    if any(isinstance(event, ev.TimerFired) for event in transaction.events):
        by_time = {
            lease_id: _run_by_time(state, live, now_s=transaction.now_s)
            for lease_id, live in state.leases.by_id.items()
            if not live.counted and live.running_s is not None
        }
        if (told := revised_lengths(state, by_time)) is not None:
            transaction.emit(told)
        state.progress |= by_time
    if not state.progress:
        return
    lease_ids = np.array(sorted(state.progress), dtype=np.int64)
    steps = np.array([state.progress[lease_id] for lease_id in lease_ids.tolist()], dtype=float)
    rows = state.engine.state.rows_under(lease_ids)
    waits = (rows != NONE) & (state.engine.jobs["wasted"][rows] > 0)
    saved = [i for i in lease_ids[waits].tolist() if _has_saved(state.leases.by_id[i])]
    if saved:
        transaction.emit(ev.WorkSaved(lease_ids=np.array(saved, dtype=np.int64)))
    state.progress.clear()
    transaction.emit(ev.ProgressReported(lease_ids=lease_ids, steps_done=steps))


def _has_saved(live: LiveLease) -> bool:
    return live.counted and live.steps_done > live.base_steps


def take_steps(
    state: ControlState, live: LiveLease, *, steps_done: float, steps_live: float, now_s: float
) -> None:
    """Take in a job's report of steps; a late report takes nothing back."""
    total = state.jobs.by_id[live.lease.job_id].spec.total_steps
    if total is not None:  # no job does more
        steps_live, steps_done = min(steps_live, total), min(steps_done, total)
    newest = max(steps_live, steps_done)
    if newest <= 0:
        return
    if newest <= live.base_steps and total is None:
        return  # its agent's figure from the start; the job itself reports none
    live.counted = True
    live.steps_done = max(live.steps_done, steps_done)
    if newest <= live.steps_live:
        return
    live.steps_live = newest
    live.told = (live.told or ((now_s, newest),))[0], (now_s, newest)
    state.progress[live.lease.lease_id] = newest
    if state.settings.learning.learn:
        _measure(state, live, now_s)


def _by_time(state: ControlState | PublishedState, live: LiveLease, *, now_s: float) -> float:
    """Return the steps that a job has done by the clock; only the job reports completion."""
    most = ALMOST_DONE * steps_of(state.jobs.by_id[live.lease.job_id].spec)
    return max(live.base_steps, min(_run_by_time(state, live, now_s=now_s), most))


def _run_by_time(state: ControlState | PublishedState, live: LiveLease, *, now_s: float) -> float:
    """Return the steps for which a job has run by the clock, even beyond its length."""
    record = state.jobs.by_id[live.lease.job_id]
    if live.running_s is None:
        return live.base_steps
    rate = 1.0 if record.spec.total_steps is None else _rate(state, live)
    return live.base_steps + rate * max(now_s - live.running_s, 0.0)


def _rate(state: ControlState | PublishedState, live: LiveLease) -> float:
    lease = live.lease
    if lease.configuration == NONE or not live.kinds:
        return 0.0
    if live.gang:
        return _mixed_rate(state, live)
    record = state.jobs.by_id[lease.job_id]
    estimate = state.knowledge.estimate(record.spec.type_key, len(lease.workers), live.worker_type)
    return estimate.steps_per_s


def _mixed_rate(state: ControlState | PublishedState, live: LiveLease) -> float:
    """Return the known steps/s of a mixed gang; 0 if there are none."""
    key = state.knowledge.key(live.lease.profile)
    ways = state.knowledge.ways(key, state.engine.present)
    rates = (way.estimate.steps_per_s for way in ways if way.workers == live.kinds)
    return next(rates, 0.0)


def _measure(state: ControlState, live: LiveLease, now_s: float) -> None:
    """Learn the throughput from a period of running alone."""
    timed = state.knowledge.key(state.jobs.by_id[live.lease.job_id].profile).timed
    if timed or shares_workers(state, live) or not live.kinds or not shows_throughput(state, live):
        live.mark = None
        return
    if live.mark is None:
        live.mark = (now_s, live.steps_live)
        return
    since_s, steps = live.mark
    if now_s - since_s < state.settings.learning.least_s:
        return
    done, took_s = live.steps_live - steps, now_s - since_s
    live.mark = (now_s, live.steps_live)
    record = state.jobs.by_id[live.lease.job_id]
    job_type = record.spec.type_key
    if live.gang:  # it shows nothing of a single type
        state.mixed_due |= state.knowledge.observe_mixed_gang(job_type, live.kinds, done, took_s)
        return
    key = job_type, len(live.lease.workers), live.worker_type
    state.knowledge.observe(*key, done, took_s)
    if len(live.members) == 1 and not record.spec.batch:  # else its speed also depends on its batch
        state.health.measure(key, live.members[0].node, done / took_s)
    state.estimates_due = True


def shows_throughput(state: ControlState | PublishedState, live: LiveLease) -> bool:
    """Return whether a job's speed under a lease is the throughput that is known for its workers.

    A job that gives its model may still run under a plan that such jobs no longer get.
    """
    spec = state.jobs.by_id[live.lease.job_id].spec
    if not (live.learned and spec.model):
        return live.learned
    place = len(live.lease.workers), live.worker_type
    return live.plan == state.knowledge.plan_of(spec.type_key, *place)


def shares_workers(state: ControlState, live: LiveLease) -> bool:
    """Return whether a job shares its workers with another job."""
    row = state.engine.jobs.row_of(live.lease.job_number)
    return row == NONE or int(state.engine.jobs["pair"][row]) != NONE
