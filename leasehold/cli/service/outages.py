"""Going on while the scheduler is away: for commands that wait, follow or watch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from leasehold.cli.service.output import remark
from scheduler.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.cli.service.client import ServiceClient

T = TypeVar("T")


class Outage:
    """A time in which nobody answers, or only that somebody is about to lead.

    Whoever waits has spoken with the scheduler before, so silence means that it restarts.

    Args:
        service: who is away.
        most_s: how long to go on; None for ever, that is, until somebody ends the command.
    """

    def __init__(self, service: ServiceClient, *, most_s: float | None = None) -> None:
        self._service = service
        self._most_s = most_s
        self._began_s: float | None = None
        self._tries = 0

    def over(self) -> None:
        """Note that somebody has answered."""
        self._began_s, self._tries = None, 0

    def wait(self, error: UnreachableError | None = None) -> None:
        """Wait before the next try: longer each time, and as long as was asked for.

        Args:
            error: what the last try met; None where an answer came to its end too early.

        Raises:
            UnreachableError: that was the last try.
        """
        now_s = time.monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        if self._most_s is not None and now_s - self._began_s >= self._most_s:
            raise error or UnreachableError(
                f"the scheduler at {self._service.connection.server} breaks off again and again"
            )
        if error is not None and self._tries == 1:  # the second one in a row: more than a hiccup
            remark(f"{error}; trying again until it is back (Ctrl-C ends)")
        asked_s = 0.0 if error is None else error.retry_after_s
        self._service.pause(self._tries, at_least_s=asked_s)
        self._tries += 1


def outlast(service: ServiceClient, ask: Callable[[], T]) -> T:
    """Ask until somebody answers; see ``Outage``."""
    outage = Outage(service)
    while True:
        try:
            return ask()
        except UnreachableError as error:
            outage.wait(error)
