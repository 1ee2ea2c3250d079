"""The records of a soak test's jobs, and checks of them.

Nothing here comes from the scheduler or an agent: every process wrote its own lines, so these
checks cannot share a mistake with what they check.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something that a process did.

    Attributes:
        at_s: on the clock that all processes of the machine share and that never stops.
        kind: ``start``, ``load``, ``step``, ``save`` (about to), or ``exit``.
        step: steps of the job that are done then.
        node: of the process.
        worker: local index of its worker.
        rank: in its gang.
        lease: that it runs under.
        attempt: running number of the lease among the job's.
        token: fencing token of the lease.
        pid: of the process.
    """

    at_s: float
    kind: str
    step: int
    node: str
    worker: int
    rank: int
    lease: int
    attempt: int
    token: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process, from its first line to its last.

    Attributes:
        job: its job.
        lines: in order.
    """

    job: str
    lines: tuple[Line, ...]

    @property
    def first(self) -> Line:
        """The start."""
        return self.lines[0]

    @property
    def begin_s(self) -> float:
        """When it certainly ran."""
        return self.first.at_s

    @property
    def end_s(self) -> float:
        """Until when it certainly ran."""
        return self.lines[-1].at_s

    @property
    def began_at(self) -> int:
        """Steps that it found done."""
        return next((line.step for line in self.lines if line.kind == "load"), 0)

    @property
    def steps(self) -> list[int]:
        """Steps that it did, counted or not."""
        return [line.step for line in self.lines if line.kind == "step"]

    def __str__(self) -> str:
        first = self.first
        return (
            f"{self.job} lease {first.lease} rank {first.rank} on {first.node}/{first.worker} "
            f"pid {first.pid} from {self.begin_s:.2f} to {self.end_s:.2f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that is known of one job.

    Attributes:
        job: its name.
        total: steps that it had to do.
        runs: its processes, by start.
        ledger: ``(step, token)`` of what counts, from its last checkpoint.
    """

    job: str
    total: int
    runs: tuple[Run, ...]
    ledger: tuple[tuple[int, int], ...]


def read_story(job: str, total: int, folder: Path) -> Story:
    """Read a job's records.

    Args:
        job: its name.
        total: its steps.
        folder: holds ``evidence.jsonl`` and ``checkpoints``.
    """
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    ledger: list[list[int]] = []
    if checkpoints:
        ledger = json.loads((checkpoints[-1] / "ledger.json").read_text())
    evidence = folder / "evidence.jsonl"
    text = evidence.read_text() if evidence.exists() else ""
    return Story(
        job=job,
        total=total,
        runs=runs_of(job, (Line(**json.loads(line)) for line in text.splitlines())),
        ledger=tuple((step, token) for step, token in ledger),
    )


def runs_of(job: str, lines: Iterable[Line]) -> tuple[Run, ...]:
    """Sort a job's lines by process."""
    by_process: dict[tuple[int, int, int], list[Line]] = defaultdict(list)
    for line in lines:
        by_process[line.lease, line.rank, line.pid].append(line)
    runs = (Run(job=job, lines=tuple(its)) for its in by_process.values())
    return tuple(sorted(runs, key=lambda run: run.begin_s))


def check_job(story: Story) -> Iterator[str]:
    """Yield faults of one job's steps and attempts."""
    if [step for step, _ in story.ledger] != list(range(1, story.total + 1)):
        yield f"{story.job}: not each of {story.total} steps counts once: {story.ledger}"
    tokens = [token for _, token in story.ledger]
    if tokens != sorted(tokens):
        yield f"{story.job}: an older attempt counted steps after a younger one: {tokens}"
    yield from _check_starts(story)
    yield from _check_finish(story)
    for one, other in _overlaps(story.runs):
        if one.first.lease != other.first.lease:
            yield f"{story.job}: two attempts at once: {one}; {other}"


def _check_starts(story: Story) -> Iterator[str]:
    """No attempt begins before the counted steps, and every step follows the one before it."""
    counted = 0
    seen: dict[tuple[int, int], int] = {}
    for run in story.runs:
        if any(line.kind == "step" for line in run.lines):
            expected = list(range(run.began_at + 1, run.began_at + 1 + len(run.steps)))
            if run.steps != expected:
                yield f"{run}: its steps are not in order: {run.steps}"
        attempt = run.first.attempt, run.first.rank
        if attempt in seen:
            yield f"{run}: the same rank of the same attempt was started twice"
        seen[attempt] = run.first.pid
        if run.first.rank == 0:
            if run.steps and run.began_at < counted:
                yield f"{run}: begins at {run.began_at} although {counted} steps were counted"
            counted = max(counted, run.began_at)


def _check_finish(story: Story) -> Iterator[str]:
    """The last step is counted by one attempt, and none after that does any."""
    finishers = [r for r in story.runs if r.first.rank == 0 and story.total in r.steps]
    if not finishers:
        yield f"{story.job}: nobody did the last step"
        return
    if story.ledger and finishers[-1].first.token != story.ledger[-1][1]:
        yield f"{story.job}: {story.ledger[-1]} counts the last step, done by {finishers[-1]}"
    # A step may be done twice if the first one was killed before its checkpoint.
    for early in finishers[:-1]:
        if early.lines[-1].kind == "exit":
            yield f"{story.job}: completed twice, the first time by {early}"


def closest_s(stories: Sequence[Story]) -> float:
    """Return the shortest time between two leases of one job, or on one worker."""
    shared: dict[object, list[Run]] = defaultdict(list)
    for story in stories:
        for run in story.runs:
            shared[story.job].append(run)
            shared[run.first.node, run.first.worker].append(run)
    closest = math.inf
    for runs in shared.values():
        ended: dict[int, float] = {}
        for run in sorted(runs, key=lambda run: run.begin_s):
            others = [end_s for lease, end_s in ended.items() if lease != run.first.lease]
            closest = min(closest, run.begin_s - max(others, default=-math.inf))
            ended[run.first.lease] = max(run.end_s, ended.get(run.first.lease, -math.inf))
    return closest


def check_workers(stories: Sequence[Story]) -> Iterator[str]:
    """Yield every two leases that held one worker at the same moment."""
    by_worker: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for story in stories:
        for run in story.runs:
            by_worker[run.first.node, run.first.worker].append(run)
    for worker, runs in sorted(by_worker.items()):
        for one, other in _overlaps(runs):
            if one.first.lease != other.first.lease:
                yield f"{worker[0]}/{worker[1]}: two leases at once: {one}; {other}"


def check_tokens(stories: Sequence[Story]) -> Iterator[str]:
    """Yield leases that several jobs held, and attempts with tokens that do not grow."""
    job_of: dict[int, str] = {}
    for story in stories:
        attempts: dict[int, int] = {}
        for run in story.runs:
            if job_of.setdefault(run.first.lease, story.job) != story.job:
                yield f"{run}: the lease belongs to {job_of[run.first.lease]}, too"
            if attempts.setdefault(run.first.attempt, run.first.token) != run.first.token:
                yield f"{run}: attempt {run.first.attempt} has two tokens"
        tokens = [token for _, token in sorted(attempts.items())]
        if tokens != sorted(set(tokens)):
            yield f"{story.job}: tokens do not grow with attempts: {attempts}"


def check_history(job: str, attempts: Sequence[Any], events: Sequence[Any]) -> Iterator[str]:
    """Yield faults of the scheduler's record of a job's past.

    Args:
        job: its name.
        attempts: as the REST interface lists them.
        events: as above, oldest first.
    """
    kinds = [e for e in events if e["kind"] in {"lease_granted", "lease_ended"}]
    for number, (granted, ended) in enumerate(_pairs(kinds)):
        if ended is None or (granted["kind"], ended["kind"]) != ("lease_granted", "lease_ended"):
            yield f"{job}: the history has a gap at its lease number {number + 1}"
        elif granted["data"]["lease"] != ended["data"]["lease"]:
            yield f"{job}: {granted['data']} is followed by the end of {ended['data']}"
    completed = sum(event["kind"] == "job_completed" for event in events)
    if completed != 1:
        yield f"{job}: the history has {completed} completions"
    numbers = [attempt["attempt"] for attempt in attempts]
    if sorted(numbers) != list(range(1, len(kinds) // 2 + 1)):
        yield f"{job}: attempts are {numbers}, leases granted {len(kinds) // 2}"
    open_ends = [a["attempt"] for a in attempts if a["ended_s"] is None]
    if open_ends:
        yield f"{job}: attempts {open_ends} never ended"


def _pairs(events: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    yield from itertools.zip_longest(events[::2], events[1::2])


def _overlaps(runs: Iterable[Run]) -> Iterator[tuple[Run, Run]]:
    """Yield every two processes that certainly ran at the same moment."""
    going: list[Run] = []
    for run in sorted(runs, key=lambda run: run.begin_s):
        going = [other for other in going if other.end_s > run.begin_s]
        yield from ((other, run) for other in going)
        going.append(run)
