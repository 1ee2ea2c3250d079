"""One-time codes that begin a session in a browser, so that no token is ever in an address."""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds for which a code is valid.
VALID_S: Final = 60.0
#: Codes at a time; the oldest one is dropped.
MOST: Final = 1000


class SignInCodes:
    """Codes of this process, each valid once and for a minute.

    Args:
        monotonic: seconds on a clock that never runs backwards.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: code -> (the token that it stands for, when it ends); the oldest first.
        self._made: dict[str, tuple[str, float]] = {}

    def make(self, secret: str) -> str:
        """Return a code for a token."""
        code = secrets.token_urlsafe(32)
        self._made[code] = secret, self._monotonic() + VALID_S
        if len(self._made) > MOST:
            del self._made[next(iter(self._made))]
        return code

    def take(self, code: str) -> str:
        """Return the token of a code, which is used up then; empty if it is not valid."""
        found = ""
        for known, (secret, ends_s) in tuple(self._made.items()):
            is_meant = hmac.compare_digest(known.encode(), code.encode(errors="replace"))
            if ends_s <= self._monotonic() or is_meant:
                del self._made[known]
                found = secret if is_meant and ends_s > self._monotonic() else found
        return found
