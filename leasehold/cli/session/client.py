"""The command line's client: raises ``LeaseholdError`` with messages about its options."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from leasehold import __version__
from leasehold.cli.display.output import plain_cell
from leasehold.cli.session.outages import tell_outage
from leasehold.cli.session.problems import error_of
from leasehold.cli.session.wording import Wording, option_of
from leasehold.client import errors
from leasehold.client.blocking import Client
from leasehold.client.exchange import Exchange, Patience
from leasehold.client.outages import delay_s
from leasehold.client.wires import BlockingWire
from leasehold.connection import LOOPBACK, SettingsError
from leasehold.naming import AmbiguousNameError
from scheduler.errors import AnswerError, InputError, LeaseholdError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

    import httpx

    from leasehold.connection import Connection

T = TypeVar("T")
_OURS = (errors.ClientError, AmbiguousNameError, SettingsError, errors.UnsendableError)


class ServiceClient(Client):
    """Talks to one scheduler; every failure is a ``LeaseholdError`` with advice.

    Args:
        connection: address and credentials of the scheduler.
        patience: how long to try.
        transport: replaces the network in tests.
        sleep: waits so many seconds.
        look_again: finds the connection again, since a starting scheduler may have written its
            first token meanwhile.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        patience: Patience | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        look_again: Callable[[], Connection] | None = None,
    ) -> None:
        exchange = Exchange(
            connection,
            patience=patience or Patience(),
            wire=BlockingWire(transport, sleep=sleep),
            agent="leasehold-cli",
            look_again=look_again,
            on_outage=self._tell_outage,
        )
        self._talk_over(exchange)
        self._sleep = sleep
        self._version_seen = False
        #: the user's names for the fields of the next requests.
        self.wording: Wording = option_of

    @property
    def connection(self) -> Connection:
        """The connection to the scheduler."""
        return self._exchange.connection

    @property
    def patience(self) -> Patience:
        """How long to try."""
        return self._exchange.patience

    def pause(self, attempt: int, *, at_least_s: float = 0.0) -> None:
        """Wait before the next retry: longer each time, with jitter."""
        self.sleep(delay_s(attempt, at_least_s=at_least_s))

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return super()._run(work)
        except _OURS as error:
            raise self._translated(error) from None
        finally:
            self._check_version()

    def _each(self, items: AsyncGenerator[T]) -> Iterator[T]:
        try:
            for item in super()._each(items):
                self._check_version()
                yield item
        except _OURS as error:
            raise self._translated(error) from None

    def _tell_outage(self, error: Exception) -> None:
        tell_outage(self._translated(error))

    def _translated(self, error: Exception) -> LeaseholdError:
        """Return the ``LeaseholdError`` for an error of the client."""
        if isinstance(error, errors.UnsendableError) and error.field:
            made: LeaseholdError = InputError(f"{self.wording(error.field)} {error.problem}")
        elif not isinstance(error, errors.ClientError):
            made = InputError(str(error))
        elif isinstance(error, errors.UnreachableError):
            made = UnreachableError(self._advice(error))
        elif isinstance(error, errors.NoSchedulerError):
            made = AnswerError(str(error))
        else:
            made = error_of(
                error.status,
                error.problem,
                server=self.server,
                token=bool(self.connection.token),
                wording=self.wording,
            )
            if isinstance(made, UnreachableError):
                made.retry_after_s = error.retry_after_s
        for note in getattr(error, "__notes__", ()):
            made.add_note(plain_cell(note))
        return made

    def _advice(self, error: errors.UnreachableError) -> str:
        if error.why == "certificate":
            return f"{error}; name its authority's with --ca-file"
        if error.why == "nobody":
            servers = sorted(self.connection.servers)
            here = any(urlsplit(one).hostname in LOOPBACK for one in servers)
            start = "start one with `leasehold up` (it takes some seconds) or " if here else ""
            where = " or ".join(servers)
            return f"no scheduler answers at {where}: {start}name another with --server"
        return str(error)

    def _check_version(self) -> None:
        """Report once that the server is of another release."""
        theirs = self._exchange.version
        if not theirs or self._version_seen:
            return
        self._version_seen = True
        if theirs.split(".")[:2] != __version__.split(".")[:2]:
            sys.stderr.write(
                f"leasehold: version mismatch: scheduler {theirs}, client {__version__}; "
                "newer features may fail\n"
            )
