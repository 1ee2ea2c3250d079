"""The query of a view's URL: read without ever failing, and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from api.problems import field_problems

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from starlette.datastructures import QueryParams

#: Notes that a view shows.
_MOST_NOTES = 5
#: Characters of a value that a note quotes.
_QUOTED = 60


def read_values(
    query: QueryParams,
    kinds: Mapping[str, TypeAdapter[Any]],
    *,
    most: Mapping[str, int],
    others: Collection[str],
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the values of each name, and notes on values that were left out.

    Args:
        query: of the URL.
        kinds: name -> the form of its values.
        most: name -> how many values it may have; 1 if it is missing.
        others: further names that the view reads.
    """
    strangers = [name for name in query if name not in kinds and name not in others]
    notes = [f"'{name[:_QUOTED]}': this view has no such filter" for name in strangers]
    found: dict[str, tuple[str, ...]] = {}
    for name, kind in kinds.items():
        good: list[str] = []
        for text in dict.fromkeys(part for part in query.getlist(name) if part):
            if len(good) == most.get(name, 1):
                notes.append(f"{name} '{text[:_QUOTED]}': one value too many")
                break
            try:
                good.append(str(kind.validate_python(text.strip())))
            except ValidationError as error:
                notes.append(
                    f"{name} '{text[:_QUOTED]}': {field_problems(error.errors())[0].problem}"
                )
        found[name] = tuple(good)
    return found, notes[:_MOST_NOTES]


def write_query(parts: Mapping[str, str | Iterable[str]]) -> str:
    """Return the query of a relative URL; empty values are left out."""
    given = [
        (name, value)
        for name, values in parts.items()
        for value in ([values] if isinstance(values, str) else values)
        if value
    ]
    return f"?{urlencode(given)}"
