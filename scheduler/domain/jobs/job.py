"""Jobs, as the engine and the policies see them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    #: What a change of workers costs: seconds on any workers, and on some, see ``restart_in``.
    Restarts: TypeAlias = tuple[float, Mapping[str, float]]


#: A job that counts no steps, or has an unknown length, is never taken for more complete.
ALMOST_DONE = 0.99
#: No cluster has more workers than this.
LARGEST_GANG = 1_000_000


def counts_between(least: int, most: int) -> tuple[int, ...]:
    """Return the worker counts of a job that runs at any from ``least`` to ``most``, ascending.

    They are ``least`` doubled again and again, and ``most`` itself: a policy looks at each, and
    between a count and its double little is to be gained.
    """
    counts = [least]
    while 2 * counts[-1] < most:
        counts.append(2 * counts[-1])
    return tuple(counts) if counts[-1] == most else (*counts, most)


class JobStatus(enum.StrEnum):
    """The states of a job."""

    WAITING = "waiting"  #: admitted, holds no lease
    RUNNING = "running"  #: holds a lease
    HELD = "held"  #: kept from running until released
    COMPLETED = "completed"  #: all steps done
    CANCELLED = "cancelled"  #: ended on request
    FAILED = "failed"  #: its own failures used up its retries
    REFUSED = "refused"  #: can never run on this cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One submitted training run, or another program with an end.

    Attributes:
        job_id: unique name.
        job_type: key into the throughput table (model and batch size).
        total_steps: steps until the job is complete.
        scale_factor: workers that the job holds at once (its gang).
        arrival_s: when it was submitted, seconds since the start of the run.
        weight: importance that the user gives it; a job of weight 2 is due twice the share.
        deadline_s: absolute time by which it should be complete, or None.
        entity: the team or user that the hierarchical policy accounts it to.
        max_failures: failures of its own that are retried before the job counts as failed.
        restart_s: seconds of work that a change of workers costs it (checkpoint, launch, restore).
        restarts: the same on some workers only: ``v100`` or ``v100:8`` -> seconds, see
            ``restart_in``.
        attempts_before: attempts of an earlier life under the same name; its own are counted on.
        steps_before: steps that were done, and are safe, in that life.
        preemptible: whether other jobs may have its workers before it is done. If not, it starts
            within its entity's share, or on workers that no other job wants.
        max_run_time_s: for which it may hold workers; infinity for any time. The engine's caller
            enforces it.
        min_run_time_s: for which a lease is not taken back for another job.
        checkpoints: whether it is certain that it saves its work when it has to leave. The service
            never assumes it; it reads the checkpoint of each job.
        project: its project, for quotas; empty for no project.
        owner: its owner, for quotas of users.
    """

    #: Fields of earlier releases that stored jobs may have; nothing reads them.
    DROPPED_FIELDS: ClassVar = frozenset({"labels", "scale_factors", "worker_types", "mixed_gangs"})

    job_id: str
    job_type: str
    total_steps: float
    scale_factor: int = 1
    arrival_s: float = 0.0
    weight: float = 1.0
    deadline_s: float | None = None
    entity: str = ""
    max_failures: int = 3
    restart_s: float = 0.0
    attempts_before: int = 0
    steps_before: float = 0.0
    preemptible: bool = True
    min_run_time_s: float = 0.0
    max_run_time_s: float = math.inf
    checkpoints: bool = True
    project: str = ""
    owner: str = ""
    restarts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def usual_restart_s(self) -> float:
        """What a change of workers costs it if it is not known which workers it gets."""
        return self.restart_s or max(self.restarts.values(), default=0.0)

    def __post_init__(self) -> None:
        """Refuse values that no job can have, naming field and value."""
        _require(bool(self.job_id), "job_id", self.job_id, "must not be empty")
        _require(_positive(self.total_steps), "total_steps", self.total_steps, "must be > 0")
        _require(
            1 <= self.scale_factor <= LARGEST_GANG,
            "scale_factor",
            self.scale_factor,
            f"must be >= 1 and at most {LARGEST_GANG}",
        )
        _require(
            math.isfinite(self.arrival_s) and self.arrival_s >= 0,
            "arrival_s",
            self.arrival_s,
            "must be >= 0",
        )
        _require(_positive(self.weight), "weight", self.weight, "must be > 0")
        passed = self.deadline_s is None or not math.isnan(self.deadline_s)
        _require(passed, "deadline_s", self.deadline_s, "must be a time, or be left out")
        _require(self.max_failures >= 0, "max_failures", self.max_failures, "must be >= 0")
        _require(self.restart_s >= 0, "restart_s", self.restart_s, "must be >= 0")
        for workers, seconds in self.restarts.items():
            name = f"restarts['{workers}']"
            _require(is_seconds(seconds), name, seconds, "must be a number of seconds >= 0")
        _require(
            math.isfinite(self.min_run_time_s) and self.min_run_time_s >= 0,
            "min_run_time_s",
            self.min_run_time_s,
            "must be >= 0",
        )
        _require(self.max_run_time_s > 0, "max_run_time_s", self.max_run_time_s, "must be > 0")
        before = self.attempts_before
        _require(before >= 0, "attempts_before", before, "must be >= 0")
        _require(
            0 <= self.steps_before <= self.total_steps,
            "steps_before",
            self.steps_before,
            f"must be >= 0 and at most total_steps, {self.total_steps}",
        )


def is_seconds(value: object) -> bool:
    """Return whether a value is a finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def restart_in(
    restart_s: float, restarts: Mapping[str, float], worker_type: str, count: int
) -> float:
    """Return the seconds of work that a change to some workers costs a job.

    Args:
        restart_s: the cost on workers that ``restarts`` does not name.
        restarts: ``v100:8`` (eight of a type) or ``v100`` (any number of it) -> seconds; the first
            counts before the second.
        worker_type: of the workers.
        count: how many there are.
    """
    of_type = restarts.get(worker_type, restart_s)
    return restarts.get(f"{worker_type}:{count}", of_type)


def type_in(workers: str, worker_types: Collection[str]) -> str:
    """Return the worker type in a key of ``restarts``; the key itself if it has no count.

    Args:
        workers: ``v100:8`` or ``v100``.
        worker_types: the known ones; their names may have colons.
    """
    worker_type, colon, count = workers.rpartition(":")
    has_count = colon and count.isdecimal() and workers not in worker_types
    return worker_type if has_count else workers


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise InputError(f"job field '{name}' has the value {value!r}: it {rule}")
