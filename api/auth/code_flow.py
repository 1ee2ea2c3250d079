"""Sign-ins at an identity provider that have begun: the authorization code flow with PKCE.

Sources: OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

#: How long a person may take at the provider.
LASTS_S: Final = 600
#: Longest word of the provider that a page shows.
SHOWN: Final = 200
#: Longest page to go on with; browsers drop cookies of more than 4,096 characters.
_LONGEST_PAGE: Final = 3000


class SignInError(Exception):
    """A sign-in at the provider does not succeed; the text says why.

    Args:
        words: why.
        status: of the page that says so.
    """

    def __init__(self, words: str, *, status: int = 401) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunSignIn:
    """One sign-in, as the browser keeps it meanwhile.

    Attributes:
        state: ties the provider's answer to this browser.
        verifier: proves that the exchange is of the one that began.
        nonce: ties the token to this sign-in.
        wanted: the page to go on with.
    """

    state: str
    verifier: str
    nonce: str
    wanted: str = ""

    @classmethod
    def begin(cls, wanted: str) -> BegunSignIn:
        """Return a new one."""
        state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state=state, verifier=verifier, nonce=nonce, wanted=wanted)

    @classmethod
    def read(cls, text: str) -> BegunSignIn | None:
        """Return the one that a cookie holds; None if it holds none."""
        parts = text.split(".")
        if len(parts) != 4 or not all(len(part) == 43 for part in parts[:3]):
            return None
        state, verifier, nonce, wanted = parts
        return cls(state=state, verifier=verifier, nonce=nonce, wanted=unquote(wanted))

    def written(self) -> str:
        """Return what the cookie holds; without the page to go on with if that is too long."""
        wanted = quote(self.wanted, safe="").replace(".", "%2E")
        wanted = wanted if len(wanted) <= _LONGEST_PAGE else ""
        return f"{self.state}.{self.verifier}.{self.nonce}.{wanted}"

    def is_answered_by(self, state: str) -> bool:
        """Return whether an answer of the provider belongs to it."""
        return hmac.compare_digest(self.state.encode(), state.encode(errors="replace"))

    @property
    def challenge(self) -> str:
        """The hash of the verifier, which the provider keeps until the exchange."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def refused(error: str, description: str) -> SignInError:
    """Return what a page says of an error that the provider sends back."""
    words = description if description.isprintable() and description else error
    shown = words[:SHOWN] if words.isprintable() else "it gives no reason"
    return SignInError(f"The identity provider does not sign you in: {shown.rstrip('.')}.")
