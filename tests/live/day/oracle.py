"""Checks of a day, from its history and its leases alone.

The history is what ``leasehold watch --json`` has printed, the leases what ``leasehold job --json``
lists. Nothing here asks the scheduler for reasons.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENDS = {"job_completed", "job_failed", "job_cancelled", "job_refused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job's request.

    Attributes:
        project: the project with its quota.
        workers: how many at once.
        types: on which it may run.
        after: jobs that have to complete before.
        held: whether it is submitted as held, so that a user must release it.
    """

    project: str
    workers: int
    types: frozenset[str]
    after: frozenset[str] = frozenset()
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Idling:
    """A stretch of time in which workers idled although a job could have run on them.

    Attributes:
        worker_type: of the workers.
        from_s: its begin.
        to_s: its end.
        jobs: those that could have run, one or another all the time.
    """

    worker_type: str
    from_s: float
    to_s: float
    jobs: frozenset[str]

    @property
    def length_s(self) -> float:
        """How long it lasted."""
        return self.to_s - self.from_s


@dataclass(slots=True, kw_only=True)
class _Moment:
    """Waiting jobs and held workers, as the history goes on."""

    wanted: Mapping[str, Wanted]
    quotas: Mapping[str, int]
    ready_s: dict[str, float] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    let_in: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    leases: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    capacity: Counter[str] = field(default_factory=Counter)

    def follow(self, event: Mapping[str, Any]) -> None:
        """Take in a line of history."""
        kind, subject, data = event["kind"], event["subject"], event["data"]
        if kind == "node_joined":
            self.capacity.update(data["workers"])
        if subject not in self.wanted:
            return
        if kind == "lease_granted":
            self.leases[data["lease"]] = subject, data["worker_type"], len(data["workers"])
        elif kind == "lease_ended":
            self.leases.pop(data["lease"], None)
        elif kind == "job_retried":
            self.ready_s[subject] = event["at_s"] + data["wait_s"]
            self.let_in.discard(subject)  # it has given its part of the quota back
        elif kind == "job_admitted":
            self.let_in.add(subject)
        elif kind == "job_held":
            self.stopped.add(subject)
        elif kind in {"job_submitted", "job_released", "job_requeued"}:
            self.ready_s.setdefault(subject, event["at_s"])
            self.stopped.discard(subject)
            if kind == "job_submitted" and self.wanted[subject].held:
                self.stopped.add(subject)
        elif kind in ENDS:
            self.ready_s.pop(subject, None)
            self.let_in.discard(subject)
            if kind == "job_completed":
                self.completed.add(subject)

    def could_run(self, now_s: float) -> Iterator[tuple[str, str]]:
        """Yield (worker type, job) for each job that waits beside workers that would do."""
        idle = self.capacity.copy()
        held: Counter[str] = Counter()
        running = set()
        for job, worker_type, count in self.leases.values():
            idle[worker_type] -= count
            held[self.wanted[job].project] += count
            running.add(job)
        asked = Counter[str]()
        for job in self.let_in:
            asked[self.wanted[job].project] += self.wanted[job].workers
        for job, ready_s in self.ready_s.items():
            wanted = self.wanted[job]
            if ready_s > now_s or job in running | self.stopped or wanted.after - self.completed:
                continue
            most = self.quotas.get(wanted.project, math.inf)
            if held[wanted.project] + wanted.workers > most:
                continue
            # If a quota counts admitted jobs, others of the project wait for these.
            if job not in self.let_in and asked[wanted.project] + wanted.workers > most:
                continue
            for worker_type in sorted(wanted.types):
                if idle[worker_type] >= wanted.workers:
                    yield worker_type, job


def idling(
    history: Iterable[Mapping[str, Any]],
    wanted: Mapping[str, Wanted],
    quotas: Mapping[str, int],
) -> list[Idling]:
    """Find every stretch in which workers of a type idled beside a job that could have had them.

    Args:
        history: lines in order, from the start on.
        wanted: job id -> its request.
        quotas: project -> workers that it may hold.

    Returns:
        Stretches of each type, for any waiting job; the longest first.
    """
    moment = _Moment(wanted=wanted, quotas=quotas)
    events = list(history)
    open_: dict[str, tuple[float, set[str]]] = {}
    found: list[Idling] = []

    def look(now_s: float) -> None:
        now: dict[str, set[str]] = {}
        for worker_type, job in moment.could_run(now_s):
            now.setdefault(worker_type, set()).add(job)
        for worker_type in open_.keys() - now.keys():
            from_s, jobs = open_.pop(worker_type)
            if now_s > from_s:
                found.append(
                    Idling(worker_type=worker_type, from_s=from_s, to_s=now_s, jobs=frozenset(jobs))
                )
        for worker_type, jobs in now.items():
            open_.setdefault(worker_type, (now_s, set()))[1].update(jobs)

    for i, event in enumerate(events):
        until_s = events[i + 1]["at_s"] if i + 1 < len(events) else event["at_s"]
        moment.follow(event)
        if until_s > event["at_s"] or i + 1 == len(events):
            look(event["at_s"])
            # A wait after a failure may be over before anything else happens.
            for ready_s in sorted(moment.ready_s.values()):
                if event["at_s"] < ready_s < until_s:
                    look(ready_s)
    last_s = events[-1]["at_s"] if events else 0.0
    found += [
        Idling(worker_type=k, from_s=from_s, to_s=last_s, jobs=frozenset(jobs))
        for k, (from_s, jobs) in open_.items()
        if last_s > from_s
    ]
    return sorted(found, key=lambda stretch: -stretch.length_s)


def leases(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every lease, from when it was granted to when its workers were given back."""
    found: dict[int, dict[str, Any]] = {}
    for event in history:
        data = event["data"]
        if event["kind"] == "lease_granted":
            found[data["lease"]] = {
                "lease_id": data["lease"],
                "job": event["subject"],
                "worker_type": data["worker_type"],
                "workers": data["workers"],
                "start_s": event["at_s"],
            }
        elif event["kind"] == "lease_ended":
            found[data["lease"]]["ended_s"] = event["at_s"]
    return list(found.values())


def held_us(attempts: Iterable[Mapping[str, Any]]) -> int:
    """Return for how many worker-microseconds leases have held workers, as their own times say."""
    return sum(
        (math.floor(a["ended_s"] * 1e6) - math.floor(a["start_s"] * 1e6)) * len(a["workers"])
        for a in attempts
    )


def at_once(attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield every two leases that held one worker at the same moment."""
    until: dict[int, tuple[float, int]] = {}
    for attempt in sorted(attempts, key=lambda a: (a["start_s"], a["lease_id"])):
        for worker in attempt["workers"]:
            end_s, other = until.get(worker, (-math.inf, 0))
            if attempt["start_s"] < end_s:
                yield f"leases {other} and {attempt['lease_id']} held worker {worker} at once"
            until[worker] = attempt["ended_s"], attempt["lease_id"]
