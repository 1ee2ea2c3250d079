"""Python's garbage collector, set for a process with a large state that must not pause."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Net allocations per young collection, young ones per middle one, middle ones per full one.
#: A young one takes milliseconds, a middle one tens of them, and a full one tenths of a second with
#: ten thousand jobs; nearly everything dies without any of them, since cycles are rare.
THRESHOLDS = 10_000, 10, 500


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collect seldom, and never look again at what is there now."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
