"""The same question for the command line, and for programs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from api.pages.queries import write_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def as_command(*words: str) -> str:
    """Return a call of the command line, quoted for a shell."""
    return shlex.join(("leasehold", *words))


def as_curl(path: str, query: Mapping[str, str | Iterable[str]]) -> str:
    """Return a call of the REST interface, for a shell with the two variables of the client.

    Args:
        path: below ``/v1/``, quoted for a URL.
        query: names and values; empty values are left out.
    """
    url = f"$LEASEHOLD_SERVER/v1/{path}{write_query(query).removesuffix('?')}"
    return f'curl -H "Authorization: Bearer $LEASEHOLD_TOKEN" "{url}"'


def options(given: Mapping[str, str | Iterable[str]]) -> list[str]:
    """Return options with their values, ``--name value`` once for each value."""
    return [
        word
        for name, values in given.items()
        for value in ([values] if isinstance(values, str) else values)
        if value
        for word in (f"--{name}", value)
    ]
