"""The start of an engine run that goes on from another run, or from the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.admission import Admission
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.lease import Lease
    from scheduler.domain.lease_life import EndReason
    from scheduler.engine.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLease:
    """A lease in force at the start of a run.

    Attributes:
        lease: as it was granted.
        steps_done: of its job by now.
        launch_s: seconds until the job makes progress; 0 for one that runs.
        over: (when, why) it ends, if it has been revoked; None if it goes on.
    """

    lease: Lease
    steps_done: float
    launch_s: float = 0.0
    over: tuple[float, EndReason] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beginning:
    """The state of the engine, and the truth about the N jobs of a run.

    Attributes:
        engine: goes on from here.
        admission: decides beside it, over the same engine.
        now_s: the time.
        timers: the engine's.
        held: leases in force, by id.
        total_steps: (N,) steps in all; inf for a job that never ends.
        safe_steps: (N,) steps that outlive a lease so far.
        most_left: (N,) most steps that are kept when a job has to stop.
        most_told: (N,) most steps that are reported to the engine.
        launch_s: (N,) cost of starting on workers.
        notice_s: (N,) how long a job works on after a notice; inf: until its workers are needed.
        pace: (N,) speed of a job relative to the table.
    """

    engine: Engine
    admission: Admission
    now_s: float
    timers: Mapping[str, float]
    held: tuple[RunningLease, ...]
    total_steps: FloatArray
    safe_steps: FloatArray
    most_left: FloatArray
    most_told: FloatArray
    launch_s: FloatArray
    notice_s: FloatArray
    pace: FloatArray
