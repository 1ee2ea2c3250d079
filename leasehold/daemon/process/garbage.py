"""Python's garbage collector, set for a process with a large state that must not pause."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Net allocations per young collection, young ones per middle one, middle ones per full one.
#: With ten thousand jobs a young one takes milliseconds, a middle one tens of them, and a full one
#: tenths of a second. Nearly all objects are freed without any, since cycles are rare.
THRESHOLDS = 10_000, 10, 500


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely, and exclude the objects that exist now from collection."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
