"""Options of the form ``KEY=VALUE``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_pairs(items: Iterable[str], *, option: str) -> dict[str, str]:
    """Turn ``KEY=VALUE`` items into a mapping.

    Raises:
        InputError: an item has no ``=`` or no key, or a key comes twice.
    """
    found: dict[str, str] = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise InputError(f"{option} is '{item}'; give KEY=VALUE")
        if key in found:
            raise InputError(f"{option} '{key}' is given twice; give it once")
        found[key.strip()] = value
    return found


def parse_figures(items: Iterable[str], *, option: str) -> dict[str, float]:
    """Turn ``KEY=NUMBER`` items, or several in one joined by commas, into a mapping.

    Raises:
        InputError: an item is no such pair.
    """
    pieces = [piece for item in items for piece in item.split(",") if piece]
    found: dict[str, float] = {}
    for key, value in parse_pairs(pieces, option=option).items():
        try:
            found[key] = float(value)
        except ValueError:
            raise InputError(f"{option} '{key}' is '{value}'; give a number") from None
    return found


def parse_workers(items: Iterable[str], *, option: str) -> dict[str, int]:
    """Turn ``TYPE:COUNT`` items, or several in one joined by commas, into a mapping.

    Raises:
        InputError: an item is no such pair, or names a type a second time.
    """
    found: dict[str, int] = {}
    for item in split_list(items, option=option):
        worker_type, colon, count = item.rpartition(":")
        if not colon or not worker_type or not count.isdecimal():
            raise InputError(f"{option} is '{item}'; give TYPE:COUNT, such as v100:4")
        if worker_type in found:
            raise InputError(f"{option} names '{worker_type}' twice; name it once")
        found[worker_type] = int(count[:10])
    return found


def split_list(items: Iterable[str], *, option: str) -> list[str]:
    """Return the parts of a repeatable option whose values may hold commas.

    Raises:
        InputError: a part is empty.
    """
    found: list[str] = []
    for item in items:
        parts = [part.strip() for part in item.split(",")]
        if not all(parts):
            raise InputError(
                f"{option} is '{item}', with an empty part; give A or A,B, or leave it out"
            )
        found += parts
    return found
