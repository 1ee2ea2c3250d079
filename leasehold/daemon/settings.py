"""From the configuration to the settings of the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from api.settings import ApiSettings, RateLimit
from leasehold.config.plausibility import words
from scheduler.control.requests import PolicyChoice
from scheduler.engine.settings import EngineSettings
from scheduler.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from leasehold.config.settings import ServerConfig, ServerSection


def api_settings(config: ServerConfig) -> ApiSettings:
    """Return the settings of the REST interface."""
    server = config.server
    return ApiSettings(
        auth=not server.no_auth,
        metrics_open=server.metrics_open,
        max_body_bytes=server.max_body_bytes,
        max_batch=server.max_batch,
        forward=server.forward,
        certificate=server.tls_cert,
        hosts=_hosts(server),
        rate=RateLimit(per_s=server.rate_per_s, burst=server.rate_burst),
        rate_without_token=RateLimit(
            per_s=server.anonymous_rate_per_s, burst=server.anonymous_rate_burst
        ),
    )


def _hosts(server: ServerSection) -> frozenset[str]:
    """Return under which names a scheduler without tokens may be called."""
    advertised = urlsplit(server.advertise or "").hostname or ""
    names = {*words(server.hosts), server.host, advertised}
    return frozenset(name.lower().strip("[]") for name in names if name)


def policy_choice(config: ServerConfig) -> PolicyChoice:
    """Return the policy of the first start."""
    policy = config.policy
    return PolicyChoice(
        name=policy.name,
        parameters=policy.parameters,
        agnostic=policy.agnostic,
        space_sharing=policy.space_sharing,
    )


def runtime_settings(config: ServerConfig) -> RuntimeSettings:
    """Return the settings of the driver and of the engine within."""
    engine = config.engine
    return RuntimeSettings(
        engine=EngineSettings(
            round_length_s=engine.round_length_s,
            plan_lead_s=engine.plan_lead_s or 0.0,
            refresh_rounds=engine.refresh_rounds,
            keep_bonus=engine.keep_bonus,
            solve_grace_s=engine.solve_grace_s,
            retry_backoff_s=engine.retry_backoff_s,
            avoid_node_s=engine.avoid_node_s,
            hold_after_deaths=engine.hold_after_deaths,
            refuse_what_cannot_fit=False,
        ),
        policy=policy_choice(config),
        notice_s=config.leases.notice_s,
        grace_s=config.leases.grace_s,
        margin_s=config.leases.margin_s,
        node_timeout_s=config.leases.node_timeout_s,
        start_timeout_s=config.leases.start_timeout_s,
        snapshot_entries=config.store.snapshot_entries,
        tick_s=engine.tick_s,
        learn=config.throughputs.learn,
        measure_least_s=config.throughputs.least_s,
        relearn_tolerance=config.throughputs.tolerance,
        prepull_images=config.kubernetes.prepull_images,
        finished_days=config.retention.finished_days,
        history_days=config.retention.history_days,
        log_bytes=config.retention.log_bytes,
    )
