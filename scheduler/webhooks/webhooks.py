"""Webhooks: addresses that are told what happens, as they are kept and as people see them.

An operator's row in the settings says where a webhook sends and what; a second row says how far it
is. Its address and the secret of its signatures are sealed, as the jobs' secret variables are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.domain.rows import SettingRow
from scheduler.errors import InputError, ParameterError
from scheduler.webhooks.messages import Template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.store.protocol import Store

#: Keys of the rows, before the name.
DEFINED: Final = "webhook/"
STANDS: Final = "webhook_state/"
#: Webhooks at most, and those of somebody who is no operator.
MOST, MOST_OF_ONE = 100, 10
NO_KEY: Final = (
    "a webhook cannot be kept: this scheduler has no key to encrypt its address and secret with; "
    "make one (`leasehold secrets new-key FILE`) and name it in the setting secrets.key_file"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRules:
    """How messages are sent.

    Attributes:
        first_pause_s: until a message that was not taken is sent again; doubles.
        longest_pause_s: between two tries.
        pause_after_s: a webhook that has failed for so long is paused.
        look_s: at least, between two looks at the history.
    """

    first_pause_s: float = 2.0
    longest_pause_s: float = 600.0
    pause_after_s: float = 86_400.0
    look_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse times that cannot be."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ParameterError(f"{field.name} is {value!r}; it must be > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What became of a message.

    Attributes:
        status: of the answer; None where there was none.
        problem: why it was not taken; empty if it was.
        retry_after_s: for how long the receiver asks to be left alone.
    """

    status: int | None = None
    problem: str = ""
    retry_after_s: float = 0.0


class Post(Protocol):
    """Sends to addresses that may be sent to."""

    async def check(self, url: str) -> None:
        """Refuse an address to which nothing may be sent.

        Raises:
            InputError: it is no web address, or lies where nothing may be sent; says why.
        """
        ...

    async def send(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send a message, once. Takes bounded time, and never raises but when it is cancelled."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class NoPost:
    """For compositions without a network."""

    async def check(self, url: str) -> None:  # noqa: ARG002 - the port's
        """Refuse every address."""
        raise InputError("this scheduler sends no webhooks")

    async def send(
        self,
        url: str,  # noqa: ARG002 - the port's
        *,
        headers: Mapping[str, str],  # noqa: ARG002 - likewise
        body: bytes,  # noqa: ARG002 - likewise
    ) -> Posted:
        """Send nothing."""
        return Posted(problem="this scheduler sends no webhooks")

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """What is sent where.

    Attributes:
        name: by which people know it; unique.
        hook_id: begins the ids of its messages; another webhook of the same name has another one.
        on: kinds of lines of history.
        project: only what concerns its jobs and itself; None for all.
        template: how messages look.
        place: scheme and host of the address; the rest is secret.
        sealed: ``url`` and ``secret``.
        created_s: when it was made.
        actor: by whom.
    """

    name: str
    hook_id: str
    on: tuple[str, ...]
    project: str | None
    template: Template
    place: str
    sealed: Mapping[str, str]
    created_s: float
    actor: str

    def row(self) -> SettingRow:
        """Return its row."""
        value = {f.name: getattr(self, f.name) for f in fields(self)}
        value |= {"on": list(self.on), "template": self.template.value}
        value |= {"sealed": dict(self.sealed)}
        return SettingRow(
            key=DEFINED + self.name, value=value, updated_s=self.created_s, actor=self.actor
        )

    @classmethod
    def of_row(cls, value: Mapping[str, Any]) -> Webhook:
        """Return what a row says; of what a newer release has added, nothing."""
        known = {f.name: value[f.name] for f in fields(cls)}
        known |= {"on": tuple(value["on"]), "template": Template(value["template"])}
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookState:
    """How far a webhook is.

    Attributes:
        cursor: id of the last line of history that was delivered or passed over.
        delivered: messages.
        delivered_s: when the last one was, or None.
        failures: tries in a row that have failed.
        failing_since_s: when the first one of these was, or None.
        problem: of the last one.
        next_s: when it is tried again, or None.
        paused_s: since when it sends nothing, or None.
    """

    cursor: int = 0
    delivered: int = 0
    delivered_s: float | None = None
    failures: int = 0
    failing_since_s: float | None = None
    problem: str = ""
    next_s: float | None = None
    paused_s: float | None = None

    @property
    def word(self) -> str:
        """Return ok, failing or paused."""
        if self.paused_s is not None:
            return "paused"
        return "failing" if self.failures else "ok"

    def row(self, name: str, *, now_s: float) -> SettingRow:
        """Return its row."""
        return SettingRow(key=STANDS + name, value=asdict(self), updated_s=now_s)

    @classmethod
    def of_row(cls, value: Mapping[str, Any]) -> WebhookState:
        """Return what a row says; of what a newer release has added, nothing."""
        return cls(**{f.name: value[f.name] for f in fields(cls) if f.name in value})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook and how far it is, as it is stored."""

    webhook: Webhook
    state: WebhookState


def stored_webhooks(store: Store) -> tuple[WebhookView, ...]:
    """Return every webhook by name."""
    states = {row.key.removeprefix(STANDS): row.value for row in store.settings(STANDS)}
    return tuple(
        WebhookView(
            webhook=(hook := Webhook.of_row(row.value)),
            state=WebhookState.of_row(states.get(hook.name, {})),
        )
        for row in store.settings(DEFINED)
    )
