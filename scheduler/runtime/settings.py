"""What an operator may set about the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.control.state.settings import ControlSettings
from scheduler.errors import ParameterError
from scheduler.webhooks.webhooks import WebhookRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings(ControlSettings):
    """Settings of the daemon's shell, and of what decides in it.

    Attributes:
        snapshot_entries: journal entries after which a snapshot is written.
        finished_days: how long jobs that have ended are kept.
        history_days: how long lines of history are kept.
        log_bytes: of output kept per attempt and stream on a node.
        webhooks: how their messages are sent.
        upload_keep_s: how long uploaded code is kept that no job needs.
    """

    snapshot_entries: int = 1000
    finished_days: float = 30.0
    history_days: float = 90.0
    log_bytes: int = 16 * 2**20
    webhooks: WebhookRules = field(default_factory=WebhookRules)
    upload_keep_s: float = 86_400.0

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        ControlSettings.__post_init__(self)
        for name in ("snapshot_entries", "log_bytes"):
            value = getattr(self, name)
            if value < 1:
                raise ParameterError(f"{name} is {value!r}; it must be >= 1")
        for name in ("finished_days", "history_days"):
            value = getattr(self, name)
            if not value > 0:
                raise ParameterError(f"{name} is {value!r}; it must be > 0, or inf to keep all")
