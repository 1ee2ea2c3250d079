"""Shared objects of all routes; one context per application."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread

from api.problems import ProblemError
from scheduler.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Mapping,
    )

    from starlette.requests import Request

    from api.auth.codes import SignInCodes
    from api.auth.oidc import Provider
    from api.auth.roles import Principal
    from api.auth.tokens import Authenticator
    from api.limits import Buckets
    from api.settings import ApiSettings
    from scheduler.runtime.contract import SchedulerService
    from scheduler.store.protocol import Store

T = TypeVar("T")

#: Computations beside the event loop at a time: they share one interpreter with it.
HEAVY = 2
#: Bytes of a body that is read beside the event loop: reading takes 60 ms for a megabyte.
LARGE_BODY = 2**17


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Shared objects of all routes.

    Attributes:
        service: the daemon.
        settings: limits and times.
        authenticator: authenticates tokens.
        buckets: rate limits.
        now: seconds since the Unix epoch.
        stopping: set when waiting requests must be answered at once.
        node_of: returns the node of an outside secret, None if it belongs to no node; raises
            ``OSError`` if that cannot be determined. None: only Leasehold's secrets are accepted.
        approved_of: returns the workers that a vouched node may have, worker type -> how many;
            raises ``OSError`` if that cannot be determined. None: all that it reports.
        provider: verifies tokens of an identity provider; None: only Leasehold's are accepted.
        projects: job id -> project, of jobs in histories that were read; a job never moves.
        waiting: waiting requests, with their principals.
        streams: token id -> its open streams.
        codes: one-time codes for the page.
        sent_forms: forms of pages that have made a secret, by a number of their own.
        kept_answers: question of a page -> until when its answer is kept, and the answer.
        searching: the tokens for which output is searched now.
        heavy: limits the computations beside the event loop.
    """

    service: SchedulerService
    settings: ApiSettings
    authenticator: Authenticator
    buckets: Buckets
    codes: SignInCodes
    now: Callable[[], float]
    stopping: asyncio.Event
    node_of: Callable[[str], Awaitable[str | None]] | None = None
    approved_of: Callable[[str], Awaitable[Mapping[str, int]]] | None = None
    provider: Provider | None = None
    projects: dict[str, str] = field(default_factory=dict)
    waiting: dict[asyncio.Task[Any], Principal] = field(default_factory=dict)
    streams: Counter[str] = field(default_factory=Counter)
    sent_forms: dict[str, None] = field(default_factory=dict)
    kept_answers: dict[Any, tuple[float, asyncio.Task[Any]]] = field(default_factory=dict)
    searching: set[str] = field(default_factory=set)
    heavy: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, HEAVY))

    @property
    def store(self) -> Store:
        """The service's store; its methods block, see ``in_thread``."""
        return self.service.store

    def stop(self) -> None:
        """Answer the requests that wait."""
        self.stopping.set()
        for task in self.waiting:
            task.cancel()

    async def heavily(self, call: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Run a computation that would block the event loop; store calls have other threads."""
        return await anyio.to_thread.run_sync(partial(call, *args, **kwargs), limiter=self.heavy)

    async def by_size(self, body: bytes, read: Callable[[bytes], T]) -> T:
        """Read a body; a large one beside the event loop."""
        return read(body) if len(body) < LARGE_BODY else await self.heavily(read, body)

    def serves(self, principal: Principal) -> bool:
        """Return whether to go on for a caller: until the service stops, or its token ends."""
        return not self.stopping.is_set() and self.authenticator.is_good(principal)

    async def end_lapsed(self) -> None:
        """Answer waiting callers if their token has been revoked or has expired meanwhile."""
        if not (self.waiting or self.streams):
            return
        with contextlib.suppress(StoreError):  # while it is away, no token can be revoked
            await self.authenticator.refresh()
        for task, principal in tuple(self.waiting.items()):
            if not self.authenticator.is_good(principal):
                task.cancel()

    async def streaming(
        self, principal: Principal, pieces: AsyncGenerator[bytes]
    ) -> AsyncIterator[bytes]:
        """Yield the pieces of a stream, and count it as one of its token's meanwhile."""
        token_id = principal.token_id
        self.streams[token_id] += 1
        try:
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self.streams[token_id] -= 1
            if not self.streams[token_id]:
                del self.streams[token_id]

    def check_streams(self, principal: Principal) -> None:
        """Refuse one stream too many.

        Raises:
            ProblemError: the token has its largest number of streams.
        """
        most = self.settings.max_streams
        if principal.token_id and self.streams[principal.token_id] >= most:
            raise ProblemError(
                429,
                f"{most} streams are read with the token of '{principal.subject}' already, which "
                "is the most; end some, or use another token",
                headers={"Retry-After": "5"},
            )

    async def unless_stopping(self, work: Coroutine[Any, Any, T], principal: Principal) -> T | None:
        """Wait for work that may take long, on behalf of a caller.

        Returns:
            The result; None if the service stops, or the token ends, meanwhile.
        """
        if not self.serves(principal):
            work.close()
            return None
        # A thousand agents wait here, so there are no tasks beside the request's own.
        task = asyncio.current_task()
        assert task is not None
        self.waiting[task] = principal
        try:
            return await work
        except asyncio.CancelledError:
            if self.serves(principal) or task.uncancel():
                raise
            return None
        finally:
            self.waiting.pop(task, None)


def context_of(request: Request) -> Context:
    """Return the context of the application that serves a request."""
    return cast("Context", request.app.state.context)
