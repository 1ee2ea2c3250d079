"""Isolation: an error at one lease ends that lease alone, in any backend."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from agent.lease_record import LeaseRecord
from agent.reconcile import Refuse, Start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent.link.port import Link
    from agent.reconcile import Action, WantedLease
    from scheduler.protocol.desired import DesiredLease

R = TypeVar("R", bound=LeaseRecord)

#: The wait before a failed part of the agent restarts.
PAUSE_S = 5.0

_log = logging.getLogger("leasehold.agent")


class IsolatedBackend(ABC, Generic[R]):
    """Keeps the leases of a backend apart."""

    _records: dict[int, R]
    _on_change: Callable[[], None]

    def place(self) -> str:
        """Return an empty text: every agent of the node finds its jobs; see Backend."""
        return ""

    def bring_code(self, link: Link) -> bool:  # noqa: ARG002
        """Leave it to the loop to unpack uploaded code before a lease is started; see Backend."""
        return False

    def owner_of(self, lease: DesiredLease) -> int | None:  # noqa: ARG002  backends override it
        """Return None: jobs run as the agent does; see Backend."""
        return None

    def perform(self, action: Action) -> None:
        """Perform, or begin, an action of the reconciliation; takes milliseconds at most."""
        try:
            self._perform(action)
        except Exception as error:  # noqa: BLE001 - the other leases continue
            lease_id = (
                action.wanted.lease.lease_id
                if isinstance(action, Start | Refuse)
                else action.lease_id
            )
            record = self._records.get(lease_id)
            if record is None and isinstance(action, Start | Refuse):
                record = self._remember(action.wanted)
            if record is None:  # only its files are left
                _log.warning("lease %d leaves something behind: %s", lease_id, error)
            else:
                self._fail(record, error)

    def _guarded(self, record: R, work: Callable[[], None]) -> None:
        """Do something for a lease; an error ends that lease."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the other leases continue
            self._fail(record, error)

    @abstractmethod
    def _perform(self, action: Action) -> None:
        """Perform, or begin, one action; any error ends the lease."""

    @abstractmethod
    def _remember(self, wanted: WantedLease) -> R:
        """Make a lease's record, in memory alone."""

    def _fail(self, record: R, error: Exception) -> None:
        """Note that the agent has failed at a lease, which must end."""
        record.fail(error)
        self._on_change()


async def restart_on_error(work: Callable[[], Awaitable[None]]) -> None:
    """Run endless work; restart it after an error of our own, because jobs depend on it."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - jobs run on and need the agent
            _log.exception("a part of the agent failed and restarts")
            await asyncio.sleep(PAUSE_S)
        else:
            return
