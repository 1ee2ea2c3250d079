"""Why a lease's processes ended, from the supervisor's file. Pure."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from scheduler.domain.lease_life import MEMORY_ERROR, EndReason, words_of_code
from scheduler.protocol.desired import LEFT_EARLY

if TYPE_CHECKING:
    from collections.abc import Mapping

_KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}


def classify_ending(
    ending: Mapping[str, object] | None,
    *,
    noticed: bool,
    unwanted: bool,
    steps_done: int,
    total_steps: int | None,
) -> tuple[EndReason, str]:
    """Return why it ended, and a message for people.

    Once SIGTERM was sent because the lease ends, nothing that the job does is its failure.

    Args:
        ending: the contents of ``exit.json``; None if the supervisor itself vanished.
        noticed: the job had a notice to leave.
        unwanted: it was stopped because the lease was no longer desired.
        steps_done: checkpointed steps.
        total_steps: steps of the whole job; None if unknown.
    """
    if ending is None:
        return EndReason.LOST, "the processes vanished without a trace"
    if ending["error"]:
        return EndReason.FAILED, str(ending["error"])
    code = ending["code"]
    assert isinstance(code, int)
    preempted = bool(ending["terminated"] or ending["expired"])
    complete = total_steps is not None and steps_done >= total_steps
    # Exit code 0 means completed if the job reports no steps and was not preempted. A job that
    # reports steps and exits with 0 after a notice was preempted.
    unasked = not preempted and (total_steps is None or not noticed)
    if code == 0 and (complete or unasked):
        return EndReason.COMPLETED, ""
    if preempted:
        by_force = "it did not leave in time and was killed" if ending["killed"] else ""
        return (EndReason.CANCELLED if unwanted else EndReason.RELEASED), by_force
    if code in {0, LEFT_EARLY}:
        return EndReason.RELEASED, ""
    return _failure(code, ending)


def _failure(code: int, ending: Mapping[str, object]) -> tuple[EndReason, str]:
    kills = ending["oom_kills"]
    if kills and ending.get("oom_own"):
        return EndReason.OOM, "killed by the kernel at the lease's limit of host memory"
    if code in _KILLED and kills != 0 and not ending["killed"]:
        seen = "the kernel counted it" if kills else "guessed from SIGKILL, no counter is visible"
        return EndReason.OOM, f"killed for lack of host memory ({seen})"
    if ending["memory_error"]:
        return EndReason.OOM, MEMORY_ERROR
    return EndReason.FAILED, words_of_code(code)
