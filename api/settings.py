"""Settings of the REST interface."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.operator_settings import setting
from scheduler.store.uploads import UploadLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket.

    Attributes:
        per_s: requests per second in the long run.
        burst: requests at once after a pause.
    """

    per_s: float
    burst: int


@dataclass(frozen=True, kw_only=True)
class RequestSettings:
    """Limits on requests, and how they are passed on."""

    metrics_open: bool = setting(False, "Show /metrics without a token.")
    max_body_bytes: int = setting(8 * 2**20, "Largest body of a request.", ge=1024)
    max_batch: int = setting(1000, "Most jobs of one submission.", ge=1)
    forward: bool = setting(
        False,
        "A standby passes requests on to the leader, for callers that cannot go there themselves.",
    )


@dataclass(frozen=True, kw_only=True)
class ApiSettings(RequestSettings):
    """Settings of the REST interface.

    Attributes:
        auth: whether bearer tokens are required; if not, every caller is an administrator.
        rate: requests of one token, or of one address if there are no tokens.
        rate_without_token: requests of one address that show no valid token.
        token_cache_s: how long a token may be used after it was revoked elsewhere.
        token_grace_s: how long known tokens stay good while the store is away.
        token_touch_s: how often the times of last use are written.
        heartbeat_s: silence after which a stream of events sends a comment.
        max_wait_s: longest time for which an agent's request is held.
        max_selected: most jobs that one selector may act on.
        certificate: PEM file with the certificate that all schedulers show; None without TLS.
        hosts: names and addresses in small letters under which a scheduler that asks for no tokens
            may be called, besides loopback's.
        token_check_s: time between two checks that the tokens of waiting requests and of streams
            are still valid.
        agent_token_s: lifetime of an agent's token; the agent renews it after half of that.
        agent_token_grace_s: how long a token stays valid beside its successor.
        max_streams: most streams that one token may read at once.
        uploads: how much of uploaded code is kept.
        template_allows: pod template fields that are allowed beside the list of
            ``agent.kubernetes.templates.rules``.
    """

    auth: bool = True
    rate: RateLimit = RateLimit(per_s=1000.0, burst=5000)
    rate_without_token: RateLimit = RateLimit(per_s=20.0, burst=200)
    token_cache_s: float = 3.0
    token_grace_s: float = 60.0
    token_touch_s: float = 60.0
    heartbeat_s: float = 15.0
    max_wait_s: float = 60.0
    max_selected: int = 10_000
    certificate: str | None = None
    hosts: frozenset[str] = frozenset()
    token_check_s: float = 2.0
    max_streams: int = 100
    template_allows: tuple[str, ...] = ()
    uploads: UploadLimits = field(default_factory=UploadLimits)
    agent_token_s: float = 30 * 86400.0
    agent_token_grace_s: float = 600.0
