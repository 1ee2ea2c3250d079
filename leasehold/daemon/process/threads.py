"""How the event loop and the threads beside it share the interpreter."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How long a thread that computes keeps the loop waiting. The loop lets go of the interpreter
#: whenever it looks for input, hundreds of times a second; Python's 5 ms would be lost each time
#: while a commit is being prepared.
SWITCH_S = 0.0005


@contextlib.contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
