"""Paths of requests: names in them cannot change the path.

A name that is empty, ``.``, ``..`` or holds a slash would change the path, so it is refused before
anything is sent. No scheduler has such names.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from leasehold.client.errors import UnsendableError


class Named(NamedTuple):
    """A part of a path that a caller gives.

    Attributes:
        field: kind of the name, for messages: ``node``.
        value: the name.
    """

    field: str
    value: Any


def path_of(*parts: str | Named) -> str:
    """Return the path with these parts, as in ``/nodes/NAME/workers``.

    Args:
        parts: texts are used unchanged; ``Named`` ones are checked and quoted.

    Raises:
        UnsendableError: a name is unusable; the message names field and value.
    """
    return "".join(f"/{part if isinstance(part, str) else _quoted(part)}" for part in parts)


def _quoted(part: Named) -> str:
    field, value = part
    if isinstance(value, str) and value and value not in {".", ".."} and "/" not in value:
        try:
            return quote(value, safe="")
        except UnicodeError:
            raise UnsendableError(f"the {field} is {value!r}, which is no Unicode") from None
    if value == "":
        raise UnsendableError(f"the {field} is ''; give its name")
    shown = f"'{value}'" if isinstance(value, str) else repr(value)
    raise UnsendableError(f"the {field} is {shown}; no {field} has such a name")
