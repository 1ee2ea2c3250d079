"""Events of leases: progress and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.facts.reasons import BITS, WaitReason
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.engine.events.on_reservations import end_job
from scheduler.engine.rounds.decision_reasons import CausesOfGrants
from scheduler.engine.state.preemption_protection import (
    WORTH_TELLING,
    note_lost_work,
    note_saved_work,
    patience_s,
)
from scheduler.engine.state.state import RETRY
from scheduler.engine.tables.jobs import NONE, RUNNING, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.domain.arrays import IntArray
    from scheduler.domain.lease import Lease
    from scheduler.engine.state.state import State


#: A job that has run this long under a lease has made progress, even if it saves nothing; one that
#: ends sooner has failed at once.
GOT_ON_S: Final = 60.0
#: The worker-seconds of this many completed jobs are kept.
MOST_COMPLETED: Final = 512
#: Most doublings of the wait after losses or failures in a row.
DOUBLINGS: Final = 4
#: A job avoids a node on which it failed for this many times the wait before its next try. Waits
#: double, so its next three tries go to other nodes.
AWAY: Final = 8.0


def _progress(state: State, event: ev.ProgressReported) -> None:
    jobs = state.jobs
    rows = state.rows_under(event.lease_ids)
    known = rows != NONE
    rows = rows[known]
    done = np.minimum(event.steps_done[known], jobs["total_steps"][rows])
    # A late report of the same lease, or a report of nan, does not lower the steps.
    jobs["steps_done"][rows] = np.fmax(jobs["steps_done"][rows], done)


def _ended(state: State, event: ev.LeaseEnded) -> None:
    lease = state.ending = state.book.leases.get(event.lease_id)
    if lease is None:
        return  # a repeated report
    revoked = event.lease_id in state.book.stopping
    ready, _ = state.book.end((event.lease_id,))
    row = state.jobs.row_of(lease.job_number)
    state.assigner.leave_pair(row)
    record = state.jobs.record(row)
    held_s = state.now_s - lease.start_s
    record["held_s"] += held_s
    ran_s = held_s if event.ran_s is None else event.ran_s
    if event.steps_done > record["steps_safe"] or ran_s >= GOT_ON_S:
        record["losses"] = record["deaths"] = 0
    told_to = revoked and event.reason is EndReason.RELEASED
    told_to &= event.lease_id not in state.after_end
    _heed_what_was_kept(state, lease.job_id, row, event.steps_done, ran_s if told_to else 0.0)
    record["steps_done"] = record["steps_safe"] = min(event.steps_done, record["total_steps"])
    record["lease"] = record["configuration"] = record["pair"] = NONE
    record["charged"] = record["kept"] = 0
    record["workers_held"] = 0.0
    if record["status"] == RUNNING:
        record["status"] = WAITING
    state.rows_moved()
    # A job on cordoned workers, or on its own reservation, competed for nothing; now it does.
    fleet = state.fleet
    apart = fleet.any_cordoned and fleet.cordoned[list(lease.workers)].any()
    if apart or (fleet.any_set_aside and fleet.set_aside[list(lease.workers)].any()):
        state.mark_dirty(serve_idle=False)
    if event.unstarted or state.assigner.avoidance:
        _heed_start(state, event, lease)
    # Workers that are given back in the ordinary course of a round need no note.
    ordinary = revoked and event.reason is EndReason.RELEASED
    told = event.reason is EndReason.COMPLETED or ordinary  # ``_after`` notes a completion
    if not told or event.lease_id in state.after_end:
        state.mark_dirty(ask_policy=False)
    state.serve_due = True
    _after(state, event, lease, row, preempted=revoked)
    assert state.round_end_s is not None
    if state.round_end_s <= state.now_s:
        return  # the next round is due and makes new plans
    ready = [plan for plan in ready if plan.number in state.book.planned]
    if ready:
        state.commands.append(state.assigner.grants(ready, end_s=state.round_end_s))
        state.rows_moved()


def _released(state: State, event: ev.LeasesReleased) -> None:
    """Handle releases as columns if all are preemptions in the ordinary course of a round."""
    rows = state.rows_under(event.lease_ids)
    lease_ids = event.lease_ids.tolist()
    if not _ordinary(state, lease_ids, rows):
        for lease_id, steps_done in zip(lease_ids, event.steps_done.tolist(), strict=True):
            end = ev.LeaseEnded(lease_id=lease_id, reason=EndReason.RELEASED, steps_done=steps_done)
            state.event, state.told = end, None
            _ended(state, end)
        return
    jobs, book = state.jobs, state.book
    for i in (jobs["losses"][rows] + jobs["deaths"][rows]).nonzero()[0].tolist():
        ran_s = state.now_s - book.start_s_of(lease_ids[i])
        if event.steps_done[i] > jobs["steps_safe"][rows[i]] or ran_s >= GOT_ON_S:
            jobs["losses"][rows[i]] = jobs["deaths"][rows[i]] = 0
    for i in ((jobs["saves"][rows] == 0) | (jobs["wasted"][rows] > 0)).nonzero()[0].tolist():
        ran_s = state.now_s - book.start_s_of(lease_ids[i])
        row, steps_done = int(rows[i]), float(event.steps_done[i])
        job_id = jobs.job_of[int(jobs["number"][row])].job_id
        _heed_what_was_kept(state, job_id, row, steps_done, ran_s)
    jobs["held_s"][rows] += state.now_s - np.array([book.start_s_of(one) for one in lease_ids])
    done = np.minimum(event.steps_done, jobs["total_steps"][rows])
    jobs["steps_done"][rows] = done
    jobs["steps_safe"][rows] = done
    jobs["status"][rows] = WAITING
    jobs["lease"][rows] = NONE
    jobs["configuration"][rows] = NONE
    jobs["charged"][rows] = 0
    jobs["kept"][rows] = 0
    jobs["workers_held"][rows] = 0.0
    ready, last = book.end(lease_ids)
    assert state.round_end_s is not None
    if state.round_end_s <= state.now_s:
        ready, last = [], []  # the next round is due and makes new plans
    names = tuple([jobs.job_of[number].job_id for number in jobs["number"][rows].tolist()])
    state.commands.append(
        do.HandOver(
            ended=event.lease_ids,
            job_ids=names,
            at_s=state.now_s,
            leases=state.assigner.grant(ready, end_s=state.round_end_s),
            waited_for=np.array(last, dtype=np.int64),
            causes=CausesOfGrants(ready),
        )
    )
    state.rows_moved()
    state.serve_due = True


def _ordinary(state: State, lease_ids: list[int], rows: IntArray) -> bool:
    """Return whether all ends are ordinary: leases of running jobs, revoked for a round only."""
    if state.after_end or state.assigner.avoidance or state.fleet.any_cordoned:
        return False
    if state.fleet.any_set_aside:
        return False
    if NONE in rows.tolist() or not state.book.stopping.issuperset(lease_ids):
        return False
    jobs = state.jobs
    pairs, statuses = set(jobs["pair"][rows].tolist()), set(jobs["status"][rows].tolist())
    return pairs <= {NONE} and statuses <= {RUNNING}


def _heed_what_was_kept(
    state: State, job_id: str, row: int, steps_done: float, ran_s: float
) -> None:
    """Note whether a job has lost its work with a lease; call it before its steps are stored.

    Args:
        state: of the engine.
        job_id: the job.
        row: its row.
        steps_done: steps that outlive the lease.
        ran_s: seconds of a lease that was revoked; 0 for one that ended otherwise.
    """
    jobs = state.jobs
    if steps_done > jobs["steps_safe"][row]:
        note_saved_work(jobs, np.array([row]))
    elif ran_s > 0 and not jobs["saves"][row]:
        note_lost_work(jobs, row, ran_s=ran_s)
        losses, lost_s = int(jobs["wasted"][row]), float(jobs["lost_s"][row])
        if losses >= WORTH_TELLING:
            left_s = patience_s(jobs["lost_s"][[row]], state.settings)
            state.commands.append(
                do.RecordEvent(
                    kind="job_keeps_nothing",
                    subject=job_id,
                    at_s=state.now_s,
                    cause=Cause(fact=FactKind.LEASE_ENDED, subject=job_id),
                    data={
                        "times": losses,
                        "lost_s": lost_s,
                        "left_running_s": float(left_s[0]),
                    },
                )
            )


def _saved(state: State, event: ev.WorkSaved) -> None:
    rows = state.rows_under(event.lease_ids)
    note_saved_work(state.jobs, rows[rows != NONE])


def _heed_start(state: State, event: ev.LeaseEnded, lease: Lease) -> None:
    """Let a job avoid for a while the nodes on which it could not start."""
    avoidance, number = state.assigner.avoidance, lease.job_number
    first_s = state.settings.avoid_node_s
    unstarted = set(event.unstarted).intersection(lease.workers) if event.unstarted else set()
    if not unstarted or not first_s:
        if event.reason not in {EndReason.LOST, EndReason.FAILED}:
            avoidance.forgive(number, lease.workers)
        return
    for node, times, wait_s in avoidance.avoid(
        number, unstarted, now_s=state.now_s, first_s=first_s
    ):
        state.record("job_avoids_node", lease.job_id, node=node, times=times, wait_s=wait_s)
    state.assigner.drop_plan(number)
    set_retry_timer(state)


def _after(state: State, event: ev.LeaseEnded, lease: Lease, row: int, *, preempted: bool) -> None:
    """End, retry or requeue a job after the end of its lease."""
    wish = state.after_end.pop(event.lease_id, None)
    if event.reason is EndReason.COMPLETED:
        took, before = state.jobs["attained_worker_s"][[row]], state.completed_worker_s
        known = took if before is None else np.concatenate((before, took))[-MOST_COMPLETED:]
        state.completed_worker_s = known
        end_job(state, row, "job_completed")
    elif wish == RevokeReason.CANCEL:
        end_job(state, row, "job_cancelled")
    elif event.reason is EndReason.FAILED:
        _failed(state, row, lease, event.failed)
    elif event.reason is EndReason.LOST and event.unstarted and state.settings.avoid_node_s:
        # It avoids the nodes, longer each time, and may start on other nodes at once.
        state.record("job_interrupted", lease.job_id, lease=lease.lease_id)
    elif event.reason is EndReason.LOST:
        _back_off_from_loss(state, row, lease)
    elif event.left:
        _back_off_from_loss(state, row, lease, left=True)
    elif preempted and wish is None:
        state.commands.append(do.preempted(lease.job_id, lease.lease_id, state.now_s))


def _failed(state: State, row: int, lease: Lease, failed: Sequence[int]) -> None:
    jobs = state.jobs
    if _is_forgiven(state, row):
        jobs["failures"][row] = 0
    jobs["failures"][row] += 1
    jobs["failed_held_s"][row] = jobs["held_s"][row]
    jobs["failed_steps"][row] = jobs["steps_safe"][row]
    jobs["losses"][row] = 0
    failures = int(jobs["failures"][row])
    if failures > jobs.job_of[lease.job_number].max_failures:
        end_job(state, row, "job_failed", failures=failures)
        return
    wait_s = failure_wait_s(state, failures)
    if failed and state.settings.avoid_node_s:
        _look_elsewhere(state, row, lease, failed, wait_s)
    _back_off(state, row, lease, wait_s)
    state.record("job_retried", lease.job_id, failures=failures, wait_s=wait_s)


def _is_forgiven(state: State, row: int) -> bool:
    """Return whether a job's earlier failures count no more, since it has made progress since.

    Time alone is no progress: a job that fails each time at the same point would never end.
    """
    jobs, least_s = state.jobs, state.settings.forgive_failures_s
    worked_s = float(jobs["held_s"][row] - jobs["failed_held_s"][row])
    return worked_s >= least_s and bool(jobs["steps_safe"][row] > jobs["failed_steps"][row])


def _look_elsewhere(
    state: State, row: int, lease: Lease, failed: Sequence[int], wait_s: float
) -> None:
    """Let the next tries of a job go to nodes on which it has not failed.

    If there are no such nodes, it avoids only the nodes of this failure. If it can run only there,
    it avoids no node.
    """
    avoidance, number = state.assigner.avoidance, lease.job_number
    workers = set(failed).intersection(lease.workers)
    for_s = wait_s + max(state.settings.avoid_node_s, AWAY * wait_s)
    for _ in range(2):
        avoided = avoidance.avoid(number, workers, now_s=state.now_s, first_s=for_s)
        mask = avoidance.mask((number,), state.now_s)
        if mask is None or state.assigner.can_run(row, state.fleet.grantable & ~mask):
            break
        avoidance.forget(number)
    else:
        return
    for node, times, away_s in avoided:
        state.record("job_avoids_node", lease.job_id, node=node, times=times, wait_s=away_s)


def failure_wait_s(state: State, failures: int) -> float:
    """Return how long a job waits after ``failures`` (>= 1) of its own."""
    return state.settings.retry_backoff_s * 2.0 ** min(failures - 1, DOUBLINGS)


def _back_off_from_loss(state: State, row: int, lease: Lease, *, left: bool = False) -> None:
    """Back off a job that is lost, or leaves at once, repeatedly; the first time costs nothing."""
    data: dict[str, Any] = {"lease": lease.lease_id} | ({"left": True} if left else {})
    state.jobs["losses"][row] += 1
    losses = int(state.jobs["losses"][row])
    if losses > 1:
        wait_s = state.settings.retry_backoff_s * 2.0 ** min(losses - 2, DOUBLINGS)
        _back_off(state, row, lease, wait_s)
        data |= {"losses": losses, "wait_s": wait_s}
    state.record("job_interrupted", lease.job_id, **data)


def _back_off(state: State, row: int, lease: Lease, wait_s: float) -> None:
    state.jobs["retry_at_s"][row] = state.now_s + wait_s
    state.jobs["wait_reasons"][row] = BITS[WaitReason.BACKOFF]
    state.assigner.drop_plan(lease.job_number)
    state.mark_dirty(serve_idle=False)
    set_retry_timer(state)


def set_retry_timer(state: State) -> None:
    """Set the timer for the next time at which a job may be retried."""
    due = state.jobs["retry_at_s"]
    due_s = float(due[due > state.now_s].min(initial=np.inf))
    due_s = min(due_s, state.assigner.avoidance.next_s(state.now_s))
    if due_s < np.inf:
        state.set_timer(RETRY, due_s)


def _skipped(state: State, event: ev.LeasesSkipped) -> None:
    state.assigner.next_lease = max(state.assigner.next_lease, event.last)


HANDLERS: Final[dict[type, Callable[[State, Any], None]]] = {
    ev.ProgressReported: _progress,
    ev.LeasesSkipped: _skipped,
    ev.WorkSaved: _saved,
    ev.LeaseEnded: _ended,
    ev.LeasesReleased: _released,
}
