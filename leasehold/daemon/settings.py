"""From the configuration to the settings of the parts."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from api.settings import ApiSettings, RateLimit
from leasehold.config.decisions import control_settings
from leasehold.config.plausibility import words
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.uploads import UploadLimits
from scheduler.webhooks.webhooks import WebhookRules

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
        template_allows=config.kubernetes.template_allows,
        uploads=UploadLimits(
            most_bytes=config.uploads.max_bytes,
            most_project_bytes=config.uploads.max_project_bytes,
            most_total_bytes=config.uploads.max_total_bytes,
        ),
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


def runtime_settings(config: ServerConfig) -> RuntimeSettings:
    """Return the settings of the driver and of what decides."""
    decisions = control_settings(config)
    return RuntimeSettings(
        **{field.name: getattr(decisions, field.name) for field in fields(decisions)},
        snapshot_entries=config.store.snapshot_entries,
        finished_days=config.retention.finished_days,
        history_days=config.retention.history_days,
        log_bytes=config.retention.log_bytes,
        webhooks=WebhookRules(
            first_pause_s=config.webhooks.first_pause_s,
            longest_pause_s=config.webhooks.longest_pause_s,
            pause_after_s=config.webhooks.pause_after_s,
        ),
        upload_keep_s=config.uploads.keep_s,
    )
