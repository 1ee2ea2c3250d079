"""The client for programs without an event loop, and for the command line.

Every method is that of ``AsyncClient``, run to its end: see ``leasehold.client.wires``.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from leasehold.client.asynchronous import AsyncClient, found_exchange
from leasehold.client.exchange import Patience
from leasehold.client.wires import BlockingWire, each, finish

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping

    from leasehold.client import forms
    from leasehold.client.exchange import Exchange
    from leasehold.client.streams import LogEnd, LogPiece

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            work = method(self._inner, *args, **kwargs)
        except TypeError as error:  # of the arguments; nothing has run
            said = str(error).replace(AsyncClient.__name__, Client.__name__)
            raise TypeError(said) from None
        return self._run(work)

    return call


class Client:
    """Talks to a scheduler.

    A job is named by its id, the beginning of its id, or its name, as on the command line. A word
    that means several jobs raises ``AmbiguousNameError``, a ValueError. A refused request raises
    ``ClientError``.

    Args:
        server: its address, or several with spaces between them: standbys are asked in turn. By
            default ``LEASEHOLD_SERVER``, ``client.toml``, else this machine.
        token: bearer token; empty: no token is sent. By default ``LEASEHOLD_TOKEN``, that of
            ``client.toml``, else the token file of this user's scheduler on this machine.
        patience_s: how long a call is retried while no scheduler answers.
        timeout_s: for one answer.
        context: certificates to trust, for https. Unless given, ``LEASEHOLD_CA_FILE`` or that of
            ``client.toml``, else the system's.

    Raises:
        SettingsError: an address, a token or ``client.toml`` cannot be used; a ValueError.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        patience_s: float = 60.0,
        timeout_s: float = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        wire = BlockingWire()
        patience = Patience.of(patience_s, timeout_s=timeout_s)
        self._talk_over(
            found_exchange(server, token=token, patience=patience, context=context, wire=wire)
        )
        weakref.finalize(self, _end, wire)

    def _talk_over(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._inner = AsyncClient.over(exchange)

    @property
    def server(self) -> str:
        """The scheduler's address."""
        return self._inner.server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(AsyncClient.close)

    submit = _blocking(AsyncClient.submit)
    submit_all = _blocking(AsyncClient.submit_all)
    submit_one = _blocking(AsyncClient.submit_one)
    upload = _blocking(AsyncClient.upload)
    find_upload = _blocking(AsyncClient.find_upload)
    keep_upload = _blocking(AsyncClient.keep_upload)
    dry_run = _blocking(AsyncClient.dry_run)
    dry_run_all = _blocking(AsyncClient.dry_run_all)
    job = _blocking(AsyncClient.job)
    ids_of = _blocking(AsyncClient.ids_of)
    job_page = _blocking(AsyncClient.job_page)
    cancel = _blocking(AsyncClient.cancel)
    hold = _blocking(AsyncClient.hold)
    release = _blocking(AsyncClient.release)
    requeue = _blocking(AsyncClient.requeue)
    act = _blocking(AsyncClient.act)
    change = _blocking(AsyncClient.change)
    change_all = _blocking(AsyncClient.change_all)
    explain = _blocking(AsyncClient.explain)
    begin_exec = _blocking(AsyncClient.begin_exec)
    read_exec = _blocking(AsyncClient.read_exec)
    end_exec = _blocking(AsyncClient.end_exec)
    attempts = _blocking(AsyncClient.attempts)
    job_events = _blocking(AsyncClient.job_events)
    wait = _blocking(AsyncClient.wait)
    log = _blocking(AsyncClient.log)

    history = _blocking(AsyncClient.history)

    cluster = _blocking(AsyncClient.cluster)
    leases = _blocking(AsyncClient.leases)
    plan = _blocking(AsyncClient.plan)
    allocation = _blocking(AsyncClient.allocation)
    nodes = _blocking(AsyncClient.nodes)
    node = _blocking(AsyncClient.node)
    node_attempts = _blocking(AsyncClient.node_attempts)
    attempts_within = _blocking(AsyncClient.attempts_within)
    cordon = _blocking(AsyncClient.cordon)
    drain = _blocking(AsyncClient.drain)
    uncordon = _blocking(AsyncClient.uncordon)
    approve_workers = _blocking(AsyncClient.approve_workers)
    forget_node = _blocking(AsyncClient.forget_node)

    policy = _blocking(AsyncClient.policy)
    policies = _blocking(AsyncClient.policies)
    policy_details = _blocking(AsyncClient.policy_details)
    set_policy = _blocking(AsyncClient.set_policy)
    try_policy = _blocking(AsyncClient.try_policy)
    projects = _blocking(AsyncClient.projects)
    set_project = _blocking(AsyncClient.set_project)
    reservations = _blocking(AsyncClient.reservations)
    reservation = _blocking(AsyncClient.reservation)
    reserve = _blocking(AsyncClient.reserve)
    delete_reservation = _blocking(AsyncClient.delete_reservation)
    usage = _blocking(AsyncClient.usage)
    throughputs = _blocking(AsyncClient.throughputs)
    sharing = _blocking(AsyncClient.sharing)
    declare_throughputs = _blocking(AsyncClient.declare_throughputs)
    forget_throughputs = _blocking(AsyncClient.forget_throughputs)
    whoami = _blocking(AsyncClient.whoami)
    sign_in_code = _blocking(AsyncClient.sign_in_code)
    tokens = _blocking(AsyncClient.tokens)
    create_token = _blocking(AsyncClient.create_token)
    revoke_token = _blocking(AsyncClient.revoke_token)
    enrol = _blocking(AsyncClient.enrol)
    webhooks = _blocking(AsyncClient.webhooks)
    create_webhook = _blocking(AsyncClient.create_webhook)
    test_webhook = _blocking(AsyncClient.test_webhook)
    resume_webhook = _blocking(AsyncClient.resume_webhook)
    delete_webhook = _blocking(AsyncClient.delete_webhook)

    version = _blocking(AsyncClient.version)
    alive = _blocking(AsyncClient.alive)
    ready = _blocking(AsyncClient.ready)
    metrics = _blocking(AsyncClient.metrics)
    call = _blocking(AsyncClient.call)

    def jobs(self, **filters: Unpack[forms.ListJobsQuery]) -> Iterator[forms.Job]:
        """Return jobs, newest first unless sorted otherwise.

        The first page is requested at once, further ones as needed.

        Raises:
            ClientError: a filter cannot be used.
        """
        page = self._run(self._inner._first_jobs(filters))  # noqa: SLF001 - its other face
        return self._each(self._inner._jobs_from(filters, page))  # noqa: SLF001 - as above

    def events(self, **filters: Unpack[forms.ListEventsQuery]) -> Iterator[forms.Event]:
        """Return lines of the history as they are written, without end; each one once.

        Begins after the event id ``after``; by default with the next event. Filters are checked at
        once.

        Raises:
            ClientError: a filter cannot be used.
        """
        after = self._run(self._inner._first_event(filters))  # noqa: SLF001 - its other face
        return self._each(self._inner._events_from(filters, after))  # noqa: SLF001 - as above

    def log_pieces(
        self,
        job_id: str,
        *,
        stream: str = "both",
        attempt: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
        seen: Mapping[tuple[int, str, str], int] | None = None,
    ) -> Iterator[LogPiece | LogEnd]:
        """Return a job's output, piece by piece, across breaks of the connection.

        Args:
            job_id: the job.
            stream: ``out``, ``err`` or ``both``.
            attempt: 1 for the first; all of them unless given.
            tail_bytes: of the newest attempt, only so many last bytes of each stream.
            follow: go on until the job has ended and all of its output has arrived.
            seen: (attempt, node, stream) -> offset after the known part, to continue from.

        Returns:
            pieces, and finally the information about the end.
        """
        pieces = self._inner.log_pieces(
            job_id,
            stream=stream,
            attempt=attempt,
            tail_bytes=tail_bytes,
            follow=follow,
            seen=seen,
        )
        return self._each(pieces)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return finish(work)

    def _each(self, items: AsyncGenerator[T]) -> Iterator[T]:
        return each(items)


def _end(wire: BlockingWire) -> None:
    """Close the connections of a client that was not closed."""
    finish(wire.close())
