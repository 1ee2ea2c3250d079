"""Options of the form ``KEY=VALUE``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.protocol.bounds import MOST_WORKERS

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
        key = key.strip()
        if key in found:
            raise InputError(f"{option} '{key}' is given twice; give it once")
        found[key] = value
    return found


def parse_figures(items: Iterable[str], *, option: str) -> dict[str, float]:
    """Turn ``KEY=NUMBER`` items, or several in one joined by commas, into a mapping.

    Raises:
        InputError: an item is not such a pair.
    """
    pieces = [piece for item in items for piece in item.split(",") if piece]
    found: dict[str, float] = {}
    for key, value in parse_pairs(pieces, option=option).items():
        try:
            found[key] = parse_number(value)
        except ValueError:
            raise InputError(f"{option} '{key}' is '{value}'; give a finite number") from None
    return found


def parse_workers(items: Iterable[str], *, option: str) -> dict[str, int]:
    """Turn ``TYPE:COUNT`` items, or several in one joined by commas, into a mapping.

    Raises:
        InputError: an item is not such a pair, or names a type a second time.
    """
    found: dict[str, int] = {}
    for item in split_list(items, option=option):
        worker_type, colon, count = item.rpartition(":")
        if not colon or not worker_type or not 0 < _whole(count) <= MOST_WORKERS:
            raise InputError(
                f"{option} is '{item}'; give TYPE:COUNT, such as v100:4, with 1 to "
                f"{MOST_WORKERS} workers"
            )
        if worker_type in found:
            raise InputError(f"{option} names '{worker_type}' twice; name it once")
        found[worker_type] = _whole(count)
    return found


def parse_number(text: str) -> float:
    """Return a number.

    Raises:
        ValueError: the text is not a number, or not finite.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _whole(text: str) -> int:
    """Return a count of few digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def split_list(items: Iterable[str], *, option: str) -> list[str]:
    """Return the parts of a repeatable option with values that may hold commas.

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
