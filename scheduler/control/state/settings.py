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
from scheduler.operator_settings import (
    IdleSettings,
    LearningSettings,
    LeaseSettings,
    UidSettings,
    check_ranges,
)
from scheduler.protocol.bounds import LARGEST_UID, LEAST_UID

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class ControlSettings(LeaseSettings, UidSettings):
    """Settings of control: those of leases and uids, and these.

    Attributes:
        engine: of the round mechanism.
        policy: in force until a user switches it; after that the stored choice wins.
        tick_s: longest time between two looks at nodes, leases and limits.
        learning: from what measured throughputs follow.
        profiling: how far above its estimate a policy sees an unmeasured worker type.
        prepull_images: images at most that a node pulls before a job needs them.
        idle: when a job counts as idle, and whether it is stopped then.
        prices: worker type -> USD per hour of one worker, for budgets; 0 where missing.
        refuse_unfit: whether a job that no node known so far could ever run is refused.
    """

    engine: EngineSettings = field(
        default_factory=lambda: EngineSettings(refuse_what_cannot_fit=False)
    )
    policy: PolicyChoice = field(default_factory=lambda: PolicyChoice(name="max_min_fairness"))
    tick_s: float = 1.0
    learning: LearningSettings = field(default_factory=LearningSettings)
    profiling: Profiling = field(default_factory=Profiling)
    prepull_images: int = 0
    refuse_unfit: bool = True
    idle: IdleSettings = field(default_factory=IdleSettings)
    prices: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        for settings in (self, self.learning, self.idle):
            check_ranges(settings)
        if not (math.isfinite(self.tick_s) and self.tick_s > 0):
            raise ParameterError(f"tick_s is {self.tick_s!r}; it must be > 0")
        if self.first_uid + self.uids > LARGEST_UID:
            raise ParameterError(
                f"first_uid is {self.first_uid} and uids {self.uids}; all uids must lie from "
                f"{LEAST_UID} to {LARGEST_UID}"
            )
