"""What every route works with; one per application."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from starlette.requests import Request

    from api.auth import Authenticator
    from api.limits import Buckets
    from api.settings import ApiSettings
    from scheduler.runtime.protocol import Service
    from scheduler.store.protocol import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every route works with.

    Attributes:
        service: the daemon.
        settings: limits and times.
        authenticator: knows the tokens.
        buckets: rate limits.
        now: seconds since the Unix epoch.
        stopping: set when requests that wait are to be answered at once.
        node_of: says to which node a secret from outside belongs, None if to none; it raises
            ``OSError`` where that cannot be found out. None: only our own secrets are known.
        projects: job id -> project, of jobs that history was asked for; a job never moves.
        waiting: requests that wait for something.
    """

    service: Service
    settings: ApiSettings
    authenticator: Authenticator
    buckets: Buckets
    now: Callable[[], float]
    stopping: asyncio.Event
    node_of: Callable[[str], Awaitable[str | None]] | None = None
    projects: dict[str, str] = field(default_factory=dict)
    waiting: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def store(self) -> Store:
        """The service's store; its methods block, see ``in_thread``."""
        return self.service.store

    def stop(self) -> None:
        """Answer the requests that wait."""
        self.stopping.set()
        for task in self.waiting:
            task.cancel()

    async def unless_stopping(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something that may take long; None if the service is told to stop meanwhile."""
        if self.stopping.is_set():
            work.close()
            return None
        # A thousand agents wait here, so there are no tasks beside the request's own.
        task = asyncio.current_task()
        assert task is not None
        self.waiting.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if not self.stopping.is_set() or task.uncancel():
                raise
            return None
        finally:
            self.waiting.discard(task)


def context_of(request: Request) -> Context:
    """Return the context of the application that serves a request."""
    return cast("Context", request.app.state.context)


async def in_thread(call: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Call something that blocks, such as a method of the store, beside the event loop."""
    return await anyio.to_thread.run_sync(partial(call, *args, **kwargs))
