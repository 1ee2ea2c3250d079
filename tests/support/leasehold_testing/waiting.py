"""Wait for actions that a real process does in its own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")


def until(condition: Callable[[], Found], within_s: float = 120.0) -> Found:
    """Ask again and again until the answer is true; return it.

    Raises:
        AssertionError: it was not true in time.
    """
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"not so within {within_s:g} s"
        time.sleep(0.1)  # between two looks
    return found
