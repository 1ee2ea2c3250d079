"""Takes measurements of jobs with a changeable batch into the knowledge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.leases.progress import shares_workers
from scheduler.domain.throughputs.knowledge import Part

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.protocol.learning import Learning


def take_learning(state: ControlState, live: LiveLease, told: Learning) -> None:
    """Take in a job's measurements; a report that repeats the last one changes nothing.

    A step time counts if it was measured on as many workers as the lease holds. It does not count
    if another job shares these workers, or if the lease has a plan.
    """
    spec = state.jobs.by_id[live.lease.job_id].spec
    if not spec.batch or not state.settings.learning.learn or told == live.learning:
        return
    before, live.learning = live.learning, told
    known = state.knowledge
    if told.noise_scale_samples is not None:
        noise = told.noise_scale_samples
        state.batches_due |= known.observe_noise(live.lease.job_id, noise)
    if not live.worker_type or live.plan or shares_workers(state, live):
        return
    held = len(live.lease.workers)
    seen = () if before is None else before.step_times
    for workers, per_worker, pass_s, last_pass_s in told.step_times:
        if workers != held or (workers, per_worker, pass_s, last_pass_s) in seen:
            continue
        state.batches_due |= known.observe_step_time(
            spec.type_key,
            live.worker_type,
            nodes=len(live.members),
            workers=workers,
            per_worker=per_worker,
            pass_s=pass_s,
            last_pass_s=last_pass_s,
        )


def keep_learner(state: ControlState, transaction: Transaction) -> None:
    """Store the profile of a job with a changeable batch, which an older job may share.

    The next leader finds the job by that profile. Its rates differ: its noise is not known yet.
    """
    state.table_due = True
    transaction.set(Part.PROFILES.value, state.knowledge.dump(Part.PROFILES))
