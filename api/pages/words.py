"""The page that explains the words and figures of the other views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api.pages.rendering import render
from api.pages.routing import page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal


async def show_words(request: Request, principal: Principal) -> Response:  # noqa: ARG001 - of a view
    """Show the words."""
    return render(request, "words.html", view="", follows=False)


ROUTES: Final = (page("/words", show_words),)
