"""Waiting for news: a thousand agents do, so it costs one future each and no tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Nodes that are woken at once when a round concerns all of them, and the pause before the next.
NODES_AT_ONCE: Final = 10
NODES_PAUSE_S: Final = 0.01


class News:
    """Something that is told once, to everybody who waits for it."""

    __slots__ = ("_told", "waiting")

    def __init__(self) -> None:
        self._told = False
        #: who waits, in the order in which they came; ``first_of`` puts them in and takes them out.
        self.waiting: dict[asyncio.Future[None], None] = {}

    def is_set(self) -> bool:
        """Return whether it has been told."""
        return self._told

    def set(self) -> None:
        """Tell it."""
        self._told = True
        for waiter in self.waiting:
            _end(waiter)
        self.waiting.clear()

    async def wait(self) -> None:
        """Wait until it is told."""
        await first_of(self)


async def first_of(*news: News, within_s: float | None = None) -> None:
    """Wait until one of several is told, but not longer than ``within_s``."""
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
    """Who waits for a node's desired set, also of a node that has yet to join."""

    def __init__(self) -> None:
        self._news: dict[str, News] = {}

    def of(self, name: str) -> News:
        """Return what is told when a node's desired set is another one."""
        return self._news.setdefault(name, News())

    def tell(self, names: Sequence[str]) -> None:
        """Wake who waits for some nodes: some at a time, for others want answers too."""
        for name in names[:NODES_AT_ONCE]:
            news = self._news.pop(name, None)
            if news is not None:
                news.set()
        if rest := names[NODES_AT_ONCE:]:
            asyncio.get_running_loop().call_later(NODES_PAUSE_S, self.tell, rest)
