"""Files with one secret, which the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from pathlib import Path

#: Shortest token that a user may give; the daemon's own have 46 characters.
SHORTEST: Final = 32


def read_secret(path: Path, what: str) -> str:
    """Return the only word in a file.

    Raises:
        InputError: the file cannot be read, or holds nothing or more than one word.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the {what} file {path} cannot be read: {why_unreadable(error)}"
        ) from error
    if not text or len(text.split()) > 1 or not text.isascii():
        raise InputError(f"the {what} file {path} must hold one {what} and nothing else")
    return text


def read_given_token(path: Path) -> str:
    """Return the administrator's token that a user has put into a file.

    Raises:
        InputError: the file cannot be read, or the token in it is too short to be safe.
    """
    secret = read_secret(path, "token")
    if len(secret) < SHORTEST:
        raise InputError(
            f"the token in {path} has {len(secret)} characters; give at least {SHORTEST} random "
            "ones, as `openssl rand -hex 32` prints"
        )
    return secret
