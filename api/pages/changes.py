"""A stream that says when something has changed, so that an open page reads itself again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from api.context import context_of
from api.pages.routing import page
from api.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.context import Context

#: Least and longest time between two words of a stream: steps and use change without events.
LEAST_S: Final = 2.0
LONGEST_S: Final = 5.0
#: Most of a random pause before a word, so that open pages do not ask all at once.
SPREAD_S: Final = 2.0
_HEADERS: Final = {"x-accel-buffering": "no"}


async def follow_changes(request: Request, principal: Principal) -> Response:
    """Return the stream; it ends with the token, or with this process."""
    context = context_of(request)
    context.check_streams(principal)
    pieces = context.streaming(principal, _words(context, principal))
    return StreamingResponse(pieces, media_type="text/event-stream", headers=_HEADERS)


async def _words(context: Context, principal: Principal) -> AsyncGenerator[bytes]:
    known = (await in_thread(context.store.head)).event_id
    while context.serves(principal):
        yield b"event: change\ndata: %d\n\n" % known
        await context.unless_stopping(asyncio.sleep(LEAST_S), principal)
        waiting = context.service.wait_for_history(known, wait_s=LONGEST_S - SPREAD_S - LEAST_S)
        newest = await context.unless_stopping(waiting, principal)
        known = known if newest is None else newest
        pause_s = random.uniform(0.0, SPREAD_S)  # noqa: S311 - no secret
        await context.unless_stopping(asyncio.sleep(pause_s), principal)


ROUTES: Final = (page("/changes", follow_changes),)
