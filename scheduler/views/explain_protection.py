"""Texts: the work that preemptions cost a job, and why it is not preempted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.control.leases.launches import launching_s
from scheduler.engine.state.preemption_protection import WORTH, Protection, patience_s
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.view import PublishedState

_GOES_ON: Mapping[Protection, str] = {
    Protection.LEAST_TIME: "; it keeps its workers until it has run for {least} s",
    Protection.LAUNCHED: (
        "; it keeps its workers until it has run for {worth} s, since its launch takes {launch} s"
    ),
    Protection.TO_ITS_END: "; it keeps its workers until it ends, since it is not preemptible",
    Protection.NO_ROOM: (
        "; it is not preemptible, but more runs than the quotas of '{project}' allow, so it may be "
        "preempted"
    ),
}


def goes_on(view: PublishedState, record: JobRecord) -> str:
    """Return why a running job is protected from preemption; empty if it is not."""
    jobs = view.engine.jobs
    number = jobs.number_of.get(record.job_id)
    if number is None:
        return ""
    row, spec = jobs.row_of(number), record.spec
    launch_s = float(jobs.restarts_held(np.array([row]))[0])
    return _GOES_ON.get(Protection(int(jobs["kept"][row])), "").format(
        least=f"{spec.min_run_time_s:.0f}",
        worth=f"{WORTH * launch_s:.0f}",
        launch=f"{launch_s:.0f}",
        project=spec.project,
    )


def launch_words(view: PublishedState, live: LiveLease, *, now_s: float) -> str:
    """Return how long the launch of a lease took, or takes so far; empty if not known."""
    took_s = launching_s(view, live, now_s=now_s)
    if took_s is None:
        return ""
    if live.told is not None:
        return f"; its launch took {took_s:.0f} s"
    spec = view.jobs.by_id[live.lease.job_id].spec
    usual_s = view.knowledge.launch_s(spec.type_key)
    usual = f"; launches of its job type take {usual_s:.0f} s" if usual_s > 0.0 else ""
    return f"; it has reported no step yet, {took_s:.0f} s after it was granted workers{usual}"


def starts_within_share(view: PublishedState, record: JobRecord) -> str:
    """Return that a job waits for room in its entity's share; empty if it does not."""
    if view.engine.jobs.number_of.get(record.job_id) not in view.engine.confined:
        return ""
    return (
        f"; it is not preemptible, so it starts within the share of '{record.spec.account}' (in "
        "whole workers, less those of jobs like it) or on workers that no other job wants; with a "
        f"max_run_time_s of at most {view.engine.settings.patience_s:.0f} it starts in its turn"
    )


def kept_by_others(view: PublishedState) -> str:
    """Return how many jobs keep workers that others may be due; empty if no job does."""
    kept = view.engine.jobs["kept"]
    count = int(((kept != Protection.NOT) & (kept != Protection.NO_ROOM)).sum())
    if not count:
        return ""
    them = "jobs keep their" if count > 1 else "job keeps its"
    return f"; {count} running {them} workers for now, even if others are due"


def loss_in_words(lost_s: float, leases: int) -> str:
    """Return how much work a job has lost since it last saved some, in one lease or several."""
    several = f" in {leases} leases in a row" if leases > 1 else ""
    return f"{lost_s:.0f} s of work{several}"


def lost_work(view: PublishedState, record: JobRecord) -> str:
    """Return how much of a job's work is lost, and how long it is protected therefore."""
    jobs = view.engine.jobs
    number = jobs.number_of.get(record.job_id)
    row = NONE if number is None else jobs.row_of(number)
    times = 0 if row == NONE else int(jobs["wasted"][row])
    if not times:
        return ""
    lost_s = jobs["lost_s"][row]
    left_s = patience_s(np.array([lost_s]), view.engine.settings)
    return (
        f"; it has lost {loss_in_words(lost_s, times)} and may therefore keep "
        f"workers for up to {left_s[0]:.0f} s, as the share of '{record.spec.account}' allows"
    )
