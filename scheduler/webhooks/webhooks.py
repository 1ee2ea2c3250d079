"""Webhooks: addresses that receive events, as they are stored and as people see them.

An operator's row in the settings holds a webhook's address and events; a second row holds its
progress. The address and the secret of its signatures are sealed, as the jobs' secret variables
are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from scheduler.domain.rows import SettingRow
from scheduler.errors import InputError
from scheduler.operator_settings import check_ranges, setting
from scheduler.webhooks.messages import Template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.store.protocol import Store

#: Prefixes of the rows' keys, before the webhook's key.
DEFINED: Final = "webhook/"
STANDS: Final = "webhook_state/"
#: The most webhooks in all, and of one user without the operator role.
MOST, MOST_OF_ONE = 100, 10
NO_KEY: Final = (
    "a webhook cannot be kept: this scheduler has no key to encrypt its address and secret with; "
    "make one (`leasehold secrets new-key FILE`) and name it in the setting secrets.key_file"
)


@dataclass(frozen=True, kw_only=True)
class WebhookRules:
    """Times of delivery.

    Attributes:
        look_s: the shortest time between two reads of the history.
    """

    first_pause_s: float = setting(
        2.0, "Wait until a message that was not taken is sent again; doubles.", gt=0
    )
    longest_pause_s: float = setting(600.0, "Longest wait between two tries.", gt=0)
    pause_after_s: float = setting(
        86_400.0, "A webhook that has failed for so long is paused until a user resumes it.", gt=0
    )
    look_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse times that are not positive."""
        check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The result of sending a message.

    Attributes:
        status: of the answer; None if there was no answer.
        problem: why it was not taken; empty if it was.
        retry_after_s: how long the receiver asks the sender to wait.
    """

    status: int | None = None
    problem: str = ""
    retry_after_s: float = 0.0


class Post(Protocol):
    """Sends to permitted addresses."""

    async def check(self, url: str) -> None:
        """Refuse an address that is not permitted.

        Raises:
            InputError: it is no web address, or is not permitted; the message says why.
        """
        ...

    async def send(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send a message, once. Takes bounded time, and never raises except if cancelled."""
        ...

    async def close(self) -> None:
        """Close connections."""
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
        headers: Mapping[str, str],  # noqa: ARG002 - the port's
        body: bytes,  # noqa: ARG002 - the port's
    ) -> Posted:
        """Send nothing."""
        return Posted(problem="this scheduler sends no webhooks")

    async def close(self) -> None:
        """Do nothing."""


def place_of(url: str) -> str:
    """Return scheme and host of an address; the rest may be secret, with a slash or without."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The definition of a webhook.

    Attributes:
        key: ends the keys of its rows: ``PROJECT/NAME``, or NAME. A user must not learn names that
            are in use in other projects, so they are unique in each project.
        name: its name for people.
        hook_id: begins the ids of its messages; another webhook of the same name has another one.
        on: kinds of lines of history.
        project: only events of this project's jobs and of the project; None for all.
        template: the format of messages.
        place: scheme and host of the address; the rest is secret.
        sealed: ``url`` and ``secret``.
        created_s: when it was created.
        actor: the user that created it.
    """

    key: str
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
        value = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "key"}
        value |= {"on": list(self.on), "template": self.template.value}
        value |= {"sealed": dict(self.sealed)}
        return SettingRow(
            key=DEFINED + self.key, value=value, updated_s=self.created_s, actor=self.actor
        )

    @classmethod
    def of_row(cls, row: SettingRow) -> Webhook:
        """Return the webhook of a row; fields of a newer release are ignored.

        The release before kept webhooks of projects under their names alone; they stay there.
        """
        value = row.value | {"key": row.key.removeprefix(DEFINED)}
        known = {f.name: value[f.name] for f in fields(cls)}
        known |= {"on": tuple(value["on"]), "template": Template(value["template"])}
        known["place"] = place_of(value["place"])  # the release before left a query there
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookState:
    """The progress of a webhook.

    Attributes:
        cursor: id of the last line of history that was delivered or skipped.
        delivered: number of delivered messages.
        delivered_s: when the last one was delivered, or None.
        failures: failed tries in a row.
        failing_since_s: when the first of these failed, or None.
        problem: the problem of the last failed try.
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

    def row(self, key: str, *, now_s: float) -> SettingRow:
        """Return its row, under the webhook's key."""
        return SettingRow(key=STANDS + key, value=asdict(self), updated_s=now_s)

    @classmethod
    def of_row(cls, value: Mapping[str, Any]) -> WebhookState:
        """Return the state of a row; fields of a newer release are ignored."""
        return cls(**{f.name: value[f.name] for f in fields(cls) if f.name in value})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook and its progress, as stored."""

    webhook: Webhook
    state: WebhookState


def key_of(name: str, project: str | None) -> str:
    """Return the key of a new webhook."""
    return name if project is None else f"{project}/{name}"


def stored_webhooks(store: Store) -> tuple[WebhookView, ...]:
    """Return every webhook by name."""
    states = {row.key.removeprefix(STANDS): row.value for row in store.settings(STANDS)}
    return tuple(
        WebhookView(
            webhook=(hook := Webhook.of_row(row)),
            state=WebhookState.of_row(states.get(hook.key, {})),
        )
        for row in store.settings(DEFINED)
    )
