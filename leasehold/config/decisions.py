"""From the configuration to the settings of what decides, in the daemon and in a replay of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.control.facts.requests import PolicyChoice
from scheduler.control.state.settings import ControlSettings, IdleSettings
from scheduler.engine.settings import EngineSettings

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
    engine = config.engine
    return ControlSettings(
        engine=EngineSettings(
            round_length_s=engine.round_length_s,
            plan_lead_s=engine.plan_lead_s or 0.0,
            refresh_rounds=engine.refresh_rounds,
            keep_bonus=engine.keep_bonus,
            behind_rounds=engine.behind_rounds,
            ahead_rounds=engine.ahead_rounds,
            solve_grace_s=engine.solve_grace_s,
            retry_backoff_s=engine.retry_backoff_s,
            avoid_node_s=engine.avoid_node_s,
            hold_after_deaths=engine.hold_after_deaths,
            patience_s=engine.patience_s,
            refuse_what_cannot_fit=False,
        ),
        policy=policy_choice(config),
        notice_s=config.leases.notice_s,
        grace_s=config.leases.grace_s,
        margin_s=config.leases.margin_s,
        node_timeout_s=config.leases.node_timeout_s,
        start_timeout_s=config.leases.start_timeout_s,
        quarantine_after=config.leases.quarantine_after,
        quarantine_share=config.leases.quarantine_share,
        tick_s=engine.tick_s,
        learn=config.throughputs.learn,
        measure_least_s=config.throughputs.least_s,
        relearn_tolerance=config.throughputs.tolerance,
        prepull_images=config.kubernetes.prepull_images,
        first_uid=config.isolation.first_uid,
        uids=config.isolation.uids,
        idle=IdleSettings(
            use_percent=config.idle.use_percent,
            after_s=config.idle.after_s,
            stop_after_s=config.idle.stop_after_s,
            exempt_projects=frozenset(config.idle.exempt_projects),
        ),
        prices=MappingProxyType(
            {name: float(text) for name, text in config.budgets.prices.items()}
        ),
    )
