"""Calls beside the event loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(call: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Call something that blocks, such as a method of the store, beside the event loop."""
    return await anyio.to_thread.run_sync(partial(call, *args, **kwargs))
