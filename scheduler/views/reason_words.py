"""Reasons of waits and ends, in words. The REST interface has each as one identifier."""

from __future__ import annotations

from typing import Final

#: Reasons of an end for which the identifier alone is not clear.
_ENDS: Final = {
    "time_limit": "stopped by --max-run-time",
    "idle": "its GPUs idled for too long",
    "dependency_failed": "a job that it depends on failed",
    "too_many_node_fault": "too many node faults",
    "too_many_image": "too many failed pulls of its image",
    "too_many_out_of_memory": "out of memory too often",
    "too_many_preemption": "too many preemptions",
}
#: Why a job waits.
WAITS: Final = {
    "held": "a user holds it",
    "dependency": "jobs that it depends on have not completed",
    "quota": "its project uses all that it may",
    "budget": "its project's budget of the month is used up",
    "no_throughput": "it runs on none of the cluster's worker types",
    "no_workers": "the cluster has no workers of its types",
    "too_large": "it needs more workers than the cluster has",
    "workers_out": "too few workers are in service",
    "reservation": "workers are kept for others",
    "backoff": "it is tried again later",
    "stopping": "its last lease is coming to an end",
    "no_allocation": "the policy has not answered since it came",
    "no_share": "the policy gives it no time now",
    "idling": "the policy keeps workers idle on purpose",
    "placement": "no free workers fit it at the moment",
    "turn": "other jobs go first",
}


def reason_in_words(reason: str | None) -> str:
    """Return a reason in a few words, as in a table; empty for none."""
    return _ENDS.get(reason or "", (reason or "").replace("_", " "))


def wait_in_words(reason: str) -> str:
    """Return why a job waits, as a sentence; a newer scheduler may have other reasons."""
    return WAITS.get(reason, reason.replace("_", " "))
