"""The history's part of an explanation: the user that holds a job, and how leases ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.control.leases.launches import LONG_LAUNCHES
from scheduler.control.state.jobs import ENDED
from scheduler.domain.facts.troubles import REMEDIES, Trouble
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason, words_of_code
from scheduler.engine.limits.reservations import RELEASED
from scheduler.store.queries import MAX_LIMIT, HistoryQuery
from scheduler.views.explain import SOMEBODY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.store.protocol import Store
    from scheduler.views.types import Explanation

#: Ends of an attempt that other causes cut short: a job that saves nothing loses its work.
_CUT_SHORT = frozenset({EndReason.RELEASED, EndReason.LOST, EndReason.CANCELLED})


def with_history(
    explanation: Explanation, store: Store, *, keeps_nothing: bool = False
) -> Explanation:
    """Return an explanation with facts from the job's history.

    These are long launch times. For a job that does not run, they are also the user that holds it
    and the end of its last lease.

    Args:
        explanation: without them.
        store: the store of the history.
        keeps_nothing: whether the job saves nothing, so that an early end costs all its work.
    """
    if explanation.status is not JobStatus.RUNNING:
        explanation = last_end(_with_holder(explanation, store), store)
    if explanation.status in ENDED:
        explanation = _with_released(explanation, store)
    explanation = _with_launches(explanation, store)
    return _with_lost_work(explanation, store) if keeps_nothing else explanation


def _with_launches(explanation: Explanation, store: Store) -> Explanation:
    """Add the launches' share of the time of ended leases, if it is large."""
    query = HistoryQuery(
        subject_kind="job",
        subject=explanation.job_id,
        kinds=("lease_ended",),
        descending=True,
        limit=MAX_LIMIT,
    )
    timed = [line.data for line in store.history(query) if "launching_s" in line.data]
    held_s = sum(data["held_s"] for data in timed)
    launching_s = sum(data["launching_s"] for data in timed)
    if launching_s <= LONG_LAUNCHES * held_s:
        return explanation
    said = (
        f"; launches took {launching_s:.0f} of the {held_s:.0f} s of its leases in which they were "
        "timed; longer rounds would reduce that"
    )
    return replace(explanation, message=explanation.message + said)


def _with_lost_work(explanation: Explanation, store: Store) -> Explanation:
    """Add that a job loses its work with every early end, if it has done so before.

    A failure of its own does not count as an early end, and an attempt that never started lost
    nothing.
    """
    query = HistoryQuery(
        subject_kind="job",
        subject=explanation.job_id,
        kinds=("lease_launched", "lease_ended"),
        descending=True,
        limit=MAX_LIMIT,
    )
    lines = store.history(query)
    began = {line.data["lease"] for line in lines if line.kind == "lease_launched"}
    times = sum(
        line.data["reason"] in _CUT_SHORT
        and ("code" not in line.data or line.data["lease"] in began)
        for line in lines
        if line.kind == "lease_ended"
    )
    if not times:
        return explanation
    said = (
        f"; it keeps nothing when it is preempted, and has restarted from zero after {times} "
        f"attempt{'s' if times > 1 else ''}: let it save its state and report that"
    )
    return replace(explanation, message=explanation.message + said)


def _with_released(explanation: Explanation, store: Store) -> Explanation:
    """Add which reservations were released with a job that has ended."""
    query = HistoryQuery(
        subject_kind="job",
        subject=explanation.job_id,
        kinds=(RELEASED,),
        descending=True,
        limit=MAX_LIMIT,
    )
    names = [f"'{line.data['reservation']}'" for line in store.history(query)]
    if not names:
        return explanation
    what = f"reservation{'s' if len(names) > 1 else ''} {', '.join(reversed(names))}"
    said = f"; {what} for it was released" if len(names) == 1 else f"; {what} for it were released"
    return replace(explanation, message=explanation.message + said)


def _with_holder(explanation: Explanation, store: Store) -> Explanation:
    """Add the user that holds a job, and the reason, if a user asked for it after submission."""
    if not explanation.message.startswith(SOMEBODY):
        return explanation
    query = HistoryQuery(
        subject_kind="job",
        subject=explanation.job_id,
        kinds=("hold_requested",),
        descending=True,
        limit=1,
    )
    asked = next(iter(store.history(query)), None)
    if asked is None:
        return explanation
    why = asked.data.get("reason")
    said = f"'{asked.actor}' holds it" + (f": {why}" if why else " and gave no reason")
    return replace(explanation, message=said + explanation.message.removeprefix(SOMEBODY))


def last_end(explanation: Explanation, store: Store) -> Explanation:
    """Return the explanation of a job that does not run with the end of its last lease.

    Adds the end if it was trouble, or if the job failed by itself. The newest line of its history
    on the end of a lease shows that.
    """
    query = HistoryQuery(
        subject_kind="job",
        subject=explanation.job_id,
        kinds=("lease_ended",),
        descending=True,
        limit=1,
    )
    ended = next(iter(store.history(query)), None)
    told = "" if ended is None else ended.data.get("trouble", "")
    if ended is None:
        return explanation
    explanation = replace(explanation, ended=ended.cause)
    if not told or told not in set(Trouble):
        own = ended.data.get("reason") == EndReason.FAILED
        failed = own or explanation.status is JobStatus.FAILED
        return _with_last_words(explanation, ended.data) if failed else explanation
    trouble = Trouble(told)
    said = ": ".join(filter(None, (str(ended.data.get("code", "")), ended.data["message"])))
    unblocks = explanation.unblocks
    if explanation.status is JobStatus.FAILED:
        unblocks = f"{REMEDIES[trouble]}; then {unblocks}" if unblocks else REMEDIES[trouble]
    return replace(
        explanation,
        message=f"{explanation.message}; its last lease ended by trouble ({said or told})",
        unblocks=unblocks,
        trouble=trouble,
    )


def _with_last_words(explanation: Explanation, end: Mapping[str, object]) -> Explanation:
    """Add the agent's message about the end of a failed job's last lease."""
    code = end.get("exit_code")
    said = end.get("message") or ("" if not isinstance(code, int) else words_of_code(code))
    if not said:
        return explanation
    return replace(explanation, message=f"{explanation.message}; its last attempt: {said}")
