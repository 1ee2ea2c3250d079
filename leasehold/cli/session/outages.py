"""Continue while the scheduler is away: for commands that wait or follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from leasehold.cli.display.output import print_remark
from leasehold.client.outages import Outage
from scheduler.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Sleeps(Protocol):
    """Waits visibly."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


def with_retries(service: Sleeps, ask: Callable[[], T]) -> T:
    """Retry until the scheduler answers or the user ends the command."""
    outage = Outage(tell=tell_outage)
    while True:
        try:
            return ask()
        except UnreachableError as error:
            service.sleep(outage.delay_s(error, at_least_s=error.retry_after_s))


def tell_outage(error: Exception) -> None:
    """Report once that the scheduler is away."""
    print_remark(f"{error}; trying again until it is back (Ctrl-C ends)")
