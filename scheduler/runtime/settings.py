"""What an operator may set about the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.control.state.settings import ControlSettings
from scheduler.errors import ParameterError
from scheduler.operator_settings import RetentionSettings
from scheduler.store.uploads import UploadLimits
from scheduler.webhooks.webhooks import WebhookRules


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings(ControlSettings, RetentionSettings):
    """Settings of the daemon's shell, and of control in it.

    Attributes:
        snapshot_entries: journal entries after which a snapshot is written.
        webhooks: how their messages are sent.
        uploads: how much of uploaded code is kept, and for how long.
    """

    snapshot_entries: int = 1000
    webhooks: WebhookRules = field(default_factory=WebhookRules)
    uploads: UploadLimits = field(default_factory=UploadLimits)

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        ControlSettings.__post_init__(self)
        if self.snapshot_entries < 1:
            raise ParameterError(f"snapshot_entries is {self.snapshot_entries!r}; it must be >= 1")
