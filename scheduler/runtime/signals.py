"""Waiting for news: a thousand agents wait at the cost of one future each, without tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many nodes are woken at once when a round affects all of them, and the pause before the next.
NODES_AT_ONCE: Final = 10
NODES_PAUSE_S: Final = 0.01


class News:
    """An event that is set once and wakes everything that waits for it."""

    __slots__ = ("_told", "waiting")

    def __init__(self) -> None:
        self._told = False
        #: the waiting futures, in order of arrival; ``first_of`` adds and removes them.
        self.waiting: dict[asyncio.Future[None], None] = {}

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._told

    def set(self) -> None:
        """Set it and wake its waiters."""
        self._told = True
        for waiter in self.waiting:
            _end(waiter)
        self.waiting.clear()

    async def wait(self) -> None:
        """Wait until it is set."""
        await first_of(self)


async def first_of(*news: News, within_s: float | None = None) -> None:
    """Wait until one of several is set, but not longer than ``within_s``."""
    if any(one.is_set() for one in news):
        return
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    timer = None if within_s is None else loop.call_later(within_s, _end, waiter)
    for one in news:
        one.waiting[waiter] = None
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for one in news:
            one.waiting.pop(waiter, None)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class NodeSignals:
    """Waiters for nodes' desired sets, also for a node that has yet to join."""

    def __init__(self) -> None:
        self._news: dict[str, News] = {}

    def of(self, name: str) -> News:
        """Return the event that is set when a node's desired set changes."""
        return self._news.setdefault(name, News())

    def tell(self, names: Sequence[str]) -> None:
        """Wake the waiters of nodes, some at a time, so that other requests get answers too."""
        for name in names[:NODES_AT_ONCE]:
            news = self._news.pop(name, None)
            if news is not None:
                news.set()
        if rest := names[NODES_AT_ONCE:]:
            asyncio.get_running_loop().call_later(NODES_PAUSE_S, self.tell, rest)
