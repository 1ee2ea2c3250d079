"""What goes wrong at one lease ends that lease alone, whatever runs under it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from agent.lease_record import LeaseRecord
from agent.reconcile import Refuse, Start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent.link.link import Link
    from agent.reconcile import Action, Wanted

R = TypeVar("R", bound=LeaseRecord)

#: Before a part of the agent that has failed begins anew.
PAUSE_S = 5.0

_log = logging.getLogger("leasehold.agent")


class Isolated(ABC, Generic[R]):
    """Keeps the leases of a backend apart."""

    _records: dict[int, R]
    _on_change: Callable[[], None]

    def place(self) -> str:
        """Return nothing: every agent of the node finds its jobs; see Backend."""
        return ""

    def bring_code(self, link: Link) -> bool:  # noqa: ARG002
        """Leave it to the loop to unpack uploaded code before a lease is started; see Backend."""
        return False

    def perform(self, action: Action) -> None:
        """Do, or begin to do, what the reconciliation asks for; takes milliseconds at most."""
        try:
            self._perform(action)
        except Exception as error:  # noqa: BLE001 - the other leases go on
            lease_id = (
                action.wanted.lease.lease_id
                if isinstance(action, Start | Refuse)
                else action.lease_id
            )
            record = self._records.get(lease_id)
            if record is None and isinstance(action, Start | Refuse):
                record = self._remember(action.wanted)
            if record is None:  # forgotten already, but for its files
                _log.warning("lease %d leaves something behind: %s", lease_id, error)
            else:
                self._fail(record, error)

    def _guarded(self, record: R, work: Callable[[], None]) -> None:
        """Do something for a lease."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the other leases go on
            self._fail(record, error)

    @abstractmethod
    def _perform(self, action: Action) -> None:
        """Do, or begin to do, one thing; whatever it raises ends the lease."""

    @abstractmethod
    def _remember(self, wanted: Wanted) -> R:
        """Make a lease's record, in memory alone."""

    def _fail(self, record: R, error: Exception) -> None:
        """Note that the agent has failed at a lease, which is to end."""
        record.fail(error)
        self._on_change()


async def steadily(work: Callable[[], Awaitable[None]]) -> None:
    """Run what is to run for ever; after an error of our own once more, for jobs depend on it."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - whatever it is, jobs go on and want to be looked after
            _log.exception("a part of the agent failed and begins anew")
            await asyncio.sleep(PAUSE_S)
        else:
            return
