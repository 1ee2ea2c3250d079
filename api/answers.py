"""Answers as JSON by orjson: plain values, and the frozen values of the service."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import orjson
from starlette.responses import Response

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
#: Longest text of a value that an error quotes.
SHOWN = 200


class Answer(Response):
    """A JSON answer.

    Frozen dataclasses, enumerations, mappings and tuples may be anywhere in it.
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return dump_json(content)


def dump_json(value: object) -> bytes:
    """Return a value as JSON."""
    return orjson.dumps(value, default=_plain, option=_OPTIONS)


def short_json(value: object) -> object:
    """Return a short form of a value that is valid JSON, for an error."""
    try:
        text = dump_json(value)
    except (TypeError, ValueError):
        return ascii(value)[:SHOWN]
    if len(text) > SHOWN:
        return text[:SHOWN].decode(errors="ignore") + "..."
    return orjson.loads(text)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
