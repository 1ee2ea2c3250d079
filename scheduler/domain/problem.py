"""The allocation problem: what a policy is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.errors import InputError

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.quota import Caps


#: How the jobs of an entity may share among themselves.
INNER_POLICIES = ("fairness", "fifo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A team or user that shares are accounted to.

    Attributes:
        name: as in ``Job.entity``.
        weight: its share relative to the other entities.
        policy: how its jobs share among themselves, ``"fairness"`` or ``"fifo"``.
    """

    name: str
    weight: float = 1.0
    policy: str = "fairness"

    def __post_init__(self) -> None:
        """Refuse a weight that is not positive, and an unknown inner policy."""
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InputError(f"entity '{self.name}': weight is {self.weight!r}; it must be > 0")
        if self.policy not in INNER_POLICIES:
            raise InputError(
                f"entity '{self.name}': policy is '{self.policy}'; "
                f"give one of {', '.join(INNER_POLICIES)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """A snapshot of the jobs that could run now. Arrays must not be written to.

    Letters: N jobs in order of arrival, K worker types, J configurations per job at most.

    Attributes:
        now_s: the time of the snapshot.
        table: configurations by profile.
        capacity: (K,) workers in service.
        cost_usd_per_hour: (K,) price of one worker.
        job_number: (N,) the engine's running number of each job; ascending, so arrival order.
        profile: (N,) row of ``table``.
        scale_factor: (N,) workers per job.
        weight: (N,) importance.
        total_steps: (N,) steps in all.
        remaining_steps: (N,) steps to go, > 0.
        age_s: (N,) seconds since arrival.
        time_left_s: (N,) seconds to the deadline; inf without one; negative when it has passed.
        attained_worker_s: (N,) worker-seconds received so far.
        entity: (N,) index into ``entities``.
        entities: the entities that have jobs, or are configured.
        held: (N,) configuration that the job runs in now, -1 if it waits or shares.
        restart_s: (N,) seconds of work that a change of workers costs.
        round_length_s: workers are granted for so long at a time, so that the time a job receives
            may be behind X by two of them; 0 if that is not known.
        entity_usage_s: (E,) worker-seconds of each of ``entities`` that fade away by the policy's
            half-life; None if it has no half-life.
        caps: quotas that the jobs' allocation must keep; None if no quota can bind.
        completed_worker_s: (C,) worker-seconds that the last completed jobs took in all, the newest
            last; None if no job has completed yet.
        restarts: (N,) times that each job has been started again so far; None if they are not
            counted.
    """

    now_s: float
    table: ConfigurationTable
    capacity: FloatArray
    cost_usd_per_hour: FloatArray
    job_number: IntArray
    profile: IntArray
    scale_factor: IntArray
    weight: FloatArray
    total_steps: FloatArray
    remaining_steps: FloatArray
    age_s: FloatArray
    time_left_s: FloatArray
    attained_worker_s: FloatArray
    entity: IntArray
    entities: tuple[Entity, ...]
    held: IntArray
    restart_s: FloatArray
    round_length_s: float = 0.0
    entity_usage_s: FloatArray | None = None
    caps: Caps | None = None
    restarts: IntArray | None = None
    completed_worker_s: FloatArray | None = None

    @property
    def jobs(self) -> int:
        """N, the number of jobs."""
        return len(self.job_number)

    @property
    def throughput(self) -> FloatArray:
        """(N, J) steps/s of each job in each of its single configurations."""
        return self.table.throughput[self.profile]

    @property
    def demand(self) -> IntArray:
        """(N, J, K) workers that each single configuration holds."""
        return self.table.demand[self.profile]
