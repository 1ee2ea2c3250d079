"""Webhooks of the fake daemon: the real ones, over its store and a receiver in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.clock import WallClock
from scheduler.errors import InputError
from scheduler.secret_box import SecretBox
from scheduler.webhooks.delivery import Webhooks
from scheduler.webhooks.webhooks import Posted

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Any 32 bytes.
KEY = b"k" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A message that has arrived."""

    url: str
    headers: Mapping[str, str]
    body: bytes


class FakePost:
    """The port ``Post``: keeps messages and gives the answers that a test sets.

    Hosts that begin with ``private`` may not be sent to.
    """

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        #: answers to the next messages; without one a message is accepted
        self.answers: list[Posted] = []

    async def check(self, url: str) -> None:
        """Refuse hosts that begin with ``private``, and texts that are no web address."""
        if not url.startswith("https://") or url.startswith("https://private"):
            raise InputError("url: is no public address")

    async def send(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Posted:
        """Take a message, or refuse it as a test has said."""
        await asyncio.sleep(0)
        self.arrived.append(Arrived(url=url, headers=headers, body=body))
        return self.answers.pop(0) if self.answers else Posted(status=200)

    async def close(self) -> None:
        """Do nothing."""


class FakeHooks(Webhooks):
    """Webhooks that lead from the start and send nothing but tests.

    Args:
        service: the service that they belong to.
    """

    def __init__(self, service: Any) -> None:
        self.post = FakePost()
        super().__init__(
            service.store,
            WallClock(),
            SecretBox(lambda: (KEY,)),
            None,
            news=lambda after_id, wait_s: service.wait_for_history(after_id, wait_s=wait_s),
            note=service.note,
            post=self.post,
        )
        self._token = service.store.leader().token
