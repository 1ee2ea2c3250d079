"""What an operator may set about decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.control.facts.requests import PolicyChoice
from scheduler.domain.throughputs.profiling import Profiling
from scheduler.engine.settings import EngineSettings
from scheduler.errors import ParameterError
from scheduler.protocol.bounds import LARGEST_UID, LEAST_UID

if TYPE_CHECKING:
    from collections.abc import Mapping

#: systemd leaves these numbers unused: https://systemd.io/UIDS-GIDS
FIRST_UID = 1_900_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSettings:
    """When a job with measured GPUs counts as idle, and what follows.

    Attributes:
        use_percent: it is idle as long as its GPUs are used for less than this share of the time.
        after_s: if it is idle for so long, its history says so; 0: never.
        stop_after_s: if it is idle for so long, it is ended as failed; 0: never.
        exempt_projects: projects with jobs that are reported as idle, but never stopped.
    """

    use_percent: float = 5.0
    after_s: float = 900.0
    stop_after_s: float = 0.0
    exempt_projects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Settings of what decides.

    Attributes:
        engine: of the round mechanism.
        policy: in force until a user switches it; after that the stored choice wins.
        notice_s: from a job's notice to SIGTERM, if the job sets no other time.
        grace_s: from SIGTERM to SIGKILL, if the job sets no other time.
        margin_s: after a lease's deadline, until its workers are granted again if their release is
            not confirmed.
        node_timeout_s: a node that is silent for so long is lost.
        start_timeout_s: a lease that does not run after so long is revoked; longer than what agents
            allow for the steps of a launch.
        tick_s: longest time between two looks at nodes, leases and limits.
        learn: whether measured throughputs replace declared and estimated ones.
        measure_least_s: shortest stretch of running that counts as a measurement.
        relearn_tolerance: smallest relative change of a throughput that is passed to the engine.
        profiling: how far above its estimate a policy sees an unmeasured worker type.
        prepull_images: images at most that a node pulls before a job needs them.
        first_uid: of the uids under which owners' jobs run if agents keep them apart.
        uids: how many there are.
        quarantine_after: a node is quarantined if so many jobs fail on it; 0 for never.
        quarantine_share: share of the workers of a type that may be kept out so at once.
        idle: when a job counts as idle, and whether it is stopped then.
        prices: worker type -> USD per hour of one worker, for budgets; 0 where missing.
        refuse_unfit: whether a job that no node known so far could ever run is refused.
    """

    engine: EngineSettings = field(
        default_factory=lambda: EngineSettings(refuse_what_cannot_fit=False)
    )
    policy: PolicyChoice = field(default_factory=lambda: PolicyChoice(name="max_min_fairness"))
    notice_s: float = 5.0
    grace_s: float = 5.0
    margin_s: float = 2.0
    node_timeout_s: float = 60.0
    start_timeout_s: float = 3600.0
    tick_s: float = 1.0
    learn: bool = True
    measure_least_s: float = 5.0
    relearn_tolerance: float = 0.05
    profiling: Profiling = field(default_factory=Profiling)
    prepull_images: int = 0
    first_uid: int = FIRST_UID
    uids: int = 65_536
    refuse_unfit: bool = True
    quarantine_after: int = 3
    quarantine_share: float = 0.25
    idle: IdleSettings = field(default_factory=IdleSettings)
    prices: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Refuse times that cannot be."""
        names = (
            "margin_s",
            "node_timeout_s",
            "start_timeout_s",
            "tick_s",
            "measure_least_s",
            "relearn_tolerance",
        )
        for name in names:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name} is {value!r}; it must be > 0")
        if not (self.first_uid >= LEAST_UID and 0 < self.uids <= LARGEST_UID - self.first_uid):
            raise ParameterError(
                f"first_uid is {self.first_uid} and uids {self.uids}; all uids must lie from "
                f"{LEAST_UID} to {LARGEST_UID}"
            )
