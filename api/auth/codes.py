"""One-time codes that begin a session in a browser, so that no token is ever in an address."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds for which a code is valid.
VALID_S: Final = 60.0
#: Codes at a time; the oldest one is dropped.
MOST: Final = 1000


class SignInCodes:
    """Codes of this process, each valid once and for a minute; a token has one at a time.

    Args:
        monotonic: seconds on a clock that never runs backwards.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: code -> (the token that it stands for, when it ends); the oldest first.
        self._made: dict[str, tuple[str, float]] = {}

    def make(self, secret: str) -> str:
        """Return a code for a token; an earlier one is not valid any more."""
        code = secrets.token_urlsafe(32)
        self._made = {c: made for c, made in self._made.items() if made[0] != secret}
        self._made[code] = secret, self._monotonic() + VALID_S
        if len(self._made) > MOST:
            del self._made[next(iter(self._made))]
        return code

    def token(self, code: str) -> str:
        """Return the token of a code; empty if the code is not valid."""
        secret, ends_s = self._made.get(code, ("", 0.0))
        return secret if ends_s > self._monotonic() else ""

    def take(self, code: str) -> str:
        """Return the token of a code, which is used up then; empty if it is not valid."""
        secret = self.token(code)
        self._made.pop(code, None)
        return secret
