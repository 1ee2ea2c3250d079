"""From the configuration to the settings of what decides, in the daemon and in a replay of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.control.facts.requests import PolicyChoice
from scheduler.control.state.settings import ControlSettings
from scheduler.engine.settings import EngineSettings
from scheduler.operator_settings import (
    LearningSettings,
    LeaseSettings,
    RoundSettings,
    UidSettings,
    values_of,
)

if TYPE_CHECKING:
    from leasehold.config.settings import ServerConfig


def policy_choice(config: ServerConfig) -> PolicyChoice:
    """Return the policy of the first start."""
    policy = config.policy
    return PolicyChoice(
        name=policy.name,
        parameters=policy.parameters,
        agnostic=policy.agnostic,
        space_sharing=policy.space_sharing,
    )


def control_settings(config: ServerConfig) -> ControlSettings:
    """Return the settings of control, and of the engine within."""
    return ControlSettings(
        **values_of(config.leases, LeaseSettings),
        **values_of(config.isolation, UidSettings),
        engine=EngineSettings(
            **values_of(config.engine, RoundSettings),
            plan_lead_s=config.engine.plan_lead_s or 0.0,
            refuse_what_cannot_fit=False,
        ),
        policy=policy_choice(config),
        tick_s=config.engine.tick_s,
        learning=LearningSettings(**values_of(config.throughputs, LearningSettings)),
        prepull_images=config.kubernetes.prepull_images,
        idle=config.idle,
        prices=MappingProxyType(
            {name: float(text) for name, text in config.budgets.prices.items()}
        ),
    )
