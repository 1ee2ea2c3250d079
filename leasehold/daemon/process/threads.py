"""How the event loop and the other threads share the interpreter."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Longest time that a computing thread delays the loop. The loop releases the interpreter lock at
#: each poll for input, hundreds of times a second. Python's default would cost 5 ms each time while
#: a commit is prepared.
SWITCH_S = 0.0005


@contextlib.contextmanager
def quick_switches() -> Iterator[None]:
    """Shorten the interpreter's switch interval."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
