"""A file that the event loop touches: its age tells a probe whether the loop moves."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: Between two touches. The chart's probe takes a minute without one as a stall.
EVERY_S: Final = 10.0


@contextlib.asynccontextmanager
async def heartbeat(file: Path | None) -> AsyncIterator[None]:
    """Touch a file every few seconds; None: no file."""
    beating = asyncio.create_task(_beat(file)) if file is not None else None
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()


async def _beat(file: Path) -> None:
    while True:
        with contextlib.suppress(OSError):  # such as a full disk: the program works on
            file.touch()  # noqa: ASYNC240 - it has to be the loop that does it
        await asyncio.sleep(EVERY_S)
