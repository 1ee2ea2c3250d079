"""From the configuration to the settings of the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from api.settings import ApiSettings, RateLimit, RequestSettings
from leasehold.config.decisions import control_settings
from leasehold.config.plausibility import split_words
from scheduler.control.state.settings import ControlSettings
from scheduler.operator_settings import RetentionSettings, values_of
from scheduler.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from leasehold.config.settings import ServerConfig, ServerSection


def api_settings(config: ServerConfig) -> ApiSettings:
    """Return the settings of the REST interface."""
    server = config.server
    return ApiSettings(
        **values_of(server, RequestSettings),
        auth=not server.no_auth,
        certificate=server.tls_cert,
        hosts=_hosts(server),
        template_allows=config.kubernetes.template_allows,
        uploads=config.uploads,
        rate=RateLimit(per_s=server.rate_per_s, burst=server.rate_burst),
        rate_without_token=RateLimit(
            per_s=server.anonymous_rate_per_s, burst=server.anonymous_rate_burst
        ),
    )


def _hosts(server: ServerSection) -> frozenset[str]:
    """Return under which names a scheduler without tokens may be called."""
    advertised = urlsplit(server.advertise or "").hostname or ""
    names = {*split_words(server.hosts), server.host, advertised}
    return frozenset(name.lower().strip("[]") for name in names if name)


def runtime_settings(config: ServerConfig) -> RuntimeSettings:
    """Return the settings of the driver and of what decides."""
    return RuntimeSettings(
        **values_of(control_settings(config), ControlSettings),
        **values_of(config.retention, RetentionSettings),
        snapshot_entries=config.store.snapshot_entries,
        webhooks=config.webhooks,
        uploads=config.uploads,
    )
