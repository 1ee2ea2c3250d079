"""Python's garbage collector, set for a process with a large state that must not pause."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Net allocations per young collection, young ones per middle one, middle ones per full one.
#: A full one takes tenths of a second with ten thousand jobs, and nearly everything dies without
#: it: cycles are rare.
THRESHOLDS = 50_000, 10, 100


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
